//! Compactions: by hand, in the background, at the threshold, after an overflow.

use mooring_durable::{
    Engine,
    compaction::{Asked, Mode},
    id::{ConversationId, EntryId, TaskId},
    message::Message,
    model::ModelError,
    submission::AbortScope,
    tool::Replay,
    write::{Head, Write, WriteBody},
};
use serde_json::{Value, json};

use crate::{
    branches::{fork_of, talk, told, words},
    support::*,
};

const SUMMARY: &str =
    "The beginning of this conversation was compacted. This is the summary of it:\n\nthe summary";

async fn compact(engine: &Engine, id: ConversationId) -> Asked {
    engine.compact(id, anna(), String::new()).await.unwrap()
}

/// How compactions ended, in order.
async fn ends(engine: &Engine, id: ConversationId) -> Vec<String> {
    let entries = view(engine, id).await.entries;
    let own = entries.iter().filter(|entry| entry.kind == "pi.compaction");
    own.map(|entry| {
        let word = |field: &str| entry.data[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}", word("mode"), word("outcome"))
    })
    .collect()
}

async fn no_more(engine: &Engine, id: ConversationId) {
    shows(engine, id, "the end of the compaction", |view| {
        view.compaction.is_none()
    })
    .await;
}

fn overflow() -> Reply {
    Reply::Fail(ModelError::Overflow {
        text: "prompt is too long: 9 tokens > 8".into(),
    })
}

fn failing() -> Reply {
    Reply::Fail(ModelError::Fatal {
        text: "no summaries today".into(),
    })
}

