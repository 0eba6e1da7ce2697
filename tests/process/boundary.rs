//! What commands reach outside: real programs, through the real sandbox and the
//! real harness, to a TLS server of the tests.

use std::{os::unix::fs::PermissionsExt, path::PathBuf, process::Command};

use mooring_tests::{
    project::{Client, Project, told},
    world::World,
};
use serde_json::Value;

const ALLOW: &str = "  tool: {\"*\": allow}\n  bash: {\"*\": allow}\n  path: {\"*\": allow}\n  externalDirectory: allow\n";

/// A project whose commands may reach `egress` (YAML) of this world; `sandbox` is
/// more of `spec.sandbox`.
fn project(world: &World, egress: &str, sandbox: &str) -> Project {
    let mut project = Project::with_spec(&format!(
        "models: [{{name: rehearsal, provider: rehearsal, model: \"\"}}]\n\
         approvals: {{timeout: never, requesterMayApprove: true}}\n\
         policy:\n{ALLOW}  egress: {egress}\n\
         sandbox:\n{sandbox}{}",
        world.ca_bundle()
    ));
    project.variables = world.variables();
    project
}

/// Starts a command; the conversation it runs in. It lies in a file, so that the
/// policy has nothing to ask about what is in it.
async fn start(project: &Project, client: &mut Client, conversation: i64, command: &str) -> i64 {
    let file = project.path("step.sh");
    std::fs::write(&file, format!("#!/bin/bash\n{command}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    project.submit(client, conversation, "run ./step.sh").await
}

/// The result of the conversation's last call, once the run has ended.
async fn result(project: &Project, client: &mut Client, conversation: i64) -> String {
    let view = project.idle(client, conversation).await;
    let mut entries = view.entries.iter();
    let result = entries.rfind(|entry| entry.kind == "pi.tool-result");
    result.unwrap().text.clone()
}

async fn run(project: &Project, client: &mut Client, command: &str) -> String {
    let conversation = start(project, client, 0, command).await;
    result(project, client, conversation).await
}

fn egress(project: &Project) -> Vec<Value> {
    let output = project.mooring(&["egress", "--output", "json"]);
    assert!(output.status.success(), "{}", told(&output));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Waits until the records are as `told`: one is written as its connection ends,
/// which is a moment after its command has what it wanted.
async fn recorded(project: &Project, told: impl Fn(&[Value]) -> bool) {
    let mut rows = Vec::new();
    for _ in 0..200 {
        rows = egress(project);
        if told(&rows) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the records are otherwise: {rows:#?}");
}

fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", told(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn package_managers_work_as_people_run_them() {
    let world = World::start().await;
    // Toolchains may lie anywhere on a machine of tests; the sandbox sees these.
    let cargo = PathBuf::from(printed("rustc", &["--print", "sysroot"]));
    let python = PathBuf::from(printed(
        "python3",
        &["-c", "import sys; print(sys.base_prefix)"],
    ));
    let go = PathBuf::from(printed("go", &["env", "GOROOT"]));
    let folders = [&cargo, &python, &go];
    let path: Vec<String> = folders
        .iter()
        .map(|folder| format!("{}/bin", folder.display()))
        .chain(["/usr/local/bin".into(), "/usr/bin".into(), "/bin".into()])
        .collect();
    let hidden: Vec<String> = folders
        .iter()
        .filter(|folder| !folder.starts_with("/usr"))
        .map(|folder| folder.display().to_string())
        .collect();
    let hosts: Vec<String> = [
        "index.crates.io",
        "static.crates.io",
        "registry.npmjs.org",
        "pypi.org",
        "files.pythonhosted.org",
        "proxy.golang.org",
    ]
    .iter()
    .map(|host| format!("\"{host}:443\": allow"))
    .collect();
    // Nobody but Go's own server can sign what its checksum database says; and the
    // machine's own settings of pip are not those of the tests.
    let sandbox = format!(
        "  readOnly: [{}]\n  env: {{PATH: \"{}\", GOSUMDB: \"off\", PIP_CONFIG_FILE: /dev/null}}\n",
        hidden.join(", "),
        path.join(":")
    );
    let project = project(&world, &format!("{{{}}}", hosts.join(", ")), &sandbox);
    for (name, text) in [
        (
            "rust/Cargo.toml",
            "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ntiny-crate = \"1\"\n",
        ),
        ("rust/src/lib.rs", ""),
        (
            "node/package.json",
            "{\"name\":\"x\",\"version\":\"1.0.0\"}",
        ),
        ("go/go.mod", "module x\n\ngo 1.18\n"),
    ] {
        let path = project.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut client = project.client().await;
    for (command, expected) in [
        (
            "cd rust && cargo fetch && ls ~/.cargo/registry/src/*",
            "tiny-crate-1.0.0",
        ),
        (
            "cd node && npm install tiny-package && node -e \"console.log('tiny', require('tiny-package'))\"",
            "tiny 7",
        ),
        (
            "python3 -m pip install --disable-pip-version-check --target py tiny-wheel && ls py",
            "tiny_wheel.py",
        ),
        (
            "cd go && go get example.com/tiny@v1.0.0 && cat go.mod",
            "example.com/tiny v1.0.0",
        ),
        // Nothing else is reached, and the model is told the rule.
        (
            "curl -sS https://crates.example/",
            "egress: {\"crates.example:443\": allow}",
        ),
    ] {
        let told = run(&project, &mut client, command).await;
        assert!(told.contains(expected), "{command}\n{told}");
    }
    recorded(&project, |rows| {
        let done = |host: &str| {
            rows.iter().any(|row| {
                row["host"] == host
                    && row["verdict"] == "allow"
                    && row["outcome"] == "done"
                    && row["received"].as_i64() > Some(0)
            })
        };
        let hosts = [
            "index.crates.io",
            "registry.npmjs.org",
            "pypi.org",
            "proxy.golang.org",
        ];
        let refused = |row: &Value| row["host"] == "crates.example" && row["verdict"] == "deny";
        hosts.into_iter().all(done) && rows.iter().any(refused)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_allowed_is_refused_with_the_rule_that_would_allow_it() {
    let world = World::start().await;
    let table = "{\"packages.example:443\": allow}";
    let project = project(&world, table, "");
    let mut client = project.client().await;
    for (command, expected) in [
        (
            "curl -sS https://packages.example/file",
            "hello from outside",
        ),
        // A host of the same server that no rule names.
        (
            "curl -sS https://elsewhere.example/file",
            "egress: {\"elsewhere.example:443\": allow}",
        ),
        // A redirect is a connection of its own.
        (
            "curl -sSL https://packages.example/away",
            "egress: {\"unlisted.example:443\": allow}",
        ),
        (
            "curl -sS http://packages.example/file",
            "plain HTTP does not leave the sandbox",
        ),
        (
            "curl -sS https://packages.example:8443/file",
            "egress: {\"packages.example:8443\": allow}",
        ),
        (
            "curl -sS https://PACKAGES.example/file -o out.txt; cat out.txt",
            "",
        ),
        // The name of the TLS handshake is another one.
        (
            "curl -sS --connect-to elsewhere.example:443:packages.example:443 https://elsewhere.example/file",
            "another host than the connection's",
        ),
        // Without its credential no one is served.
        (
            "curl -sS --proxy http://127.0.0.1:${https_proxy##*:} https://packages.example/file",
            "response 407",
        ),
        (
            "curl -sS --noproxy '' --proxy '' http://127.0.0.1:${https_proxy##*:}/git/x",
            "no credential of a running command",
        ),
        (
            "curl -sS --noproxy '*' --max-time 5 https://packages.example/file",
            "Could not resolve host",
        ),
    ] {
        let told = run(&project, &mut client, command).await;
        assert!(told.contains(expected), "{command}\n{told}");
    }
    // What was refused has not reached the server.
    let seen = world.seen();
    assert!(
        seen.iter()
            .all(|name| name.starts_with("packages.example/")),
        "{seen:?}"
    );
    recorded(&project, |rows| {
        rows.iter().any(|row| row["outcome"] == "done")
    })
    .await;
    let text = project.mooring(&["egress"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.lines().any(|line| line.contains("allow")
            && line.contains("packages.example:443  by egress rule \"packages.example:443\"")
            && line.contains("→ done in")),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_connection_of_a_conversation_waits_for_a_yes() {
    let world = World::start().await;
    let project = project(&world, "{\"packages.example:443\": ask}", "");
    let mut client = project.client().await;
    let fetch = "curl -sS https://packages.example/file";
    let conversation = start(&project, &mut client, 0, fetch).await;
    let approval = project.approval(&mut client, conversation).await;
    assert!(
        told_of(&approval).contains("packages.example:443"),
        "{approval:#?}"
    );
    let approved = project.mooring(&["approve", &approval.id]);
    assert!(approved.status.success(), "{}", told(&approved));
    let text = result(&project, &mut client, conversation).await;
    assert!(text.contains("hello from outside"), "{text}");
    // The conversation has it from now on; another one asks anew.
    start(&project, &mut client, conversation, fetch).await;
    let text = result(&project, &mut client, conversation).await;
    assert!(text.contains("hello from outside"), "{text}");
    let other = start(&project, &mut client, 0, fetch).await;
    let approval = project.approval(&mut client, other).await;
    let denied = project.mooring(&["deny", &approval.id, "--reason", "not today"]);
    assert!(denied.status.success(), "{}", told(&denied));
    let text = result(&project, &mut client, other).await;
    assert!(text.contains("denied it: not today"), "{text}");
    let row = |done: bool| (Value::from("ask"), done);
    recorded(&project, |rows| {
        let rows = rows
            .iter()
            .map(|row| (row["verdict"].clone(), row["outcome"] == "done"));
        rows.eq([row(true), row(true), row(false)])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_command_leaves_is_done() {
    let world = World::start().await;
    let project = project(&world, "{\"packages.example:443\": allow}", "");
    let mut client = project.client().await;
    let leave = "curl -sS --max-time 1 -o /dev/null https://packages.example/drip; echo left $?";
    let text = run(&project, &mut client, leave).await;
    assert!(text.contains("left 28"), "{text}");
    recorded(&project, |rows| {
        rows.iter().any(|row| row["outcome"] == "done")
    })
    .await;
}

fn told_of(approval: &mooring_wire::harness::Approval) -> String {
    format!("{approval:?}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_harness_ends_connections_with_an_error_and_lets_new_ones_wait() {
    let world = World::start().await;
    let project = project(&world, "{\"packages.example:443\": allow}", "");
    let mut client = project.client().await;
    let command = "curl -sS -o /dev/null https://packages.example/drip; echo first $?; \
                   curl -sS --retry 5 --retry-all-errors https://packages.example/file; echo second $?";
    let conversation = start(&project, &mut client, 0, command).await;
    world.dripping(1).await;
    recorded(&project, |rows| !rows.is_empty()).await;
    project.kill_harness().await;
    let mut client = project.client().await;
    let text = result(&project, &mut client, conversation).await;
    // Never taken for the end of the answer.
    assert!(
        text.contains("first ") && !text.contains("first 0"),
        "{text}"
    );
    assert!(text.contains("hello from outside\nsecond 0"), "{text}");
    recorded(&project, |rows| rows[0]["outcome"] == "the harness ended").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_download_stalls_no_other_and_two_hundred_go_at_once() {
    let world = World::start().await;
    let project = project(&world, "{\"packages.example:443\": allow}", "");
    let mut client = project.client().await;
    let command = "curl -sS --limit-rate 1k -o /dev/null https://packages.example/bytes/50000000 & \
                   curl -sS https://packages.example/bytes/20000000 | wc -c; kill %1; wait";
    let text = run(&project, &mut client, command).await;
    assert!(text.contains("20000000"), "{text}");
    // curl reads its authorities for each connection; one is read faster than all.
    std::fs::write(project.path("authority.pem"), &world.authority).unwrap();
    let command = "curl -sS --cacert authority.pem --no-progress-meter --parallel \
                   --parallel-immediate --parallel-max 200 \
                   'https://packages.example/meet/200/[1-200]' | sort | uniq -c";
    let text = run(&project, &mut client, command).await;
    assert!(text.contains("200 met"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_has_no_more_bytes_than_the_workspace_gives_it() {
    let world = World::start().await;
    let limits = "  egressLimits: {connections: 2, bytesDaily: 1Mi, time: 1m}\n";
    let project = project(&world, "{\"packages.example:443\": allow}", limits);
    let mut client = project.client().await;
    let more = "curl -sS https://packages.example/bytes/5000000 | wc -c";
    let text = run(&project, &mut client, more).await;
    assert!(text.contains("the day's bytes are used up"), "{text}");
    let text = run(&project, &mut client, more).await;
    assert!(text.contains("the 1Mi of this day"), "{text}");
    // The next process knows.
    project.kill_harness().await;
    let mut client = project.client().await;
    let text = run(&project, &mut client, more).await;
    assert!(text.contains("the 1Mi of this day"), "{text}");
}
