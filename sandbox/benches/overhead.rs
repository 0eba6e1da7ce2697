//! What the sandbox costs: a command through the daemon against the bare command,
//! in turn, in one run; the daemon's memory; output through the wire.
//!
//! Prints a table; nothing passes or fails by time.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mooring_wire::sandbox::attach_frame::Frame;
use mooring_wire::sandbox::sandbox_client::SandboxClient;
use mooring_wire::sandbox::{AttachRequest, ExecRequest, Execution, ReleaseRequest, StatusRequest};
use tonic::transport::Channel;

const ROUNDS: usize = 300;
const FOLDER_ROUNDS: usize = 60;

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run());
}

async fn run() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(place("home/project")).unwrap();
    let began = Instant::now();
    let child = Command::new(env!("CARGO_BIN_EXE_mooring-sandbox"))
        .arg("dev")
        .arg("--project")
        .arg(place("home/project"))
        .arg("--state")
        .arg(place("home/state"))
        .arg("--socket")
        .arg(place("run/socket"))
        .arg("--home")
        .arg(place("home"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let daemon = Daemon(child);
    let mut client = loop {
        if let Ok(channel) = mooring_wire::uds::connect(&place("run/socket")).await {
            let mut client = SandboxClient::new(channel);
            if client.status(StatusRequest {}).await.is_ok() {
                break client;
            }
        }
        tokio::task::yield_now().await;
    };
    let start = began.elapsed();

    let (mut bare, mut ours, mut synced) = (Vec::new(), Vec::new(), Vec::new());
    let log = std::fs::File::create(place("home/state/sync")).unwrap();
    for round in 0..ROUNDS {
        bare.push(run_bare());

        let id = format!("bench-{round}");
        let began = Instant::now();
        exec(&mut client, &id, "true").await;
        ours.push(began.elapsed());
        client
            .release(ReleaseRequest {
                execution_ids: vec![id],
            })
            .await
            .unwrap();

        // What the record that is synced before a start costs on this disk by itself.
        let began = Instant::now();
        std::os::unix::fs::FileExt::write_all_at(&log, &[b'x'; 200], 0).unwrap();
        log.sync_data().unwrap();
        synced.push(began.elapsed());
    }
    let idle = memory(daemon.0.id());

    const BYTES: u64 = 100_000_000;
    let command = format!("head -c {BYTES} /dev/zero");
    let began = Instant::now();
    let output = Command::new("bash")
        .args(["-c", &command])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!(output.stdout.len() as u64, BYTES);
    let bare_output = began.elapsed();
    drop(output);
    let began = Instant::now();
    assert_eq!(exec(&mut client, "output", &command).await, BYTES);
    let our_output = began.elapsed();

    let (bare, ours, synced) = (median(bare), median(ours), median(synced));
    println!("| what | bare | through the sandbox | difference | ratio |");
    println!("|---|---|---|---|---|");
    println!(
        "| `bash -c true`, median of {ROUNDS} | {:.2} ms | {:.2} ms | {:.2} ms | {:.2} |",
        ms(bare),
        ms(ours),
        ms(ours) - ms(bare),
        ms(ours) / ms(bare)
    );
    println!(
        "| 100 MB of output | {:.0} ms | {:.0} ms | {:.0} ms | {:.2} |",
        ms(bare_output),
        ms(our_output),
        ms(our_output) - ms(bare_output),
        ms(our_output) / ms(bare_output)
    );
    println!();
    println!(
        "- the sync of one record, which is part of the difference: {:.2} ms",
        ms(synced)
    );
    println!("- from start to the first answer: {:.0} ms", ms(start));
    println!(
        "- memory after {ROUNDS} commands (Pss of its three processes): {:.1} MiB",
        idle
    );
    println!(
        "- memory after 100 MB of output: {:.1} MiB",
        memory(daemon.0.id())
    );
    println!();
    println!("| folders in the project | bare | through the sandbox | difference |");
    println!("|---|---|---|---|");
    let mut made = 0;
    for folders in [2_000, 20_000] {
        for number in made..folders {
            let folder = place("home/project").join(format!("{}/{number}", number % 100));
            std::fs::create_dir_all(folder).unwrap();
        }
        made = folders;
        // What was just made is read again until it is old enough to be relied on.
        std::thread::sleep(Duration::from_millis(300));
        exec(&mut client, &format!("seen-{folders}"), "true").await;
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for round in 0..FOLDER_ROUNDS {
            bare.push(run_bare());
            let began = Instant::now();
            exec(&mut client, &format!("folders-{folders}-{round}"), "true").await;
            ours.push(began.elapsed());
        }
        let (bare, ours) = (ms(median(bare)), ms(median(ours)));
        println!(
            "| {folders} | {bare:.2} ms | {ours:.2} ms | {:.2} ms |",
            ours - bare
        );
    }
}

/// The bare command.
fn run_bare() -> Duration {
    let began = Instant::now();
    let status = Command::new("bash")
        .args(["-c", "true"])
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .status;
    assert!(status.success());
    began.elapsed()
}

/// Runs to the end; returns the output's length.
async fn exec(client: &mut SandboxClient<Channel>, id: &str, command: &str) -> u64 {
    let execution = Some(Execution {
        id: id.into(),
        args_hash: "h".into(),
    });
    let request = ExecRequest {
        execution,
        command: command.into(),
        ..ExecRequest::default()
    };
    client.exec(request).await.unwrap();
    let request = AttachRequest {
        execution_id: id.into(),
        offset: 0,
    };
    let mut frames = client.attach(request).await.unwrap().into_inner();
    loop {
        if let Some(Frame::Finished(outcome)) = frames.message().await.unwrap().unwrap().frame {
            return outcome.output_bytes;
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// MiB, shared pages counted once.
fn memory(pid: u32) -> f64 {
    let process = Path::new("/proc").join(pid.to_string());
    let rollup = std::fs::read_to_string(process.join("smaps_rollup")).unwrap_or_default();
    let kib: f64 = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|text| text.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0.0);
    let children =
        std::fs::read_to_string(process.join(format!("task/{pid}/children"))).unwrap_or_default();
    kib / 1024.0
        + children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .map(memory)
            .sum::<f64>()
}