fn number(world: &World, sql: &str) -> i64 {
    let file = rusqlite::Connection::open(world.path()).unwrap();
    file.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn by_hand_a_summary_takes_the_place_of_the_beginning_and_every_request_can_be_rebuilt() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    assert_eq!(compact(&engine, id).await, Asked::Skipped);
    for text in ["one", "two", "three"] {
        talk(&engine, id, text).await;
    }
    assert_eq!(compact(&engine, id).await, Asked::Going(Mode::Manual));
    no_more(&engine, id).await;
    talk(&engine, id, "four").await;
    assert_eq!(told(&world), [SUMMARY, "three", "fine", "four"]);
    assert_eq!(
        ends(&engine, id).await,
        ["manual skipped", "manual compacted"]
    );
    // A second one is of the summary and what came after it.
    assert_eq!(compact(&engine, id).await, Asked::Going(Mode::Manual));
    no_more(&engine, id).await;
    talk(&engine, id, "five").await;
    let context = told(&world);
    assert_eq!(context[0], SUMMARY);
    assert_eq!(context.iter().filter(|text| *text == SUMMARY).count(), 1);
    assert!(!context.contains(&"three".into()), "{context:?}");
    // A fork from before is not compacted.
    let old = view(&engine, id).await.entries[3].id;
    let fork = engine.fork(fork_of(id, Some(old))).await.unwrap();
    talk(&engine, fork, "else").await;
    assert_eq!(told(&world), ["one", "fine", "two", "else"]);

    let sent = world.model.requests.lock().unwrap().clone();
    let entries = view(&engine, id).await.entries;
    let answers = entries.iter().filter(|entry| entry.kind == "pi.assistant");
    for (entry, request) in answers.zip(&sent) {
        let attempt = engine.attempt(entry.writer.unwrap(), 1).await.unwrap();
        let rebuilt = engine.rebuild(id, &attempt.unwrap()).await.unwrap();
        assert!(rebuilt.exact);
        assert_eq!(rebuilt.request, *request);
    }
    let summaries = world.model.summaries.lock().unwrap().clone();
    let own = entries
        .iter()
        .filter_map(|entry| entry.data["task"].as_i64());
    for (task, request) in own.zip(&summaries) {
        let attempt = engine.attempt(TaskId(task), 1).await.unwrap().unwrap();
        let rebuilt = engine.rebuild(id, &attempt).await.unwrap();
        assert!(rebuilt.exact);
        assert_eq!(rebuilt.request, *request);
    }
    assert_eq!(summaries.len(), 2);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d089_by_hand_while_busy_the_summary_waits_for_the_next_boundary() {
    let world = World::new();
    let gates = Gates::default();
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![("hold", json!({}))]),
            _ => Reply::Say("fine"),
        },
    );
    let pass = gates.clone();
    world.tool("hold", Replay::Never, move |_, _, _, _| {
        let pass = pass.clone();
        async move {
            pass.pass("hold").await;
            done("held")
        }
    });
    let (engine, id) = world.begin().await;
    talk(&engine, id, "one").await;
    talk(&engine, id, "two").await;
    let go = say(&engine, id, "go").await;
    shows(&engine, id, "the call", |view| {
        view.calls.iter().any(|call| call.state == "running")
    })
    .await;
    assert_eq!(compact(&engine, id).await, Asked::Going(Mode::Manual));
    let waiting = shows(&engine, id, "the queued summary", |view| {
        view.compaction.is_none() && !view.inbox.iter().all(|it| state(it) != "queued")
    })
    .await;
    assert_eq!(ends(&engine, id).await, Vec::<String>::new());
    assert!(waiting.run.is_some());
    gates.open("hold");
    assert_eq!(settled(&engine, go).await, "done");
    assert_eq!(ends(&engine, id).await, ["manual compacted"]);
    let context = told(&world);
    assert_eq!(context[0], SUMMARY);
    // The call and its result stayed together.
    assert_eq!(context[context.len() - 3..], ["go", "call", "held"]);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d091_a_summary_of_less_than_what_was_cut_meanwhile_is_stale() {
    for (from, expected) in [(1, "manual compacted"), (5, "background skipped")] {
        let world = World::new();
        let gates = Gates::default();
        let held = gates.clone();
        world.summaries(move || Reply::After(held.clone(), "summary", "the summary"));
        let (engine, id) = world.begin().await;
        for text in ["one", "two", "three"] {
            talk(&engine, id, text).await;
        }
        assert_eq!(compact(&engine, id).await, Asked::Going(Mode::Manual));
        assert_eq!(
            compact(&engine, id).await,
            Asked::Going(Mode::Manual),
            "one at a time"
        );
        let entries = view(&engine, id).await.entries;
        let head = WriteBody {
            kind: "host.cut".into(),
            message: None,
            data: Value::Null,
            head: Some(Head::From(entries[from].id)),
            edits: Vec::new(),
        };
        let write = Write {
            conversation: id,
            request_id: None,
            requester: anna(),
            body: head,
            extra: Vec::new(),
        };
        let cut = engine.write(write).await.unwrap();
        assert_eq!(state(&cut.submission), "done");
        gates.open("summary");
        no_more(&engine, id).await;
        assert_eq!(ends(&engine, id).await, [expected]);
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn d093_after_one_compaction_of_a_generation_an_overflow_ends_the_run() {
    // The provider refuses whatever is sent; or the threshold came first.
    for window in [None, Some(60)] {
        let world = World::new();
        let (engine, id) = world.begin().await;
        for text in ["one", "two"] {
            talk(&engine, id, text).await;
        }
        talk(&engine, id, "three").await;
        *world.model.window.lock().unwrap() = window;
        world.script(|_| overflow());
        let last = say(&engine, id, "four").await;
        assert_eq!(settled(&engine, last).await, "unanswered ModelError");
        let mode = match window {
            None => "overflow compacted",
            Some(_) => "threshold compacted",
        };
        assert_eq!(ends(&engine, id).await, [mode]);
        let submission = engine.submission(last).await.unwrap().unwrap();
        let detail = serde_json::to_value(&submission.state).unwrap();
        assert_eq!(detail["detail"], "prompt is too long: 9 tokens > 8");
        assert_eq!(world.model.summaries.lock().unwrap().len(), 1);
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn an_overflow_is_followed_by_the_same_attempt_of_a_context_that_fits() {
    let world = World::new();
    world.script(|request| match request.messages.len() {
        6.. => overflow(),
        _ => Reply::Say("fine"),
    });
    let (engine, id) = world.begin().await;
    for text in ["one", "two", "three"] {
        talk(&engine, id, text).await;
    }
    talk(&engine, id, "four").await;
    assert_eq!(ends(&engine, id).await, ["overflow compacted"]);
    assert_eq!(told(&world).last().unwrap(), "four");
    let run = view(&engine, id).await;
    let failed = run.entries.iter().filter(|entry| entry.state == "error");
    assert_eq!(
        failed.count(),
        1,
        "the refused request is in the transcript"
    );
    // The request right after the summary, with nothing newer in it, can be rebuilt, too.
    let answer = run.entries.last().unwrap();
    let attempt = engine.attempt(answer.writer.unwrap(), 2).await.unwrap();
    let rebuilt = engine.rebuild(id, &attempt.unwrap()).await.unwrap();
    assert!(rebuilt.exact);
    assert_eq!(words(&rebuilt.request), told(&world));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn without_a_summary_the_threshold_sends_the_request_and_an_overflow_ends_the_run() {
    let world = World::new();
    world.summaries(failing);
    let (engine, id) = world.begin().await;
    for text in ["one", "two", "three"] {
        talk(&engine, id, text).await;
    }
    *world.model.window.lock().unwrap() = Some(60);
    talk(&engine, id, "four").await;
    assert_eq!(ends(&engine, id).await, ["threshold failed"]);
    assert_eq!(told(&world).len(), 7, "as it was");
    *world.model.window.lock().unwrap() = None;
    world.script(|_| overflow());
    let last = say(&engine, id, "five").await;
    assert_eq!(settled(&engine, last).await, "unanswered ModelError");
    let submission = engine.submission(last).await.unwrap().unwrap();
    let text = serde_json::to_string(&submission.state).unwrap();
    assert!(text.contains("prompt is too long"), "{text}");
    assert_eq!(
        ends(&engine, id).await,
        ["threshold failed", "overflow failed"]
    );
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_run_that_waits_for_a_summary_after_an_overflow_can_be_ended() {
    for (resets, expected) in [(false, "unanswered Aborted"), (true, "unanswered Reset")] {
        let world = World::new();
        world.summaries(|| Reply::Hang(""));
        let (engine, id) = world.begin().await;
        for text in ["one", "two", "three"] {
            talk(&engine, id, text).await;
        }
        world.script(|_| overflow());
        let last = say(&engine, id, "four").await;
        shows(&engine, id, "the wait", |view| view.compaction.is_some()).await;
        match resets {
            true => drop(engine.reset(id, None, anna(), None).await.unwrap()),
            false => drop(engine.abort(id, AbortScope::Conversation).await.unwrap()),
        }
        assert_eq!(settled(&engine, last).await, expected);
        assert_eq!(ends(&engine, id).await, ["overflow aborted"]);
        world.script(|_| Reply::Say("fine"));
        talk(&engine, id, "five").await;
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_context_that_fills_up_is_compacted_while_the_run_goes_on() {
    let world = World::new();
    let gates = Gates::default();
    let held = gates.clone();
    world.summaries(move || Reply::After(held.clone(), "summary", "the summary"));
    let (engine, id) = world.begin().await;
    for text in ["one", "two", "three"] {
        talk(&engine, id, text).await;
    }
    *world.model.window.lock().unwrap() = Some(100);
    // Seven messages of ten tokens are 70 percent.
    talk(&engine, id, "four").await;
    let going = view(&engine, id).await;
    assert_eq!(going.compaction, Some(Mode::Background));
    let other = engine.create_conversation("m", json!({}), Vec::new()).await;
    talk(&engine, other.unwrap(), "not held up").await;
    // Nearly full, the next request waits for the one that is going.
    let last = say(&engine, id, "five").await;
    shows(&engine, id, "the wait", |view| {
        let run = view.run.as_ref();
        run.is_some_and(|run| run.state == mooring_durable::ledger::RunState::Compacting)
    })
    .await;
    gates.open("summary");
    assert_eq!(settled(&engine, last).await, "done");
    assert_eq!(ends(&engine, id).await, ["background compacted"]);
    assert_eq!(told(&world)[0], SUMMARY);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d097_figures_from_before_a_summary_cause_no_second_compaction() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    for text in ["one", "two", "three"] {
        talk(&engine, id, text).await;
    }
    *world.model.window.lock().unwrap() = Some(60);
    // The clock stands still all the while.
    for text in ["four", "five"] {
        talk(&engine, id, text).await;
    }
    no_more(&engine, id).await;
    let ended = ends(&engine, id).await;
    assert_eq!(ended[0], "threshold compacted");
    assert!(
        !ended[1..].contains(&"threshold compacted".into()),
        "{ended:?}"
    );
    assert_eq!(told(&world)[0], SUMMARY);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d095_a_summary_that_was_lost_is_asked_for_once_more() {
    let world = World::new();
    let gates = Gates::default();
    let held = gates.clone();
    world.summaries(move || Reply::After(held.clone(), "summary", "the summary"));
    let (engine, id) = world.begin().await;
    for text in ["one", "two", "three"] {
        talk(&engine, id, text).await;
    }
    compact(&engine, id).await;
    engine.abandon().await;
    gates.open("summary");
    let engine = world.start().await;
    no_more(&engine, id).await;
    assert_eq!(ends(&engine, id).await, ["manual compacted"]);
    let sent = world.model.summaries.lock().unwrap().clone();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0], sent[1]);
    assert_eq!(
        number(
            &world,
            "SELECT count(*) FROM attempt a JOIN task t ON t.id = a.task WHERE t.kind = 'pi.compaction' AND a.usage IS NOT NULL"
        ),
        1,
        "only the answered one is billed"
    );
    // Nothing of it is repeated.
    engine.close().await.unwrap();
    let engine = world.start().await;
    talk(&engine, id, "four").await;
    assert_eq!(ends(&engine, id).await, ["manual compacted"]);
    assert_eq!(world.model.summaries.lock().unwrap().len(), 2);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d095_a_summary_that_is_tried_again_keeps_its_deadline_over_a_crash() {
    let world = World::new();
    *world.model.summary.lock().unwrap() =
        std::sync::Arc::new(|_, context| match context.attempt {
            1 => Reply::Fail(ModelError::Retryable {
                text: "overloaded".into(),
                retry_after: Some(std::time::Duration::from_secs(60)),
                usage: None,
            }),
            _ => Reply::Say("the summary"),
        });
    let (engine, id) = world.begin().await;
    for text in ["one", "two"] {
        talk(&engine, id, text).await;
    }
    compact(&engine, id).await;
    world.clock.awaited(START + 60_000).await;
    engine.abandon().await;
    let engine = world.start().await;
    world.clock.awaited(START + 60_000).await;
    assert_eq!(world.model.summaries.lock().unwrap().len(), 1);
    world.clock.advance(60_000);
    no_more(&engine, id).await;
    assert_eq!(ends(&engine, id).await, ["manual compacted"]);
    assert_eq!(world.model.summaries.lock().unwrap().len(), 2);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_compaction_that_is_stopped_is_told_and_changes_nothing() {
    let world = World::new();
    let gates = Gates::default();
    world.summaries(move || Reply::After(gates.clone(), "never", "never"));
    let (engine, id) = world.begin().await;
    for text in ["one", "two"] {
        talk(&engine, id, text).await;
    }
    compact(&engine, id).await;
    engine.abort(id, AbortScope::Conversation).await.unwrap();
    no_more(&engine, id).await;
    assert_eq!(ends(&engine, id).await, ["manual aborted"]);
    // A run that waits for one ends with it.
    *world.model.window.lock().unwrap() = Some(40);
    let waits = say(&engine, id, "three").await;
    shows(&engine, id, "the compaction", |view| {
        view.compaction.is_some()
    })
    .await;
    engine.abort(id, AbortScope::Run).await.unwrap();
    assert_eq!(settled(&engine, waits).await, "unanswered Aborted");
    assert_eq!(
        ends(&engine, id).await,
        ["manual aborted", "threshold aborted"]
    );
    // A reset leaves nothing to summarise.
    *world.model.window.lock().unwrap() = None;
    compact(&engine, id).await;
    engine.reset(id, None, anna(), None).await.unwrap();
    talk(&engine, id, "four").await;
    assert_eq!(told(&world), ["four"]);
    eventually("the requests to end", async || {
        world
            .model
            .cancelled
            .load(std::sync::atomic::Ordering::SeqCst)
            == 3
    })
    .await;
    assert_eq!(number(&world, "SELECT count(*) FROM open_work"), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_write_cannot_begin_a_context_at_an_entry_of_another_conversation() {
    let world = World::new();
    let (engine, first) = world.begin().await;
    talk(&engine, first, "one").await;
    let second = engine.create_conversation("m", json!({}), Vec::new()).await;
    let second = second.unwrap();
    talk(&engine, second, "two").await;
    let theirs = view(&engine, second).await.entries[0].id;
    for entry in [theirs, EntryId(12_345)] {
        let write = Write {
            conversation: first,
            request_id: None,
            requester: anna(),
            body: WriteBody {
                kind: "host.cut".into(),
                message: Some(Message::User {
                    content: Vec::new(),
                }),
                data: Value::Null,
                head: Some(Head::From(entry)),
                edits: Vec::new(),
            },
            extra: Vec::new(),
        };
        let error = engine.write(write).await.unwrap_err();
        assert!(error.to_string().contains("is not part of"), "{error}");
    }
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_that_the_budget_has_no_room_for_is_not_asked_for() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    for text in ["one", "two", "three"] {
        talk(&engine, id, text).await;
    }
    *world.ledger.refuse.lock().unwrap() = Some("0 of 100 left until midnight".into());
    let refused = Asked::Refused("0 of 100 left until midnight".into());
    assert_eq!(compact(&engine, id).await, refused);
    assert_eq!(ends(&engine, id).await, ["manual failed"]);
    let entries = view(&engine, id).await.entries;
    let text = entries.last().unwrap().data["text"].as_str().unwrap();
    assert!(text.contains("until midnight"), "{text}");
    // At the threshold the request that waits comes next, and is refused itself.
    *world.model.window.lock().unwrap() = Some(70);
    let submission = say(&engine, id, "four").await;
    assert_eq!(settled(&engine, submission).await, "unanswered Budget");
    assert_eq!(
        ends(&engine, id).await,
        ["manual failed", "threshold failed"]
    );
    assert!(world.model.summaries.lock().unwrap().is_empty());
    engine.close().await.unwrap();
}
