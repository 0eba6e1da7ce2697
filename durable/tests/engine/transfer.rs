//! Export and import.

use mooring_durable::{
    Engine,
    document::{DocumentChange, DocumentKind, ForkPolicy, History, Op, Scope},
    error::SessionError,
    id::ConversationId,
    submission::{AbortScope, Input, SubmissionState, WhenBusy},
    tool::{Replay, ToolEnd, ToolResult},
    transfer::ImportError,
    view::Shows,
    wait::{Awaited, Delegate, WaitMode, Waits, Work},
};
use serde_json::{Value, json};

use crate::{
    branches::{fork_of, talk, words},
    support::*,
};

/// A document as people's plans are.
pub static PLAN: DocumentKind = DocumentKind::new(
    "test.plan",
    1,
    History::Rewindable,
    ForkPolicy::AsOf,
    |_, value| Ok(value),
);

async fn exported(engine: &Engine, id: ConversationId) -> Vec<String> {
    let mut export = engine.export(id).await.unwrap();
    let mut lines = Vec::new();
    while let Some(line) = export.next().await {
        lines.push(line.unwrap());
    }
    lines
}

async fn imported(engine: &Engine, lines: &[String]) -> Result<ConversationId, ImportError> {
    let mut import = engine.import(&lines[0]).await?;
    for line in &lines[1..] {
        assert_eq!(import.take(line).await?, None);
    }
    import.finish().await
}

/// All but where it comes from.
fn without_incarnation(mut lines: Vec<String>) -> Vec<String> {
    let mut header: Value = serde_json::from_str(&lines[0]).unwrap();
    header["incarnation"] = Value::Null;
    lines[0] = header.to_string();
    lines
}

/// A world with a conversation that has everything, and a fork of it.
async fn rich() -> (World, Engine, ConversationId, ConversationId) {
    let world = World::new();
    let section = mooring_durable::prompt::Section {
        name: "role".into(),
        text: "be brief".into(),
    };
    world.prompt.0.lock().unwrap().push(section);
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("plan", 0) => Reply::Call(vec![("plan", json!({"b": 1, "a": [2.5]}))]),
            ("delegate", 0) => Reply::Call(vec![("delegate", json!({}))]),
            ("hang", _) => Reply::Hang("so far"),
            (text, _) => match text.len() % 2 {
                0 => Reply::Say("even"),
                _ => Reply::Say("odd"),
            },
        },
    );
    world.tool("plan", Replay::Safe, |call, _, _, _| async move {
        Ok(ToolEnd::Completed(ToolResult {
            content: vec![mooring_durable::message::Part::text("planned")],
            is_error: false,
            terminate: false,
            data: json!({"step": 1}),
            documents: vec![DocumentChange {
                scope: Scope::Conversation(call.conversation),
                kind: &PLAN,
                op: Op::Merge(json!({"steps": call.task.0 > 0})),
            }],
        }))
    });
    world.tool("delegate", Replay::Safe, |_, _, _, _| async {
        let work = Work::Conversation(Delegate {
            model: String::new(),
            settings: json!({"title": "a child"}),
            input: vec![mooring_durable::message::Part::text("look")],
            background: false,
        });
        let (key, mode) = ("look".into(), WaitMode::AllSettled);
        let on = vec![Awaited { key, work }];
        Ok(ToolEnd::Waits(Waits { mode, on }))
    });
    let (engine, first) = world.begin().await;
    talk(&engine, first, "plan").await;
    talk(&engine, first, "delegate").await;
    talk(&engine, first, "more").await;
    engine.compact(first, anna(), String::new()).await.unwrap();
    shows(&engine, first, "the end of the compaction", |view| {
        view.compaction.is_none()
    })
    .await;
    let fork = mooring_durable::fork::Fork {
        note: Some("a fork".into()),
        ..fork_of(first, None)
    };
    let second = engine.fork(fork).await.unwrap();
    let change = DocumentChange {
        scope: Scope::Conversation(second),
        kind: &PLAN,
        op: Op::Merge(json!({"of the fork": true})),
    };
    engine
        .change_documents(&[change], Vec::new())
        .await
        .unwrap();
    talk(&engine, second, "delegate").await;
    let stopped = say(&engine, second, "hang").await;
    let later = Input {
        request_id: request_id("later"),
        ..input(second, "queued", WhenBusy::FollowUp)
    };
    engine.submit(later).await.unwrap();
    engine.abort(second, AbortScope::Run).await.unwrap();
    assert_eq!(settled(&engine, stopped).await, "unanswered Aborted");
    // What is queued stays so while nothing begins.
    talk(&engine, first, "parent goes on").await;
    (world, engine, first, second)
}

