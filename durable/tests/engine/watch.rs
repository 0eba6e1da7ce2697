//! Watching: snapshots, changes, and who falls behind.

use std::time::Duration;

use mooring_durable::{
    Engine,
    id::ConversationId,
    view::{Frame, Watch},
};
use serde_json::json;

use crate::support::*;

async fn frame(watch: &mut Watch) -> Option<Frame> {
    tokio::time::timeout(BOUND, watch.next()).await.unwrap()
}

async fn turns(engine: &Engine, id: ConversationId, count: usize) {
    for at in 0..count {
        let submission = say(engine, id, &format!("turn {at}")).await;
        settled(engine, submission).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_begins_with_a_snapshot_and_then_shows_each_commit_once() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    turns(&engine, id, 1).await;
    let mut watch = engine.watch(Some(id), None).await.unwrap();
    let Some(Frame::Snapshot(snapshot)) = frame(&mut watch).await else {
        panic!("a snapshot")
    };
    assert_eq!(snapshot.entries.len(), 2);
    turns(&engine, id, 1).await;
    let (mut last, mut entries) = (snapshot.sequence, Vec::new());
    while entries.len() < 2 {
        let Some(Frame::Change { sequence, change }) = frame(&mut watch).await else {
            panic!("a change")
        };
        assert!(sequence > last, "ascending");
        last = sequence;
        entries.extend(change.entries.clone());
    }
    assert_eq!(transcript(&entries), ["U:turn 0", "A:fine"]);
    // Who comes back with the last sequence gets what it missed.
    drop(watch);
    turns(&engine, id, 1).await;
    let mut watch = engine.watch(Some(id), Some(last)).await.unwrap();
    let Some(Frame::Change { sequence, .. }) = frame(&mut watch).await else {
        panic!("what was missed")
    };
    assert!(sequence > last);
    // A sequence of another life of the file is too old to go on from.
    let mut stale = engine.watch(Some(id), Some(0)).await.unwrap();
    engine.close().await.unwrap();
    assert!(matches!(
        frame(&mut stale).await,
        Some(Frame::Change { .. } | Frame::Snapshot(_)) | None
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d099_a_slow_watcher_gets_one_whole_frame_and_then_goes_on() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    let mut slow = engine.watch(Some(id), None).await.unwrap();
    assert!(matches!(frame(&mut slow).await, Some(Frame::Snapshot(_))));
    // Three commits a turn.
    turns(&engine, id, 40).await;
    let Some(Frame::Snapshot(snapshot)) = frame(&mut slow).await else {
        panic!("one whole frame")
    };
    assert_eq!(transcript(&snapshot.entries).len(), 50);
    assert!(snapshot.more && snapshot.run.is_none());
    turns(&engine, id, 1).await;
    let Some(Frame::Change { sequence, .. }) = frame(&mut slow).await else {
        panic!("later frames follow")
    };
    assert!(sequence > snapshot.sequence);
    engine.close().await.unwrap();
    eventually("the end", async || frame(&mut slow).await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_and_lists_go_back_in_time() {
    let world = World::new();
    let (engine, first) = world.begin().await;
    world.clock.advance(1_000);
    let titled = engine
        .create_conversation("m", json!({"title": "named"}), Vec::new())
        .await
        .unwrap();
    turns(&engine, first, 3).await;
    let newest = engine.entries(first, None, 4).await.unwrap();
    assert_eq!(
        transcript(&newest),
        ["U:turn 1", "A:fine", "U:turn 2", "A:fine"]
    );
    let older = engine.entries(first, Some(newest[0].id), 4).await.unwrap();
    assert_eq!(transcript(&older), ["U:turn 0", "A:fine"]);
    world.clock.advance(1_000);
    turns(&engine, titled, 1).await;
    let list = engine.conversations(10, None).await.unwrap();
    let lines: Vec<_> = list
        .iter()
        .map(|it| (it.title.as_str(), it.state, it.entries, it.first.is_some()))
        .collect();
    assert_eq!(
        lines,
        [("named", "idle", 2, true), ("turn 0", "idle", 6, true)]
    );
    let page = engine.conversations(10, Some(list[0].id)).await.unwrap();
    assert_eq!(page.len(), 1);
    assert_eq!(
        engine.view(ConversationId(99), 1, None).await.unwrap(),
        None
    );
    assert!(engine.watch(Some(ConversationId(99)), None).await.is_err());
    let unknown = engine
        .submit(input(ConversationId(99), "x", Default::default()))
        .await;
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "there is no conversation 99"
    );
    engine.close().await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), engine.failed())
        .await
        .unwrap();
}
