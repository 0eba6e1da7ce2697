//! `mooring stop`.

use std::path::Path;

use super::say;
use crate::connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::setup;

/// Ends the harness and the sandbox of the project.
pub async fn run(project: Option<&Path>) -> Result<Exit, Error> {
    let plan = setup::running_plan(project).await?;
    connection::note_stop(&plan).await?;
    let was_running = connection::stop(&plan).await?;
    plan.state.use_workspace(None)?;
    say(if was_running {
        "stopped; the next `mooring dev` carries on where it was"
    } else {
        "nothing was running"
    })?;
    if let Some(sandbox) = plan.sandbox {
        say(format!("the sandbox at {} goes on", sandbox.address()))?;
    }
    Ok(Exit::Done)
}
