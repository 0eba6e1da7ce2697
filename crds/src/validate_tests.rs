#![allow(clippy::unwrap_used)]

use super::*;

/// A Workspace that is right, as JSON to be changed.
fn good() -> serde_json::Value {
    serde_json::json!({
        "repo": {"url": "https://example.org/team/project.git", "ref": "feature/x-1", "partialClone": true,
            "alsoFetch": ["https://example.org/team/protos.git"], "credentialsSecretRef": {"name": "git"}},
        "models": [
            {"name": "main", "provider": "anthropic", "model": "m", "apiKeyEnv": "MY_KEY",
             "endpoint": "http://localhost:8000/v1", "contextWindow": 1000, "maxOutput": 100,
             "price": {"input": 3.0, "cachedInput": 0.3, "output": 15.0}},
            {"name": "play", "provider": "rehearsal"},
        ],
        "members": [
            {"discordUserId": "123456789012345678", "kubernetesUser": "ann", "role": "Maintainer"},
            {"discordRoleId": "42", "role": "User"},
        ],
        "policy": {
            "tool": {"*": "allow"}, "bash": {"git push*": "ask"}, "path": {"*.env": "deny"},
            "mcp": {"mcp__*": "ask"},
            "tests": [{"bash": "git push", "expect": "ask"}],
        },
        "mcp": [{"name": "tracker", "url": "https://mcp.example.com/", "headersEnv": {"Authorization": "TOKEN"}},
                {"name": "db", "command": ["mcp-db", "--read-only"], "replay": "Safe"}],
        "approvals": {"timeout": "1h30m", "requesterMayApprove": true},
        "budgets": {"perRun": {"turns": 10, "toolCalls": 50, "tokens": 100000,
                               "costUsd": "2.50", "wallTime": "30m"}},
        "retention": {"transcripts": "90d", "audit": "365d"},
        "sandbox": {"env": {"CI": "1"}, "readOnly": ["/opt/tools", "~/.cargo/bin"],
                    "outputBytes": 4096},
    })
}

fn problems(value: serde_json::Value) -> Vec<Problem> {
    validate(&serde_json::from_value(value).unwrap())
}

#[test]
fn a_right_workspace_has_no_problems() {
    assert_eq!(problems(good()), []);
}

