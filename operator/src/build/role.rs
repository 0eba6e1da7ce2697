//! Role and RoleBinding of the harness: its own Workspace, by name, and the
//! Approvals that it makes. The sandbox has none.

use serde_json::json;

use super::{Input, Kind, Object};
use crate::names::Component;

pub(super) fn build(input: &Input<'_>) -> Object {
    let rest = json!({"rules": [
        {
            "apiGroups": ["mooring.dev"],
            "resources": ["workspaces"],
            "resourceNames": [input.names.workspace],
            "verbs": ["get", "list", "watch"],
        },
        {
            "apiGroups": ["mooring.dev"],
            "resources": ["approvals"],
            "verbs": ["get", "list", "watch", "create"],
        },
        {
            "apiGroups": ["mooring.dev"],
            "resources": ["approvals/status"],
            "verbs": ["patch"],
        },
        {
            "apiGroups": ["events.k8s.io"],
            "resources": ["events"],
            "verbs": ["create", "patch"],
        },
    ]});
    let name = input.names.of(Component::Harness);
    Object::new(input, Component::Harness, Kind::Role, name, rest)
}

pub(super) fn build_binding(input: &Input<'_>) -> Object {
    let name = input.names.of(Component::Harness);
    let rest = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{
            "kind": "ServiceAccount",
            "name": name,
            "namespace": input.names.namespace,
        }],
    });
    Object::new(
        input,
        Component::Harness,
        Kind::RoleBinding,
        name.clone(),
        rest,
    )
}
