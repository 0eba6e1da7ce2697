//! MCP servers that are not ours, in the sandbox and at an address; and servers of our
//! own that behave badly in the sandbox.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use mooring_tests::project::{Client, Project, met, told};
use mooring_wire::harness::{ConversationView, StatusRequest, status_response::McpServer};

/// Where the servers are installed, once.
fn servers() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp/install");
        let output = Command::new(script).output().unwrap();
        assert!(output.status.success(), "{}", told(&output));
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    })
}

/// Where the Python is that runs the servers, which need not be the system's.
fn python() -> &'static str {
    static PREFIX: OnceLock<String> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let output = Command::new(servers().join("py/bin/python"))
            .args(["-c", "import sys; print(sys.base_prefix)"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    })
}

fn everything() -> PathBuf {
    servers().join("node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

/// The everything server at an address, on this side of the sandbox.
struct Remote {
    child: Child,
    port: u16,
}

impl Remote {
    fn start(port: u16) -> Remote {
        let mut child = Command::new("node")
            .arg(everything())
            .arg("streamableHttp")
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listens = lines.any(|line| line.unwrap().contains("listening on port"));
        assert!(listens, "the everything server does not listen");
        // Its log goes nowhere, but has to go.
        std::thread::spawn(move || lines.for_each(drop));
        Remote { child, port }
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.stop();
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A project whose model plays `script`, with these servers (YAML of the list's items).
fn project(servers: &str, policy: &str, script: &str) -> Project {
    let (folder, python) = (self::servers().display(), python());
    let indented: String = servers.lines().map(|line| format!("{line}\n")).collect();
    let policy: String = policy.lines().map(|line| format!("  {line}\n")).collect();
    let project = Project::with_spec(&format!(
        "models: [{{name: rehearsal, provider: rehearsal, model: script.yaml}}]\n\
         approvals: {{timeout: never, requesterMayApprove: true}}\n\
         sandbox: {{readOnly: [{folder}, {python}]}}\n\
         policy:\n{policy}mcp:\n{indented}"
    ));
    std::fs::write(project.path("script.yaml"), script).unwrap();
    project
}

const ALLOW: &str = "tool: {\"*\": allow}\nbash: {\"*\": allow}\npath: {\"*\": allow}";

async fn server(client: &mut Client, name: &str) -> McpServer {
    let status = client.status(StatusRequest {}).await.unwrap().into_inner();
    let found = status.mcp.into_iter().find(|server| server.name == name);
    found.unwrap_or_default()
}

/// Waits until a server stands so.
async fn stands(client: &mut Client, name: &str, state: &str) -> McpServer {
    let begun = std::time::Instant::now();
    loop {
        let found = server(client, name).await;
        if found.state == state {
            return found;
        }
        assert!(
            begun.elapsed() < mooring_tests::project::BOUND,
            "{name} is not {state}: {found:?}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// The texts of all results, in order.
fn results(view: &ConversationView) -> Vec<String> {
    let results = view.entries.iter().filter(|e| e.kind == "pi.tool-result");
    results.map(|entry| entry.text.clone()).collect()
}

#[tokio::test]
async fn servers_that_are_not_ours_are_used_in_the_sandbox_and_at_an_address() {
    let remote = Remote::start(free_port());
    let script = r#"
announce: false
turns:
- calls:
  - {tool: mcp__time__convert_time, arguments: {source_timezone: UTC, time: "12:00", target_timezone: Asia/Tokyo}}
  - {tool: mcp__git__git_status, arguments: {repo_path: PROJECT}}
  - {tool: mcp__all__echo, arguments: {message: from the sandbox}}
  - {tool: mcp__web__echo, arguments: {message: from outside}}
  - {tool: mcp__web__get-sum, arguments: {a: 2, b: 40}}
  - {tool: mcp__web__get-tiny-image, arguments: {}}
  - {tool: mcp__all__get-env, arguments: {}}
- calls:
  - {tool: mcp__git__git_status, arguments: {repo_path: /nowhere}}
  - {tool: mcp__web__get-sum, arguments: {a: two}}
- text: Used.
"#;
    let folder = servers().display();
    let project = project(
        &format!(
            "- {{name: time, command: [{folder}/py/bin/mcp-server-time, --local-timezone, UTC]}}\n\
             - {{name: git, command: [{folder}/py/bin/mcp-server-git]}}\n\
             - {{name: all, command: [node, {}, stdio]}}\n\
             - {{name: web, url: 'http://127.0.0.1:{}/mcp'}}",
            everything().display(),
            remote.port
        ),
        "tool: {\"*\": allow}\n\
         mcp: {\"mcp__git__*\": ask, \"mcp__git__git_status\": allow, \"mcp__all__*\": deny, \"mcp__all__echo\": allow, \
         \"mcp__all__get-env\": allow, \"mcp__web__t*\": deny, \"mcp__*\": allow}\n\
         path: {\"*\": allow}\nexternalDirectory: allow",
        "",
    );
    let script = script.replace("PROJECT", &project.folder.display().to_string());
    std::fs::write(project.path("script.yaml"), script).unwrap();
    std::fs::write(project.path("new.txt"), "x").unwrap();
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "use them").await;
    let view = project.idle(&mut client, conversation).await;
    // They end in any order.
    let results = results(&view);
    for part in [
        "21:00",
        "new.txt",
        "Echo: from the sandbox",
        "Echo: from outside",
        "The sum of 2 and 40 is 42",
        "[1 images]",
        "/nowhere",
        "\"GIT_AUTHOR_NAME\"",
        "do not fit its schema",
    ] {
        assert!(
            results.iter().any(|text| text.contains(part)),
            "{part}: {results:#?}"
        );
    }
    // Nothing of the harness's environment is in the sandbox.
    assert!(!results.concat().contains("XDG_STATE_HOME"), "{results:#?}");
    assert_eq!(view.entries.last().unwrap().text, "Used.");

    for (name, tool) in [("time", 2), ("git", 10), ("all", 5), ("web", 5)] {
        let found = server(&mut client, name).await;
        assert!(found.state == "ready" && found.tools >= tool, "{found:?}");
    }
    let status = project.mooring(&["status"]);
    let text = told(&status);
    assert!(text.contains("web ready, "), "{text}");
    // The policy's own tool says the same of them.
    let explained = project.mooring(&[
        "policy",
        "explain",
        "workspace.yaml",
        "--tool",
        "mcp__git__git_commit",
    ]);
    assert!(told(&explained).contains("ask: "), "{}", told(&explained));
}

#[tokio::test]
async fn a_call_waits_for_a_server_that_is_down_across_a_restart_and_says_since_when() {
    let mut remote = Remote::start(free_port());
    let script = "announce: false\nturns:\n\
                  - calls: [{tool: mcp__web__echo, arguments: {message: one}}]\n\
                  - text: First.\n\
                  - calls: [{tool: mcp__web__echo, arguments: {message: two}}]\n\
                  - text: Second.\n";
    let servers = format!(
        "- {{name: web, url: 'http://127.0.0.1:{}/mcp'}}",
        remote.port
    );
    let project = project(&servers, ALLOW, script);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "once").await;
    project.idle(&mut client, conversation).await;
    remote.stop();
    // The tool is known from before, though nobody answers.
    project.kill_harness().await;
    let mut client = project.client().await;
    let down = stands(&mut client, "web", "down").await;
    assert!(down.since_ms > 0 && down.tools > 0, "{down:?}");
    project.submit(&mut client, conversation, "again").await;
    let waits = |view: &ConversationView| {
        let call = view.calls.iter().find(|call| call.state == "unreachable")?;
        Some(call.note.clone())
    };
    let note = project
        .until(&mut client, conversation, "the call that waits", waits)
        .await;
    assert!(
        note.contains("not reachable since") && note.contains("the server web"),
        "{note}"
    );
    let status = told(&project.mooring(&["status"]));
    assert!(status.contains("web down for"), "{status}");
    let asked = told(&project.mooring(&["entries"]));
    assert!(
        asked.contains("The server web cannot be reached since"),
        "{asked}"
    );
    let remote = Remote::start(remote.port);
    let view = project.idle(&mut client, conversation).await;
    assert_eq!(results(&view), ["Echo: one", "Echo: two"]);
    assert_eq!(view.entries.last().unwrap().text, "Second.");
    drop(remote);
}

/// A server in Python that does what it is told by the name of its tool.
const BAD: &str = r#"
import json, os, sys, time

def send(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

def answer(request, result):
    send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))

print("hello, I am a server")
for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize":
        answer(request, {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                         "serverInfo": {"name": "bad", "version": "1"}})
    elif method == "ping":
        answer(request, {})
    elif method == "tools/list":
        names = ["fine", "die", "garbage", "flood", "noise", "long"]
        answer(request, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]})
    elif method == "tools/call":
        name = request["params"]["name"]
        with open("calls.txt", "a") as file:
            file.write(name + "\n")
        if name == "die":
            sys.stderr.write("out of luck\n")
            os._exit(3)
        if name == "garbage":
            send('{"jsonrpc": "2.0", oh no')
        if name == "flood":
            send('{"x": "' + "y" * (20 << 20) + '"}')
        if name == "noise":
            for at in range(2000):
                print("progress", at)
        text = "".join("line %d\n" % at for at in range(200000)) if name == "long" else "ok " + name
        answer(request, {"content": [{"type": "text", "text": text}]})
"#;

#[tokio::test]
async fn a_result_that_is_too_long_for_the_model_is_kept_whole_in_the_sandbox() {
    let script = "announce: false\nturns:\n\
                  - calls: [{tool: mcp__bad__long, arguments: {}}]\n\
                  - text: Seen.\n";
    let project = project("- {name: bad, command: [python3, bad.py]}", ALLOW, script);
    std::fs::write(project.path("bad.py"), BAD).unwrap();
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "go").await;
    let view = project.idle(&mut client, conversation).await;
    let shown = results(&view).remove(0);
    assert!(shown.starts_with("line 0\nline 1\n"), "{shown}");
    assert!(shown.len() < 60 << 10, "{} bytes", shown.len());
    let whole: usize = (0..200_000).map(|at| format!("line {at}\n").len()).sum();
    let told = format!("The result has {whole} bytes; it is in ");
    let (_, path) = shown.split_once(&told).expect("the model is told where");
    // It says so only where the sandbox has taken all of it.
    assert!(path.starts_with('/'), "{path}");
}

#[tokio::test]
async fn servers_in_the_sandbox_that_die_or_talk_nonsense_are_started_again() {
    let call = |tool: &str| format!("- calls: [{{tool: mcp__bad__{tool}, arguments: {{}}}}]\n");
    let tools = ["noise", "die", "fine", "garbage", "fine", "flood", "fine"];
    let turns: String = tools.iter().map(|tool| call(tool)).collect();
    let script = format!("announce: false\nturns:\n{turns}- text: Done.\n");
    let project = project("- {name: bad, command: [python3, bad.py]}", ALLOW, &script);
    std::fs::write(project.path("bad.py"), BAD).unwrap();
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "go").await;
    let view = project.idle(&mut client, conversation).await;
    let results = results(&view);
    for (at, part) in [
        (0, "ok noise"),
        (1, "interrupted"),
        (2, "ok fine"),
        (3, "interrupted"),
        (4, "ok fine"),
        (5, "interrupted"),
        (6, "ok fine"),
    ] {
        assert!(results[at].contains(part), "{at}: {results:#?}");
    }
    assert_eq!(project.read("calls.txt").lines().collect::<Vec<_>>(), tools);
    // A server that cannot be started says why.
    std::fs::write(
        project.path("bad.py"),
        "import sys\nsys.exit('no such database')\n",
    )
    .unwrap();
    let running = || {
        let daemons = project.daemons();
        !daemons.is_empty()
    };
    met(running).await;
    project.kill_daemon();
    let down = stands(&mut client, "bad", "down").await;
    let mut error = down.error;
    while !error.contains("no such database") {
        error = stands(&mut client, "bad", "down").await.error;
    }
}

#[tokio::test]
async fn many_tools_are_found_on_demand_and_stay_loaded_across_a_restart() {
    let script = "announce: false\nturns:\n\
                  - calls: [{tool: tool_search, arguments: {query: number 77}}]\n\
                  - calls: [{tool: mcp__many__tool_77, arguments: {}}]\n\
                  - text: First.\n\
                  - calls: [{tool: mcp__many__tool_77, arguments: {}}, {tool: mcp__many__tool_5, arguments: {}}]\n\
                  - text: Second.\n";
    let project = project(
        "- {name: many, command: [python3, many.py], replay: Safe}",
        ALLOW,
        script,
    );
    let many = BAD.replace(
        r#"names = ["fine", "die", "garbage", "flood", "noise", "long"]"#,
        r#"names = ["tool_%d" % at for at in range(100)]"#,
    );
    std::fs::write(project.path("many.py"), many).unwrap();
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "look").await;
    let view = project.idle(&mut client, conversation).await;
    let first = results(&view);
    assert!(first[0].contains("mcp__many__tool_77"), "{first:#?}");
    assert_eq!(first[1], "ok tool_77");
    let answer = view.entries.last().unwrap().task.to_string();
    let request = told(&project.mooring(&["entries", "--request", &answer]));
    assert!(request.contains("mcp__many__tool_77") && request.contains("\"tool_search\""));
    assert!(
        !request.contains("mcp__many__tool_5\""),
        "only what was looked for is sent"
    );
    assert!(request.contains("There are more tools than are listed"));
    project.kill_harness().await;
    let mut client = project.client().await;
    project.submit(&mut client, conversation, "again").await;
    let view = project.idle(&mut client, conversation).await;
    let results = results(&view);
    let again = &results[2..];
    assert!(again.contains(&"ok tool_77".to_owned()), "{again:#?}");
    let unknown = "There is no tool mcp__many__tool_5.";
    assert!(
        again.iter().any(|text| text.starts_with(unknown)),
        "{again:#?}"
    );
}
