//! What a newcomer's machine pays: memory of both processes at rest, and the time
//! from `mooring dev` to its prompt with 10,000 turns in the file.
//!
//! `cargo bench -p mooring-tests` (build `mooring` in the bench profile first:
//! `cargo build --release`); prints a table. Nothing passes or fails by it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};

use mooring_tests::project::Project;

const TURNS: usize = 10_000;
const STARTS: usize = 20;

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse().ok())
        .unwrap_or(0)
}

/// From the start of the program to its first line on standard output.
fn time_to_prompt(project: &Project) -> Duration {
    let mut command = project.command(&["dev", "workspace.yaml"]);
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    let took = begun.elapsed();
    drop(child.stdin.take());
    child.wait().unwrap();
    took
}

fn row(name: &str, mut times: Vec<Duration>) {
    times.sort();
    println!(
        "{name:<48} min {:>7.1?}  median {:>7.1?}  max {:>7.1?}",
        times[0],
        times[times.len() / 2],
        times[times.len() - 1]
    );
}

#[tokio::main]
async fn main() {
    let policy = "tool: {\"*\": allow}\nbash: {\"*\": allow}\npath: {\"*\": allow}";
    let project = Project::with_workspace(policy);
    let mut client = project.client().await;
    println!(
        "{:<48} {:>6} KiB",
        "harness at rest, new",
        resident_kib(project.status().await.pid)
    );
    let daemons: u64 = project.daemons().into_iter().map(resident_kib).sum();
    println!(
        "{:<48} {daemons:>6} KiB",
        "sandbox daemon at rest (all its processes)"
    );

    let begun = Instant::now();
    let mut conversation = 0;
    for turn in 0..TURNS {
        conversation = project
            .submit(&mut client, conversation, &format!("message {turn}"))
            .await;
    }
    project.idle(&mut client, conversation).await;
    println!(
        "{TURNS} turns of one conversation in {:.1?}",
        begun.elapsed()
    );
    println!(
        "{:<48} {:>6} KiB",
        "harness at rest, after them",
        resident_kib(project.status().await.pid)
    );

    row(
        "`mooring dev` to its first line, harness running",
        (0..STARTS).map(|_| time_to_prompt(&project)).collect(),
    );
    let mut cold = Vec::new();
    for _ in 0..STARTS {
        project.kill_harness().await;
        cold.push(time_to_prompt(&project));
    }
    row("`mooring dev` to its first line, harness killed", cold);
}
