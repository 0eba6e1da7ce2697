//! `mooring worktrees`: the checkouts that conversations have of their own.

use std::path::Path;

use mooring_wire::harness::WorktreesRequest;
use mooring_wire::harness::worktrees_response::Worktree;

use super::say;
use crate::args::{WorktreesArgs, WorktreesCommand};
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::text::one_line;
use crate::{format, setup};

/// Lists them, or removes one.
pub async fn run(project: Option<&Path>, args: WorktreesArgs) -> Result<Exit, Error> {
    let mut connection = setup::records(project).await?;
    connection.wait_for_sandbox().await?;
    match args.command {
        None => list(&connection).await,
        Some(WorktreesCommand::Remove { conversation }) => remove(&connection, conversation).await,
    }
}

async fn ask(connection: &Connection, request: WorktreesRequest) -> Result<Vec<Worktree>, Error> {
    let answer = connection
        .call(move |mut client| {
            let request = request.clone();
            async move { client.worktrees(request).await }
        })
        .await?;
    Ok(answer.worktrees)
}

async fn list(connection: &Connection) -> Result<Exit, Error> {
    let all = ask(connection, WorktreesRequest::default()).await?;
    if all.is_empty() {
        say(
            "no conversation has a worktree of its own (spec.repo.worktrees: PerThread gives them)",
        )?;
    }
    for worktree in all {
        say(format!(
            "{}{}  {}  {}{}",
            worktree.conversation,
            if worktree.deleted { " (deleted)" } else { "" },
            one_line(&worktree.branch, 100),
            one_line(&worktree.path, 300),
            match only_there(&worktree) {
                text if text.is_empty() => text,
                text => format!("  ({text})"),
            }
        ))?;
    }
    Ok(Exit::Done)
}

async fn remove(connection: &Connection, conversation: i64) -> Result<Exit, Error> {
    let request = WorktreesRequest {
        conversation,
        remove: true,
        ..WorktreesRequest::default()
    };
    match ask(connection, request).await?.first() {
        None => say(format!(
            "conversation {conversation} has no worktree of its own"
        ))?,
        Some(worktree) if worktree.removed => say(format!(
            "removed {} and its branch {}",
            one_line(&worktree.path, 300),
            one_line(&worktree.branch, 100)
        ))?,
        Some(worktree) => {
            return Err(Error::Kept {
                path: one_line(&worktree.path, 300),
                branch: one_line(&worktree.branch, 100),
                why: only_there(worktree),
            });
        }
    }
    Ok(Exit::Done)
}

/// What became of the worktree of a conversation that was deleted.
pub fn left(worktree: &Worktree) -> String {
    let path = one_line(&worktree.path, 300);
    let branch = one_line(&worktree.branch, 100);
    match worktree.removed {
        true => format!("removed {path} and its branch {branch}"),
        false => format!(
            "{path} stays, with its branch {branch}: {}. `mooring worktrees remove {}` removes it \
             once that is pushed, committed or discarded",
            only_there(worktree),
            worktree.conversation
        ),
    }
}

/// What is in a worktree and nowhere else.
fn only_there(worktree: &Worktree) -> String {
    let mut parts = Vec::new();
    if worktree.uncommitted > 0 {
        let files = format::count(worktree.uncommitted.into(), "file");
        parts.push(format!("{files} not committed"));
    }
    if worktree.unpushed > 0 {
        let commits = format::count(worktree.unpushed.into(), "commit");
        parts.push(format!("{commits} on no other branch"));
    }
    parts.join(", ")
}
