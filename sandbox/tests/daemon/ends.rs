//! How commands end, with everything that they started.

use std::time::Instant;

use mooring_wire::sandbox::ExecRequest;
use mooring_wire::sandbox::outcome::End;
use mooring_wire::sandbox::signal_request::Signal;

use crate::support::{As, Sandbox, request, unique, users};

/// Leaves session, group and parent, ignores what can be ignored, and goes on.
const DAEMONS: &str = "for i in 1 2 3; do setsid bash -c 'trap \"\" TERM HUP INT; (setsid sleep 7777 &) ; echo up >> up; sleep 7777; sleep 7777' >/dev/null 2>&1 & done; while [ \"$(cat up 2>/dev/null | wc -l)\" != 3 ]; do sleep 0.01; done";

async fn sleepers(sandbox: &Sandbox) -> String {
    sandbox.run("pgrep -fc '^sleep 7777'; true").await.ok()
}

#[tokio::test]
async fn an_ended_command_leaves_nothing_behind() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let ran = sandbox.run(&format!("{DAEMONS}; echo done")).await;
        assert_eq!(ran.ok(), "done\n");
        assert_eq!(sleepers(&sandbox).await, "0\n");
    }
}

#[tokio::test]
async fn a_kill_ends_daemons_that_ignore_it() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let id = unique("daemons");
        let mut client = sandbox.client().await;
        let command =
            format!("trap '' TERM; {DAEMONS}; echo ready > ready; sleep 7777; sleep 7777");
        client.exec(request(&id, &command)).await.unwrap();
        sandbox.appears("ready").await;
        assert!(sandbox.signal(&id, Signal::Kill(true)).await);
        assert_eq!(sandbox.attach(&id, 0).await.end().0, End::Killed);
        assert_eq!(sleepers(&sandbox).await, "0\n");
        assert!(!sandbox.signal(&id, Signal::Kill(true)).await);
    }
}

#[tokio::test]
async fn a_command_that_heeds_sigterm_may_clean_up() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let id = unique("polite");
    let mut client = sandbox.client().await;
    let command = "trap 'echo bye; exit 3' TERM; echo ready > ready; while :; do sleep 0.05; done";
    client.exec(request(&id, command)).await.unwrap();
    sandbox.appears("ready").await;
    sandbox.signal(&id, Signal::Kill(true)).await;
    let ran = sandbox.attach(&id, 0).await;
    assert_eq!(ran.end(), (End::Killed, 3));
    assert!(ran.text().ends_with("bye\n"), "{}", ran.text());
}

#[tokio::test]
async fn the_daemon_keeps_the_timeout_though_nobody_is_attached() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let id = unique("timeout");
    let since = Instant::now();
    let request = ExecRequest {
        timeout_ms: 300,
        ..request(&id, "echo before; sleep 600")
    };
    let ran = sandbox.run_as(&id, request).await;
    assert_eq!(
        (ran.end().0, ran.text().as_str()),
        (End::TimedOut, "before\n")
    );
    assert!(since.elapsed().as_secs() < 30);
}

#[tokio::test]
async fn ends_are_told_apart() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let table = [
        ("exit 0", (End::Exited, 0)),
        ("exit 42", (End::Exited, 42)),
        ("kill -SEGV $$", (End::Signaled, 11)),
        ("no-such-program", (End::Exited, 127)),
        ("cat", (End::Exited, 0)),
        (
            "ulimit -f 1; head -c 10000 /dev/zero > big",
            (End::Exited, 153),
        ),
    ];
    for (command, end) in table {
        let ran = sandbox.run(command).await;
        assert_eq!(ran.end(), end, "{command}: {}", ran.text());
        let outcome = ran.outcome.unwrap();
        assert!(outcome.finished_ms >= outcome.started_ms && outcome.started_ms > 0);
        assert!(
            outcome.peak_memory > 100_000,
            "{command}: {}",
            outcome.peak_memory
        );
    }
}

#[tokio::test]
async fn a_time_limit_that_is_held_runs_on_by_itself() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let id = unique("held");
    let limited = ExecRequest {
        timeout_ms: 5_000,
        ..request(&id, "echo before; sleep 600")
    };
    let since = Instant::now();
    sandbox.client().await.exec(limited).await.unwrap();
    for _ in 0..2 {
        assert!(sandbox.signal(&id, Signal::HoldMs(2_000)).await);
    }
    let ran = sandbox.attach(&id, 0).await;
    assert_eq!(
        (ran.end().0, ran.text().as_str()),
        (End::TimedOut, "before\n")
    );
    assert!(since.elapsed().as_millis() >= 7_000);
}
