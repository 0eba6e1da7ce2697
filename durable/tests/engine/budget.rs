//! The ledger: what it is told, and what it may refuse.

use mooring_durable::tool::Replay;
use serde_json::json;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_refuses_requests_and_calls_before_they_are_made() {
    let world = World::new();
    world.script(|_| Reply::Call(vec![("act", json!({}))]));
    world.tool("act", Replay::Never, |_, _, _, _| async { done("acted") });
    let (engine, id) = world.begin().await;
    *world.ledger.refuse.lock().unwrap() = Some("0 of 100 left until midnight".into());
    let submission = say(&engine, id, "one").await;
    assert_eq!(settled(&engine, submission).await, "unanswered Budget");
    let stored = engine.submission(submission).await.unwrap().unwrap();
    assert!(format!("{:?}", stored.state).contains("until midnight"));
    assert!(world.model.requests.lock().unwrap().is_empty());
    *world.ledger.refuse.lock().unwrap() = None;
    *world.ledger.refuse_calls.lock().unwrap() = Some("no calls left".into());
    let submission = say(&engine, id, "two").await;
    assert_eq!(settled(&engine, submission).await, "unanswered Budget");
    assert!(!world.told().iter().any(|word| word.starts_with("start")));
    // The call that was never made has a result in the next request.
    *world.ledger.refuse_calls.lock().unwrap() = None;
    world.script(|_| Reply::Say("fine"));
    let submission = say(&engine, id, "three").await;
    assert_eq!(settled(&engine, submission).await, "done");
    let request = world.model.requests.lock().unwrap().last().unwrap().clone();
    assert!(matches!(
        &request.messages[3],
        mooring_durable::message::Message::ToolResult { is_error: true, .. }
    ));
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_run_counts_turns_calls_and_tokens() {
    let world = World::new();
    world.script(|request| match results(request) {
        0 => Reply::Call(vec![("act", json!({})), ("act", json!({}))]),
        _ => Reply::Say("over"),
    });
    world.tool("act", Replay::Never, |_, _, _, _| async { done("acted") });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    assert_eq!(settled(&engine, submission).await, "done");
    // A commit can be read a moment before the ledger is told; closing waits for it.
    engine.close().await.unwrap();
    let told = world.ledger.told.lock().unwrap().clone();
    let run = told.iter().find_map(|(_, change)| match change {
        mooring_durable::ledger::Change::RunEnded { run, .. } => Some(run.clone()),
        _ => None,
    });
    let run = run.unwrap();
    assert_eq!(
        (run.turns, run.tool_calls, run.usage.input, run.usage.output),
        (2, 2, 20, 10)
    );
    assert_eq!((run.id, run.requesters), (submission, vec![anna()]));
}