#[test]
fn each_wrong_value_is_told_with_its_path() {
    use serde_json::json;
    for (place, value, path) in [
        ("/repo/url", json!("ftp://example.org/x"), "spec.repo.url"),
        (
            "/repo/url",
            json!("ssh://git@example.org/x.git"),
            "spec.repo.url",
        ),
        (
            "/repo/alsoFetch",
            json!(["https://example.org/team/project.git"]),
            "spec.repo.alsoFetch[0]",
        ),
        (
            "/repo/alsoFetch",
            json!(["git@example.org:other"]),
            "spec.repo.alsoFetch[0]",
        ),
        (
            "/repo/credentialsSecretRef",
            json!({"name": ""}),
            "spec.repo.credentialsSecretRef.name",
        ),
        (
            "/repo/url",
            json!("https://me@example.org/x"),
            "spec.repo.url",
        ),
        ("/repo/url", json!("https://example.org"), "spec.repo.url"),
        (
            "/repo/url",
            json!("https://example.org/a b"),
            "spec.repo.url",
        ),
        ("/repo/url", json!("git@example.org:x"), "spec.repo.url"),
        ("/repo/ref", json!("--upload-pack=x"), "spec.repo.ref"),
        ("/repo/ref", json!("a..b"), "spec.repo.ref"),
        ("/repo/ref", json!(""), "spec.repo.ref"),
        ("/models", json!([]), "spec.models"),
        ("/models/0/name", json!(""), "spec.models[0].name"),
        ("/models/0/name", json!("two words"), "spec.models[0].name"),
        ("/models/1/name", json!("main"), "spec.models[1].name"),
        ("/models/0/model", json!(""), "spec.models[0].model"),
        (
            "/models/0/endpoint",
            json!("localhost:8000"),
            "spec.models[0].endpoint",
        ),
        (
            "/models/0/endpoint",
            json!("ftp://x"),
            "spec.models[0].endpoint",
        ),
        (
            "/models/0/endpoint",
            json!("http:///v1"),
            "spec.models[0].endpoint",
        ),
        (
            "/models/0/apiKeyEnv",
            json!("MY-KEY"),
            "spec.models[0].apiKeyEnv",
        ),
        (
            "/models/0/apiKeyEnv",
            json!("1KEY"),
            "spec.models[0].apiKeyEnv",
        ),
        (
            "/models/1",
            json!({"name": "play", "provider": "rehearsal", "contextWindow": 0}),
            "spec.models[1].contextWindow",
        ),
        (
            "/models/0/contextWindow",
            json!(50),
            "spec.models[0].maxOutput",
        ),
        (
            "/models/0/maxOutput",
            json!(1001),
            "spec.models[0].maxOutput",
        ),
        (
            "/models/0/price/input",
            json!(-1.0),
            "spec.models[0].price.input",
        ),
        (
            "/models/0/price/cachedInput",
            json!(-0.1),
            "spec.models[0].price.cachedInput",
        ),
        ("/members/0", json!({"role": "User"}), "spec.members[0]"),
        (
            "/members/0",
            json!({"role": "User", "discordUserId": "1", "discordRoleId": "2"}),
            "spec.members[0]",
        ),
        (
            "/members/1",
            json!({"role": "User", "kubernetesUser": "bo"}),
            "spec.members[1]",
        ),
        (
            "/members/1",
            json!({"role": "User", "discordRoleId": "2", "kubernetesUser": "bo"}),
            "spec.members[1].kubernetesUser",
        ),
        (
            "/members/1/discordRoleId",
            json!("@team"),
            "spec.members[1].discordRoleId",
        ),
        (
            "/members/1/discordRoleId",
            json!("99999999999999999999"),
            "spec.members[1].discordRoleId",
        ),
        (
            "/members/0/kubernetesUser",
            json!(""),
            "spec.members[0].kubernetesUser",
        ),
        ("/policy/bash", json!({"": "ask"}), "spec.policy.bash"),
        ("/policy/mcp", json!({"": "ask"}), "spec.policy.mcp"),
        ("/mcp/0/name", json!("a__b"), "spec.mcp[0].name"),
        ("/mcp/0/name", json!("Tracker"), "spec.mcp[0].name"),
        ("/mcp/1/name", json!("tracker"), "spec.mcp[1].name"),
        ("/mcp/0/url", json!("mcp.example.com"), "spec.mcp[0].url"),
        (
            "/mcp/0",
            json!({"name": "x", "url": "https://x/", "command": ["mcp"]}),
            "spec.mcp[0]",
        ),
        ("/mcp/1/command", json!([]), "spec.mcp[1]"),
        ("/mcp/1/command", json!([""]), "spec.mcp[1].command"),
        (
            "/mcp/1",
            json!({"name": "x", "command": ["mcp"], "headersSecretRef": {"name": "s"}}),
            "spec.mcp[1]",
        ),
        (
            "/mcp/0/headersEnv",
            json!({"X Y": "TOKEN"}),
            "spec.mcp[0].headersEnv",
        ),
        (
            "/mcp/0/headersEnv",
            json!({"X-Y": "MY TOKEN"}),
            "spec.mcp[0].headersEnv[\"X-Y\"]",
        ),
        ("/policy/path", json!({"a\u{0}": "ask"}), "spec.policy.path"),
        (
            "/policy/tests/0",
            json!({"expect": "ask"}),
            "spec.policy.tests[0]",
        ),
        (
            "/policy/tests/0",
            json!({"bash": "a", "tool": "b", "expect": "ask"}),
            "spec.policy.tests[0]",
        ),
        (
            "/policy/tests/0",
            json!({"bash": " ", "expect": "ask"}),
            "spec.policy.tests[0]",
        ),
        (
            "/approvals/timeout",
            json!("soon"),
            "spec.approvals.timeout",
        ),
        ("/approvals/timeout", json!("0s"), "spec.approvals.timeout"),
        (
            "/budgets/perRun/turns",
            json!(0),
            "spec.budgets.perRun.turns",
        ),
        (
            "/budgets/perRun/costUsd",
            json!("2,50"),
            "spec.budgets.perRun.costUsd",
        ),
        (
            "/budgets/perRun/costUsd",
            json!("-1"),
            "spec.budgets.perRun.costUsd",
        ),
        (
            "/budgets/perRun/wallTime",
            json!("never"),
            "spec.budgets.perRun.wallTime",
        ),
        (
            "/budgets/perRun/wallTime",
            json!("1 h"),
            "spec.budgets.perRun.wallTime",
        ),
        (
            "/retention/transcripts",
            json!("never"),
            "spec.retention.transcripts",
        ),
        ("/retention/audit", json!("1y"), "spec.retention.audit"),
        ("/sandbox/env", json!({"A B": "x"}), "spec.sandbox.env.A B"),
        ("/sandbox/env", json!({"A": "x\u{0}"}), "spec.sandbox.env.A"),
        (
            "/sandbox/readOnly/0",
            json!("tools"),
            "spec.sandbox.readOnly[0]",
        ),
        ("/sandbox/outputBytes", json!(1), "spec.sandbox.outputBytes"),
    ] {
        let mut workspace = good();
        *workspace.pointer_mut(place).unwrap() = value.clone();
        let found = problems(workspace);
        assert_eq!(found.len(), 1, "{place} = {value}: {found:?}");
        assert_eq!(found[0].path, path, "{place} = {value}");
        assert!(!found[0].message.is_empty());
    }
}

#[test]
fn a_member_that_stands_twice_is_told() {
    let mut workspace = good();
    workspace["members"][1] =
        serde_json::json!({"discordUserId": "123456789012345678", "role": "User"});
    let found = problems(workspace);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "spec.members[1].discordUserId");
}

#[test]
fn all_problems_are_told_at_once() {
    let mut workspace = good();
    workspace["models"][0]["endpoint"] = "x".into();
    workspace["approvals"]["timeout"] = "x".into();
    assert_eq!(problems(workspace).len(), 2);
}

#[test]
fn an_address_by_ssh_is_told_its_https_form() {
    for (given, https) in [
        (
            "ssh://git@example.org/team/x.git",
            Some("https://example.org/team/x.git"),
        ),
        ("ssh://example.org:2222/x", Some("https://example.org/x")),
        (
            "git@example.org:team/x.git",
            Some("https://example.org/team/x.git"),
        ),
        ("example.org:x", Some("https://example.org/x")),
        ("https://example.org/x", None),
        ("http://example.org:80/x", None),
        ("/srv/x", None),
        ("", None),
    ] {
        assert_eq!(
            crate::validate::https_form(given).as_deref(),
            https,
            "{given}"
        );
    }
}
