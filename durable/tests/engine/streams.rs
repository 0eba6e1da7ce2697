//! Running output: committed by the tick, bounded, gone with its outcome.

use mooring_durable::{
    tool::{Replay, Start},
    view::StreamKind,
};
use serde_json::json;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_tick_commits_the_streams_of_all_conversations() {
    let world = World::new();
    world.script(|_| Reply::Hang("partial"));
    world.model.flow.send_replace(false);
    let (engine, first) = world.begin().await;
    let second = engine
        .create_conversation("m", json!({}), Vec::new())
        .await
        .unwrap();
    let mut watch = engine.watch(None, None).await.unwrap();
    say(&engine, first, "one").await;
    say(&engine, second, "two").await;
    eventually("both requests", async || {
        world.model.requests.lock().unwrap().len() == 2
    })
    .await;
    // So that no other commit takes one of them along.
    world.model.flow.send_replace(true);
    eventually("both streams", async || {
        world
            .model
            .streamed
            .load(std::sync::atomic::Ordering::SeqCst)
            == 2
    })
    .await;
    for id in [first, second] {
        assert!(
            view(&engine, id).await.chunks.is_empty(),
            "nothing is shown before its tick"
        );
    }
    world.clock.awaited(START + 100).await;
    world.clock.advance(100);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        if let Some(mooring_durable::view::Frame::Change { sequence, change }) =
            tokio::time::timeout(BOUND, watch.next()).await.unwrap()
            && let Some(chunk) = change.chunks.first()
        {
            assert_eq!(
                (chunk.of, chunk.offset, chunk.text.as_str()),
                (StreamKind::Answer, 0, "partial")
            );
            seen.push(sequence);
        }
    }
    assert_eq!(seen[0], seen[1], "one commit");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_output_keeps_its_end_in_bounded_rows() {
    let world = World::new();
    world.script(|request| match results(request) {
        0 => Reply::Call(vec![("flood", json!({}))]),
        _ => Reply::Say("over"),
    });
    const LINES: u64 = 40_000;
    world.tool(
        "flood",
        Replay::Attach,
        move |_, start, out, _| async move {
            let line = [b"0123456789".repeat(10), b"\n".to_vec()].concat();
            let from = match start {
                Start::Fresh => 0,
                Start::Again { offset } => offset / 101,
            };
            for at in from..LINES {
                out.write(at * 101, &line);
                if at % 100 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            done("exit 0")
        },
    );
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    let clock = world.clock.clone();
    let ticking = tokio::spawn(async move {
        loop {
            clock.advance(100);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    assert_eq!(settled(&engine, submission).await, "done");
    ticking.abort();
    let entries = view(&engine, id).await.entries;
    let words = transcript(&entries);
    assert!(words[2].len() < 52 * 1024, "{}", words[2].len());
    let kept = words[2].lines().filter(|line| line.len() == 100).count() as u64;
    let dropped = format!("[{} bytes not shown]", (LINES - kept) * 101);
    assert!(
        words[2].contains(&dropped),
        "{} {}",
        dropped,
        &words[2][..60]
    );
    engine.close().await.unwrap();
    let file = rusqlite::Connection::open(world.path()).unwrap();
    let left: i64 = file
        .query_row("SELECT count(*) FROM chunk", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
    let size = std::fs::metadata(world.path()).unwrap().len();
    assert!(size < 2 * 1024 * 1024, "{size} bytes for 4 MB of output");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folded_output_survives_the_process() {
    let world = World::new();
    world.script(|request| match results(request) {
        0 => Reply::Call(vec![("long", json!({}))]),
        _ => Reply::Say("over"),
    });
    let line = [b"x".repeat(99), b"\n".to_vec()].concat();
    let body = line.clone();
    world.tool("long", Replay::Attach, move |_, start, out, cancel| {
        let line = body.clone();
        async move {
            let Start::Again { offset } = start else {
                for at in 0..10_000u64 {
                    out.write(at * 100, &line);
                    if at % 500 == 0 {
                        // Every piece gets a tick of its own.
                        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
                    }
                }
                cancel.cancelled().await;
                return done("");
            };
            out.write(offset, b"the end\n");
            done(&format!("went on at {offset}"))
        }
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    let file = rusqlite::Connection::open(world.path()).unwrap();
    eventually("all output", async || {
        world.clock.advance(100);
        // In a chunk, or in the checkpoint.
        let stored = "SELECT max((SELECT coalesce(max(offset + length), 0) FROM chunk),
            (SELECT coalesce(max(checkpoint->>1), 0) FROM task WHERE kind = 'pi.tool'))";
        file.query_row(stored, [], |row| row.get::<_, i64>(0))
            .unwrap()
            == 1_000_000
    })
    .await;
    engine.abandon().await;
    let chunks: i64 = file
        .query_row(
            "SELECT coalesce(sum(length(text)), 0) FROM chunk",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(chunks < 512 * 1024, "{chunks} bytes of chunks");
    drop(file);
    let engine = world.start().await;
    assert_eq!(settled(&engine, submission).await, "done");
    let words = transcript(&view(&engine, id).await.entries);
    assert!(
        words[2].ends_with("the end\n|went on at 1000000"),
        "{}",
        &words[2][words[2].len() - 60..]
    );
    assert!(words[2].contains("bytes not shown"));
    engine.close().await.unwrap();
}
