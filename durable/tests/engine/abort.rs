//! Aborts: bottom-up, and at once where it can be.

use mooring_durable::{
    submission::{AbortScope, WhenBusy},
    tool::{Replay, ToolFailure},
};
use serde_json::json;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d049_an_abort_cancels_the_provider_and_keeps_the_partial_answer() {
    let world = World::new();
    world.script(|_| Reply::Hang("half an ans"));
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "hello").await;
    eventually("the request", async || {
        world.model.requests.lock().unwrap().len() == 1
    })
    .await;
    shows(&engine, id, "the partial", |view| {
        world.clock.advance(100);
        !view.chunks.is_empty()
    })
    .await;
    engine.abort(id, AbortScope::Run).await.unwrap();
    assert_eq!(settled(&engine, submission).await, "unanswered Aborted");
    eventually("the cancel", async || {
        world
            .model
            .cancelled
            .load(std::sync::atomic::Ordering::SeqCst)
            == 1
    })
    .await;
    let after = view(&engine, id).await;
    assert_eq!(
        transcript(&after.entries),
        ["U:hello", "A:half an ans (aborted)"]
    );
    assert!(after.chunks.is_empty());
    world.script(|_| Reply::Say("fine"));
    let next = say(&engine, id, "again").await;
    settled(&engine, next).await;
    let request = world.model.requests.lock().unwrap().last().unwrap().clone();
    assert_eq!(
        request.messages.len(),
        2,
        "the partial is in no later request"
    );
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_that_cannot_end_an_execution_settles_after_ten_seconds_and_owes_the_kill() {
    let world = World::new();
    world.script(|_| Reply::Call(vec![("bash", json!({}))]));
    let tool = world.tool("bash", Replay::Attach, |_, _, _, _| std::future::pending());
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    shows(&engine, id, "the call", |view| {
        view.calls.iter().any(|call| call.state == "running")
    })
    .await;
    tool.reachable
        .store(false, std::sync::atomic::Ordering::SeqCst);
    engine.abort(id, AbortScope::Run).await.unwrap();
    // Who comes after the abort starts once it is done.
    let after = engine
        .submit(input(id, "after", WhenBusy::FollowUp))
        .await
        .unwrap()
        .submission
        .id;
    world.clock.awaited(START + 10_000).await;
    world.script(|_| Reply::Say("fine"));
    world.clock.advance(10_000);
    assert_eq!(settled(&engine, submission).await, "unanswered Aborted");
    assert_eq!(settled(&engine, after).await, "done");
    let words = transcript(&view(&engine, id).await.entries);
    assert_eq!(
        words[2],
        "R!:The call was aborted, but it could not be ended: it may still be running."
    );
    assert_eq!(engine.open_executions().await.unwrap().len(), 1);
    // The kill is made by the next process, once it can be.
    engine.abandon().await;
    tool.reachable
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let engine = world.start().await;
    eventually("the kill", async || tool.killed.lock().unwrap().len() == 1).await;
    eventually("no debts", async || {
        engine.open_executions().await.unwrap().is_empty()
    })
    .await;
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d063_what_ends_an_execution_runs_for_aborts_until_it_succeeded_and_never_for_a_close() {
    let world = World::new();
    world.script(|_| Reply::Call(vec![("bash", json!({}))]));
    let tool = world.tool("bash", Replay::Attach, |_, _, _, _| std::future::pending());
    let running = |view: &mooring_durable::view::ConversationView| {
        view.calls.iter().any(|call| call.state == "running")
    };
    let killed = || tool.killed.lock().unwrap().len();
    let reach = |reachable| {
        let of = &tool.reachable;
        of.store(reachable, std::sync::atomic::Ordering::SeqCst);
    };
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    shows(&engine, id, "the call", running).await;
    engine.close().await.unwrap();
    assert_eq!(killed(), 0, "it goes on without this process");
    let engine = world.start().await;
    shows(&engine, id, "the call again", running).await;
    reach(false);
    engine.abort(id, AbortScope::Run).await.unwrap();
    world.clock.awaited(START + 10_000).await;
    world.clock.advance(10_000);
    assert_eq!(settled(&engine, submission).await, "unanswered Aborted");
    // Tries that fail are made again, by the next process too.
    world.clock.awaited(START + 11_000).await;
    world.clock.advance(1_000);
    engine.close().await.unwrap();
    assert_eq!(killed(), 0);
    let engine = world.start().await;
    reach(true);
    eventually("the kill", async || {
        world.clock.advance(1_000);
        killed() == 1 && engine.open_executions().await.unwrap().is_empty()
    })
    .await;
    engine.close().await.unwrap();
    world.start().await.close().await.unwrap();
    assert_eq!(killed(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_that_was_committed_is_carried_out_by_the_next_process() {
    let world = World::new();
    world.script(|_| Reply::Call(vec![("bash", json!({})), ("stuck", json!({}))]));
    let tool = world.tool("bash", Replay::Attach, |_, _, _, _| std::future::pending());
    world.tool("stuck", Replay::Safe, |_, _, _, _| std::future::pending());
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    shows(&engine, id, "the calls", |view| {
        view.calls
            .iter()
            .filter(|call| call.state == "running")
            .count()
            == 2
    })
    .await;
    engine.abort(id, AbortScope::Run).await.unwrap();
    engine.abandon().await;
    let engine = world.start().await;
    assert_eq!(settled(&engine, submission).await, "unanswered Aborted");
    let words = transcript(&view(&engine, id).await.entries);
    assert!(
        words[2].contains("may still be running") && words[3].contains("aborted while it ran"),
        "{words:?}"
    );
    eventually("the kill", async || tool.killed.lock().unwrap().len() == 1).await;
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_of_an_idle_conversation_is_nothing() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    let aborted = engine.abort(id, AbortScope::Conversation).await.unwrap();
    assert!(!aborted.was_running && aborted.withdrawn.is_empty());
    assert_eq!(world.told(), ["created"]);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_is_told_of_the_abort() {
    let world = World::new();
    world.script(|_| Reply::Call(vec![("slow", json!({}))]));
    world.tool("slow", Replay::Never, |_, _, out, cancel| async move {
        out.write(0, b"begun\n");
        cancel.cancelled().await;
        Err(ToolFailure::Cancelled)
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    shows(&engine, id, "the call", |view| {
        view.calls.iter().any(|call| call.state == "running")
    })
    .await;
    engine.abort(id, AbortScope::Run).await.unwrap();
    assert_eq!(settled(&engine, submission).await, "unanswered Aborted");
    assert_eq!(
        transcript(&view(&engine, id).await.entries)[2],
        "R!:begun\n|The call was aborted."
    );
    engine.close().await.unwrap();
}
