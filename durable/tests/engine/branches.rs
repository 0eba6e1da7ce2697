//! Forks and resets: where a context begins.

use mooring_durable::{
    Engine,
    error::SessionError,
    fork::Fork,
    id::{ConversationId, EntryId},
    model::ModelRequest,
    submission::{SubmissionState, WhenBusy},
    tool::Replay,
    view::Shows,
};
use serde_json::{Value, json};

use crate::support::*;

pub fn fork_of(parent: ConversationId, at: Option<EntryId>) -> Fork {
    Fork {
        parent,
        at,
        shows: Shows::All,
        model: None,
        settings: Value::Null,
        note: None,
        extra: Vec::new(),
    }
}

/// Says something and waits for the answer.
pub async fn talk(engine: &Engine, id: ConversationId, text: &str) {
    let submission = say(engine, id, text).await;
    assert_eq!(settled(engine, submission).await, "done");
}

/// What the model was told last, the system left out.
pub fn told(world: &World) -> Vec<String> {
    let request = world.model.requests.lock().unwrap().last().cloned();
    words(&request.unwrap())
}

pub fn words(request: &ModelRequest) -> Vec<String> {
    request
        .messages
        .iter()
        .map(|message| {
            let text = serde_json::to_value(message).unwrap();
            let content = &text["content"];
            match content[0]["text"].as_str() {
                Some(said) => said.to_owned(),
                None => text["text"].as_str().unwrap_or("call").to_owned(),
            }
        })
        .collect()
}

