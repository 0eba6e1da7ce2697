//! The one way to the world: names are resolved here, and only what lies outside
//! is connected to.

use std::{
    collections::HashMap,
    fmt, io,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use mooring_crds::Destination;
use tokio::net::TcpStream;

use super::address;

/// How long a name may take to be resolved.
const RESOLVE_PATIENCE: Duration = Duration::from_secs(10);
/// How long one address may take to answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 8;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The host is written in a way that is not taken.
    #[error("{host:?} {why}")]
    Host {
        /// As it was given.
        host: String,
        /// What is wrong, and what would be right.
        why: &'static str,
    },
    /// It leads to where nobody may go.
    #[error(
        "{host} leads to {address}, which is {what}: not outside; what an installation \
         needs there is named by privateDestinations"
    )]
    Inside {
        /// The name.
        host: String,
        /// The address.
        address: IpAddr,
        /// What the address is.
        what: &'static str,
    },
    /// The name is not known.
    #[error("{host} is not found: {why}")]
    Unknown {
        /// The name.
        host: String,
        /// What the resolver said.
        why: String,
    },
    /// Nobody answers there.
    #[error("{host}:{port} does not answer: {why}")]
    Unreachable {
        /// The name.
        host: String,
        /// The port.
        port: u16,
        /// What the last address said.
        why: String,
    },
}

/// Finds the addresses of names.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// All addresses of `host`.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The machine's own resolver.
pub struct System;

#[async_trait]
impl Resolver for System {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Where a name leads that no resolver of this machine knows: `HOST:PORT=IP:PORT`,
/// as curl's `--connect-to`. The address has to be one that may be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectTo {
    host: String,
    port: u16,
    to: SocketAddr,
}

impl FromStr for ConnectTo {
    type Err = String;

    fn from_str(text: &str) -> Result<ConnectTo, String> {
        let wrong = || format!("{text:?} is no HOST:PORT=IP:PORT");
        let (from, to) = text.split_once('=').ok_or_else(wrong)?;
        let (host, port) = from.rsplit_once(':').ok_or_else(wrong)?;
        Ok(ConnectTo {
            host: host_name(host).map_err(|_| wrong())?.to_owned(),
            port: port.parse().map_err(|_| wrong())?,
            to: to.parse().map_err(|_| wrong())?,
        })
    }
}

/// What an installation decides about the world.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Destinations in private networks that may be reached.
    pub private: Vec<Destination>,
    /// Addresses that may not be reached though they look public: the cluster's own.
    pub closed: Vec<IpAddr>,
    /// Names that lead elsewhere than a resolver says.
    pub connect_to: Vec<ConnectTo>,
}

/// Connects to the world.
#[derive(Clone)]
pub struct Outside {
    resolver: Arc<dyn Resolver>,
    private: Arc<[Destination]>,
    closed: Arc<[IpAddr]>,
    connect_to: Arc<HashMap<(String, u16), SocketAddr>>,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside")
            .field("private", &self.private)
            .finish_non_exhaustive()
    }
}

impl Outside {
    /// The world as this machine's resolver knows it.
    pub fn new(reach: Reach) -> Outside {
        Outside::resolving(reach, Arc::new(System))
    }

    /// The world as `resolver` knows it.
    pub fn resolving(reach: Reach, resolver: Arc<dyn Resolver>) -> Outside {
        let connect_to = reach
            .connect_to
            .into_iter()
            .map(|it| ((it.host, it.port), it.to))
            .collect();
        Outside {
            resolver,
            private: reach.private.into(),
            closed: reach.closed.into(),
            connect_to: Arc::new(connect_to),
        }
    }

    /// Connects to `host`, a name in lower case. The name is resolved once; every
    /// address has to lie outside, and the one that answered is looked at again.
    ///
    /// # Errors
    /// Why not, in words for whoever asked.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, Refusal> {
        let host = host_name(host)?;
        let addresses = self.addresses(host, port).await?;
        for address in &addresses {
            self.judge(host, address.ip(), address.port())?;
        }
        let mut why = "it has no address".to_owned();
        for address in addresses {
            let connecting = TcpStream::connect(address);
            match tokio::time::timeout(CONNECT_PATIENCE, connecting).await {
                Ok(Ok(stream)) => {
                    let peer = stream.peer_addr();
                    let peer = peer.map_err(|error| Refusal::Unreachable {
                        host: host.to_owned(),
                        port,
                        why: error.to_string(),
                    })?;
                    self.judge(host, peer.ip(), peer.port())?;
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = format!("no answer in {} s", CONNECT_PATIENCE.as_secs()),
            }
        }
        Err(Refusal::Unreachable {
            host: host.to_owned(),
            port,
            why,
        })
    }

    /// The addresses of `host`, all of them outside, for a client that connects by itself.
    ///
    /// # Errors
    /// Why not, in words for whoever asked.
    pub async fn reachable(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Refusal> {
        let host = host_name(host)?;
        let addresses = self.addresses(host, port).await?;
        for address in &addresses {
            self.judge(host, address.ip(), address.port())?;
        }
        Ok(addresses)
    }

    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Refusal> {
        if let Some(to) = self.connect_to.get(&(host.to_owned(), port)) {
            return Ok(vec![*to]);
        }
        let unknown = |why: String| Refusal::Unknown {
            host: host.to_owned(),
            why,
        };
        let resolving = self.resolver.resolve(host);
        let found = tokio::time::timeout(RESOLVE_PATIENCE, resolving)
            .await
            .map_err(|_| unknown(format!("no answer in {} s", RESOLVE_PATIENCE.as_secs())))?
            .map_err(|error| unknown(error.to_string()))?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for ip in found {
            let address = SocketAddr::new(ip, port);
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            return Err(unknown("it has no address".into()));
        }
        // All are judged, also those that are not tried.
        for address in &addresses {
            self.judge(host, address.ip(), port)?;
        }
        addresses.truncate(MOST_ADDRESSES);
        Ok(addresses)
    }

    fn judge(&self, host: &str, address: IpAddr, port: u16) -> Result<(), Refusal> {
        if self.private.iter().any(|it| it.contains(address, port)) {
            return Ok(());
        }
        let what = match self.closed.contains(&address) {
            true => Some("the cluster's own"),
            false => address::closed(address),
        };
        match what {
            None => Ok(()),
            Some(what) => Err(Refusal::Inside {
                host: host.to_owned(),
                address,
                what,
            }),
        }
    }
}

/// Checks a host: a name of the DNS in its one form, and no address in any notation.
///
/// # Errors
/// What is wrong with it.
pub fn host_name(host: &str) -> Result<&str, Refusal> {
    let refuse = |why| {
        Err(Refusal::Host {
            host: host.chars().take(300).collect(),
            why,
        })
    };
    if host.contains('@') {
        return refuse("holds user information; only a name is taken");
    }
    if host.contains([':', '[', ']']) {
        return refuse("is an address; only names are taken");
    }
    if host.bytes().any(|b| b.is_ascii_uppercase()) {
        return refuse("has upper case; write the name in lower case");
    }
    if host.ends_with('.') {
        return refuse("ends in a dot; write the name without it");
    }
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.is_empty() || host.len() > 253 || !host.split('.').all(label) {
        return refuse("is no name of a host; international names are written as xn--…");
    }
    // As URLs are read everywhere (WHATWG, "ends in a number"): 127.1, 0x7f.1, 2130706433.
    let last = host.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").unwrap_or("-");
    if last.bytes().all(|b| b.is_ascii_digit()) || hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return refuse("is an address; only names are taken");
    }
    Ok(host)
}
