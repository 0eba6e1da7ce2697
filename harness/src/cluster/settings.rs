//! What the operator tells a harness.

use std::{net::SocketAddr, path::PathBuf};

use mooring_crds::Destination;

use crate::boundary::{ConnectTo, Reach};

/// What the operator tells a harness.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// The Workspace's name.
    #[arg(long, env = "MOORING_WORKSPACE")]
    pub workspace: String,
    /// Its namespace.
    #[arg(long, env = "MOORING_NAMESPACE")]
    pub namespace: String,
    /// Namespace of the operator and the bot, whose calls are taken.
    #[arg(long, env = "MOORING_INSTALLATION")]
    pub installation: String,
    /// Folder of the database, on a volume of its own.
    #[arg(long, env = "MOORING_DATA")]
    pub data: PathBuf,
    /// Folder with a folder for each Secret that the Workspace names.
    #[arg(long, env = "MOORING_KEYS")]
    pub keys: PathBuf,
    /// Folder with tls.crt, tls.key and ca.crt.
    #[arg(long, env = "MOORING_TLS")]
    pub tls: PathBuf,
    /// HOST:PORT of the sandbox.
    #[arg(long, env = "MOORING_SANDBOX")]
    pub sandbox: String,
    /// Where callers are served.
    #[arg(long, env = "MOORING_LISTEN", default_value = "0.0.0.0:7443")]
    pub listen: SocketAddr,
    /// Where health and metrics are served.
    #[arg(long, env = "MOORING_HTTP", default_value = "0.0.0.0:9090")]
    pub http: SocketAddr,
    /// Destinations in private networks that may be reached (`10.1.2.0/24:443`).
    #[arg(
        long = "private-destination",
        env = "MOORING_PRIVATE_DESTINATIONS",
        value_delimiter = ','
    )]
    pub private_destinations: Vec<Destination>,
    /// Names that lead elsewhere than the resolver says (`crates.io:443=10.1.2.3:8443`).
    #[arg(long, env = "MOORING_CONNECT_TO", value_delimiter = ',')]
    pub connect_to: Vec<ConnectTo>,
}

impl Settings {
    /// What of the world may be reached.
    pub fn reach(&self) -> Reach {
        Reach {
            private: self.private_destinations.clone(),
            closed: super::surroundings::own(self.listen.port()),
            connect_to: self.connect_to.clone(),
        }
    }
}