#[tokio::test]
async fn d005_through_two_forks_each_ancestor_is_seen_through_its_forks_entry() {
    let world = World::new();
    let (engine, first) = world.begin().await;
    talk(&engine, first, "one").await;
    let at = view(&engine, first).await.entries.last().unwrap().id;
    talk(&engine, first, "not seen").await;
    let second = engine.fork(fork_of(first, Some(at))).await.unwrap();
    talk(&engine, second, "two").await;
    let at = view(&engine, second).await.entries.last().unwrap().id;
    talk(&engine, second, "not seen").await;
    let third = engine.fork(fork_of(second, Some(at))).await.unwrap();
    talk(&engine, third, "three").await;

    let all = ["U:one", "A:fine", "U:two", "A:fine", "U:three", "A:fine"];
    assert_eq!(transcript(&view(&engine, third).await.entries), all);
    assert_eq!(told(&world), ["one", "fine", "two", "fine", "three"]);
    // In pages that end in each of the three, newest first.
    let mut before = None;
    let mut read = Vec::new();
    loop {
        let page = engine.entries(third, before, 4).await.unwrap();
        let Some(oldest) = page.first() else { break };
        before = Some(oldest.id);
        let mut words = transcript(&page);
        words.append(&mut read);
        read = words;
    }
    assert_eq!(read, all);
    // From an entry that only the first holds, the second is not passed through.
    let root = view(&engine, third).await.entries[0].id;
    let fourth = engine.fork(fork_of(third, Some(root))).await.unwrap();
    assert_eq!(transcript(&view(&engine, fourth).await.entries), ["U:one"]);
    // It is the same after the file was opened again.
    engine.close().await.unwrap();
    let engine = world.start().await;
    talk(&engine, third, "four").await;
    let last = ["one", "fine", "two", "fine", "three", "fine", "four"];
    assert_eq!(told(&world), last);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d033_a_fork_at_an_answer_with_calls_has_a_result_for_each() {
    let world = World::new();
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![("t", json!({})), ("t", json!({}))]),
            _ => Reply::Say("fine"),
        },
    );
    world.tool("t", Replay::Safe, |_, _, _, _| async { done("did") });
    let (engine, id) = world.begin().await;
    talk(&engine, id, "go").await;
    let parent = view(&engine, id).await.entries;
    let calls = parent[1].id;
    let fork = engine.fork(fork_of(id, Some(calls))).await.unwrap();
    talk(&engine, fork, "and now").await;
    let missing = "There is no result: the call was not carried out.";
    assert_eq!(told(&world)[2..], [missing, missing, "and now"]);
    assert_eq!(
        transcript(&view(&engine, fork).await.entries),
        ["U:go", "A2", "U:and now", "A:fine"],
        "the raw entries are as they were"
    );
    assert_eq!(view(&engine, id).await.entries, parent);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d037_a_fork_within_a_commit_sees_only_what_stands_before_its_entry() {
    let world = World::new();
    let gates = Gates::default();
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![("t", json!({})), ("t", json!({}))]),
            _ => Reply::Say("fine"),
        },
    );
    let pass = gates.clone();
    world.tool("t", Replay::Safe, move |_, _, _, _| {
        let pass = pass.clone();
        async move {
            pass.pass("t").await;
            done("did")
        }
    });
    let (engine, id) = world.begin().await;
    let go = say(&engine, id, "go").await;
    shows(&engine, id, "the calls", |view| {
        view.calls.len() == 2 && view.calls.iter().all(|call| call.state == "running")
    })
    .await;
    // Both end before the conversation looks again, and share a commit.
    gates.open("t");
    gates.open("t");
    assert_eq!(settled(&engine, go).await, "done");
    let entries = view(&engine, id).await.entries;
    let fork = engine.fork(fork_of(id, Some(entries[2].id))).await.unwrap();
    assert_eq!(
        transcript(&view(&engine, fork).await.entries),
        ["U:go", "A2", "R:did"]
    );
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d039_an_entry_of_an_unrelated_conversation_is_refused() {
    let world = World::new();
    let (engine, first) = world.begin().await;
    talk(&engine, first, "one").await;
    let second = engine.create_conversation("m", json!({}), Vec::new()).await;
    let second = second.unwrap();
    talk(&engine, second, "two").await;
    let theirs = view(&engine, second).await.entries[0].id;
    for (parent, at, expected) in [
        (first, Some(theirs), "is not part of conversation"),
        (first, Some(EntryId(999)), "is not part of conversation"),
        (ConversationId(99), None, "there is no conversation 99"),
    ] {
        let error = engine.fork(fork_of(parent, at)).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    // What came after a fork is not part of it either.
    let fork = engine.fork(fork_of(first, None)).await.unwrap();
    talk(&engine, first, "later").await;
    let later = view(&engine, first).await.entries.last().unwrap().id;
    let error = engine.fork(fork_of(fork, Some(later))).await.unwrap_err();
    assert!(matches!(error, SessionError::NotVisible { .. }), "{error}");
    assert_eq!(engine.conversations(10, None).await.unwrap().len(), 3);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_side_chat_knows_the_history_and_shows_only_its_own() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    talk(&engine, id, "one").await;
    let side = Fork {
        shows: Shows::Own,
        note: Some("beside".into()),
        ..fork_of(id, None)
    };
    let side = engine.fork(side).await.unwrap();
    talk(&engine, side, "by the way").await;
    assert_eq!(told(&world), ["one", "fine", "beside", "by the way"]);
    let shown = view(&engine, side).await;
    assert_eq!(
        transcript(&shown.entries),
        ["S:beside", "U:by the way", "A:fine"]
    );
    assert!(!shown.more);
    let parent = view(&engine, id).await.entries[1].id;
    assert_eq!(shown.origin.parent, Some((id, parent)));
    let listed = engine.conversations(10, None).await.unwrap();
    assert_eq!(listed.len(), 1, "the list shows conversations of their own");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_fork_costs_the_same_whatever_the_history() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    let pages = async || {
        let file = world.path();
        tokio::task::spawn_blocking(move || {
            let file = rusqlite::Connection::open(file).unwrap();
            file.query_row("SELECT count(*) FROM entry", [], |row| row.get::<_, i64>(0))
                .unwrap()
        })
        .await
        .unwrap()
    };
    talk(&engine, id, "one").await;
    for _ in 0..20 {
        talk(&engine, id, "more").await;
    }
    let before = pages().await;
    for _ in 0..50 {
        engine.fork(fork_of(id, None)).await.unwrap();
    }
    assert_eq!(pages().await, before, "no entry is copied");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d025_a_reset_ends_the_run_and_what_was_queued_runs_in_the_new_context() {
    let world = World::new();
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![("hold", json!({}))]),
            _ => Reply::Say("fine"),
        },
    );
    world.tool("hold", Replay::Never, |_, _, _, cancel| async move {
        cancel.cancelled().await;
        Err(mooring_durable::tool::ToolFailure::Cancelled)
    });
    let (engine, id) = world.begin().await;
    talk(&engine, id, "old").await;
    let go = say(&engine, id, "go").await;
    shows(&engine, id, "the call", |view| {
        view.calls.iter().any(|call| call.state == "running")
    })
    .await;
    let later = say(&engine, id, "later").await;
    let reset = engine
        .reset(id, request_id("r"), anna(), Some("the brief".into()))
        .await
        .unwrap();
    assert_eq!(reset.submission.state, SubmissionState::Queued);
    assert_eq!(settled(&engine, go).await, "unanswered Reset");
    assert_eq!(settled(&engine, later).await, "done");
    assert_eq!(settled(&engine, reset.submission.id).await, "done");
    assert_eq!(told(&world), ["the brief", "later"]);
    // The same request is the same reset.
    let again = engine
        .reset(id, request_id("r"), anna(), None)
        .await
        .unwrap();
    assert!(again.repeated);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn an_idle_reset_begins_the_context_anew_and_earlier_requests_can_be_rebuilt() {
    let world = World::new();
    *world.prompt.0.lock().unwrap() = vec![mooring_durable::prompt::Section {
        name: "s".into(),
        text: "be brief".into(),
    }];
    let (engine, id) = world.begin().await;
    talk(&engine, id, "one").await;
    let reset = engine.reset(id, None, anna(), None).await.unwrap();
    assert_eq!(reset.submission.state, SubmissionState::Done);
    talk(&engine, id, "two").await;
    assert_eq!(told(&world), ["two", "be brief"], "the baseline is whole");
    let fork = engine.fork(fork_of(id, None)).await.unwrap();
    talk(&engine, fork, "three").await;
    assert_eq!(told(&world), ["two", "be brief", "fine", "three"]);
    // A fork of what was before the reset is in the old context.
    let old = view(&engine, id).await.entries[2].id;
    let fork = engine.fork(fork_of(id, Some(old))).await.unwrap();
    talk(&engine, fork, "else").await;
    assert_eq!(told(&world), ["one", "be brief", "fine", "else"]);
    let sent = world.model.requests.lock().unwrap().clone();
    for (entry, request) in view(&engine, id)
        .await
        .entries
        .iter()
        .filter(|entry| entry.kind == "pi.assistant")
        .zip(&sent)
    {
        let task = writer(&world, entry.id).await;
        let attempt = engine.attempt(task, 1).await.unwrap().unwrap();
        let rebuilt = engine.rebuild(id, &attempt).await.unwrap();
        assert!(rebuilt.exact);
        assert_eq!(rebuilt.request, *request);
    }
    engine.close().await.unwrap();
}

