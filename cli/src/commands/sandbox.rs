//! `mooring sandbox`: a sandbox on this machine for the harness of another one.

use std::path::Path;
use std::process::ExitCode;

use mooring_sandbox::{CODE_LIFE, DevOptions, Entered, Listen, Pairing, Unisolated};
use mooring_wire::pairing::{Code, Desk};

use super::say;
use crate::args::{PlaceCommand, ServeArgs};
use crate::cards::grade;
use crate::error::Error;
use crate::exit::Exit;
use crate::project::{Found, StateHome};
use crate::text::one_line;
use crate::{processes, setup};

/// Runs one of them. `serve` makes namespaces, so no thread may run yet.
pub fn run(project: Option<&Path>, command: PlaceCommand) -> ExitCode {
    let done = match command {
        PlaceCommand::Serve(args) => serve(project, args),
        PlaceCommand::Pair { new } => pair(project, new),
        PlaceCommand::Forget { address: None } => forget_harness(project),
        PlaceCommand::Forget {
            address: Some(address),
        } => forget_sandbox(project, &address),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mooring: {error}");
            ExitCode::from(Exit::from(&error).code())
        }
    }
}

fn states() -> Result<StateHome, Error> {
    StateHome::from_env(|name| std::env::var_os(name))
}

/// Serves until it is ended.
fn serve(project: Option<&Path>, args: ServeArgs) -> Result<(), Error> {
    mooring_sandbox::log_to_stderr();
    let project = setup::project(project)?;
    let state = states()?.served(&project)?;
    let options = processes::sandbox_options(
        project.root,
        state,
        Listen::Paired(args.listen),
        args.commands,
        |name| std::env::var_os(name),
    )
    .map_err(Error::Usage)?;
    let entered = mooring_sandbox::enter(DevOptions {
        unisolated: match args.allow_unisolated {
            true => Unisolated::Allowed,
            false => Unisolated::Refused,
        },
        ..options
    })?;
    announce(&entered)?;
    let runtime = mooring_sandbox::runtime()?;
    Ok(runtime.block_on(mooring_sandbox::serve(entered))?)
}

fn announce(entered: &Entered) -> Result<(), Error> {
    let Some((address, pairing)) = entered.pairing() else {
        return Ok(());
    };
    let missing = match entered.missing() {
        [] => String::new(),
        missing => format!("; missing: {}", one_line(&missing.join(", "), 300)),
    };
    say(fact("project", entered.project().display()))?;
    say(fact(
        "commands",
        format!("{}{missing}", grade(entered.grade().as_str())),
    ))?;
    say(fact("listening", address))?;
    say(fact("fingerprint", pairing.certificate().fingerprint()))?;
    match pairing.paired() {
        Some(harness) => say(fact(
            "paired",
            format!("with harness {harness}; no code is needed"),
        )),
        None => {
            show(&pairing.new_code()?)?;
            say(format!(
                "on the other machine:  mooring dev --sandbox HOST:{}",
                address.port()
            ))
        }
    }
}

fn fact(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name:<12}  {value}")
}

fn show(code: &Code) -> Result<(), Error> {
    let minutes = CODE_LIFE.as_secs() / 60;
    say(fact(
        "code",
        format!("{}  (once, within {minutes} minutes)", code.reveal()),
    ))
}

/// The pairing of the sandbox that serves the project here.
fn pairing(project: Option<&Path>) -> Result<Pairing, Error> {
    let project = setup::project(project)?;
    Ok(Pairing::open(&states()?.served(&project)?)?)
}

fn pair(project: Option<&Path>, new: bool) -> Result<(), Error> {
    let pairing = pairing(project)?;
    say(fact("fingerprint", pairing.certificate().fingerprint()))?;
    say(fact(
        "paired",
        match pairing.paired() {
            Some(harness) => format!("with harness {harness}"),
            None => "with none; --new makes a code".into(),
        },
    ))?;
    match new {
        true => show(&pairing.new_code()?),
        false => Ok(()),
    }
}

fn forget_harness(project: Option<&Path>) -> Result<(), Error> {
    let pairing = pairing(project)?;
    let known = pairing.paired();
    pairing.forget()?;
    say(match known {
        Some(harness) => format!("harness {harness} may call no more"),
        None => "it was paired with none".into(),
    })
}

fn forget_sandbox(project: Option<&Path>, address: &str) -> Result<(), Error> {
    let project = setup::project(project)?;
    let states = states()?;
    let state = match states.find(&project)? {
        Found::State(state) => state,
        Found::Moved(moved) => moved.state,
    };
    let remote = state.remote(address)?;
    let known = remote.forget()?;
    say(match known {
        true => format!("the pairing with {address} is forgotten"),
        false => format!("this project was not paired with {address}"),
    })?;
    // What was meant for that machine must not begin to run on this one.
    if state.sandbox_in_use().as_deref() == Some(address) {
        say(
            "the project's commands still belong there and wait: pair again \
             (--sandbox with --pairing-code), name another place with --sandbox HOST:PORT, or \
             --sandbox local for this machine",
        )?;
    }
    Ok(())
}