/// Requests of all answers that are seen, rebuilt: in words, and whether exactly.
async fn requests(engine: &Engine, id: ConversationId) -> Vec<(Vec<String>, bool)> {
    let mut found = Vec::new();
    for entry in view(engine, id).await.entries {
        if entry.kind != "pi.assistant" || !entry.state.is_empty() || entry.conversation != id {
            continue;
        }
        let attempt = engine.attempt(entry.writer.unwrap(), 1).await.unwrap();
        let rebuilt = engine.rebuild(id, &attempt.unwrap()).await.unwrap();
        found.push((words(&rebuilt.request), rebuilt.exact));
    }
    found
}

#[tokio::test]
async fn an_import_restores_exactly_what_was_exported_also_beside_others() {
    let (_world, engine, _, second) = rich().await;
    let lines = exported(&engine, second).await;
    let shown = view(&engine, second).await;
    let before = requests(&engine, second).await;
    assert!(before.len() >= 2 && before.iter().all(|(_, exact)| *exact));

    let other = World::new();
    let (target, there) = other.begin().await;
    for text in ["one", "two", "three"] {
        talk(&target, there, text).await;
    }
    let id = imported(&target, &lines).await.unwrap();
    let restored = view(&target, id).await;
    assert_eq!(transcript(&restored.entries), transcript(&shown.entries));
    let kinds = |view: &mooring_durable::view::ConversationView| {
        let entries = view.entries.iter();
        let of = |entry: &mooring_durable::view::EntryView| (entry.kind.clone(), entry.at);
        entries.map(of).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&restored), kinds(&shown));
    assert_eq!(
        (restored.title, restored.settings),
        (shown.title, shown.settings)
    );
    assert_eq!(requests(&target, id).await, before);
    // Its documents, as they are and as they were when it began.
    let plan = |engine: &Engine, id, at| {
        let engine = engine.clone();
        async move {
            let found = engine.document(Scope::Conversation(id), &PLAN, at).await;
            found.unwrap().map(|found| found.value)
        }
    };
    assert_eq!(
        plan(&target, id, None).await,
        plan(&engine, second, None).await
    );
    let fork = target
        .fork(fork_of(id, Some(restored.entries[2].id)))
        .await
        .unwrap();
    let same = engine
        .fork(fork_of(second, Some(shown.entries[2].id)))
        .await
        .unwrap();
    assert_eq!(
        plan(&target, fork, None).await,
        plan(&engine, same, None).await
    );
    // What was queued is, and what the request ids name is found again.
    assert_eq!(restored.inbox.len(), 1);
    let again = Input {
        request_id: request_id("later"),
        ..input(id, "other", WhenBusy::FollowUp)
    };
    assert!(target.submit(again).await.unwrap().repeated);
    // It goes on like any other; what it inherits is listed nowhere.
    let queued = restored.inbox[0].id;
    talk(&target, id, "on").await;
    assert_eq!(settled(&target, queued).await, "done");
    let listed = target.conversations(10, None).await.unwrap();
    assert_eq!(listed.len(), 3, "what was there, what came, its fork");
    target.close().await.unwrap();
    engine.close().await.unwrap();
}

