//! NetworkPolicy: the sandbox reaches nothing; the harness reaches its sandbox,
//! DNS, the API server, and the outside without private networks.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Input, Kind, Object};
use crate::names::{COMPONENT_LABEL, Component, GRPC_PORT, HTTP_PORT};

/// One address of the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiServer {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
}

/// IPv4 networks that are not the outside: private, shared, loopback, link-local
/// with the metadata address, protocol assignments, benchmarks, multicast, reserved.
pub const PRIVATE_V4: [&str; 11] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
];
/// IPv6 networks that are not the outside: unspecified and loopback with mapped
/// IPv4, translated IPv4, unique local, link-local, multicast.
pub const PRIVATE_V6: [&str; 5] = ["::/96", "64:ff9b::/96", "fc00::/7", "fe80::/10", "ff00::/8"];

pub(super) fn build(input: &Input<'_>, component: Component) -> Object {
    let (ingress, egress) = match component {
        Component::Harness => (harness_ingress(input), harness_egress(input)),
        // The one empty list that is sent: a rule that somebody adds to a list which
        // nobody owns would stay.
        Component::Sandbox => (sandbox_ingress(input), json!([])),
    };
    let spec = json!({
        "podSelector": {"matchLabels": input.names.selector(component)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": egress,
    });
    let name = input.names.of(component);
    Object::new(
        input,
        component,
        Kind::NetworkPolicy,
        name,
        json!({"spec": spec}),
    )
}

fn tcp(port: impl Into<Value>) -> Value {
    let port: Value = port.into();
    json!({"protocol": "TCP", "port": port})
}

fn sandbox_ingress(input: &Input<'_>) -> Value {
    let harness = input.names.selector(Component::Harness);
    json!([{
        "from": [{"podSelector": {"matchLabels": harness}}],
        "ports": [tcp(GRPC_PORT)],
    }])
}

fn harness_ingress(input: &Input<'_>) -> Value {
    let installation =
        json!({"matchLabels": {"kubernetes.io/metadata.name": input.settings.namespace}});
    json!([
        {
            "from": [{
                "namespaceSelector": installation,
                "podSelector": {"matchExpressions": [
                    {"key": COMPONENT_LABEL, "operator": "In", "values": ["bot", "operator"]},
                ]},
            }],
            "ports": [tcp(GRPC_PORT)],
        },
        {
            "from": [{"namespaceSelector": {"matchLabels": {"mooring.dev/metrics": "true"}}}],
            "ports": [tcp(HTTP_PORT)],
        },
    ])
}

fn harness_egress(input: &Input<'_>) -> Value {
    let sandbox = input.names.selector(Component::Sandbox);
    let mut rules = vec![
        json!({
            "to": [{
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            }],
            "ports": [{"protocol": "UDP", "port": 53}, tcp(53)],
        }),
        json!({
            "to": [{"podSelector": {"matchLabels": sandbox}}],
            "ports": [tcp(GRPC_PORT)],
        }),
        json!({"to": [
            {"ipBlock": {"cidr": "0.0.0.0/0", "except": PRIVATE_V4}},
            {"ipBlock": {"cidr": "::/0", "except": PRIVATE_V6}},
        ]}),
    ];
    for server in input.api_servers {
        let bits = if server.address.is_ipv4() { 32 } else { 128 };
        rules.push(json!({
            "to": [{"ipBlock": {"cidr": format!("{}/{bits}", server.address)}}],
            "ports": [tcp(server.port)],
        }));
    }
    for destination in &input.settings.private_destinations {
        rules.push(json!({
            "to": [{"ipBlock": {"cidr": destination.cidr()}}],
            "ports": [tcp(destination.port)],
        }));
    }
    json!(rules)
}
