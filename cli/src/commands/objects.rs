//! `approvals`, `approve` and `deny` in a cluster: by the Approval objects, so that
//! the API server says who decided.

use serde_json::json;

use super::say;
use crate::args::ScopeArg;
use crate::cluster::ClusterArgs;
use crate::error::Error;
use crate::exit::Exit;

/// Lists them as `kubectl get approvals` does.
pub async fn list(cluster: &ClusterArgs, all: bool, json: bool) -> Result<Exit, Error> {
    let mut arguments = vec!["get", "approvals.mooring.dev"];
    if !all {
        arguments.push("--field-selector=status.phase=Pending");
    }
    if json {
        arguments.push("--output=json");
    }
    let text = cluster.run(&arguments).await?;
    match text.trim_end() {
        "" => say("no approval waits")?,
        text => say(text)?,
    }
    Ok(Exit::Done)
}

/// Writes a decision into an Approval.
pub async fn decide(
    cluster: &ClusterArgs,
    name: &str,
    verdict: &str,
    scope: ScopeArg,
    reason: &str,
) -> Result<Exit, Error> {
    // An admission policy of older API servers compares it with the sender, newer
    // ones stamp it.
    let user = cluster
        .run(&[
            "auth",
            "whoami",
            "--output=jsonpath={.status.userInfo.username}",
        ])
        .await?;
    let mut decision = json!({"verdict": verdict, "decidedBy": user.trim()});
    match scope {
        ScopeArg::Once => {}
        ScopeArg::Conversation => decision["scope"] = json!("Conversation"),
        ScopeArg::Workspace => decision["scope"] = json!("Workspace"),
    }
    if !reason.is_empty() {
        decision["reason"] = json!(reason);
    }
    let patch = json!({"spec": {"decision": decision}}).to_string();
    cluster
        .run(&[
            "patch",
            "approvals.mooring.dev",
            name,
            "--type=merge",
            "--patch",
            &patch,
        ])
        .await?;
    say(format!(
        "{name}: {} as {}",
        verdict.to_lowercase(),
        user.trim()
    ))?;
    Ok(Exit::Done)
}
