//! What both pods share: they pass Pod Security `restricted`.

use serde_json::{Value, json};

/// The user that both pods run as.
pub(super) const USER: i64 = 65532;

/// Of the pod: no root, the node's default seccomp filter, volumes for its group.
pub(super) fn security() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// Of a container: nothing beyond what any process has, and a root nobody writes.
pub(super) fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}
