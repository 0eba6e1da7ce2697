//! The sandbox as the harness sees it: one daemon, reached or not.

mod link;
mod place;
mod probe;
mod remote;
mod start;

pub use link::{Egress, Link, State};
pub use place::Place;
pub use probe::Aim;
pub(crate) use probe::own_address;
pub use remote::Remote;
pub use start::Daemon;

/// Ends the daemon and all that runs in it, where the harness has started it.
pub async fn stop(link: &Link) {
    if link.is_kept_by_others() {
        return;
    }
    if let Ok(mut client) = link.client()
        && let Err(status) = client.stop(mooring_wire::sandbox::StopRequest {}).await
    {
        tracing::warn!(
            error = status.message(),
            "the sandbox daemon did not take the stop"
        );
    }
}
