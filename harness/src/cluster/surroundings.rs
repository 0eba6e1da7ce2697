//! What is around the pod, for the egress probe: addresses that a sandbox with a
//! network could reach.

use std::net::{IpAddr, SocketAddr};

use crate::sandbox::{Aim, own_address};

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

fn list(
    api_server: Option<SocketAddr>,
    own: Option<IpAddr>,
    port: u16,
    resolvers: &str,
) -> Vec<Aim> {
    let mut aims = Vec::new();
    if let Some(address) = api_server {
        aims.push(Aim {
            name: "api-server",
            address,
            udp: false,
        });
    }
    aims.extend(Aim::outside());
    if let Some(address) = own {
        aims.push(Aim {
            name: "harness",
            address: SocketAddr::new(address, port),
            udp: false,
        });
    }
    aims.extend(Aim::resolver(resolvers));
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
