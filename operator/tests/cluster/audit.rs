//! What the operator sent, as the API server's audit log has it.

use serde_json::Value;

use crate::process::OPERATOR_USER;

/// Requests of the operator in a namespace, as `verb resource name`.
pub fn requests(namespace: &str, keep: impl Fn(&Value) -> bool) -> Vec<String> {
    let path = std::env::var("MOORING_AUDIT_LOG").expect("MOORING_AUDIT_LOG names the audit log");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["impersonatedUser"]["username"] == OPERATOR_USER)
        .filter(|event| event["objectRef"]["namespace"] == namespace)
        .filter(keep)
        .map(|event| {
            let of = &event["objectRef"];
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            format!(
                "{} {} {}",
                text(&event["verb"]),
                text(&of["resource"]),
                text(&of["name"])
            )
        })
        .collect()
}

/// Writes of the operator, but for renewals of its lease and Events.
pub fn writes(namespace: &str) -> Vec<String> {
    requests(namespace, |event| {
        let resource = event["objectRef"]["resource"].as_str().unwrap_or_default();
        matches!(
            event["verb"].as_str(),
            Some("create" | "update" | "patch" | "delete")
        ) && !matches!(resource, "leases" | "events")
    })
}

/// Reads of Secrets.
pub fn secret_reads(namespace: &str) -> Vec<String> {
    requests(namespace, |event| {
        event["objectRef"]["resource"] == "secrets"
            && matches!(event["verb"].as_str(), Some("get" | "list" | "watch"))
    })
}
