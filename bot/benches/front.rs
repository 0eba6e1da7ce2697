//! The front's figures: from a message to its anchor, memory with many threads, and
//! the catch-up of many, against the Discord stand-in.
//!
//! `cargo build --workspace --bin mooring --profile P`, then
//! `cargo bench --workspace --features mooring-bot/stand-in --profile P --bench front`;
//! prints tables. Nothing passes or fails by it.
#![allow(clippy::unwrap_used, missing_docs, dead_code)]

#[path = "../tests/discord/double.rs"]
mod double;
#[path = "../tests/discord/office.rs"]
mod office;
#[path = "../tests/discord/service.rs"]
mod service;
#[path = "../tests/discord/stage.rs"]
mod stage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use mooring_discord_standin::act::Draft;
use mooring_discord_standin::world::TEXT;

use double::Double;
use office::Office;
use stage::Stage;

/// Threads that take turns.
const THREADS: usize = 100;
/// A public thread.
const PUBLIC: u8 = 11;
/// Minutes of a week.
const WEEK: u64 = 10_080;

/// When an id was made, in milliseconds.
fn made_ms(id: u64) -> u64 {
    id >> 22
}

fn percentile(sorted: &[u64], of: usize) -> u64 {
    sorted[(sorted.len() * of / 100).min(sorted.len() - 1)]
}

/// From messages to their anchors, with the real harness.
async fn latency(limits: bool, per_second: u64, messages: usize) {
    let mut office = Office::built(TEXT, "", "model: \"\"").await;
    if !limits {
        // What Discord does not limit the bot need not either.
        office.stage.per_second = 10_000;
    }
    office.stage.start().await;
    let stage = &office.stage;
    let threads: Vec<u64> = (0..THREADS)
        .map(|n| stage.mention(&format!("hello {n}")))
        .collect();
    for thread in &threads {
        office.says(*thread, "no language model").await;
    }
    office.settled().await;
    stage.standin.act(|world| world.settings.limits = limits);
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / per_second));
    let mut said = Vec::new();
    for n in 0..messages {
        ticks.tick().await;
        let thread = threads[n % THREADS];
        said.push((thread, stage.post(thread, &format!("message {n}"))));
    }
    let patience = Duration::from_secs(600);
    office::settled_within(&office.project, patience, || office.describe()).await;
    let mut times: Vec<u64> = stage.standin.look(|world| {
        said.iter()
            .filter_map(|(thread, message)| {
                let anchor = world
                    .messages(*thread)
                    .find(|one| one.author == stage.me && one.reply_to == Some(*message))?;
                Some(made_ms(anchor.id) - made_ms(*message))
            })
            .collect()
    });
    times.sort_unstable();
    println!(
        "| message to anchor, {per_second} a second, limits {} | {} of {messages} | {} ms | {} ms | {} ms |",
        if limits { "on" } else { "off" },
        times.len(),
        percentile(&times, 50),
        percentile(&times, 99),
        times.last().unwrap()
    );
}

/// Workspaces with threads that their harnesses know, each `behind` messages.
async fn crowd(workspaces: usize, threads: usize, behind: usize) -> (Stage, Vec<Arc<Double>>) {
    let stage = Stage::set(TEXT, "").await;
    std::fs::remove_file(stage.folder.path().join("platform.yaml")).unwrap();
    let draft = |text: String| Draft {
        content: text,
        ..Draft::default()
    };
    let mut doubles = Vec::new();
    for n in 0..workspaces {
        let double = Double::start().await;
        let channel = stage.standin.act(|world| {
            let channel = world.add_channel(stage.guild, &format!("place {n}"), TEXT);
            for t in 0..threads {
                let name = format!("thread {t}");
                let first = world.write(channel, stage.ada, draft(name.clone()));
                world.open_thread(channel, Some(first), stage.me, &name, PUBLIC, WEEK);
                let cursor = world.write(first, stage.ada, draft("said before".into()));
                for m in 0..behind {
                    world.write(first, stage.ada, draft(format!("missed {m}")));
                }
                double.act(|state| {
                    state.conversations += 1;
                    let row = double::Thread {
                        channel: channel.to_string(),
                        conversation: state.conversations,
                        cursor: cursor.to_string(),
                        deleted: false,
                    };
                    state.threads.insert(first.to_string(), row);
                    let end = state.threads.entry(channel.to_string()).or_default();
                    end.channel = channel.to_string();
                    end.cursor = first.to_string();
                });
            }
            channel
        });
        stage.workspace(&format!("place-{n}"), channel, &double.address, "");
        doubles.push(double);
    }
    (stage, doubles)
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse().ok())
        .unwrap_or(0)
}

async fn memory() {
    let (mut stage, _doubles) = crowd(50, 100, 0).await;
    stage.start().await;
    let pid = stage.bot.as_ref().unwrap().pid();
    println!(
        "| memory of the bot, 5,000 threads in 50 workspaces | {:.1} MiB (Pss) |",
        resident_kib(pid) as f64 / 1024.0
    );
}

async fn catch_up() {
    let (mut stage, doubles) = crowd(10, 100, 1).await;
    stage.standin.act(|world| world.settings.limits = true);
    let begun = Instant::now();
    stage.launch().await;
    for double in &doubles {
        while double.look(|state| state.inputs.len()) < 100 {
            assert!(
                begun.elapsed() < Duration::from_secs(600),
                "{}",
                stage.describe()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let admitted = begun.elapsed();
    for double in &doubles {
        while !double.look(double::State::settled) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let shown = begun.elapsed();
    let (requests, limited) = stage
        .standin
        .look(|world| (world.ledger.writes.len(), world.ledger.limited()));
    println!(
        "| catch-up of 1,000 threads, limits on | admitted after {:.1} s, all shown after {:.1} s: \
         {requests} requests, {:.0} a second, {limited} answers of 429 |",
        admitted.as_secs_f64(),
        shown.as_secs_f64(),
        requests as f64 / shown.as_secs_f64()
    );
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        println!("| what | found | p50 | p99 | longest |\n|---|---|---|---|---|");
        latency(true, 10, 200).await;
        latency(false, 100, 1_000).await;
        println!("\n| what | figure |\n|---|---|");
        memory().await;
        catch_up().await;
    });
}
