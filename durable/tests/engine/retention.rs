//! Retention and deletion.

use mooring_durable::{
    Engine,
    document::{DocumentChange, Op, Scope},
    error::SessionError,
    id::{CommitNo, ConversationId, Millis},
    retention::Removed,
    tool::Replay,
};
use serde_json::json;

use crate::{
    branches::{fork_of, talk, told},
    support::*,
    transfer::PLAN,
};

async fn set(engine: &Engine, id: ConversationId, value: i64) -> CommitNo {
    let change = DocumentChange {
        scope: Scope::Conversation(id),
        kind: &PLAN,
        op: Op::Set(json!(value)),
    };
    engine
        .change_documents(&[change], Vec::new())
        .await
        .unwrap()
}

fn number(world: &World, sql: &str) -> i64 {
    let file = rusqlite::Connection::open(world.path()).unwrap();
    file.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn calling(world: &World) {
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("act", 0) => Reply::Call(vec![("act", json!({}))]),
            _ => Reply::Say("fine"),
        },
    );
    world.tool("act", Replay::Safe, |_, _, _, _| async { done("acted") });
}

#[tokio::test]
async fn what_is_old_is_removed_and_the_transcript_stays() {
    let world = World::new();
    calling(&world);
    let (engine, id) = world.begin().await;
    talk(&engine, id, "act").await;
    for value in 1..=4 {
        set(&engine, id, value).await;
    }
    talk(&engine, id, "old").await;
    set(&engine, id, 5).await;
    world.clock.advance(90 * 86_400_000);
    talk(&engine, id, "new").await;
    set(&engine, id, 6).await;
    let before = transcript(&view(&engine, id).await.entries);
    let point = view(&engine, id).await.entries[5].id;
    let removed = engine.retain(Millis(START + 86_400_000)).await.unwrap();
    // Two generations and a call of the first run, the generation of the second; their
    // inputs; three values that no entry ever saw.
    let expected = Removed {
        tasks: 4,
        submissions: 2,
        revisions: 3,
        parts: 0,
    };
    assert_eq!(removed, expected);
    assert_eq!(transcript(&view(&engine, id).await.entries), before);
    let again = engine.retain(Millis(START + 86_400_000)).await.unwrap();
    assert_eq!(again, Removed::default());
    assert_eq!(number(&world, "SELECT count(*) FROM call"), 0);
    assert_eq!(number(&world, "SELECT count(*) FROM attempt"), 1);
    // What an entry's span needs is there.
    let fork = engine.fork(fork_of(id, Some(point))).await.unwrap();
    let plan = engine
        .document(Scope::Conversation(fork), &PLAN, None)
        .await;
    assert_eq!(plan.unwrap().unwrap().value, json!(4));
    talk(&engine, id, "act").await;
    engine.close().await.unwrap();
}

