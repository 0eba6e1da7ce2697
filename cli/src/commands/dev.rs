//! `mooring dev`: talk to the agent in this terminal.

use std::io::IsTerminal;
use std::path::Path;

use mooring_crds::Provider;
use mooring_wire::harness::{ConfigureRequest, StatusResponse};

use super::{discord, last_conversation};
use crate::args::DevArgs;
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::setup::Asks;
use crate::style::{Line, Style};
use crate::text::one_line;
use crate::{cards, keys, setup, terminal};

/// What a missing key means here.
const WITHOUT_KEY: &str = "is not set: runs wait until `mooring dev` is started with it";

/// Talks until the person leaves.
pub async fn run(project: Option<&Path>, args: DevArgs) -> Result<Exit, Error> {
    let plan = setup::plan(project, args.workspace.as_deref(), &args.start).await?;
    let mut connection = Connection::open(plan).await?;
    connection.wait_for_sandbox().await?;
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    // A terminal that cannot move its cursor is spoken to in plain lines.
    let has_cursor = std::env::var("TERM").is_ok_and(|term| term != "dumb");
    if interactive {
        agree_to_unisolated(&mut connection).await?;
        agree_to_changes(&mut connection).await?;
        setup::agree_to_keys(&mut connection, &args.start, Asks::Person).await?;
    } else {
        setup::agree_to_keys(&mut connection, &args.start, Asks::Never).await?;
    }
    if args.discord.discord {
        for line in notices(&connection.status, 0, WITHOUT_KEY) {
            super::say(line.text())?;
        }
        return discord::run(connection, args.discord).await;
    }
    let conversation = conversation(&connection, args.resume, args.new).await?;
    let name = connection.plan().project.name();
    let banner = cards::banner(&connection.status, &name, is_rehearsal(&connection));
    let mut greeting = vec![banner];
    greeting.extend(notices(&connection.status, conversation, WITHOUT_KEY));
    if interactive && has_cursor {
        terminal::talk_at_keyboard(connection, conversation, greeting).await
    } else {
        terminal::talk_in_lines(connection, conversation, greeting).await
    }
}

/// What keeps the agent from work, and where the talk goes on.
pub fn notices(status: &StatusResponse, conversation: i64, without_key: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    if !status.missing_keys.is_empty() {
        let keys = keys::labels(&status.missing_keys);
        let text = format!("{keys} {without_key}");
        lines.push(Line::new(Style::Notice, text));
    }
    if conversation != 0 {
        let text = format!("(going on with conversation {conversation}; /new begins another)");
        lines.push(Line::new(Style::Dim, text));
    }
    lines
}

/// Where to go on: as was asked, else in the last conversation where it is not
/// finished, else in a new one.
pub async fn conversation(
    connection: &Connection,
    resume: Option<Option<i64>>,
    new: bool,
) -> Result<i64, Error> {
    let last = match resume {
        Some(Some(id)) => return Ok(id),
        _ if new => return Ok(0),
        _ => last_conversation(connection).await?,
    };
    Ok(match last {
        Some(last) if resume.is_some() || is_unfinished(&last.state, last.queued) => last.id,
        _ => 0,
    })
}

fn is_unfinished(state: &str, queued: u32) -> bool {
    queued > 0 || !matches!(state, "" | "idle" | "done")
}

/// Whether the model is the built-in rehearsal.
fn is_rehearsal(connection: &Connection) -> bool {
    match connection.running_workspace() {
        Some(workspace) => workspace
            .spec
            .models
            .first()
            .is_some_and(|model| model.provider == Provider::Rehearsal),
        None => connection.status.model == "rehearsal",
    }
}

/// Where nothing can hold the commands: asks once per project.
async fn agree_to_unisolated(connection: &mut Connection) -> Result<(), Error> {
    if !connection.is_unisolated_refused() || connection.plan().allow_unisolated {
        return Ok(());
    }
    let missing = connection
        .status
        .sandbox
        .as_ref()
        .map(|sandbox| sandbox.missing.join(", "));
    let question = format!(
        "No sandbox can be made here (missing: {}): commands would run with all your rights. \
         Run them all the same, each after you approve it?",
        one_line(&missing.unwrap_or_default(), 300)
    );
    if setup::ask(&question)? {
        std::fs::write(setup::unisolated_mark(&connection.plan().state), "")?;
        connection.restart_unisolated().await?;
    }
    Ok(())
}

/// A changed Workspace file that permits more waits for a yes.
async fn agree_to_changes(connection: &mut Connection) -> Result<(), Error> {
    if connection.status.pending_workspace.is_empty() {
        return Ok(());
    }
    let changes: Vec<String> = connection
        .status
        .pending_changes
        .iter()
        .map(|change| format!("  {}\n", one_line(change, 200)))
        .collect();
    let question = format!(
        "The Workspace file has changed and would permit more:\n{}Use it?",
        changes.concat()
    );
    if setup::ask(&question)? {
        let request = ConfigureRequest {
            accept_workspace: connection.status.pending_workspace.clone(),
            ..ConfigureRequest::default()
        };
        connection
            .call(move |mut client| {
                let request = request.clone();
                async move { client.configure(request).await }
            })
            .await?;
        connection.refresh_status().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unfinished_conversation_is_gone_on_with_by_itself() {
        for (state, queued, unfinished) in [
            ("idle", 0, false),
            ("", 0, false),
            ("done", 0, false),
            ("idle", 1, true),
            ("waiting", 0, true),
            ("tools", 0, true),
        ] {
            assert_eq!(is_unfinished(state, queued), unfinished, "{state} {queued}");
        }
    }
}
