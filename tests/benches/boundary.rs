//! What the tunnel costs: one large download, and many at once, through sandbox and
//! harness against the same server reached directly, in one run; and the memory of
//! both processes.
//!
//! `cargo bench -p mooring-tests --bench boundary` (build `mooring` in the bench
//! profile first: `cargo build --release`); prints a table. Nothing passes or fails by it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{process::Command, time::Instant};

use mooring_tests::{
    project::{Client, Project},
    world::World,
};

const ROUNDS: usize = 5;
const LARGE: usize = 200_000_000;
const MANY: usize = 200;
const EACH: usize = 1_000_000;

/// The most that a process has had in memory.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse().ok())
        .unwrap_or(0)
}

async fn peaks(project: &Project) -> (u64, u64) {
    let daemon = project.daemons().into_iter().map(peak_kib).sum();
    (peak_kib(project.status().await.pid), daemon)
}

/// The seconds that a command's curl tells.
async fn through(project: &Project, client: &mut Client, command: &str) -> f64 {
    let conversation = project
        .submit(
            client,
            0,
            &format!("run S=$(date +%s%N); {command}; E=$(date +%s%N); echo $((E-S))"),
        )
        .await;
    let view = project.idle(client, conversation).await;
    let mut entries = view.entries.iter();
    let result = entries.rfind(|entry| entry.kind == "pi.tool-result");
    let text = result.unwrap().text.clone();
    let nanos = text
        .lines()
        .find_map(|line| line.trim().parse::<f64>().ok());
    nanos.unwrap_or_else(|| panic!("{text}")) / 1e9
}

fn direct(arguments: &str, connect: &str) -> f64 {
    let begun = Instant::now();
    let done = Command::new("bash")
        .args(["-c", &format!("curl -sS {connect} {arguments}")])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    begun.elapsed().as_secs_f64()
}

fn row(what: &str, bytes: usize, direct: &mut [f64], through: &mut [f64]) {
    direct.sort_by(f64::total_cmp);
    through.sort_by(f64::total_cmp);
    let speed = |times: &[f64]| bytes as f64 / times[times.len() / 2] / 1e6;
    println!(
        "{what:<34} direct {:>7.0} MB/s   tunnel {:>7.0} MB/s   ratio {:.2}",
        speed(direct),
        speed(through),
        speed(through) / speed(direct)
    );
}

#[tokio::main]
async fn main() {
    let world = World::start().await;
    let spec = format!(
        "models: [{{name: rehearsal, provider: rehearsal, model: \"\"}}]\n\
         approvals: {{timeout: never, requesterMayApprove: true}}\n\
         policy:\n  tool: {{\"*\": allow}}\n  bash: {{\"*\": allow, \"curl *\": allow, \"curl * -o *\": allow}}\n  \
         path: {{\"*\": allow}}\n  externalDirectory: allow\n  egress: {{\"packages.example:443\": allow}}\n\
         sandbox:\n  egressLimits: {{bytesDaily: 100Gi}}\n{}",
        world.ca_bundle()
    );
    let mut project = Project::with_spec(&spec);
    project.variables = world.variables();
    let mut client = project.client().await;
    let authority = project.path("authority.pem");
    std::fs::write(&authority, &world.authority).unwrap();
    let connect = format!(
        "--connect-to packages.example:443:{} --cacert {}",
        world.address(),
        authority.display()
    );
    let large = format!("https://packages.example/bytes/{LARGE} > /dev/null");
    let many = format!(
        "--no-progress-meter --parallel --parallel-immediate --parallel-max {MANY} \
         'https://packages.example/bytes/{EACH}?[1-{MANY}]' > /dev/null"
    );
    // The first command starts everything that a later one finds.
    through(&project, &mut client, "true").await;
    let before = peaks(&project).await;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        near.push(direct(&large, &connect));
        far.push(through(&project, &mut client, &format!("curl -sS {large}")).await);
    }
    row("one download of 200 MB", LARGE, &mut near, &mut far);
    let after = peaks(&project).await;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        near.push(direct(&many, &connect));
        far.push(through(&project, &mut client, &format!("curl -sS {many}")).await);
    }
    row("200 of 1 MB at once", MANY * EACH, &mut near, &mut far);
    let last = peaks(&project).await;
    let mib = |kib: u64| kib as f64 / 1024.0;
    for (what, (harness, daemon)) in [
        ("before", before),
        ("after one at a time", after),
        ("after 200 at once", last),
    ] {
        println!(
            "peak memory {what:<22} harness {:>6.1} MiB   daemon {:>6.1} MiB",
            mib(harness),
            mib(daemon)
        );
    }
}
