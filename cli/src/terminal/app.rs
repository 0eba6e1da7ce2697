//! The terminal in raw mode: what ties keys, screen, session and harness together.

use std::collections::VecDeque;
use std::time::Duration;

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::execute;
use mooring_wire::harness::WatchFrame;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::act::{self, Act, Done};
use super::history::History;
use super::keys::{Key, key};
use super::screen::Screen;
use super::session::{Session, Want};
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::format::now_ms;
use crate::style::{Line, Style};
use crate::view::Event;
use crate::watching::{Watch, Watched, lost};

/// Between two paints while something is going on.
const TICK: Duration = Duration::from_millis(250);
/// Between two looks at whether the Workspace file has changed.
const LOOK: Duration = Duration::from_secs(3);

/// Frames that are held while a new conversation's number is not known.
const HELD: usize = 256;

/// Talks until the person leaves.
pub async fn talk(
    connection: Connection,
    conversation: i64,
    greeting: Vec<Line>,
) -> Result<Exit, Error> {
    let raw = Raw::enter()?;
    let (width, height) = crossterm::terminal::size()?;
    let (history, inputs) = History::load(&connection.plan().state.history());
    let (done_send, done) = mpsc::channel(16);
    let mut app = App {
        session: Session::new(conversation, inputs, width, height),
        screen: Screen::new(std::io::stdout(), super::stdout().colours),
        watch: Watch::new(connection.clone(), conversation),
        connection,
        history,
        done: done_send,
        workspace_told: String::new(),
        held: Vec::new(),
        sending: false,
        behind: VecDeque::new(),
    };
    app.session.attached = app.connection.is_attached();
    for line in greeting {
        app.session.say(line);
    }
    let result = app.run(keys(), done).await;
    let scrolled = app.session.take_scrolled();
    app.screen.close(&scrolled)?;
    drop(raw);
    let going_on = app.session.view.is_busy();
    result?;
    if going_on {
        println!("The run goes on; `mooring dev` comes back to it.");
    }
    Ok(Exit::Done)
}

struct App {
    session: Session,
    screen: Screen<std::io::Stdout>,
    watch: Watch,
    connection: Connection,
    history: History,
    done: mpsc::Sender<Finished>,
    /// What was told of a changed Workspace file.
    workspace_told: String,
    /// Frames that came before a new conversation's number was known.
    held: Vec<WatchFrame>,
    /// Whether an input is on its way: one at a time, so that their order stays.
    sending: bool,
    /// Inputs that wait behind it.
    behind: VecDeque<Act>,
}

/// What came of an act.
struct Finished {
    /// Of an input, the conversation that it was for; 0: it begins one.
    input: Option<i64>,
    result: Result<Done, Error>,
}

