//! Where the daemon is, and how it is reached there.

use std::{fmt, path::PathBuf, sync::Arc};

use mooring_wire::tls::Credentials;
use tokio::net::UnixStream;
use tonic::transport::Channel;

use super::{
    Daemon, Remote,
    probe::{Aim, Targets},
};

/// Where the daemon is.
pub enum Place {
    /// On this machine; it is started where it does not run.
    Here {
        /// Its socket.
        socket: PathBuf,
        /// How it is started.
        daemon: Daemon,
    },
    /// In a pod of its own, which somebody else keeps running.
    Pod {
        /// `HOST:PORT`, looked up at each connect.
        address: String,
        /// The name that its certificate must carry.
        name: String,
        /// The harness's certificate.
        credentials: Arc<Credentials>,
        /// What a sandbox with a network could reach.
        aims: Vec<Aim>,
    },
    /// On another machine, where somebody has started and paired it.
    Remote(Remote),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Here { socket, .. } => write!(f, "{}", socket.display()),
            Place::Pod { address, .. } => f.write_str(address),
            Place::Remote(remote) => f.write_str(remote.address()),
        }
    }
}

impl Place {
    /// How it is started, where that is the harness's to do.
    pub fn daemon(&self) -> Option<&Daemon> {
        match self {
            Place::Here { daemon, .. } => Some(daemon),
            Place::Pod { .. } | Place::Remote(_) => None,
        }
    }

    /// What the daemon tries in vain where it has no network.
    pub async fn targets(&self) -> Targets {
        match self {
            Place::Here { .. } => Targets::listen().await,
            Place::Pod { aims, .. } => Targets::in_cluster(aims.clone()),
            Place::Remote(remote) => Targets::around(remote.address()).await,
        }
    }

    /// A channel to it. The error is for people.
    pub async fn connect(&self) -> Result<Channel, String> {
        match self {
            Place::Here { socket, .. } => mooring_wire::uds::connect(socket)
                .await
                .map_err(|error| error.to_string()),
            Place::Pod {
                address,
                name,
                credentials,
                ..
            } => mooring_wire::tls::connect_lazy(address.clone(), name, credentials.clone())
                .map_err(|error| error.to_string()),
            Place::Remote(remote) => remote.connect().await.map_err(|error| error.to_string()),
        }
    }
}

/// A silent connection of its own: the kernel ends it the moment the daemon dies,
/// so that no call is sent to a dead one. To another machine there is none; there the
/// heartbeat and broken calls tell.
pub struct Pulse(Option<UnixStream>);

impl Pulse {
    /// Connects, where that can be done.
    pub async fn of(place: &Place) -> Pulse {
        Pulse(match place {
            Place::Here { socket, .. } => UnixStream::connect(socket).await.ok(),
            Place::Pod { .. } | Place::Remote(_) => None,
        })
    }

    /// Returns once, when the other side has closed; never where there is no connection.
    pub async fn ended(&mut self) {
        use tokio::io::AsyncReadExt;
        let Some(stream) = &mut self.0 else {
            return std::future::pending().await;
        };
        let mut sink = [0; 64];
        while stream.read(&mut sink).await.is_ok_and(|count| count > 0) {}
        self.0 = None;
    }
}
