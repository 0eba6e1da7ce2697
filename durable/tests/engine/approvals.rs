//! Calls that wait for a person.

use mooring_durable::{Approvals, gate::Verdict, tool::Replay};
use serde_json::{Value, json};

use crate::support::*;

fn asks(world: &World) {
    world.gate(
        |_, approvals| match approvals.last().map(|approval| approval.state) {
            Some(mooring_durable::gate::ApprovalState::Approved) => Verdict::Allow {
                record: Value::Null,
            },
            _ => ask("rule"),
        },
    );
    world.script(|request| match results(request) {
        0 => Reply::Call(vec![("act", json!({}))]),
        _ => Reply::Say("over"),
    });
    world.tool("act", Replay::Never, |_, _, _, _| async { done("acted") });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_call_runs_and_a_second_decision_is_told_who_was_first() {
    let world = World::new();
    asks(&world);
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "act").await;
    shows(&engine, id, "the question", |view| {
        !view.approvals.is_empty()
    })
    .await;
    eventually("waiting", async || {
        engine.waiting() == 1 && engine.running() == 0
    })
    .await;
    let pending = engine.approvals(None, Approvals::Pending).await.unwrap();
    // The question survives the process.
    engine.abandon().await;
    let engine = world.start().await;
    assert_eq!(
        engine
            .approvals(Some(id), Approvals::Pending)
            .await
            .unwrap(),
        pending
    );
    let (first, approval) = engine
        .decide(pending[0].task, approve(true), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(first && approval.decision.is_some());
    let (first, approval) = engine
        .decide(pending[0].task, approve(false), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(!first && approval.decision.unwrap().approved);
    assert_eq!(settled(&engine, submission).await, "done");
    assert_eq!(
        transcript(&view(&engine, id).await.entries),
        ["U:act", "A1", "R:acted", "A:over"]
    );
    assert!(
        engine
            .approvals(None, Approvals::Pending)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        engine.approvals(None, Approvals::All).await.unwrap().len(),
        1
    );
    engine.close().await.unwrap();
}
