//! Proof that the sandbox has no network, before the first tool runs.
//!
//! A target counts only if the harness itself has just reached it; with fewer
//! than two such targets nothing is proved.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use mooring_wire::sandbox::{ProbeRequest, Target, sandbox_client::SandboxClient};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tonic::transport::Channel;

/// How long one target may take, for the harness and for the sandbox.
const TARGET_PATIENCE: Duration = Duration::from_millis(500);
/// How long all of a probe may take on this machine.
const PATIENCE_HERE: Duration = Duration::from_secs(10);
/// The same on another machine or in a pod, where the daemon repeats its first probe for up to 30 s:
/// enforcement comes late.
const PATIENCE_ELSEWHERE: Duration = Duration::from_secs(45);
/// A query for the name servers of the root (RFC 1035), which every resolver answers.
const DNS_QUERY: &[u8] = b"\x4d\x6f\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01";

/// A public address that answers on this port nearly everywhere. Nothing is sent
/// to it; where the harness does not reach it either, it does not count.
const PUBLIC: &str = "1.1.1.1:443";
/// Where clouds keep a machine's credentials.
const METADATA: &str = "169.254.169.254:80";

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

/// One address that a sandbox with a network could reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aim {
    /// What it is (`api-server`, `dns-udp`), for people.
    pub name: &'static str,
    /// Where.
    pub address: SocketAddr,
    /// Whether it is asked by DNS over UDP, not by a TCP connection.
    pub udp: bool,
}

impl Aim {
    /// What lies outside of every machine.
    pub(crate) fn outside() -> impl Iterator<Item = Aim> {
        [("public", PUBLIC), ("metadata", METADATA)]
            .map(|(name, text)| Aim {
                name,
                address: text.parse().expect("the constants are addresses"),
                udp: false,
            })
            .into_iter()
    }

    /// The first name server of a `resolv.conf`, over both transports.
    pub(crate) fn resolver(resolvers: &str) -> impl Iterator<Item = Aim> + use<> {
        let address = resolvers
            .lines()
            .filter_map(|line| {
                line.strip_prefix("nameserver")?
                    .trim()
                    .parse::<IpAddr>()
                    .ok()
            })
            .next();
        [("dns-udp", true), ("dns-tcp", false)]
            .into_iter()
            .filter_map(move |(name, udp)| {
                Some(Aim {
                    name,
                    address: SocketAddr::new(address?, 53),
                    udp,
                })
            })
    }

    /// Whether this process reaches it now.
    async fn is_live(&self) -> bool {
        let reached = async {
            if !self.udp {
                return TcpStream::connect(self.address).await.map(drop);
            }
            let any: SocketAddr = if self.address.is_ipv4() {
                ([0, 0, 0, 0], 0).into()
            } else {
                ([0_u16; 8], 0).into()
            };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(self.address).await?;
            socket.send(DNS_QUERY).await?;
            socket.recv(&mut [0; 512]).await.map(drop)
        };
        matches!(
            tokio::time::timeout(TARGET_PATIENCE, reached).await,
            Ok(Ok(()))
        )
    }

    fn target(&self) -> Target {
        Target {
            name: self.name.into(),
            address: self.address.to_string(),
            udp: self.udp,
        }
    }
}

/// The address that this machine would send from; nothing is sent.
pub(crate) fn own_address(to: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if to.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// What the daemon is to try.
pub struct Targets {
    listeners: Vec<TcpListener>,
    aims: Vec<Aim>,
    patience: Duration,
}

impl Targets {
    /// Listens on the loopback addresses of this machine's network, which a
    /// sandbox with a network of its own cannot reach. Not on 127.0.0.1: on that of its
    /// own network the daemon listens, and a port may by chance be the same.
    pub async fn listen() -> Targets {
        let mut listeners = Vec::new();
        for address in ["127.0.0.2:0", "127.0.0.3:0", "[::1]:0"] {
            if let Ok(listener) = TcpListener::bind(address).await {
                listeners.push(listener);
            }
        }
        Targets {
            listeners,
            aims: Vec::new(),
            patience: PATIENCE_HERE,
        }
    }

    /// Addresses in and outside the cluster.
    pub fn in_cluster(aims: Vec<Aim>) -> Targets {
        Targets {
            listeners: Vec::new(),
            aims,
            patience: PATIENCE_ELSEWHERE,
        }
    }

    /// What a sandbox at `HOST:PORT` could reach if it had a network: its own port on
    /// that machine, this machine, and what lies outside of both.
    pub async fn around(sandbox: &str) -> Targets {
        let mut targets = Targets::in_cluster(Aim::outside().collect());
        let resolvers = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        // One on this machine's loopback is no target for another machine.
        targets
            .aims
            .extend(Aim::resolver(&resolvers).filter(|aim| !aim.address.ip().is_loopback()));
        let found = tokio::net::lookup_host(sandbox).await;
        if let Some(address) = found.ok().and_then(|mut found| found.next()) {
            targets.aims.push(Aim {
                name: "sandbox-port",
                address,
                udp: false,
            });
            if let Some(own) = own_address(address)
                && let Ok(listener) = TcpListener::bind((own, 0)).await
            {
                targets.listeners.push(listener);
            }
        }
        targets
    }

    /// The targets that the harness has just reached itself.
    async fn live(&self) -> Vec<Target> {
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
        let tries = self.aims.iter().map(|aim| async move {
            let live = aim.is_live().await;
            live.then(|| aim.target())
        });
        targets.extend(futures::future::join_all(tries).await.into_iter().flatten());
        targets
    }

    /// Lets the daemon try each target that is live.
    pub async fn probe(&self, daemon: &mut SandboxClient<Channel>) -> Proof {
        let targets = self.live().await;
        if targets.len() < 2 {
            let live: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
            return Proof::Unknown(format!(
                "the harness itself reaches fewer than two targets ({})",
                if live.is_empty() {
                    "none".into()
                } else {
                    live.join(", ")
                }
            ));
        }
        let request = ProbeRequest {
            targets,
            timeout_ms: TARGET_PATIENCE.as_millis() as u32,
        };
        let answer = tokio::time::timeout(self.patience, daemon.probe(request)).await;
        match answer {
            Err(_) => Proof::Lost(format!(
                "the sandbox did not answer the probe in {} s",
                self.patience.as_secs()
            )),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn only_what_the_harness_reaches_itself_is_a_target() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = closed.local_addr().unwrap();
        drop(closed);
        let resolver = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let dns = resolver.local_addr().unwrap();
        tokio::spawn(async move {
            let mut query = [0; 512];
            let (size, from) = resolver.recv_from(&mut query).await.unwrap();
            resolver.send_to(&query[..size], from).await.unwrap();
        });
        let aim = |name, address, udp| Aim { name, address, udp };
        let targets = Targets::in_cluster(vec![
            aim("api-server", tcp.local_addr().unwrap(), false),
            aim("public", nobody, false),
            aim("dns-udp", dns, true),
        ]);
        let live: Vec<String> = targets
            .live()
            .await
            .into_iter()
            .map(|target| target.name)
            .collect();
        assert_eq!(live, ["api-server", "dns-udp"]);
    }

    #[tokio::test]
    async fn no_target_here_is_where_the_daemon_listens_on_its_own_loopback() {
        let targets = Targets::listen().await;
        let daemon: IpAddr = [127, 0, 0, 1].into();
        assert!(!targets.listeners.is_empty());
        for listener in &targets.listeners {
            assert_ne!(listener.local_addr().unwrap().ip(), daemon);
        }
    }
}
