//! What an installation decides for all Workspaces.

use std::net::SocketAddr;

use mooring_crds::Destination;

/// What an installation decides for all Workspaces.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Namespace of the operator itself: its lease and the installation's CA are here.
    #[arg(long, env = "POD_NAMESPACE", default_value = "mooring-system")]
    pub namespace: String,
    /// Namespaces whose Workspaces are looked after; all when none is named.
    #[arg(
        long = "watch-namespace",
        env = "MOORING_WATCH_NAMESPACES",
        value_delimiter = ','
    )]
    pub watch_namespaces: Vec<String>,
    /// Image of the harness.
    #[arg(
        long,
        env = "MOORING_HARNESS_IMAGE",
        default_value = "ghcr.io/mooring-dev/harness:0.1.0"
    )]
    pub harness_image: String,
    /// Image of the sandbox, where a Workspace names none.
    #[arg(
        long,
        env = "MOORING_SANDBOX_IMAGE",
        default_value = "ghcr.io/mooring-dev/sandbox:0.1.0"
    )]
    pub sandbox_image: String,
    /// Secrets with registry credentials, of each Workspace's namespace, for its pods.
    #[arg(
        long = "image-pull-secret",
        env = "MOORING_IMAGE_PULL_SECRETS",
        value_delimiter = ','
    )]
    pub image_pull_secrets: Vec<String>,
    /// Destinations in private networks that harnesses may reach (`10.1.2.0/24:443`).
    #[arg(
        long = "private-destination",
        env = "MOORING_PRIVATE_DESTINATIONS",
        value_delimiter = ','
    )]
    pub private_destinations: Vec<Destination>,
    /// Days after which a terminal Approval object is removed.
    #[arg(long, env = "MOORING_APPROVAL_DAYS", default_value_t = 7)]
    pub approval_days: u16,
    /// Workspaces that are worked on at the same time.
    #[arg(long, env = "MOORING_CONCURRENCY", default_value_t = 16)]
    pub concurrency: u16,
    /// Where health and metrics are served.
    #[arg(long, env = "MOORING_HTTP", default_value = "0.0.0.0:9090")]
    pub http: SocketAddr,
}
