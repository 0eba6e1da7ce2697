//! `mooring attach`: talk to the agent of a workspace in a cluster.

use std::io::IsTerminal;
use std::path::PathBuf;

use super::dev;
use crate::args::AttachArgs;
use crate::cluster::Target;
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::processes::Plan;
use crate::project::{Project, StateHome};
use crate::{cards, terminal};

/// Talks until the person leaves; the agent goes on.
pub async fn run(args: AttachArgs) -> Result<Exit, Error> {
    let target = Target::find(args.cluster.clone(), &args.workspace).await?;
    let states = StateHome::from_env(|name| std::env::var_os(name))?;
    // What this terminal remembers of the workspace (its history of inputs).
    let folder = states.attached(&target.namespace, &target.workspace)?;
    let project = Project::find(
        &folder,
        std::env::var_os("HOME").map(PathBuf::from).as_deref(),
    )?;
    let plan = Plan {
        state: states.open(&project)?,
        project,
        workspace: None,
        allow_unisolated: false,
        sandbox: None,
        sandbox_named: false,
        cluster: Some(target.clone()),
    };
    let mut connection = Connection::open(plan).await?;
    connection.wait_for_sandbox().await?;
    let resume = args.resume;
    let conversation = dev::conversation(&connection, resume, args.new).await?;
    let name = format!("{}/{}", target.namespace, target.workspace);
    let rehearsal = connection.status.model == "rehearsal";
    let mut greeting = vec![cards::banner(&connection.status, &name, rehearsal)];
    let wait = "is no key of that Secret: runs wait until it is there";
    greeting.extend(dev::notices(&connection.status, conversation, wait));
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let has_cursor = std::env::var("TERM").is_ok_and(|term| term != "dumb");
    if interactive && has_cursor {
        terminal::talk_at_keyboard(connection, conversation, greeting).await
    } else {
        terminal::talk_in_lines(connection, conversation, greeting).await
    }
}
