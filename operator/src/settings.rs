//! What an installation decides for all Workspaces.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

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

/// A network and a TCP port in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// In CIDR notation.
    pub cidr: String,
    /// The port.
    pub port: u16,
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no CIDR:PORT, for instance 10.1.2.0/24:443");
        let (cidr, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (address, bits) = cidr.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address
            .trim_matches(['[', ']'])
            .parse()
            .map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        if bits > if address.is_ipv4() { 32 } else { 128 } {
            return Err(wrong());
        }
        let port = port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(wrong)?;
        Ok(Destination {
            cidr: format!("{address}/{bits}"),
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_a_network_and_a_port() {
        for (text, good) in [
            ("10.1.2.0/24:443", Some(("10.1.2.0/24", 443))),
            ("[fd00::]/8:8080", Some(("fd00::/8", 8080))),
            ("10.1.2.0:443", None),
            ("10.1.2.0/33:443", None),
            ("10.1.2.0/24", None),
            ("10.1.2.0/24:0", None),
            ("example.com/24:443", None),
        ] {
            let read = text.parse::<Destination>().ok();
            assert_eq!(
                read.as_ref().map(|d| (d.cidr.as_str(), d.port)),
                good,
                "{text}"
            );
        }
    }
}
