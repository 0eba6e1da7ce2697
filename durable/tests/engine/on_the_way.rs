//! Approvals that a call asks for on its way.

use std::sync::{Arc, Mutex};

use mooring_durable::{
    Approvals, Engine,
    gate::{Approval, ApprovalState, Question},
    id::{Hash, Millis},
    ledger::Change,
    on_the_way::{OnTheWay, Passing},
    submission::AbortScope,
    tool::{Call, Replay},
};
use serde_json::{Value, json};

use crate::support::*;

/// The engine of the moment, for a tool that asks it.
#[derive(Clone, Default)]
struct Asker(Arc<Mutex<Option<Engine>>>);

impl Asker {
    fn now(&self, engine: &Engine) {
        *self.0.lock().unwrap() = Some(engine.clone());
    }

    async fn ask(&self, call: &Call, hash: &str, until: Option<i64>) -> Option<Passing> {
        let engine = self.0.lock().unwrap().clone().unwrap();
        let ask = OnTheWay {
            conversation: call.conversation,
            call: call.task,
            what: "git push".into(),
            hash: Hash(hash.into()),
            question: Question {
                rule: "git \"*\"".into(),
                expires_at: until.map(Millis),
                data: Value::Null,
            },
        };
        engine.ask_on_the_way(ask).await.unwrap()
    }

    /// Asks, waits, uses; what came of it in a word.
    async fn pass(&self, call: &Call, hash: &str) -> String {
        let Some(mut passing) = self.ask(call, hash, None).await else {
            return "nobody".into();
        };
        let approval = passing.settled().await.unwrap();
        let engine = self.0.lock().unwrap().clone().unwrap();
        let used = engine.use_approval(&approval, Vec::new()).await.unwrap();
        format!("{:?} {used}", approval.state)
    }
}

/// A world whose tool `act` asks once for each of these hashes, one after the other.
fn world(hashes: &'static [&'static str]) -> (World, Asker) {
    let world = World::new();
    let asker = Asker::default();
    world.script(|request| match last_user(request).as_str() {
        text if text.starts_with("act") && results(request) == 0 => {
            Reply::Call(vec![("act", json!({}))])
        }
        _ => Reply::Say("over"),
    });
    let asks = asker.clone();
    world.tool("act", Replay::Attach, move |call, _, _, _| {
        let asks = asks.clone();
        async move {
            let mut words = Vec::new();
            for hash in hashes {
                words.push(asks.pass(&call, hash).await);
            }
            done(&words.join(", "))
        }
    });
    (world, asker)
}

