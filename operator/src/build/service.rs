//! Service: a stable address for a component's one pod.

use serde_json::json;

use super::{Input, Kind, Object};
use crate::names::{Component, GRPC_PORT, HTTP_PORT};

pub(super) fn build(input: &Input<'_>, component: Component) -> Object {
    let mut ports =
        vec![json!({"name": "grpc", "port": GRPC_PORT, "targetPort": "grpc", "protocol": "TCP"})];
    if component == Component::Harness {
        ports.push(
            json!({"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}),
        );
    }
    let mut spec = json!({
        "type": "ClusterIP",
        "selector": input.names.selector(component),
        "ports": ports,
    });
    if component == Component::Sandbox {
        // Its one caller tries until it is answered, and need not wait for the kubelet.
        spec["publishNotReadyAddresses"] = json!(true);
    }
    let rest = json!({"spec": spec});
    Object::new(
        input,
        component,
        Kind::Service,
        input.names.of(component),
        rest,
    )
}
