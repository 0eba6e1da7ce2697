//! What is around the pod, for the egress probe: addresses that a sandbox with a
//! network could reach.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::sandbox::Aim;

/// A public address that answers on this port nearly everywhere. Nothing is sent
/// to it; where the harness does not reach it either, it does not count.
const PUBLIC: &str = "1.1.1.1:443";
/// Where clouds keep a machine's credentials.
const METADATA: &str = "169.254.169.254:80";

/// The targets of a harness that serves at this port.
pub fn aims(port: u16) -> Vec<Aim> {
    let variable = |name: &str| std::env::var(name).ok();
    let api_server = api_server(
        variable("KUBERNETES_SERVICE_HOST").as_deref(),
        variable("KUBERNETES_SERVICE_PORT").as_deref(),
    );
    let own = api_server.and_then(own_address);
    let resolvers = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    list(api_server, own, port, &resolvers)
}

/// Addresses of the cluster itself, which no command reaches through the harness
/// though some of them may look public.
pub fn own(port: u16) -> Vec<IpAddr> {
    aims(port)
        .into_iter()
        .filter(|aim| aim.name != "public")
        .map(|aim| aim.address.ip())
        .collect()
}

fn api_server(host: Option<&str>, port: Option<&str>) -> Option<SocketAddr> {
    let address: IpAddr = host?.trim_matches(['[', ']']).parse().ok()?;
    Some(SocketAddr::new(address, port?.parse().ok()?))
}

/// The address that this machine would send from; nothing is sent.
fn own_address(to: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if to.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn list(
    api_server: Option<SocketAddr>,
    own: Option<IpAddr>,
    port: u16,
    resolvers: &str,
) -> Vec<Aim> {
    let mut aims = Vec::new();
    let mut add = |name, address, udp| aims.push(Aim { name, address, udp });
    if let Some(address) = api_server {
        add("api-server", address, false);
    }
    for (name, text) in [("public", PUBLIC), ("metadata", METADATA)] {
        add(
            name,
            text.parse().expect("the constants are addresses"),
            false,
        );
    }
    if let Some(address) = own {
        add("harness", SocketAddr::new(address, port), false);
    }
    let resolver = resolvers
        .lines()
        .filter_map(|line| {
            line.strip_prefix("nameserver")?
                .trim()
                .parse::<IpAddr>()
                .ok()
        })
        .next();
    if let Some(address) = resolver {
        add("dns-udp", SocketAddr::new(address, 53), true);
        add("dns-tcp", SocketAddr::new(address, 53), false);
    }
    aims
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_targets_are_those_of_the_contract() {
        let api = api_server(Some("10.96.0.1"), Some("443"));
        let resolvers = "search agents.svc\nnameserver 10.96.0.10\nnameserver 10.96.0.11\n";
        let found: Vec<String> = list(api, Some("10.244.0.7".parse().unwrap()), 7443, resolvers)
            .into_iter()
            .map(|aim| format!("{} {} {}", aim.name, aim.address, aim.udp))
            .collect();
        assert_eq!(
            found,
            [
                "api-server 10.96.0.1:443 false",
                "public 1.1.1.1:443 false",
                "metadata 169.254.169.254:80 false",
                "harness 10.244.0.7:7443 false",
                "dns-udp 10.96.0.10:53 true",
                "dns-tcp 10.96.0.10:53 false",
            ]
        );
        assert_eq!(
            api_server(Some("[fd00::1]"), Some("443")),
            "[fd00::1]:443".parse().ok()
        );
        assert_eq!(api_server(None, Some("443")), None);
        assert_eq!(list(None, None, 1, "").len(), 2);
    }
}
