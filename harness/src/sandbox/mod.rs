//! The sandbox as the harness sees it: one daemon, reached or not.

mod link;
mod place;
mod probe;
mod start;

pub use link::{Egress, Link, State};
pub use place::Place;
pub use probe::Aim;
pub use start::Daemon;

/// Ends the daemon and all that runs in it.
pub async fn stop(link: &Link) {
    if let Ok(mut client) = link.client()
        && let Err(status) = client.stop(mooring_wire::sandbox::StopRequest {}).await
    {
        tracing::warn!(
            error = status.message(),
            "the sandbox daemon did not take the stop"
        );
    }
}
