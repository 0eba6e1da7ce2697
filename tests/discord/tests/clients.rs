//! The stand-in is tested with client libraries that are not ours: what they
//! accept as Discord is Discord enough, and where they obey it is as strict.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use mooring_discord_standin::StandIn;
use tokio::process::Command;

const BOUND: Duration = Duration::from_secs(240);

fn clients() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

async fn installed() -> String {
    let output = Command::new(clients().join("install"))
        .output()
        .await
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the client libraries could not be installed: {errors}"
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a client's script to its end; what it printed.
async fn run(standin: &StandIn, mut command: Command) -> String {
    command
        .env("STANDIN_REST", standin.rest())
        .env("STANDIN_GATEWAY", standin.gateway())
        .kill_on_drop(true);
    let output = tokio::time::timeout(BOUND, command.output())
        .await
        .expect("the script ends within its bound")
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the script failed after:\n{printed}\n{errors}"
    );
    printed
}

fn check_ledger(standin: &StandIn, token: &str) {
    standin.look(|world| {
        let ledger = &world.ledger;
        let application = world.by_token(token).unwrap().id;
        assert!(
            ledger.gateway_count("identify") >= 2,
            "{:?}",
            ledger.gateway
        );
        assert!(ledger.gateway_count("resumed") >= 2, "{:?}", ledger.gateway);
        assert_eq!(ledger.gateway_count("budget-exhausted"), 0);
        assert!(ledger.heartbeats > 0);
        // One 429 was the flood's; after its own at most one, the library waited.
        assert!(
            (1..=3).contains(&ledger.limited()),
            "{} answers of 429",
            ledger.limited()
        );
        let after = world
            .channels
            .values()
            .flat_map(|channel| channel.messages.values())
            .filter(|message| message.author == application && message.content == "after the limit")
            .count();
        assert_eq!(after, 1, "the limited message is there once");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discord_py_logs_in_resumes_sends_edits_and_obeys_a_limit() {
    let folder = installed().await;
    let standin = StandIn::start(0).await.unwrap();
    standin.act(|world| world.settings.heartbeat_ms = 1_000);
    let mut command = Command::new(Path::new(&folder).join("py/bin/python"));
    command.arg(clients().join("discord_py.py"));
    let printed = run(&standin, command).await;
    assert_eq!(
        printed
            .lines()
            .filter(|line| line.starts_with("ok: "))
            .count(),
        9,
        "{printed}"
    );
    check_ledger(&standin, "token-of-discord-py");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discord_js_logs_in_resumes_sends_edits_and_obeys_a_limit() {
    let folder = installed().await;
    let standin = StandIn::start(0).await.unwrap();
    standin.act(|world| world.settings.heartbeat_ms = 1_000);
    let mut command = Command::new("node");
    command.env("NODE_PATH", Path::new(&folder).join("node_modules"));
    command.arg(clients().join("discord_js.cjs"));
    let printed = run(&standin, command).await;
    assert_eq!(
        printed
            .lines()
            .filter(|line| line.starts_with("ok: "))
            .count(),
        8,
        "{printed}"
    );
    check_ledger(&standin, "token-of-discord-js");
}
