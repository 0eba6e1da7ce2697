//! `mooring demo`: shows that nothing is lost, and nothing done twice, when a harness dies.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::DemoArgs;
use crate::demo::{Stage, Teller, play};
use crate::error::Error;
use crate::exit::Exit;
use crate::format::count;
use crate::style::Style;

/// Plays it, checks it, and leaves nothing behind.
pub async fn run(args: DemoArgs) -> Result<Exit, Error> {
    // Before there is anything that a signal would leave behind.
    let mut signals = Signals::new()?;
    let tell = Teller::new();
    let stage = Stage::set()?;
    let played = tokio::select! {
        played = show(&stage, &tell) => played,
        () = signals.any() => Ok(Exit::Interrupted),
    };
    let ended = stage.end().await;
    let removed = match args.keep {
        true => Ok(()),
        false => stage.remove(),
    };
    let exit = played?;
    ended.and(removed)?;
    let left = match (args.keep, exit) {
        (true, _) => stage.way_in(),
        (false, Exit::Interrupted) => "Interrupted: all is ended and removed.".to_owned(),
        (false, _) => "Harness, sandbox and folder are gone; --keep keeps the folder.".to_owned(),
    };
    tell.prose(Style::Dim, &left).await?;
    Ok(exit)
}

/// Plays it, and says what was checked.
async fn show(stage: &Stage, tell: &Teller) -> Result<Exit, Error> {
    let checks = play(stage, tell).await?;
    tell.prose(
        Style::Bold,
        "\nWhat was checked, in the database and in the files that the searches wrote:",
    )
    .await?;
    for check in &checks {
        tell.check(check).await?;
    }
    let wrong = checks.iter().filter(|check| !check.holds).count();
    let all = count(checks.len() as u64, "check");
    let (style, text, exit) = match wrong {
        0 => (
            Style::Good,
            format!("\n{all}, all as they should be."),
            Exit::Done,
        ),
        _ => (
            Style::Bad,
            format!("\n{wrong} of {all} went wrong: this must not be. Please report it."),
            Exit::Failed,
        ),
    };
    tell.prose(style, &text).await?;
    Ok(exit)
}

/// The signals that ask for the end.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> Result<Signals, Error> {
        Ok(Signals([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
