//! Secrets with a certificate, its key and the installation's CA: of each component,
//! and of the terminals that people attach.

use serde_json::{Value, json};

use super::{Input, Kind, Object};
use crate::authority::Certificate;
use crate::names::Component;

pub(super) fn build(input: &Input<'_>, component: Component) -> Object {
    let name = input.names.tls_secret(component);
    secret(input, component, name, input.certificates.of(component))
}

/// No pod mounts this one; whoever may read it may talk to the harness.
pub(super) fn build_terminal(input: &Input<'_>) -> Object {
    let name = input.names.terminal_secret();
    secret(
        input,
        Component::Harness,
        name,
        &input.certificates.terminal,
    )
}

fn secret(
    input: &Input<'_>,
    component: Component,
    name: String,
    certificate: &Certificate,
) -> Object {
    let encode = |bytes: &str| -> Value { json!(k8s_openapi::ByteString(bytes.into())) };
    let rest = json!({
        "type": "kubernetes.io/tls",
        "data": {
            "ca.crt": encode(&certificate.ca),
            "tls.crt": encode(&certificate.certificate),
            "tls.key": encode(&certificate.key),
        },
    });
    Object::new(input, component, Kind::Secret, name, rest)
}
