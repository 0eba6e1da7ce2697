//! A run from its input to its answer.

use mooring_durable::{submission::WhenBusy, tool::Replay};
use serde_json::json;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_is_answered_through_a_round_of_tools() {
    let world = World::new();
    world.script(|request| match results(request) {
        0 => Reply::Call(vec![("look", json!({"at": 1})), ("look", json!({"at": 2}))]),
        _ => Reply::Say("two things"),
    });
    world.tool("look", Replay::Safe, |call, _, _, _| async move {
        done(&format!("saw {}", call.arguments["at"]))
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "look around").await;
    assert_eq!(settled(&engine, submission).await, "done");
    let view = view(&engine, id).await;
    assert_eq!(
        transcript(&view.entries),
        ["U:look around", "A2", "R:saw 1", "R:saw 2", "A:two things"]
    );
    assert_eq!(
        (view.run, view.calls.len(), view.title.as_str()),
        (None, 0, "look around")
    );
    assert_eq!(
        world.told(),
        [
            "created",
            "admitted placed",
            "placed",
            "run",
            "attempt 1",
            "now Requesting",
            "attempt 1 Tools",
            "now Tools",
            "allow",
            "start look",
            "allow",
            "start look",
            "end look Done",
            "end look Done",
            "now Preparing",
            "attempt 1",
            "now Requesting",
            "attempt 1 Answer",
            "answered"
        ]
    );
    let commits: std::collections::BTreeSet<_> = world
        .ledger
        .told
        .lock()
        .unwrap()
        .iter()
        .map(|(commit, _)| *commit)
        .collect();
    assert_eq!(
        commits.len(),
        1 + 7,
        "the conversation, and seven commits for a run with one round"
    );
    engine.close().await.unwrap();
    let engine = world.start().await;
    assert_eq!(engine.running() + engine.waiting(), 0);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d019_a_steer_joins_the_run_and_a_follow_up_starts_the_next() {
    let world = World::new();
    let gates = Gates::default();
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![("slow", json!({}))]),
            ("steer", _) => Reply::Say("steered"),
            _ => Reply::Say("next"),
        },
    );
    let passes = gates.clone();
    world.tool("slow", Replay::Never, move |_, _, _, _| {
        let passes = passes.clone();
        async move {
            passes.pass("slow").await;
            done("slept")
        }
    });
    let (engine, id) = world.begin().await;
    let first = say(&engine, id, "go").await;
    shows(&engine, id, "the running call", |view| {
        view.calls.iter().any(|call| call.state == "running")
    })
    .await;
    let steer = engine
        .submit(input(id, "steer", WhenBusy::Steer))
        .await
        .unwrap()
        .submission
        .id;
    let follow = engine
        .submit(input(id, "later", WhenBusy::FollowUp))
        .await
        .unwrap()
        .submission
        .id;
    assert!(matches!(
        engine.submit(input(id, "no", WhenBusy::Reject)).await,
        Err(mooring_durable::error::SubmitError::Busy)
    ));
    gates.open("slow");
    for id in [first, steer, follow] {
        assert_eq!(settled(&engine, id).await, "done");
    }
    let view = view(&engine, id).await;
    assert_eq!(
        transcript(&view.entries),
        [
            "U:go",
            "A1",
            "R:slept",
            "U:steer",
            "A:steered",
            "U:later",
            "A:next"
        ]
    );
    engine.close().await.unwrap();
}
