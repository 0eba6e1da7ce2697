//! Proof that the sandbox has no network, before the first tool runs.
//!
//! A target counts only if the harness itself has just reached it; with fewer
//! than two such targets nothing is proved.

use std::time::Duration;

use mooring_wire::sandbox::{ProbeRequest, Target, sandbox_client::SandboxClient};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Channel;

/// What a probe has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Every live target was out of reach.
    Denied,
    /// These answered.
    Reached(Vec<String>),
    /// Too few live targets.
    Unknown(String),
    /// The daemon did not answer; whatever it would have said, it is not there.
    Lost(String),
}

/// Listeners of the harness on this machine, which a sandbox with a network of
/// its own cannot reach.
pub struct Targets {
    listeners: Vec<TcpListener>,
}

impl Targets {
    /// Listens on the loopback addresses of this machine's network.
    pub async fn listen() -> Targets {
        let mut listeners = Vec::new();
        for address in ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"] {
            if let Ok(listener) = TcpListener::bind(address).await {
                listeners.push(listener);
            }
        }
        Targets { listeners }
    }

    /// Lets the daemon try each target that is live.
    pub async fn probe(&self, daemon: &mut SandboxClient<Channel>) -> Proof {
        let mut targets = Vec::new();
        for listener in &self.listeners {
            let Ok(address) = listener.local_addr() else {
                continue;
            };
            if TcpStream::connect(address).await.is_ok() {
                // The connection itself is the proof; nothing is read.
                let _ = listener.accept().await;
                targets.push(Target {
                    name: "harness".into(),
                    address: address.to_string(),
                    udp: false,
                });
            }
        }
        if targets.len() < 2 {
            return Proof::Unknown("fewer than two addresses of the harness are live".into());
        }
        let request = ProbeRequest {
            targets,
            timeout_ms: 500,
        };
        let answer = tokio::time::timeout(Duration::from_secs(10), daemon.probe(request)).await;
        match answer {
            Err(_) => Proof::Lost("the sandbox did not answer the probe in 10 s".into()),
            Ok(Err(status)) => Proof::Lost(status.message().to_owned()),
            Ok(Ok(response)) => {
                let reached: Vec<String> = response
                    .into_inner()
                    .results
                    .into_iter()
                    .filter(|result| result.reached)
                    .map(|result| format!("{} ({})", result.name, result.detail))
                    .collect();
                if reached.is_empty() {
                    Proof::Denied
                } else {
                    Proof::Reached(reached)
                }
            }
        }
    }
}