impl App {
    async fn run(
        &mut self,
        mut keys: mpsc::Receiver<Key>,
        mut done: mpsc::Receiver<Finished>,
    ) -> Result<(), Error> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        // The terminal has to be given back whatever ends the program.
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        loop {
            let scrolled = self.session.take_scrolled();
            let (live, cursor) = self.session.live(now_ms());
            self.screen.paint(&scrolled, live, cursor)?;
            tokio::select! {
                key = keys.recv() => {
                    let Some(key) = key else { return Ok(()) };
                    if !self.key(key).await? {
                        return Ok(());
                    }
                }
                watched = self.watch.next() => self.watched(watched)?,
                Some(done) = done.recv() => self.take(done),
                _ = tick.tick(), if self.session.is_animated() => {}
                _ = hangup.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                _ = look.tick() => self.act(Act::Look { known: self.workspace_told.clone() }),
            }
        }
    }

    /// Takes a key; `false` to leave.
    async fn key(&mut self, key: Key) -> Result<bool, Error> {
        if let Key::Resize { width, .. } = key {
            self.screen.resized(width.into());
        }
        for want in self.session.key(key, now_ms()) {
            match want {
                Want::Act(act) => {
                    if let Act::Submit { text, .. } = &act {
                        self.history.add(text);
                    }
                    self.act(act);
                }
                Want::Go(conversation) => {
                    match self.connection.check_conversation(conversation).await {
                        Ok(()) => {
                            self.session.go(conversation);
                            self.watch = Watch::new(self.connection.clone(), conversation);
                        }
                        // A mistyped id leaves people where they are.
                        Err(error) => self
                            .session
                            .say(Line::new(Style::Notice, error.to_string())),
                    }
                }
                Want::Redraw => self.screen.clear()?,
                Want::Leave => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Carries it out in the background; what comes of it comes back as
    /// [`Finished`].
    fn act(&mut self, act: Act) {
        let input = match &act {
            Act::Submit { conversation, .. } => Some(*conversation),
            _ => None,
        };
        if input.is_some() && self.sending {
            self.behind.push_back(act);
            return;
        }
        self.sending |= input.is_some();
        if input == Some(0) {
            // Only what comes from now on can be of the new conversation.
            self.held.clear();
        }
        let connection = self.connection.clone();
        let width = self.session.width();
        let done = self.done.clone();
        tokio::spawn(async move {
            let result = act::perform(&connection, act, width).await;
            // Nobody listens once the person has left.
            let _ = done.send(Finished { input, result }).await;
        });
    }

    fn take(&mut self, finished: Finished) {
        let conversation = match finished.result {
            Ok(done) => {
                done.lines
                    .into_iter()
                    .for_each(|line| self.session.say(line));
                if let Some(told) = done.workspace_told {
                    self.workspace_told = told;
                }
                if let Some((conversation, text)) = done.go {
                    self.session.go(conversation);
                    self.watch = Watch::new(self.connection.clone(), conversation);
                    if let Some(text) = text {
                        self.act(Act::Submit {
                            conversation,
                            text,
                            when: act::When::InTurn,
                        });
                    }
                }
                done.conversation
            }
            Err(error) => {
                act::error_lines(&error)
                    .into_iter()
                    .for_each(|line| self.session.say(line));
                None
            }
        };
        let Some(input) = finished.input else { return };
        self.sending = false;
        if let (0, Some(begun)) = (input, conversation) {
            // The person may have gone to another conversation meanwhile.
            if self.session.view.conversation == 0 {
                self.session.view.conversation = begun;
                self.watch.focus(begun);
                let held = std::mem::take(&mut self.held);
                held.into_iter().for_each(|frame| self.frame(frame));
            }
            for act in &mut self.behind {
                if let Act::Submit { conversation, .. } = act
                    && *conversation == 0
                {
                    *conversation = begun;
                }
            }
        }
        if let Some(next) = self.behind.pop_front() {
            self.act(next);
        }
    }

    fn watched(&mut self, watched: Option<Watched>) -> Result<(), Error> {
        match watched {
            Some(Watched::Frame(frame)) => {
                self.frame(*frame);
                Ok(())
            }
            Some(Watched::Lost { pause }) => {
                self.session.set_lost(Some(lost(pause)));
                Ok(())
            }
            Some(Watched::Begun | Watched::Back) => {
                self.session.set_lost(None);
                Ok(())
            }
            Some(Watched::Failed(error @ Error::Refused { .. })) => {
                // There is no such conversation, for instance.
                act::error_lines(&error)
                    .into_iter()
                    .for_each(|line| self.session.say(line));
                self.session.go(0);
                self.watch = Watch::new(self.connection.clone(), 0);
                Ok(())
            }
            Some(Watched::Failed(error)) => Err(error),
            None => Err(Error::Broken("the watch ended".into())),
        }
    }

    fn frame(&mut self, frame: WatchFrame) {
        if self.session.view.conversation == 0 {
            // It may be of the conversation that is just beginning.
            if self.held.len() < HELD {
                self.held.push(frame);
            }
            return;
        }
        let events = self.session.view.apply(frame);
        let ended = events
            .iter()
            .any(|event| matches!(event, Event::RunEnded(_)));
        self.session.events(events, now_ms());
        if ended && self.connection.is_outdated() {
            self.renew();
        }
    }

    /// The harness is of another version and idle now: starts this one's.
    fn renew(&mut self) {
        let mut connection = self.connection.clone();
        let done = self.done.clone();
        tokio::spawn(async move {
            let result = connection.reopen().await.map(|()| Done {
                lines: vec![Line::new(
                    Style::Dim,
                    "(the harness runs with this version now)",
                )],
                ..Done::default()
            });
            let _ = done
                .send(Finished {
                    input: None,
                    result,
                })
                .await;
        });
    }
}

/// Keys, read by a thread: a terminal cannot be read without waiting.
fn keys() -> mpsc::Receiver<Key> {
    let (send, receive) = mpsc::channel(256);
    std::thread::spawn(move || {
        while let Ok(event) = crossterm::event::read() {
            if let Some(key) = key(event)
                && send.blocking_send(key).is_err()
            {
                return;
            }
        }
    });
    receive
}

/// The terminal in raw mode, given back when this is dropped.
struct Raw;

impl Raw {
    fn enter() -> Result<Raw, Error> {
        crossterm::terminal::enable_raw_mode()?;
        execute!(std::io::stdout(), EnableBracketedPaste)?;
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            usual(info);
        }));
        Ok(Raw)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        leave();
    }
}

fn leave() {
    // The terminal may be gone; there is nobody to tell.
    let _ = execute!(std::io::stdout(), DisableBracketedPaste);
    let _ = crossterm::terminal::disable_raw_mode();
}