/// The task that wrote an entry.
async fn writer(world: &World, entry: EntryId) -> mooring_durable::id::TaskId {
    let file = rusqlite::Connection::open(world.path()).unwrap();
    let sql = "SELECT writer FROM entry WHERE id = ?";
    mooring_durable::id::TaskId(file.query_row(sql, [entry.0], |row| row.get(0)).unwrap())
}

#[tokio::test]
async fn a_fork_of_a_running_conversation_has_an_empty_inbox_and_no_run() {
    let world = World::new();
    world.script(|request| match last_user(request).as_str() {
        "hang" => Reply::Hang("so far"),
        _ => Reply::Say("fine"),
    });
    let (engine, id) = world.begin().await;
    let hang = say(&engine, id, "hang").await;
    shows(&engine, id, "the request", |view| {
        view.run
            .as_ref()
            .is_some_and(|run| run.state == mooring_durable::ledger::RunState::Requesting)
    })
    .await;
    engine
        .submit(input(id, "queued", WhenBusy::FollowUp))
        .await
        .unwrap();
    let fork = engine.fork(fork_of(id, None)).await.unwrap();
    let shown = view(&engine, fork).await;
    assert!(shown.run.is_none() && shown.inbox.is_empty() && shown.chunks.is_empty());
    talk(&engine, fork, "another").await;
    assert_eq!(told(&world), ["hang", "another"]);
    engine
        .abort(id, mooring_durable::submission::AbortScope::Conversation)
        .await
        .unwrap();
    assert_eq!(settled(&engine, hang).await, "unanswered Aborted");
    engine.close().await.unwrap();
}