#[tokio::test]
async fn retention_leaves_alone_what_goes_on() {
    let world = World::new();
    calling(&world);
    world.gate(|_, _| ask("rule"));
    let (engine, id) = world.begin().await;
    let asked = say(&engine, id, "act").await;
    shows(&engine, id, "the question", |view| {
        !view.approvals.is_empty()
    })
    .await;
    world.clock.advance(365 * 86_400_000);
    let removed = engine.retain(Millis(i64::MAX)).await.unwrap();
    assert_eq!(removed, Removed::default());
    engine.close().await.unwrap();
    let engine = world.start().await;
    let approval = view(&engine, id).await.approvals.remove(0);
    let decided = engine
        .decide(approval.task, approve(false), Vec::new())
        .await;
    assert!(decided.unwrap().is_some());
    assert_eq!(settled(&engine, asked).await, "done");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_deleted_conversation_is_gone_but_for_what_forks_see_and_its_ids_never_return() {
    let world = World::new();
    calling(&world);
    let (engine, first) = world.begin().await;
    talk(&engine, first, "act").await;
    set(&engine, first, 1).await;
    let seen = view(&engine, first).await.entries.last().unwrap().id;
    talk(&engine, first, "after the fork").await;
    let fork = engine.fork(fork_of(first, Some(seen))).await.unwrap();
    let highest = |world: &World| {
        let sql = |kind: &str| number(world, &format!("SELECT next_{kind} FROM session"));
        ["conversation", "entry", "task", "submission"].map(sql)
    };
    let before = highest(&world);
    engine.delete(first, Vec::new()).await.unwrap();
    let gone = engine
        .submit(input(first, "hello?", Default::default()))
        .await;
    assert!(gone.is_err());
    assert!(engine.view(first, 10, None).await.unwrap().is_none());
    assert!(engine.entries(first, None, 10).await.unwrap().is_empty());
    assert!(engine.watch(Some(first), None).await.is_err());
    let refused = engine.fork(fork_of(first, None)).await.unwrap_err();
    assert!(matches!(refused, SessionError::NoConversation(id) if id == first));
    let listed = engine.conversations(10, None).await.unwrap();
    assert_eq!(listed.iter().map(|it| it.id).collect::<Vec<_>>(), [fork]);
    eventually("only what the fork sees", async || {
        number(&world, "SELECT count(*) FROM entry") == 4
            && number(&world, "SELECT count(*) FROM task") == 0
    })
    .await;
    talk(&engine, fork, "on").await;
    assert_eq!(told(&world), ["act", "call", "acted", "fine", "on"]);
    // The last one who sees it goes, too; over a crash.
    engine.delete(fork, Vec::new()).await.unwrap();
    engine.abandon().await;
    let engine = world.start().await;
    eventually("nothing", async || {
        [
            "conversation",
            "entry",
            "task",
            "call",
            "submission",
            "inherited",
            "attempt",
            "open_work",
        ]
        .iter()
        .all(|table| number(&world, &format!("SELECT count(*) FROM {table}")) == 0)
    })
    .await;
    let next = engine
        .create_conversation("m", json!({}), Vec::new())
        .await
        .unwrap();
    assert!(next.0 >= before[0] && next > fork);
    let said = say(&engine, next, "act").await;
    assert_eq!(settled(&engine, said).await, "done");
    let shown = view(&engine, next).await;
    assert!(said.0 >= before[3] && shown.entries[0].id.0 >= before[1]);
    let written = shown.entries.iter().filter_map(|entry| entry.writer);
    assert!(written.map(|task| task.0).all(|task| task >= before[2]));
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_requests_go_with_the_last_request_or_entry_that_names_them() {
    let world = World::new();
    calling(&world);
    let (engine, id) = world.begin().await;
    let said = |text: &str| {
        *world.prompt.0.lock().unwrap() = vec![mooring_durable::prompt::Section {
            name: "role".into(),
            text: text.into(),
        }];
    };
    let parts = || number(&world, "SELECT count(*) FROM part");
    said("first words");
    talk(&engine, id, "one").await;
    // Other options and other tools.
    *world.model.options.lock().unwrap() = json!({"thinking": "high"});
    world.tool("more", Replay::Safe, |_, _, _, _| async { done("more") });
    said("other words");
    talk(&engine, id, "two").await;
    assert_eq!(parts(), 6);
    world.clock.advance(90 * 86_400_000);
    // What this process has stored may be named by a request on its way.
    let removed = engine.retain(Millis(START + 86_400_000)).await.unwrap();
    assert_eq!((removed.tasks, removed.parts, parts()), (2, 0, 6));
    engine.close().await.unwrap();

    let engine = world.start().await;
    talk(&engine, id, "three").await;
    let removed = engine.retain(Millis(START + 86_400_000)).await.unwrap();
    assert_eq!(
        (removed.parts, parts()),
        (2, 4),
        "the first options and tools"
    );
    // Every request that is kept is rebuilt, and the transcript is whole.
    let entries = view(&engine, id).await.entries;
    let last = entries.last().unwrap().writer.unwrap();
    let attempt = engine.attempt(last, 1).await.unwrap().unwrap();
    let rebuilt = engine.rebuild(id, &attempt).await.unwrap();
    assert!(rebuilt.exact);
    let lines = transcript(&entries);
    assert!(lines.contains(&"S:first words".into()), "{lines:?}");
    // With the conversation its words go too.
    engine.delete(id, Vec::new()).await.unwrap();
    eventually("the removal", async || {
        number(&world, "SELECT count(*) FROM entry") == 0
    })
    .await;
    engine.close().await.unwrap();
    let engine = world.start().await;
    let removed = engine.retain(Millis(0)).await.unwrap();
    assert_eq!((removed.parts, parts()), (4, 0));
    engine.close().await.unwrap();
}
