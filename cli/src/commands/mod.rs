//! One file a command.

mod approvals;
mod attach;
mod audit;
mod completion;
mod conversations;
mod demo;
mod dev;
mod diff;
mod discord;
mod egress;
mod entries;
mod fork;
mod grants;
mod init;
mod objects;
pub mod policy;
mod records;
pub mod sandbox;
mod send;
mod status;
mod stop;
mod tasks;
mod transfer;
mod usage;
mod watch;
mod worktrees;

pub use conversations::line as conversation_line;
pub use diff::lines as diff_lines;
pub use fork::{compact, fork, reset};
pub use status::lines as status_lines;
pub use tasks::{answer, lines as task_lines, tasks};
pub use usage::table as usage_table;

use std::io::Write;
use std::path::{Path, PathBuf};

use mooring_wire::harness::ConversationsRequest;
use mooring_wire::harness::conversations_response::Conversation;

use crate::args::Command;
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::setup;

/// Runs a command of the client.
pub async fn run(project: Option<PathBuf>, command: Command) -> Result<Exit, Error> {
    let project = project.as_deref();
    let done = dispatch(project, command).await;
    done.map_err(
        |error| match error.is_damage().then(|| setup::database(project)) {
            Some(Ok(database)) => error.about(&database),
            _ => error,
        },
    )
}

async fn dispatch(project: Option<&Path>, command: Command) -> Result<Exit, Error> {
    match command {
        Command::Dev(args) => dev::run(project, args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Attach(args) => attach::run(args).await,
        Command::Send(args) => send::run(project, args).await,
        Command::Init(args) => init::run(project, &args),
        Command::Watch(args) => watch::run(project, args).await,
        Command::Approvals(args) => approvals::list(project, args).await,
        Command::Approve(args) => approvals::approve(project, args).await,
        Command::Deny(args) => approvals::deny(project, args).await,
        Command::Conversations(args) => conversations::list(project, args).await,
        Command::Abort(args) => conversations::abort(project, args).await,
        Command::Reset(args) => fork::run_reset(project, args).await,
        Command::Tasks(args) => tasks::run(project, args).await,
        Command::Answer(args) => tasks::run_answer(project, args).await,
        Command::Diff(args) => diff::run(project, args).await,
        Command::Worktrees(args) => worktrees::run(project, args).await,
        Command::Compact(args) => fork::run_compact(project, args).await,
        Command::Fork(args) => fork::run_fork(project, args).await,
        Command::Export(args) => transfer::export(project, args).await,
        Command::Import(args) => transfer::import(project, args).await,
        Command::Delete(args) => transfer::delete(project, args).await,
        Command::Entries(args) => entries::run(project, args).await,
        Command::Grants(args) => grants::run(project, args).await,
        Command::Egress(args) => egress::run(project, args).await,
        Command::Audit(args) => audit::run(project, args).await,
        Command::Usage(args) => usage::run(project, args).await,
        Command::Status(args) => status::run(project, args).await,
        Command::Stop => stop::run(project).await,
        Command::Completion { shell } => completion::run(shell),
        Command::Harness(_)
        | Command::SandboxDaemon(_)
        | Command::Policy(_)
        | Command::Sandbox(_) => {
            unreachable!("main runs these without a client")
        }
    }
}

/// The conversation that was active last.
pub async fn last_conversation(connection: &Connection) -> Result<Option<Conversation>, Error> {
    let request = ConversationsRequest {
        limit: 1,
        before: 0,
    };
    let found = connection
        .call(move |mut client| async move { client.conversations(request).await })
        .await?;
    Ok(found.conversations.into_iter().next())
}

/// The conversation that was named, or the one that was active last.
pub async fn named_or_last(connection: &Connection, named: Option<i64>) -> Result<i64, Error> {
    match named {
        Some(id) => Ok(id),
        None => match last_conversation(connection).await? {
            Some(conversation) => Ok(conversation.id),
            None => Err(Error::Usage(
                "there is no conversation yet; `mooring dev` or `mooring send` begins one".into(),
            )),
        },
    }
}

/// Writes one line to standard output; a reader that has gone is an error.
pub fn say(line: impl std::fmt::Display) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// A request id that no other call will use.
pub fn new_request_id() -> String {
    format!(
        "cli-{}-{:016x}",
        crate::format::now_ms(),
        rand::random::<u64>()
    )
}
