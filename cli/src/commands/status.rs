//! `mooring status`: what runs, and how it is set up.

use std::path::Path;

use mooring_wire::harness::StatusResponse;
use mooring_wire::harness::status_response::McpServer;

use super::say;
use crate::args::{Output, OutputArgs};
use crate::cards::{self, grade, is_starting};
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::text::{one_line, sanitize};
use crate::{format, json, keys, setup};

/// Prints how the harness is.
pub async fn run(project: Option<&Path>, args: OutputArgs) -> Result<Exit, Error> {
    let connection = Connection::attach(setup::running_plan(project).await?).await?;
    match args.output {
        Output::Json => say(json::status(&connection.status))?,
        Output::Text => {
            let log = connection.plan().state.log();
            let lines = lines(&connection.status, &log, format::now_ms());
            lines.into_iter().try_for_each(say)?;
        }
    }
    Ok(Exit::Done)
}

/// One line a fact.
pub fn lines(status: &StatusResponse, log: &Path, now_ms: i64) -> Vec<String> {
    let fact = |name: &str, value: String| format!("{name:<10}  {value}");
    let workspace = match status.workspace_path.as_str() {
        "" => format!(
            "{} (the default; `mooring init` prints it)",
            one_line(&status.workspace, 60)
        ),
        path => format!(
            "{} ({})",
            one_line(&status.workspace, 60),
            one_line(path, 300)
        ),
    };
    let mut lines = vec![
        fact("project", one_line(&status.project, 300)),
        fact("workspace", workspace),
        fact("model", one_line(&status.model, 60)),
    ];
    if !status.missing_keys.is_empty() {
        let keys = keys::labels(&status.missing_keys);
        lines.push(fact(
            "",
            format!("missing: {keys}; set it and run `mooring dev` again"),
        ));
    }
    lines.push(fact("sandbox", sandbox(status)));
    for (at, server) in status.mcp.iter().enumerate() {
        let name = if at == 0 { "servers" } else { "" };
        lines.push(fact(name, mcp(server, now_ms)));
    }
    lines.push(fact(
        "policy",
        sanitize(&status.policy_digest).chars().take(12).collect(),
    ));
    if !status.workspace_error.is_empty() {
        lines.push(fact(
            "",
            format!(
                "the file is wrong, the last good one is in use: {}",
                sanitize(&status.workspace_error)
            ),
        ));
    }
    if !status.pending_changes.is_empty() {
        lines.push(fact(
            "",
            "the changed file permits more; it waits for a yes in `mooring dev`:".into(),
        ));
        lines.extend(
            status
                .pending_changes
                .iter()
                .map(|change| fact("", format!("  {}", one_line(change, 200)))),
        );
    }
    lines.push(fact(
        "work",
        format!(
            "{} running, {} waiting, {}",
            status.running,
            status.waiting,
            format::count(status.pending_approvals.into(), "open approval")
        ),
    ));
    if !status.database_error.is_empty() {
        lines.push(fact(
            "database",
            format!(
                "{} is damaged: {}",
                sanitize(&status.database_path),
                sanitize(&status.database_error)
            ),
        ));
    }
    if let Some(text) = cards::full_disk(status, now_ms) {
        lines.push(fact("", text));
    }
    lines.push(fact(
        "harness",
        format!(
            "version {}, process {}, since {}, database {}",
            one_line(&status.version, 30),
            status.pid,
            format::span(now_ms - status.started_ms),
            format::bytes(status.database_bytes)
        ),
    ));
    lines.push(fact("log", log.display().to_string()));
    lines
}

fn mcp(server: &McpServer, now_ms: i64) -> String {
    let name = one_line(&server.name, 40);
    let tools = format::count(server.tools.into(), "tool");
    match server.state.as_str() {
        "down" => format!(
            "{name} down for {}: {}",
            format::span(now_ms - server.since_ms),
            one_line(&server.error, 300)
        ),
        state => format!("{name} {}, {tools}", one_line(state, 20)),
    }
}

fn sandbox(status: &StatusResponse) -> String {
    let Some(sandbox) = &status.sandbox else {
        return "starting".into();
    };
    let mut text = match (sandbox.reachable, sandbox.error.as_str()) {
        _ if is_starting(sandbox) => "starting".into(),
        (true, "") => grade(&sandbox.grade),
        (true, error) => format!("{}: {}", grade(&sandbox.grade), one_line(error, 300)),
        (false, error) => format!("not reachable: {}", one_line(error, 300)),
    };
    if !sandbox.warning.is_empty() {
        text.push_str(&format!(" ({})", one_line(&sandbox.warning, 300)));
    }
    if !sandbox.address.is_empty() {
        text.push_str(&format!(", at {}", one_line(&sandbox.address, 100)));
    }
    if !sandbox.project.is_empty() {
        text.push_str(&format!(" in {}", one_line(&sandbox.project, 200)));
    }
    if !sandbox.missing.is_empty() {
        text.push_str(&format!(
            "; missing: {}",
            one_line(&sandbox.missing.join(", "), 300)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use mooring_wire::harness::status_response::Sandbox;

    #[test]
    fn a_full_disk_is_named_with_what_happens_next() {
        let status = StatusResponse {
            full_since_ms: 1_000,
            database_path: "/s/mooring.db".into(),
            ..StatusResponse::default()
        };
        let told = lines(&status, Path::new("/s/harness.log"), 61_000);
        assert!(
            told.iter().any(|line| line.trim_start()
                == "the disk of /s/mooring.db has been full for 1 min 00 s: runs wait and \
                    go on by themselves once there is room; nothing that was shown is lost"),
            "{told:#?}"
        );
    }

    #[test]
    fn the_status_tells_what_is_wrong_and_the_way_out() {
        let status = StatusResponse {
            version: "0.1.0".into(),
            workspace: "demo".into(),
            project: "/home/ann/demo".into(),
            model: "claude".into(),
            missing_keys: vec!["ANTHROPIC_API_KEY".into()],
            policy_digest: "0123456789abcdef".into(),
            sandbox: Some(Sandbox {
                error: "no namespaces".into(),
                ..Sandbox::default()
            }),
            mcp: vec![
                McpServer {
                    name: "db".into(),
                    state: "ready".into(),
                    tools: 3,
                    ..McpServer::default()
                },
                McpServer {
                    name: "tracker".into(),
                    state: "down".into(),
                    since_ms: 55_000,
                    error: "no route".into(),
                    ..McpServer::default()
                },
            ],
            running: 1,
            pending_approvals: 2,
            database_bytes: 4096,
            pid: 9,
            ..StatusResponse::default()
        };
        assert_eq!(
            lines(&status, Path::new("/s/harness.log"), 60_000),
            [
                "project     /home/ann/demo",
                "workspace   demo (the default; `mooring init` prints it)",
                "model       claude",
                "            missing: ANTHROPIC_API_KEY; set it and run `mooring dev` again",
                "sandbox     not reachable: no namespaces",
                "servers     db ready, 3 tools",
                "            tracker down for 5.0 s: no route",
                "policy      0123456789ab",
                "work        1 running, 0 waiting, 2 open approvals",
                "harness     version 0.1.0, process 9, since 1 min 00 s, database 4.0 KiB",
                "log         /s/harness.log",
            ]
        );
    }
}
