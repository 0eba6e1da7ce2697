//! Calls: decided, intended, executed, and what a crash makes of them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use mooring_durable::{
    gate::Verdict,
    tool::{Replay, Start, ToolEnd, ToolFailure, ToolResult},
};
use serde_json::{Value, json};

use crate::support::*;

fn calls(
    names: &'static [&'static str],
) -> impl Fn(&mooring_durable::model::ModelRequest) -> Reply {
    move |request| match results(request) {
        0 => Reply::Call(names.iter().map(|name| (*name, json!({}))).collect()),
        _ => Reply::Say("over"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_cannot_be_made_get_an_error_without_an_intent() {
    let world = World::new();
    world.script(|request| match results(request) {
        0 => Reply::Call(vec![
            ("none", json!({})),
            ("act", json!("{\"broken\": ")),
            ("act", json!({"no": 1})),
        ]),
        _ => Reply::Say("over"),
    });
    world.tool("act", Replay::Never, |_, _, _, _| async { done("acted") });
    world.gate(|call, _| match call.arguments.get("no") {
        Some(_) => Verdict::Deny {
            reason: "never that".into(),
            record: json!({"rule": 1}),
        },
        None => Verdict::Allow {
            record: Value::Null,
        },
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "act").await;
    assert_eq!(settled(&engine, submission).await, "done");
    let words = transcript(&view(&engine, id).await.entries);
    assert_eq!(words[2], "R!:There is no tool none. There are: act.");
    assert!(
        words[3].starts_with("R!:The arguments of act are not a JSON object"),
        "{}",
        words[3]
    );
    assert_eq!(words[4], "R!:never that");
    assert!(!world.told().iter().any(|word| word.starts_with("start")));
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d057_only_a_call_that_was_and_is_safe_runs_again() {
    for (stored, present, expected) in [
        (Replay::Safe, Some(Replay::Safe), "R:ran 2"),
        (Replay::Safe, Some(Replay::Never), "interrupted"),
        (Replay::Never, Some(Replay::Safe), "interrupted"),
        (Replay::Never, Some(Replay::Never), "interrupted"),
        (Replay::Safe, None, "interrupted"),
        (Replay::Attach, Some(Replay::Never), "interrupted"),
    ] {
        let world = World::new();
        world.script(calls(&["act"]));
        let runs = Arc::new(AtomicUsize::new(0));
        let act = |replay| {
            let runs = runs.clone();
            world.tool("act", replay, move |_, _, out, cancel| {
                let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                out.write(0, b"so far\n");
                async move {
                    if run == 1 {
                        cancel.cancelled().await;
                    }
                    done(&format!("ran {run}"))
                }
            })
        };
        act(stored);
        let (engine, id) = world.begin().await;
        let submission = say(&engine, id, "act").await;
        shows(&engine, id, "the running call", |view| {
            view.calls.iter().any(|call| call.state == "running")
        })
        .await;
        shows(&engine, id, "its output", |view| {
            world.clock.advance(100);
            view.chunks.iter().any(|chunk| chunk.text == "so far\n")
        })
        .await;
        engine.abandon().await;
        match present {
            Some(replay) => drop(act(replay)),
            None => world.tools.0.lock().unwrap().clear(),
        }
        let engine = world.start().await;
        assert_eq!(settled(&engine, submission).await, "done");
        let words = transcript(&view(&engine, id).await.entries);
        if expected == "interrupted" {
            assert!(
                words[2].starts_with("R!:so far\n|The process that ran this call ended"),
                "{stored:?} {present:?}: {}",
                words[2]
            );
            assert_eq!(runs.load(Ordering::SeqCst), 1);
        } else {
            assert_eq!(words[2], "R:so far\n|ran 2");
        }
        engine.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_outside_of_the_process_is_attached_to_again_from_its_committed_output() {
    let world = World::new();
    world.script(calls(&["bash"]));
    let starts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = starts.clone();
    let tool = world.tool("bash", Replay::Attach, move |call, start, out, cancel| {
        noted
            .lock()
            .unwrap()
            .push((call.execution.clone(), start, call.binding.clone()));
        async move {
            match start {
                Start::Fresh => {
                    out.write(0, b"0123456789");
                    cancel.cancelled().await;
                    Err(ToolFailure::Cancelled)
                }
                Start::Again { offset } => {
                    out.write(offset, b"abc");
                    done("exit 0")
                }
            }
        }
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    eventually("the execution", async || starts.lock().unwrap().len() == 1).await;
    shows(&engine, id, "the output", |view| {
        world.clock.advance(100);
        view.chunks.iter().any(|chunk| chunk.text == "0123456789")
    })
    .await;
    let open = engine.open_executions().await.unwrap();
    assert_eq!(open, [starts.lock().unwrap()[0].0.clone()]);
    assert!(open[0].starts_with(&engine.incarnation().0));
    engine.abandon().await;
    let engine = world.start().await;
    assert_eq!(settled(&engine, submission).await, "done");
    let noted = starts.lock().unwrap().clone();
    let (first, again) = (noted[0].clone(), noted[1].clone());
    assert_eq!(
        again,
        (
            first.0.clone(),
            Start::Again { offset: 10 },
            json!({"boot": 1})
        )
    );
    assert_eq!(
        transcript(&view(&engine, id).await.entries)[2],
        "R:0123456789abc|exit 0"
    );
    eventually("the release", async || {
        *tool.released.lock().unwrap() == [first.0.clone()]
    })
    .await;
    eventually("no debts", async || {
        engine.open_executions().await.unwrap().is_empty()
    })
    .await;
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_owed_is_made_by_the_next_process() {
    let world = World::new();
    world.script(calls(&["bash"]));
    let tool = world.tool("bash", Replay::Attach, |_, _, _, _| async {
        done("exit 0")
    });
    tool.reachable.store(false, Ordering::SeqCst);
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    assert_eq!(settled(&engine, submission).await, "done");
    assert_eq!(engine.open_executions().await.unwrap().len(), 1);
    engine.abandon().await;
    tool.reachable.store(true, Ordering::SeqCst);
    let engine = world.start().await;
    eventually("the release", async || {
        tool.released.lock().unwrap().len() == 1
    })
    .await;
    eventually("no debts", async || {
        engine.open_executions().await.unwrap().is_empty()
    })
    .await;
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_reachable_is_no_outcome() {
    let world = World::new();
    world.script(calls(&["bash"]));
    let away = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let gone = away.clone();
    let tries = std::sync::atomic::AtomicUsize::new(0);
    world.tool("bash", Replay::Attach, move |_, start, _, _| {
        let gone = gone.load(Ordering::SeqCst);
        let tries = tries.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            match gone {
                true => Err(ToolFailure::Unreachable(format!("refused {tries} times"))),
                false => done(&format!("{start:?}")),
            }
        }
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    let view = shows(&engine, id, "the loss", |view| {
        view.calls.iter().any(|call| call.state == "unreachable")
    })
    .await;
    assert_eq!(
        view.calls[0].note,
        "not reachable since 22:13:20 UTC: refused 1 times"
    );
    world.clock.awaited(START + 2_000).await;
    world.clock.advance(2_000);
    world.clock.awaited(START + 4_000).await;
    // What is known of it now stands on the call and on its run.
    let now = "not reachable since 22:13:20 UTC: refused 2 times";
    shows(&engine, id, "the second try", |view| {
        let run = view.run.as_ref().is_some_and(|run| run.note == now);
        run && view.calls[0].note == now
    })
    .await;
    away.store(false, Ordering::SeqCst);
    world.clock.advance(2_000);
    assert_eq!(settled(&engine, submission).await, "done");
    assert_eq!(
        transcript(&crate::support::view(&engine, id).await.entries)[2],
        "R:Again { offset: 0 }"
    );
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d031_terminate_needs_every_call_of_the_round() {
    for (others, expected) in [
        (true, vec!["U:go", "A2", "R:x", "R:x"]),
        (false, vec!["U:go", "A2", "R:x", "R:x", "A:over"]),
    ] {
        let world = World::new();
        world.script(calls(&["end", "other"]));
        let ending = |terminate| {
            let end = ToolEnd::Completed(ToolResult {
                content: vec![mooring_durable::message::Part::text("x")],
                is_error: false,
                terminate,
                data: Value::Null,
                documents: Vec::new(),
            });
            move |_, _, _, _| {
                let end = end.clone();
                async move { Ok(end) }
            }
        };
        world.tool("end", Replay::Never, ending(true));
        world.tool("other", Replay::Never, ending(others));
        let (engine, id) = world.begin().await;
        let submission = say(&engine, id, "go").await;
        assert_eq!(settled(&engine, submission).await, "done");
        assert_eq!(transcript(&view(&engine, id).await.entries), expected);
        engine.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d061_an_aborted_sequential_round_has_results_in_order_and_no_tasks_for_what_never_began() {
    let world = World::new();
    world.script(calls(&["one", "two", "three"]));
    for name in ["one", "two", "three"] {
        world.put_tool(
            name,
            Replay::Never,
            true,
            move |_, _, _, cancel| async move {
                if name == "two" {
                    cancel.cancelled().await;
                    return Err(ToolFailure::Cancelled);
                }
                done(name)
            },
        );
    }
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    let running = shows(&engine, id, "the second call", |view| {
        view.calls
            .iter()
            .any(|call| call.tool == "two" && call.state == "running")
    })
    .await;
    assert_eq!(running.calls.len(), 2, "the third has no task");
    engine
        .abort(id, mooring_durable::submission::AbortScope::Run)
        .await
        .unwrap();
    assert_eq!(settled(&engine, submission).await, "unanswered Aborted");
    let words = transcript(&view(&engine, id).await.entries);
    assert_eq!(
        words,
        [
            "U:go",
            "A3",
            "R:one",
            "R!:The call was aborted.",
            "R!:The call was aborted before it began."
        ]
    );
    assert!(!world.told().contains(&"start three".into()));
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_fails_or_panics_does_not_end_the_run() {
    let world = World::new();
    world.script(calls(&["fails", "panics"]));
    world.tool("fails", Replay::Never, |_, _, _, _| async {
        Err(ToolFailure::Failed("no such device".into()))
    });
    world.tool("panics", Replay::Never, |_, _, _, _| async {
        panic!("a test's panic")
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    assert_eq!(settled(&engine, submission).await, "done");
    let words = transcript(&view(&engine, id).await.entries);
    assert_eq!(
        words[2..4],
        [
            "R!:The tool failed: no such device",
            "R!:The tool failed: it panicked"
        ]
    );
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d059_a_round_has_one_successor_although_the_process_ends_at_its_end() {
    let world = World::new();
    world.script(calls(&["quick", "slow"]));
    let gates = Gates::default();
    let held = gates.clone();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    world.tool("quick", Replay::Never, move |_, _, _, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { done("quick") }
    });
    world.tool("slow", Replay::Safe, move |_, _, _, _| {
        let held = held.clone();
        async move {
            held.pass("slow").await;
            done("slow")
        }
    });
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    shows(&engine, id, "the first result", |view| {
        view.calls.iter().any(|call| call.state == "done")
    })
    .await;
    // The last result and the round's end are one commit; it may stand or not.
    gates.open("slow");
    engine.abandon().await;
    gates.open("slow");
    let engine = world.start().await;
    assert_eq!(settled(&engine, submission).await, "done");
    let words = transcript(&view(&engine, id).await.entries);
    assert_eq!(words, ["U:go", "A2", "R:quick", "R:slow", "A:over"]);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let file = rusqlite::Connection::open(world.path()).unwrap();
    let sql = "SELECT count(*) FROM task WHERE kind = 'pi.generation'";
    let generations: i64 = file.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(generations, 2);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d055_a_call_runs_once_although_its_gate_is_asked_again_after_a_crash() {
    // The crash comes before the intent, while the gate is asked.
    let world = World::new();
    world.script(calls(&["act"]));
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    world.tool("act", Replay::Never, move |_, _, _, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { done("acted") }
    });
    world.gate(|_, _| ask("rule"));
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    shows(&engine, id, "the question", |view| {
        !view.approvals.is_empty()
    })
    .await;
    engine.abandon().await;
    let engine = world.start().await;
    engine.policy_changed();
    eventually("the gate", async || {
        world.gate.1.load(Ordering::SeqCst) >= 2
    })
    .await;
    assert_eq!(
        engine
            .approvals(None, mooring_durable::Approvals::All)
            .await
            .unwrap()
            .len(),
        1,
        "the same question is found again"
    );
    world.gate(|_, _| Verdict::Allow {
        record: Value::Null,
    });
    engine.policy_changed();
    assert_eq!(settled(&engine, submission).await, "done");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(world.told().contains(&"approval Superseded".into()));
    engine.close().await.unwrap();
}