#[tokio::test]
async fn an_export_of_an_import_is_the_same_to_the_byte() {
    let (_world, engine, _, second) = rich().await;
    let mut lines = exported(&engine, second).await;
    let mut exports = Vec::new();
    for _ in 0..3 {
        let other = World::new();
        let target = other.start().await;
        let id = imported(&target, &lines).await.unwrap();
        lines = exported(&target, id).await;
        exports.push(without_incarnation(lines.clone()));
        target.close().await.unwrap();
    }
    assert!(lines.len() > 40);
    // The first one holds nothing any more of what its parent said after the fork.
    assert_eq!(exports[1], exports[2]);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn imports_into_the_same_file_are_others_and_side_chats_show_their_own() {
    let (world, engine, first, _) = rich().await;
    let side = mooring_durable::fork::Fork {
        shows: Shows::Own,
        ..fork_of(first, None)
    };
    let side = engine.fork(side).await.unwrap();
    talk(&engine, side, "by the way").await;
    let lines = exported(&engine, side).await;
    let mut known = vec![first, side];
    for _ in 0..2 {
        let id = imported(&engine, &lines).await.unwrap();
        assert!(!known.contains(&id));
        known.push(id);
        let words = transcript(&view(&engine, id).await.entries);
        assert_eq!(words, transcript(&view(&engine, side).await.entries));
    }
    // Over a restart, and with the original gone.
    engine.close().await.unwrap();
    let engine = world.start().await;
    engine.delete(side, Vec::new()).await.unwrap();
    let last = *known.last().unwrap();
    talk(&engine, last, "still here").await;
    let request = world
        .model
        .requests
        .lock()
        .unwrap()
        .last()
        .cloned()
        .unwrap();
    assert!(words(&request).iter().any(|word| word == "by the way"));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn what_works_is_not_exported_and_what_is_no_export_leaves_nothing() {
    let (world, engine, first, second) = rich().await;
    let lines = exported(&engine, first).await;
    let rows = || {
        let file = rusqlite::Connection::open(world.path()).unwrap();
        let sql = "SELECT (SELECT count(*) FROM conversation), (SELECT count(*) FROM entry), (SELECT count(*) FROM task)";
        file.query_row(sql, [], |row| {
            Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?])
        })
        .unwrap()
    };
    let before = rows();
    let entry = lines
        .iter()
        .position(|line| line.contains("\"table\":\"entry\""))
        .unwrap();
    let with = |at: usize, line: String| {
        let mut lines = lines.clone();
        lines[at] = line;
        lines
    };
    let cases = [
        (with(0, "hello".into()), "no export begins so"),
        (
            with(
                0,
                lines[0].replace("\"mooringExport\":1", "\"mooringExport\":2"),
            ),
            "newer version",
        ),
        (
            with(0, lines[0].replace("\"entry\":[", "\"entry\":[9")),
            "no span of ids",
        ),
        (
            with(entry, "{\"table\":\"entry\",\"row\":{\"id\":1}}".into()),
            "has the columns",
        ),
        (
            with(entry, lines[entry].replace("\"seq\":1,", "\"seq\":\"x\",")),
            "cannot be imported",
        ),
        (with(entry, "not JSON".into()), "cannot be imported"),
        (
            lines
                .iter()
                .map(|line| line.replace("\"released\":1", "\"released\":0"))
                .collect(),
            "work that goes on",
        ),
        (vec![lines[0].clone()], "no conversation"),
    ];
    for (lines, expected) in cases {
        let error = imported(&engine, &lines).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        eventually("nothing of it", async || rows() == before).await;
    }
    let gates = Gates::default();
    let held = gates.clone();
    world.script(move |_| Reply::After(held.clone(), "go", "went"));
    let going = say(&engine, second, "go on").await;
    let refused = engine.export(second).await.err().unwrap();
    assert!(matches!(refused, SessionError::Working(id) if id == second));
    let refused = engine.delete(second, Vec::new()).await.unwrap_err();
    assert!(matches!(refused, SessionError::Working(_)));
    for _ in 0..4 {
        gates.open("go");
    }
    eventually("its end", async || {
        let state = engine.submission(going).await.unwrap().unwrap().state;
        matches!(state, SubmissionState::Done)
    })
    .await;
    engine.close().await.unwrap();
}
