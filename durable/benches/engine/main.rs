//! The engine against a raw reference in the same run.
//!
//! `cargo bench --workspace --bench engine` prints one line for every target of the engine.
//! A turn is one input, five instantaneous tools and one answer; both sides store
//! the same records with the same flushes. The sides take turns in short blocks, so
//! that a slow moment of the disk meets both.

mod ports;
mod reference;
mod turn;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use mooring_durable::{
    Durability, Engine, Options,
    clock::SystemClock,
    id::ConversationId,
    message::Part,
    submission::{Input, Requester, WhenBusy},
    write::{Head, Write, WriteBody},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use ports::Bench;
use reference::Reference;
use turn::Turn;

/// Turns after which a head begins the context anew, as compaction would.
const CONTEXT: usize = 50;

struct Talk {
    engine: Engine,
    id: ConversationId,
    ends: mpsc::UnboundedReceiver<()>,
    turns: usize,
}

fn requester() -> Requester {
    Requester::Local {
        name: "anna".into(),
    }
}

impl Talk {
    async fn new(engine: &Engine, bench: &Arc<Bench>) -> Talk {
        let id = engine
            .create_conversation("m", json!({"title": "title"}), Vec::new())
            .await
            .expect("a conversation");
        Talk {
            engine: engine.clone(),
            id,
            ends: bench.ends(id),
            turns: 0,
        }
    }

    fn input(&self, turn: &Turn) -> Input {
        Input {
            conversation: self.id,
            request_id: None,
            requester: requester(),
            content: vec![Part::text(&turn.input)],
            when_busy: WhenBusy::FollowUp,
            autonomous: false,
            data: Value::Null,
            extra: Vec::new(),
        }
    }

    /// One turn, to its end.
    async fn turn(&mut self, turn: &Turn) {
        self.turns += 1;
        if self.turns.is_multiple_of(CONTEXT) {
            let body = WriteBody {
                kind: "pi.reset".into(),
                message: None,
                data: Value::Null,
                head: Some(Head::Here),
                edits: Vec::new(),
            };
            let write = Write {
                conversation: self.id,
                request_id: None,
                requester: requester(),
                body,
                extra: Vec::new(),
            };
            self.engine.write(write).await.expect("a head");
        }
        self.engine
            .submit(self.input(turn))
            .await
            .expect("an input");
        self.ends.recv().await.expect("an end");
    }
}

async fn open(path: &Path, durability: Durability, bench: &Arc<Bench>) -> Engine {
    let options = Options {
        durability,
        clock: Arc::new(SystemClock),
        components: Vec::new(),
    };
    Engine::open(path, options, bench.ports())
        .await
        .expect("a file")
}

fn line(target: &str, reached: String, wanted: &str) {
    println!("| {target} | {reached} | {wanted} |");
}

fn per_second(turns: usize, time: Duration) -> f64 {
    turns as f64 / time.as_secs_f64()
}

/// Processor time that this process has used.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // utime and stime (proc_pid_stat(5)), in hundredths of a second; the name before them may hold spaces.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2);
    Duration::from_millis(10 * ticks.filter_map(|it| it.parse::<u64>().ok()).sum::<u64>())
}

/// What one side took for its blocks.
#[derive(Default)]
struct Took {
    time: Duration,
    processor: Duration,
}

impl Took {
    fn add(&mut self, begun: Instant, processor_before: Duration) {
        self.time += begun.elapsed();
        self.processor += processor() - processor_before;
    }
}

/// Turns of `conversations` at once, engine and reference by turns.
async fn throughput(
    folder: &Path,
    conversations: usize,
    blocks: usize,
    block: usize,
) -> (Took, Took) {
    let (bench, turn) = (Bench::new(), Turn::new());
    let engine = open(
        &folder.join(format!("engine-{conversations}.db")),
        Durability::Full,
        &bench,
    )
    .await;
    engine.start();
    let mut talks = Vec::new();
    for _ in 0..conversations {
        talks.push(Talk::new(&engine, &bench).await);
    }
    let (mut raw, mut places) = Reference::open(
        &folder.join(format!("raw-{conversations}.db")),
        conversations as i64,
    );
    let (mut engine_took, mut raw_took) = (Took::default(), Took::default());
    for at in 0..=blocks {
        let begun = (Instant::now(), processor());
        talks = all(talks, block).await;
        // The first block only warms up.
        if at > 0 {
            engine_took.add(begun.0, begun.1);
        }
        let begun = (Instant::now(), processor());
        for _ in 0..block {
            raw.turns(&mut places, &turn);
        }
        if at > 0 {
            raw_took.add(begun.0, begun.1);
        }
    }
    engine.close().await.expect("a clean end");
    (engine_took, raw_took)
}

async fn all(talks: Vec<Talk>, block: usize) -> Vec<Talk> {
    let running: Vec<_> = talks
        .into_iter()
        .map(|mut talk| {
            tokio::spawn(async move {
                let turn = Turn::new();
                for _ in 0..block {
                    talk.turn(&turn).await;
                }
                talk
            })
        })
        .collect();
    let mut talks = Vec::new();
    for talk in running {
        talks.push(talk.await.expect("no panic"));
    }
    talks
}

fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0.0);
    pages * 4096.0 / 1024.0 / 1024.0
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A long history: cost of a late turn, size, memory, and the way back after a crash.
async fn history(folder: &Path, turns: usize) {
    let (bench, turn) = (Bench::new(), Turn::new());
    let path = folder.join("history.db");
    let before = resident();
    let engine = open(&path, Durability::Normal, &bench).await;
    engine.start();
    let mut talk = Talk::new(&engine, &bench).await;
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for at in 0..turns + 200 {
        let begun = Instant::now();
        talk.turn(&turn).await;
        match at {
            100..300 => early.push(begun.elapsed()),
            at if at >= turns => late.push(begun.elapsed()),
            _ => {}
        }
    }
    let grown = resident() - before;
    let (early, late) = (median(early), median(late));
    line(
        &format!("turn {turns} against turn 100 (medians of 200, `NORMAL`)"),
        format!(
            "{:+.1} % ({:.0} µs, {:.0} µs)",
            (late.as_secs_f64() / early.as_secs_f64() - 1.0) * 100.0,
            late.as_secs_f64() * 1e6,
            early.as_secs_f64() * 1e6
        ),
        "≤ +5 %",
    );
    line(
        &format!("memory after {turns} turns"),
        format!("{grown:.1} MB"),
        "≤ 16 MB",
    );
    let input = talk.input(&turn);
    let id = talk.id;
    engine.close().await.expect("a clean end");
    let size = std::fs::metadata(&path).expect("the file").len() as f64;
    let payload = (turn.payload() * (turns + 200)) as f64;
    line(
        "file against payload",
        format!(
            "{:.2} ({:.1} MB, {:.1} MB)",
            size / payload,
            size / 1e6,
            payload / 1e6
        ),
        "≤ 1.3",
    );

    // A request is in flight when the process ends; how long until it is sent again?
    for (durability, name) in [
        (Durability::Normal, "`NORMAL`"),
        (Durability::Full, "`FULL`, two flushes in it"),
    ] {
        let mut times = Vec::new();
        for _ in 0..11 {
            let (tell, mut sent) = mpsc::unbounded_channel();
            *bench.hang.lock().expect("no panics") = Some(tell);
            let engine = open(&path, durability, &bench).await;
            engine.start();
            engine
                .submit(Input {
                    conversation: id,
                    ..input.clone()
                })
                .await
                .expect("an input");
            sent.recv().await.expect("a request");
            engine.abandon().await;
            let begun = Instant::now();
            let engine = open(&path, durability, &bench).await;
            engine.start();
            let again = sent.recv().await.expect("the request again");
            times.push(again - begun);
            engine
                .abort(id, mooring_durable::submission::AbortScope::Conversation)
                .await
                .expect("an abort");
            while engine.running() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            engine.close().await.expect("a clean end");
        }
        line(
            &format!("reopen to the request on its way again, {name}"),
            format!("{:.1} ms", median(times).as_secs_f64() * 1e3),
            "≤ 5 ms",
        );
    }
}

fn main() {
    // `cargo bench` passes flags of its own; numbers scale the work down for a quick look.
    let scale: usize = std::env::args()
        .find_map(|word| word.parse().ok())
        .unwrap_or(1)
        .max(1);
    let only = std::env::args().find(|word| word == "throughput" || word == "history");
    let only = only.as_deref();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir_in(
        std::env::var_os("MOORING_BENCH_FOLDER").unwrap_or_else(|| ".".into()),
    )
    .expect("a folder");
    runtime.block_on(async {
        println!("| target | reached | wanted |\n|---|---|---|");
        for (conversations, blocks, block, wanted) in [(1, 10, 20, "≥ 0.70"), (32, 5, 10, "≥ 0.75")]
        {
            if only == Some("history") {
                continue;
            }
            let blocks = (blocks / scale).max(1);
            let (engine, raw) = throughput(folder.path(), conversations, blocks, block).await;
            let turns = conversations * blocks * block;
            let of = match conversations {
                1 => "1 conversation".to_owned(),
                more => format!("{more} conversations"),
            };
            let rate = |took: &Took| per_second(turns, took.time);
            line(
                &format!("{of}, `FULL`, against raw"),
                format!(
                    "{:.2} ({:.0} turns/s, {:.0} turns/s)",
                    rate(&engine) / rate(&raw),
                    rate(&engine),
                    rate(&raw)
                ),
                wanted,
            );
            let each = |took: &Took| took.processor.as_secs_f64() * 1e6 / turns as f64;
            line(
                &format!("processor time of a turn, {of}"),
                format!("{:.0} µs, raw {:.0} µs", each(&engine), each(&raw)),
                "",
            );
        }
        if only != Some("throughput") {
            history(folder.path(), 10_000 / scale).await;
        }
    });
}