async fn pending(engine: &Engine) -> Approval {
    let mut found = Vec::new();
    eventually("a question", async || {
        found = engine.approvals(None, Approvals::Pending).await.unwrap();
        !found.is_empty()
    })
    .await;
    found.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_asks_on_its_way_and_goes_on_and_the_time_is_not_charged() {
    let (world, asker) = world(&["aa"]);
    let (engine, id) = world.begin().await;
    asker.now(&engine);
    let submission = say(&engine, id, "act").await;
    let approval = pending(&engine).await;
    assert_eq!(
        (approval.tool.as_str(), approval.on_the_way),
        ("git push", true)
    );
    shows(&engine, id, "a call that waits", |view| {
        view.approvals.len() == 1 && view.calls[0].state == "waiting-approval"
    })
    .await;
    eventually("a run that only waits", async || {
        engine.waiting() == 1 && engine.running() == 0
    })
    .await;
    world.clock.advance(3_600_000);
    let (first, _) = engine
        .decide(approval.task, approve(true), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(first);
    assert_eq!(settled(&engine, submission).await, "done");
    let entries = view(&engine, id).await.entries;
    assert_eq!(transcript(&entries)[2], "R:Approved true");
    let all = engine.approvals(None, Approvals::All).await.unwrap();
    assert!(all[0].used_at.is_some());
    let told = world.ledger.told.lock().unwrap().clone();
    let charged = told.iter().find_map(|(_, change)| match change {
        Change::RunEnded { run, .. } => Some(run.active_ms),
        _ => None,
    });
    assert_eq!(charged, Some(0));
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_yes_is_used_once_and_a_no_counts_for_its_call() {
    for (yes, word) in [
        (true, "Approved true, Approved true"),
        (false, "Denied false, Denied false"),
    ] {
        let (world, asker) = world(&["aa", "aa"]);
        let (engine, id) = world.begin().await;
        asker.now(&engine);
        let submission = say(&engine, id, "act").await;
        let first = pending(&engine).await;
        engine
            .decide(first.task, approve(yes), Vec::new())
            .await
            .unwrap();
        if yes {
            // Used already: the same content is asked for anew.
            let second = pending(&engine).await;
            assert_ne!(first.task, second.task);
            engine
                .decide(second.task, approve(true), Vec::new())
                .await
                .unwrap();
        }
        assert_eq!(settled(&engine, submission).await, "done");
        let entries = view(&engine, id).await.entries;
        assert_eq!(transcript(&entries)[2].trim_start_matches("R:"), word);
        engine.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_outlives_the_process_and_its_call_and_is_found_by_the_next_one() {
    let (world, asker) = world(&["aa"]);
    let (engine, id) = world.begin().await;
    asker.now(&engine);
    let submission = say(&engine, id, "act").await;
    let before = pending(&engine).await;
    engine.abandon().await;
    // Attached to again, the call asks again, for the same and then for other content.
    let asks = asker.clone();
    world.tool("act", Replay::Attach, move |call, _, _, _| {
        let asks = asks.clone();
        async move {
            let same = asks.pass(&call, "aa").await;
            done(&format!("{same}, {}", asks.pass(&call, "bb").await))
        }
    });
    let engine = world.open().await;
    asker.now(&engine);
    engine.start();
    shows(&engine, id, "the call that waits", |view| {
        view.calls[0].state == "waiting-approval"
    })
    .await;
    assert_eq!(pending(&engine).await.task, before.task);
    engine
        .decide(before.task, approve(true), Vec::new())
        .await
        .unwrap();
    let mut other = before.clone();
    eventually("the other question", async || {
        other = pending(&engine).await;
        other.task != before.task
    })
    .await;
    assert_eq!(other.arguments_hash, Hash("bb".into()));
    engine
        .decide(other.task, approve(false), Vec::new())
        .await
        .unwrap();
    assert_eq!(settled(&engine, submission).await, "done");
    let entries = view(&engine, id).await.entries;
    assert_eq!(transcript(&entries)[2], "R:Approved true, Denied false");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_approved_and_not_used_waits_for_the_next_run() {
    let (world, asker) = world(&["aa"]);
    let asks = asker.clone();
    // It asks, and ends before anybody decides; then what it asked is decided.
    world.tool("act", Replay::Attach, move |call, _, _, _| {
        let asks = asks.clone();
        async move {
            let passing = asks.ask(&call, "aa", None).await.unwrap();
            done(if passing.is_settled() {
                "stands"
            } else {
                "asked"
            })
        }
    });
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("act", 0) => Reply::Call(vec![("act", json!({}))]),
            ("act", 1) => Reply::Call(vec![("wait", json!({}))]),
            _ => Reply::Say("over"),
        },
    );
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let opened = gate.clone();
    world.tool("wait", Replay::Safe, move |_, _, _, _| {
        let gate = opened.clone();
        async move {
            let _ = gate.acquire().await;
            done("waited")
        }
    });
    let (engine, id) = world.begin().await;
    asker.now(&engine);
    let submission = say(&engine, id, "act").await;
    let approval = pending(&engine).await;
    engine
        .decide(approval.task, approve(true), Vec::new())
        .await
        .unwrap();
    gate.add_permits(1);
    assert_eq!(settled(&engine, submission).await, "done");
    // The next run finds it, and the use of it is the last.
    let asks = asker.clone();
    world.tool("act", Replay::Attach, move |call, _, _, _| {
        let asks = asks.clone();
        async move { done(&asks.pass(&call, "aa").await) }
    });
    world.script(|request| match results(request) {
        0 => Reply::Call(vec![("act", json!({}))]),
        _ => Reply::Say("over"),
    });
    let submission = say(&engine, id, "once more").await;
    assert_eq!(settled(&engine, submission).await, "done");
    let entries = view(&engine, id).await.entries;
    let words = transcript(&entries);
    assert!(words.contains(&"R:Approved true".to_owned()), "{words:?}");
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_the_end_of_the_run_and_a_changed_policy_end_a_question() {
    let (world, asker) = world(&["aa"]);
    let (engine, id) = world.begin().await;
    asker.now(&engine);
    // The run is ended by hand.
    let submission = say(&engine, id, "act").await;
    let first = pending(&engine).await;
    engine.abort(id, AbortScope::Run).await.unwrap();
    assert_eq!(settled(&engine, submission).await, "unanswered Aborted");
    // It is taken back.
    let submission = say(&engine, id, "act").await;
    let second = pending(&engine).await;
    engine.supersede(&second).await.unwrap();
    assert_eq!(settled(&engine, submission).await, "done");
    // Nobody answers.
    let asks = asker.clone();
    world.tool("act", Replay::Attach, move |call, _, _, _| {
        let asks = asks.clone();
        async move {
            let mut passing = asks.ask(&call, "cc", Some(START + 60_000)).await.unwrap();
            done(&format!("{:?}", passing.settled().await.unwrap().state))
        }
    });
    let submission = say(&engine, id, "act").await;
    pending(&engine).await;
    world.clock.awaited(START + 60_000).await;
    world.clock.advance(60_000);
    assert_eq!(settled(&engine, submission).await, "done");
    let all = engine.approvals(None, Approvals::All).await.unwrap();
    let states: Vec<_> = all.iter().map(|approval| approval.state).collect();
    assert_eq!(
        states,
        [
            ApprovalState::Aborted,
            ApprovalState::Superseded,
            ApprovalState::Expired
        ]
    );
    assert_eq!(all[0].task, first.task);
    // A call that is over asks nobody.
    let call = first.call;
    let ask = OnTheWay {
        conversation: id,
        call,
        what: "git push".into(),
        hash: Hash("dd".into()),
        question: first.question.clone(),
    };
    assert!(engine.ask_on_the_way(ask).await.unwrap().is_none());
    engine.close().await.unwrap();
}
