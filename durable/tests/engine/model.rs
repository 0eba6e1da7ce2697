//! Generations: retries, recoveries, and what is pinned.

use std::time::Duration;

use mooring_durable::{ledger::RunState, model::ModelError, prompt::Section, tool::Replay};
use serde_json::json;

use crate::support::*;

fn overloaded(seconds: Option<u64>) -> Reply {
    Reply::Fail(ModelError::Retryable {
        text: "overloaded".into(),
        retry_after: seconds.map(Duration::from_secs),
        usage: None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d043_a_retry_is_visible_and_the_second_attempt_answers() {
    let world = World::new();
    *world.model.script.lock().unwrap() = std::sync::Arc::new(|_, context| {
        if context.attempt == 1 {
            overloaded(Some(30))
        } else {
            Reply::Say("at last")
        }
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "hello").await;
    let view = shows(&engine, id, "the backoff", |view| {
        view.run
            .as_ref()
            .is_some_and(|run| run.state == RunState::Retrying)
    })
    .await;
    assert_eq!(view.run.unwrap().note, "retry 1 of 4 in 30 s: overloaded");
    eventually("a run that waits for a timer does not run", async || {
        (engine.running(), engine.waiting()) == (0, 1)
    })
    .await;
    world.clock.awaited(START + 30_000).await;
    world.clock.advance(29_999);
    assert_eq!(
        state(&engine.submission(submission).await.unwrap().unwrap()),
        "placed"
    );
    world.clock.advance(1);
    assert_eq!(settled(&engine, submission).await, "done");
    assert_eq!(
        transcript(&crate::support::view(&engine, id).await.entries),
        [
            "U:hello",
            "pi.assistant {\"error\":\"overloaded\",\"attempt\":1} (error)",
            "A:at last"
        ]
    );
    assert_eq!(
        world.model.requests.lock().unwrap()[1].messages.len(),
        1,
        "no later request contains the error"
    );
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d043_retries_come_to_an_end_with_the_providers_text() {
    let world = World::new();
    world.script(|_| overloaded(Some(1)));
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "hello").await;
    for attempt in 1..5 {
        shows(&engine, id, "a backoff", |view| {
            view.run
                .as_ref()
                .is_some_and(|run| run.note.starts_with(&format!("retry {attempt} of 4")))
        })
        .await;
        world.clock.awaited(START + 1_000 * attempt).await;
        world.clock.advance(1_000);
    }
    assert_eq!(settled(&engine, submission).await, "unanswered ModelError");
    let stored = engine.submission(submission).await.unwrap().unwrap();
    assert!(format!("{:?}", stored.state).contains("overloaded"));
    assert_eq!(world.model.requests.lock().unwrap().len(), 5);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d045_a_recovered_request_is_sent_again_as_it_was_pinned() {
    let world = World::new();
    world.prompt.0.lock().unwrap().push(Section {
        name: "role".into(),
        text: "be brief".into(),
    });
    world.tool("look", Replay::Safe, |_, _, _, _| async { done("saw") });
    world.script(|_| Reply::Hang(""));
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "hello").await;
    eventually("the request", async || {
        world.model.requests.lock().unwrap().len() == 1
    })
    .await;
    engine.abandon().await;
    // Everything that a request is made of changes meanwhile.
    *world.model.options.lock().unwrap() = json!({"thinking": "high"});
    world.prompt.0.lock().unwrap()[0].text = "be long".into();
    world.tool("another", Replay::Safe, |_, _, _, _| async { done("saw") });
    world.script(|_| Reply::Say("short"));
    let engine = world.start().await;
    assert_eq!(settled(&engine, submission).await, "done");
    let requests = world.model.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0], requests[1]);
    let told = world.told();
    let lost = told
        .iter()
        .position(|word| word == "attempt 1 Aborted lost")
        .unwrap();
    assert_eq!(
        told[lost + 1],
        "attempt 1",
        "it counts as the same attempt, and is reserved for again"
    );
    // It can be rebuilt from the file, byte for byte.
    let generation = world
        .ledger
        .told
        .lock()
        .unwrap()
        .iter()
        .find_map(|(_, change)| match change {
            mooring_durable::ledger::Change::AttemptStarted { task, .. } => Some(*task),
            _ => None,
        })
        .unwrap();
    let attempt = engine.attempt(generation, 1).await.unwrap().unwrap();
    assert_eq!(
        (attempt.adapter.as_str(), attempt.recoveries),
        ("test/1", 1)
    );
    let rebuilt = engine.rebuild(id, &attempt).await.unwrap();
    assert!(rebuilt.exact);
    assert_eq!(rebuilt.request, requests[0]);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d047_a_crash_in_backoff_keeps_the_deadline_and_the_attempt() {
    let world = World::new();
    *world.model.script.lock().unwrap() = std::sync::Arc::new(|_, context| {
        if context.attempt < 3 {
            overloaded(Some(60))
        } else {
            Reply::Say("at last")
        }
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "hello").await;
    shows(&engine, id, "the backoff", |view| {
        view.run
            .as_ref()
            .is_some_and(|run| run.state == RunState::Retrying)
    })
    .await;
    engine.abandon().await;
    world.clock.advance(59_000);
    let engine = world.start().await;
    world.clock.awaited(START + 60_000).await;
    assert_eq!(
        world.model.requests.lock().unwrap().len(),
        1,
        "the deadline holds"
    );
    world.clock.advance(1_000);
    shows(&engine, id, "the second backoff", |view| {
        view.run
            .as_ref()
            .is_some_and(|run| run.note.starts_with("retry 2"))
    })
    .await;
    engine.abandon().await;
    // Past its deadline while nobody ran.
    world.clock.advance(3_600_000);
    let engine = world.start().await;
    assert_eq!(settled(&engine, submission).await, "done");
    assert_eq!(world.model.requests.lock().unwrap().len(), 3);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_lost_with_four_processes_ends_its_run() {
    let world = World::new();
    world.script(|_| Reply::Hang("part"));
    let (mut engine, id) = world.begin().await;
    let submission = say(&engine, id, "hello").await;
    for lost in 1..=4 {
        eventually("the request", async || {
            world.model.requests.lock().unwrap().len() == lost
        })
        .await;
        engine.abandon().await;
        engine = world.start().await;
    }
    assert_eq!(settled(&engine, submission).await, "unanswered ModelError");
    assert_eq!(world.model.requests.lock().unwrap().len(), 4);
    let told = world.told();
    assert_eq!(
        told.iter()
            .filter(|word| *word == "attempt 1 Aborted lost")
            .count(),
        4
    );
    assert!(view(&engine, id).await.run.is_none());
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overflow_ends_the_run_with_the_providers_text() {
    let world = World::new();
    world.script(|_| {
        Reply::Fail(ModelError::Overflow {
            text: "prompt is too long: 213462 tokens > 200000 maximum".into(),
        })
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "hello").await;
    assert_eq!(settled(&engine, submission).await, "unanswered ModelError");
    let stored = engine.submission(submission).await.unwrap().unwrap();
    assert!(format!("{:?}", stored.state).contains("213462 tokens"));
    assert!(world.told().contains(&"attempt 1 Overflow".into()));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d051_a_run_whose_adapter_breaks_is_faulted_and_keeps_the_partial_answer() {
    let world = World::new();
    let gates = Gates::default();
    let held = gates.clone();
    world.script(move |request| match last_user(request).as_str() {
        "go" => Reply::Break(held.clone(), "break", "so far"),
        _ => Reply::Say("fine"),
    });
    let (engine, id) = world.begin().await;
    let broken = say(&engine, id, "go").await;
    let queued = say(&engine, id, "later").await;
    shows(&engine, id, "the partial answer", |view| {
        world.clock.advance(100);
        !view.chunks.is_empty()
    })
    .await;
    gates.open("break");
    assert_eq!(settled(&engine, broken).await, "unanswered Faulted");
    let shown = view(&engine, id).await;
    assert_eq!(transcript(&shown.entries), ["U:go", "A:so far (aborted)"]);
    assert!(shown.chunks.is_empty() && shown.inbox.len() == 1);
    assert!(world.told().contains(&"attempt 1 Failed".into()));
    let next = say(&engine, id, "next").await;
    assert_eq!(settled(&engine, queued).await, "done");
    assert_eq!(settled(&engine, next).await, "done");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d053_sections_that_cannot_be_rendered_do_not_stop_the_request() {
    let world = World::new();
    world.prompt.0.lock().unwrap().push(Section {
        name: "role".into(),
        text: "be brief".into(),
    });
    let (engine, id) = world.begin().await;
    let first = say(&engine, id, "one").await;
    settled(&engine, first).await;
    *world.prompt.1.lock().unwrap() = true;
    let second = say(&engine, id, "two").await;
    assert_eq!(settled(&engine, second).await, "done");
    assert_eq!(
        transcript(&view(&engine, id).await.entries),
        ["U:one", "S:be brief", "A:fine", "U:two", "A:fine"]
    );
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_waits_for_a_missing_key_over_a_restart_and_goes_on_once_it_is_there() {
    let world = World::new();
    world.script(|_| {
        Reply::Fail(ModelError::NotConfigured {
            needs: "ANTHROPIC_API_KEY".into(),
        })
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "hello").await;
    let needs = |view: &mooring_durable::view::ConversationView| {
        view.run
            .as_ref()
            .is_some_and(|run| run.state == RunState::NeedsKey)
    };
    let waiting = shows(&engine, id, "the missing key", needs).await;
    assert_eq!(waiting.run.unwrap().note, "waits for ANTHROPIC_API_KEY");
    engine.abandon().await;
    let engine = world.start().await;
    eventually("waiting", async || {
        (engine.running(), engine.waiting()) == (0, 1)
    })
    .await;
    world.script(|_| Reply::Say("fine"));
    engine.models_changed();
    assert_eq!(settled(&engine, submission).await, "done");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_is_gone_ends_the_run() {
    let world = World::new();
    *world.model.missing.lock().unwrap() = true;
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "hello").await;
    assert_eq!(settled(&engine, submission).await, "unanswered NoModel");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d101_nothing_is_scheduled_by_reading() {
    let world = World::new();
    world.script(|_| Reply::Hang(""));
    let (engine, id) = world.begin().await;
    say(&engine, id, "hello").await;
    eventually("the request", async || {
        world.model.requests.lock().unwrap().len() == 1
    })
    .await;
    engine.abandon().await;
    let told = world.told().len();
    let engine = world.open().await;
    assert!(view(&engine, id).await.run.is_some());
    engine.conversations(10, None).await.unwrap();
    engine.entries(id, None, 10).await.unwrap();
    let mut watch = engine.watch(Some(id), None).await.unwrap();
    assert!(matches!(
        watch.next().await,
        Some(mooring_durable::view::Frame::Snapshot(_))
    ));
    assert_eq!(
        (
            world.told().len(),
            world.model.requests.lock().unwrap().len()
        ),
        (told, 1)
    );
    assert_eq!(engine.running(), 0);
    engine.close().await.unwrap();
}
