//! While a person is waited for, a command's own time limit does not run.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use mooring_wire::sandbox::{SignalRequest, signal_request::Signal};

use crate::sandbox::Link;

/// For how long the daemon is asked to hold, each time: where the harness dies the limit
/// soon runs again.
const LEASE: Duration = Duration::from_secs(20);
/// How often it is asked.
const AGAIN: Duration = Duration::from_secs(5);

/// Asks the sandbox to hold time limits, once there is a way to it.
#[derive(Default)]
pub struct Hold {
    link: OnceLock<Arc<Link>>,
}

impl Hold {
    /// The way to the sandbox.
    pub fn linked(&self, link: Arc<Link>) {
        let _ = self.link.set(link);
    }

    /// Does `work`, in which a person is waited for, for a command.
    pub async fn during<T>(&self, execution: &str, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            never = self.hold(execution) => match never {},
        }
    }

    async fn hold(&self, execution: &str) -> std::convert::Infallible {
        loop {
            if let Some(Ok(mut client)) = self.link.get().map(|link| link.client()) {
                let request = SignalRequest {
                    execution_id: execution.to_owned(),
                    signal: Some(Signal::HoldMs(LEASE.as_millis() as u32)),
                };
                // One that is not reached runs on, and is asked again.
                let _ = client.signal(request).await;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}
