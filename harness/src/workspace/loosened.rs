//! What a changed Workspace would permit that the present one does not.

use mooring_crds::{Verdict, WorkspaceSpec};

/// One line for people per thing that `new` permits and `old` does not; empty
/// where `new` is the same or stricter. Errs towards telling.
pub fn loosened(old: &WorkspaceSpec, new: &WorkspaceSpec) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, old, new) in [
        ("tool", &old.policy.tool, &new.policy.tool),
        ("bash", &old.policy.bash, &new.policy.bash),
        ("path", &old.policy.path, &new.policy.path),
        ("mcp", &old.policy.mcp, &new.policy.mcp),
        ("git", &old.policy.git, &new.policy.git),
        ("egress", &old.policy.egress, &new.policy.egress),
    ] {
        for (pattern, verdict) in old {
            match new.get(pattern) {
                Some(now) if now < verdict => {
                    lines.push(format!("{name} \"{pattern}\": {verdict} becomes {now}"));
                }
                None if *verdict != Verdict::Allow => {
                    lines.push(format!("{name} \"{pattern}\": {verdict} is removed"));
                }
                _ => {}
            }
        }
        for (pattern, verdict) in new {
            if !old.contains_key(pattern) && *verdict != Verdict::Deny {
                lines.push(format!("{name} \"{pattern}\": {verdict} is new"));
            }
        }
    }
    let external = |spec: &WorkspaceSpec| spec.policy.external_directory.unwrap_or(Verdict::Deny);
    if external(new) < external(old) {
        lines.push(format!(
            "externalDirectory: {} becomes {}",
            external(old),
            external(new)
        ));
    }
    if new.approvals.requester_may_approve && !old.approvals.requester_may_approve {
        lines.push("approvals.requesterMayApprove becomes true".into());
    }
    for path in &new.sandbox.read_only {
        if !old.sandbox.read_only.contains(path) {
            lines.push(format!("sandbox.readOnly: {path} can be read"));
        }
    }
    for (name, value) in &new.sandbox.env {
        if old.sandbox.env.get(name) != Some(value) {
            lines.push(format!("sandbox.env: {name} is set for commands"));
        }
    }
    let address = |spec: &WorkspaceSpec| {
        let url = spec.repo.as_ref().map(|repo| repo.url.clone());
        url.filter(|url| !url.is_empty())
    };
    if let Some(url) = address(new).filter(|_| address(new) != address(old)) {
        lines.push(format!("repo: commands fetch from {url} and push to it"));
    }
    let also = |spec: &WorkspaceSpec| {
        let repo = spec.repo.as_ref();
        repo.map_or_else(Vec::new, |repo| repo.also_fetch.clone())
    };
    for url in also(new) {
        if !also(old).contains(&url) {
            lines.push(format!("repo.alsoFetch: commands fetch from {url}"));
        }
    }
    if new.sandbox.ca_bundle != old.sandbox.ca_bundle && new.sandbox.ca_bundle.is_some() {
        lines.push("sandbox.caBundle: commands trust other authorities".into());
    }
    if new.sandbox.egress_verification.is_warn() && !old.sandbox.egress_verification.is_warn() {
        lines.push(
            "sandbox.egressVerification: commands run though the sandbox may have a network".into(),
        );
    }
    let (before, now) = (&old.sandbox.egress_limits, &new.sandbox.egress_limits);
    if now.connections > before.connections
        || now.bytes() > before.bytes()
        || now.longest() > before.longest()
    {
        lines.push("sandbox.egressLimits become larger".into());
    }
    for model in &new.models {
        // A key goes to wherever a model's requests go.
        let known = old.models.iter().any(|m| {
            m.endpoint == model.endpoint
                && m.provider == model.provider
                && m.api_key_env == model.api_key_env
        });
        if !known {
            let target = model
                .endpoint
                .as_deref()
                .unwrap_or("its provider's own address");
            lines.push(format!(
                "models: requests of {:?} go to {target}",
                model.name
            ));
        }
    }
    for server in &new.mcp {
        if !old.mcp.contains(server) {
            lines.push(match &server.url {
                Some(url) => format!("mcp: tools of {:?} are used, at {url}", server.name),
                None => format!(
                    "mcp: {:?} runs in the sandbox: {}",
                    server.name,
                    server.command.join(" ")
                ),
            });
        }
    }
    if new.members != old.members {
        lines.push("members change".into());
    }
    let (before, now) = (&old.budgets.per_run, &new.budgets.per_run);
    if before != now {
        lines.push("budgets.perRun changes".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use mooring_crds::Policy;

    fn with_bash(rules: &[(&str, Verdict)]) -> WorkspaceSpec {
        WorkspaceSpec {
            policy: Policy {
                bash: rules.iter().map(|(p, v)| ((*p).to_owned(), *v)).collect(),
                ..Policy::default()
            },
            ..WorkspaceSpec::default()
        }
    }

    #[test]
    fn a_looser_rule_is_told_and_a_stricter_one_is_not() {
        let ask = with_bash(&[("git push*", Verdict::Ask)]);
        let allow = with_bash(&[("git push*", Verdict::Allow)]);
        let none = with_bash(&[]);
        assert_eq!(
            loosened(&ask, &allow),
            ["bash \"git push*\": ask becomes allow"]
        );
        assert_eq!(
            loosened(&ask, &none),
            ["bash \"git push*\": ask is removed"]
        );
        assert_eq!(
            loosened(&none, &allow),
            ["bash \"git push*\": allow is new"]
        );
        assert!(loosened(&allow, &ask).is_empty());
        assert!(loosened(&allow, &allow).is_empty());
    }

    #[test]
    fn changed_instructions_permit_nothing() {
        let old = WorkspaceSpec::default();
        let new = WorkspaceSpec {
            instructions: "Be brief.".into(),
            ..WorkspaceSpec::default()
        };
        assert!(loosened(&old, &new).is_empty());
    }
}
