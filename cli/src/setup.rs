//! From the command line to a plan: which project, which state, which Workspace.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use mooring_harness::Remote;

use crate::args::StartArgs;
use crate::connection::{self, Connection};
use crate::error::Error;
use crate::pairing;
use crate::processes::Plan;
use crate::project::{Found, Moved, Project, State, StateHome};
use crate::text::one_line;

/// The project that the command is about.
pub fn project(folder: Option<&Path>) -> Result<Project, Error> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match folder {
        Some(folder) => Project::find(folder, home.as_deref()),
        None => Project::find(&std::env::current_dir()?, home.as_deref()),
    }
}

/// The database of the project, where it has one.
pub fn database(folder: Option<&Path>) -> Result<PathBuf, Error> {
    let states = StateHome::from_env(|name| std::env::var_os(name))?;
    match states.find(&project(folder)?)? {
        Found::State(state) => Ok(state.database()),
        Found::Moved(moved) => Ok(moved.state.database()),
    }
}

/// The plan of a command that may start the harness.
pub async fn plan(
    folder: Option<&Path>,
    workspace: Option<&Path>,
    start: &StartArgs,
) -> Result<Plan, Error> {
    let project = project(folder)?;
    let states = StateHome::from_env(|name| std::env::var_os(name))?;
    let state = match states.find(&project)? {
        Found::State(state) => state,
        Found::Moved(moved) => match adoption(&project, &moved, start)? {
            Adoption::Adopt => adopt(&states, &project, &moved).await?,
            Adoption::Fresh => states.open(&project)?,
        },
    };
    let workspace = workspace.map(canonical).transpose()?;
    let sandbox = sandbox(&state, start).await?;
    let allow_unisolated = start.allow_unisolated || unisolated_mark(&state).exists();
    Ok(Plan {
        project,
        state,
        workspace,
        allow_unisolated,
        sandbox,
        sandbox_named: start.sandbox.is_some(),
        cluster: None,
    })
}

/// The sandbox on another machine that is named or in use; one that is named is
/// paired where it is not.
async fn sandbox(state: &State, start: &StartArgs) -> Result<Option<Remote>, Error> {
    match (&start.sandbox, state.sandbox_in_use()) {
        (Some(place), _) if place == "local" => Ok(None),
        (Some(address), _) => {
            let remote = state.remote(address)?;
            pairing::agree(&remote, start.pairing_code.as_deref()).await?;
            Ok(Some(remote))
        }
        (None, Some(address)) => state.remote(&address).map(Some),
        (None, None) => Ok(None),
    }
}

/// A connection for a command that is about what was said and done: the harness
/// is started where it has ended, and nothing is begun where nothing was said.
pub async fn records(folder: Option<&Path>) -> Result<Connection, Error> {
    let plan = running_plan(folder).await?;
    if !plan.state.database().exists() {
        return Err(Error::NothingSaid {
            project: plan.project.root,
        });
    }
    Connection::open(plan).await
}

/// The plan of a command that only speaks to a harness that runs.
pub async fn running_plan(folder: Option<&Path>) -> Result<Plan, Error> {
    plan(folder, None, &StartArgs::default()).await
}

fn canonical(path: &Path) -> Result<PathBuf, Error> {
    std::fs::canonicalize(path).map_err(|error| Error::Path {
        path: path.to_owned(),
        why: error.to_string(),
    })
}

enum Adoption {
    Adopt,
    Fresh,
}

fn adoption(project: &Project, moved: &Moved, start: &StartArgs) -> Result<Adoption, Error> {
    if start.adopt {
        return Ok(Adoption::Adopt);
    }
    if start.fresh {
        return Ok(Adoption::Fresh);
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(Error::Moved {
            old: moved.old.clone(),
        });
    }
    let question = format!(
        "{} was at {} before. Take its conversations along?",
        project.root.display(),
        moved.old.display()
    );
    Ok(if ask(&question)? {
        Adoption::Adopt
    } else {
        Adoption::Fresh
    })
}

async fn adopt(states: &StateHome, project: &Project, moved: &Moved) -> Result<State, Error> {
    // Its harness still serves under the old path, where nothing is any more.
    let old = Plan {
        project: project.clone(),
        state: moved.state.clone(),
        workspace: None,
        allow_unisolated: false,
        sandbox: None,
        sandbox_named: false,
        cluster: None,
    };
    connection::stop(&old).await?;
    states.adopt(project, moved)
}

/// There once a person has agreed to commands without isolation here.
pub fn unisolated_mark(state: &State) -> PathBuf {
    state.folder.join("allow-unisolated")
}

/// Keys that would be sent to servers which the Workspace names: those that
/// `--allow-key` names are agreed to, the others are asked about where somebody
/// can answer, and refused where not.
pub async fn agree_to_keys(
    connection: &mut Connection,
    start: &StartArgs,
    asks: Asks,
) -> Result<(), Error> {
    let mut agreed = Vec::new();
    for to in connection.held_back.clone() {
        let question = format!(
            "The Workspace asks to send the key in {} to {}, which is not the provider's own \
             server. Send it there?",
            one_line(&to.variable, 100),
            one_line(&to.endpoint, 200)
        );
        if start.allow_key.contains(&to.name()) {
            agreed.push(to);
        } else if asks == Asks::Never {
            return Err(Error::KeyHeldBack {
                variable: one_line(&to.variable, 100),
                endpoint: one_line(&to.endpoint, 200),
            });
        } else if ask_for(&question, Enter::No)? {
            agreed.push(to);
        }
    }
    if agreed.is_empty() {
        return Ok(());
    }
    connection.agree_to(&agreed).await
}

/// Whether there is somebody who can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// At a terminal.
    Person,
    /// Nobody is asked.
    Never,
}

/// What an empty answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enter {
    Yes,
    No,
}

/// Asks a question at the terminal; an empty answer is yes.
pub fn ask(question: &str) -> Result<bool, Error> {
    ask_for(question, Enter::Yes)
}

/// Asks a question at the terminal; an empty answer is no.
pub fn ask_first(question: &str) -> Result<bool, Error> {
    ask_for(question, Enter::No)
}

fn ask_for(question: &str, enter: Enter) -> Result<bool, Error> {
    let mut err = std::io::stderr();
    let choice = match enter {
        Enter::Yes => "[Y/n]",
        Enter::No => "[y/N]",
    };
    write!(err, "{question} {choice} ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(is_yes(&answer) && (enter == Enter::Yes || !answer.trim().is_empty()))
}

fn is_yes(answer: &str) -> bool {
    // Without its line end the input was closed before there was an answer.
    answer.ends_with('\n')
        && matches!(
            answer.trim().to_ascii_lowercase().as_str(),
            "" | "y" | "yes"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_agreed_to_only_by_a_yes_or_enter() {
        for (answer, yes) in [
            ("\n", true),
            ("y\n", true),
            ("YES\n", true),
            ("n\n", false),
            ("nope\n", false),
            ("", false),
        ] {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }
}
