//! What the way through the gateway costs: a clone of a repository of 200 MB by a
//! command in the sandbox against the same clone from loopback, in one run, and the
//! memory of harness and daemon.
//!
//! `cargo bench --workspace --bench git` (build `mooring` in the bench profile first);
//! prints a table. Nothing passes or fails by it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::{Duration, Instant};

use mooring_tests::{
    git::{Account, Host, PATH, git},
    project::Project,
};

const FILES: u64 = 12;
const BYTES: usize = 17 << 20;
const ROUNDS: usize = 5;

/// A line of `/proc/PID/status` in KiB.
fn kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| {
        rest.trim_start_matches(':')
            .trim()
            .split(' ')
            .next()?
            .parse()
            .ok()
    })
    .unwrap_or(0)
}

fn row(name: &str, mut times: Vec<Duration>) -> Duration {
    times.sort();
    let median = times[times.len() / 2];
    println!(
        "{name:<44} min {:>8.2?}  median {median:>8.2?}  max {:>8.2?}",
        times[0],
        times[times.len() - 1]
    );
    median
}

#[tokio::main]
async fn main() {
    let host = Host::start().await;
    let seed = host.folder("seed");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for file in 0..FILES {
        let mut bytes = Vec::with_capacity(BYTES + 8);
        while bytes.len() < BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        std::fs::write(seed.join(format!("large-{file}")), bytes).unwrap();
    }
    git(&seed, &["add", "-A"]);
    git(
        &seed,
        &["-c", "core.compression=0", "commit", "-qm", "Large"],
    );
    let bare = host.bare().display().to_string();
    git(
        &seed,
        &["-c", "pack.window=0", "push", "-q", &bare, "HEAD:main"],
    );
    git(&host.bare(), &["-c", "pack.window=0", "repack", "-qad"]);

    let port = host.port;
    let url = format!("http://git.test:{port}{PATH}");
    let mut project = Project::with_spec(&format!(
        "repo: {{url: \"{url}\"}}\n\
         models: [{{name: rehearsal, provider: rehearsal, model: \"\"}}]\n\
         policy:\n  tool: {{\"*\": allow}}\n  bash: {{\"*\": allow}}\n  path: {{\"*\": allow}}\n"
    ));
    project.variables = vec![
        (
            "MOORING_PRIVATE_DESTINATIONS".into(),
            format!("127.0.0.0/8:{port}"),
        ),
        (
            "MOORING_CONNECT_TO".into(),
            format!("git.test:{port}=127.0.0.1:{port}"),
        ),
    ];
    host.admit(Account::Everybody);
    let mut client = project.client().await;
    let harness = project.status().await.pid;
    let daemons = project.daemons();
    let rest = kib(harness, "VmRSS");
    let daemon_rest: u64 = daemons.iter().map(|pid| kib(*pid, "VmRSS")).sum();

    let (mut direct, mut through) = (Vec::new(), Vec::new());
    let mut conversation = 0;
    for round in 0..ROUNDS {
        let to = host.folder("clones").join(round.to_string());
        let from = format!("http://127.0.0.1:{port}{PATH}");
        let begun = Instant::now();
        let target = to.display().to_string();
        let folder = host.folder("clones");
        tokio::task::spawn_blocking(move || git(&folder, &["clone", "-q", &from, &target]))
            .await
            .unwrap();
        direct.push(begun.elapsed());
        std::fs::remove_dir_all(&to).unwrap();

        let command = format!("run git clone -q {url} copy");
        conversation = project.submit(&mut client, conversation, &command).await;
        let view = project.idle(&mut client, conversation).await;
        let mut results = view.entries.iter().rev();
        let result = results
            .find(|entry| entry.kind == "pi.tool-result")
            .unwrap();
        let result: serde_json::Value = serde_json::from_str(&result.json).unwrap();
        assert_eq!(result["data"]["code"], 0, "{result}");
        through.push(Duration::from_millis(
            result["data"]["ms"].as_u64().unwrap(),
        ));
        std::fs::remove_dir_all(project.path("copy")).unwrap();
    }
    let direct = row("clone of 200 MB from loopback", direct);
    let through = row("the same in the sandbox, by the gateway", through);
    println!(
        "speed by the gateway against direct: {:.2}",
        direct.as_secs_f64() / through.as_secs_f64()
    );
    let peak = kib(harness, "VmHWM");
    let daemon_peak: u64 = daemons.iter().map(|pid| kib(*pid, "VmHWM")).sum();
    println!("harness: {rest} KiB at rest, {peak} KiB at most");
    println!("daemon (all its processes): {daemon_rest} KiB at rest, {daemon_peak} KiB at most");
}
