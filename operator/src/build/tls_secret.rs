//! Secret with a component's certificate, key and the installation's CA.

use serde_json::{Value, json};

use super::{Input, Kind, Object};
use crate::names::Component;

pub(super) fn build(input: &Input<'_>, component: Component) -> Object {
    let certificate = input.certificates.of(component);
    let name = input.names.tls_secret(component);
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
