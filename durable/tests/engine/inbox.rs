//! Submissions and boundaries.

use mooring_durable::{
    Edit,
    error::SubmitError,
    id::Millis,
    ledger::Change,
    message::{Message, Part},
    model::ModelError,
    submission::{AbortScope, Input, WhenBusy},
    tool::Replay,
    write::{Head, Write, WriteBody},
};
use serde_json::{Value, json};

use crate::support::*;

fn note(text: &str) -> WriteBody {
    let message = Some(Message::User {
        content: vec![Part::text(text)],
    });
    WriteBody {
        kind: "host.note".into(),
        message,
        data: Value::Null,
        head: None,
        edits: Vec::new(),
    }
}

fn write(conversation: mooring_durable::id::ConversationId, body: WriteBody) -> Write {
    Write {
        conversation,
        request_id: None,
        requester: anna(),
        body,
        extra: Vec::new(),
    }
}

/// A model that holds the input `go` until the gate opens, and answers with the last input.
fn holding(world: &World) -> Gates {
    let gates = Gates::default();
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![("hold", json!({}))]),
            _ => Reply::Say("answer"),
        },
    );
    let passes = gates.clone();
    world.tool("hold", Replay::Never, move |_, _, _, _| {
        let passes = passes.clone();
        async move {
            passes.pass("hold").await;
            done("held")
        }
    });
    gates
}

async fn held(engine: &mooring_durable::Engine, id: mooring_durable::id::ConversationId) {
    shows(engine, id, "the running call", |view| {
        view.calls.iter().any(|call| call.state == "running")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d013_an_idle_input_is_placed_with_the_clocks_time_in_one_commit() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    world.clock.advance(5_000);
    let submitted = engine
        .submit(input(id, "hello", WhenBusy::FollowUp))
        .await
        .unwrap();
    assert_eq!(state(&submitted.submission), "placed");
    assert_eq!(settled(&engine, submitted.submission.id).await, "done");
    assert_eq!(view(&engine, id).await.entries[0].at, Millis(START + 5_000));
    let told = world.ledger.told.lock().unwrap().clone();
    let commits: Vec<_> = told
        .iter()
        .filter(|(_, change)| {
            use mooring_durable::ledger::Change::{Admitted, Placed, RunStarted};
            matches!(change, Admitted { .. } | Placed { .. } | RunStarted { .. })
        })
        .map(|(commit, _)| commit)
        .collect();
    assert_eq!(commits.len(), 3);
    assert!(commits.iter().all(|commit| *commit == commits[0]));
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d015_a_request_id_finds_its_first_submission() {
    let world = World::new();
    let gates = holding(&world);
    let (engine, id) = world.begin().await;
    let other = engine
        .create_conversation("m", json!({}), Vec::new())
        .await
        .unwrap();
    let with = |to, text: &str| Input {
        request_id: request_id("r"),
        ..input(to, text, WhenBusy::Reject)
    };
    let first = engine.submit(with(id, "go")).await.unwrap();
    held(&engine, id).await;
    let commits = world.told().len();
    let again = engine.submit(with(id, "something else")).await.unwrap();
    assert!(again.repeated && again.submission.id == first.submission.id);
    assert_eq!(
        again.submission.content,
        vec![Part::text("go")],
        "content is not compared, and stays the first"
    );
    assert_eq!(world.told().len(), commits, "nothing was committed");
    let refused = engine
        .write(Write {
            request_id: request_id("r"),
            ..write(id, note("n"))
        })
        .await;
    assert!(matches!(refused, Err(SubmitError::OtherType(id)) if id == "r"));
    assert!(!engine.submit(with(other, "go")).await.unwrap().repeated);
    gates.open("hold");
    gates.open("hold");
    assert_eq!(settled(&engine, first.submission.id).await, "done");
    // Also after the end, and in the next process.
    engine.close().await.unwrap();
    let engine = world.start().await;
    assert!(engine.submit(with(id, "again")).await.unwrap().repeated);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d017_a_write_is_placed_before_the_next_follow_up() {
    let world = World::new();
    let gates = holding(&world);
    let (engine, id) = world.begin().await;
    say(&engine, id, "go").await;
    held(&engine, id).await;
    say(&engine, id, "f1").await;
    let body = note("w");
    engine.write(write(id, body)).await.unwrap();
    let last = say(&engine, id, "f2").await;
    gates.open("hold");
    assert_eq!(settled(&engine, last).await, "done");
    assert_eq!(
        transcript(&view(&engine, id).await.entries),
        // A write is placed at the boundary after the round, before any input.
        [
            "U:go", "A1", "R:held", "U:w", "A:answer", "U:f1", "A:answer", "U:f2", "A:answer"
        ]
    );
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d017_without_a_round_the_write_comes_after_the_answer() {
    let world = World::new();
    world.script(|request| {
        if last_user(request) == "go" {
            Reply::Hang("…")
        } else {
            Reply::Say("answer")
        }
    });
    let (engine, id) = world.begin().await;
    say(&engine, id, "go").await;
    shows(&engine, id, "the request", |view| {
        view.run
            .as_ref()
            .is_some_and(|run| run.state == mooring_durable::ledger::RunState::Requesting)
    })
    .await;
    say(&engine, id, "f1").await;
    engine.write(write(id, note("w"))).await.unwrap();
    let last = say(&engine, id, "f2").await;
    // The process ends, and the model answers the next one.
    engine.abandon().await;
    world.script(|_| Reply::Say("answer"));
    let engine = world.start().await;
    assert_eq!(settled(&engine, last).await, "done");
    let mut words = transcript(&view(&engine, id).await.entries);
    // What the first process had of the answer.
    words.retain(|word| !word.ends_with("(aborted)"));
    assert_eq!(
        words,
        [
            "U:go", "A:answer", "U:w", "U:f1", "A:answer", "U:f2", "A:answer"
        ]
    );
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d021_a_failed_run_leaves_the_inbox_and_the_next_submission_places_the_older_first() {
    let world = World::new();
    let gates = holding(&world);
    let (engine, id) = world.begin().await;
    let first = say(&engine, id, "go").await;
    held(&engine, id).await;
    let older = say(&engine, id, "older").await;
    world.script(|_| {
        Reply::Fail(ModelError::Fatal {
            text: "bad key".into(),
        })
    });
    gates.open("hold");
    assert_eq!(settled(&engine, first).await, "unanswered ModelError");
    let idle = view(&engine, id).await;
    assert!(
        idle.run.is_none() && idle.inbox.len() == 1,
        "queued, and idle"
    );
    world.script(|_| Reply::Say("answer"));
    let newer = engine
        .submit(input(id, "newer", WhenBusy::Reject))
        .await
        .unwrap()
        .submission;
    assert_eq!(settled(&engine, older).await, "done");
    assert_eq!(settled(&engine, newer.id).await, "done");
    let words = transcript(&view(&engine, id).await.entries);
    assert_eq!(words[4..], ["U:older", "A:answer", "U:newer", "A:answer"]);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d023_an_abort_has_a_scope() {
    for (scope, queued, texts) in [
        (AbortScope::Run, "queued", vec![]),
        (
            AbortScope::Conversation,
            "unanswered Withdrawn",
            vec!["later"],
        ),
    ] {
        let world = World::new();
        let gates = holding(&world);
        let (engine, id) = world.begin().await;
        let first = say(&engine, id, "go").await;
        held(&engine, id).await;
        let later = say(&engine, id, "later").await;
        engine.write(write(id, note("w"))).await.unwrap();
        let aborted = engine.abort(id, scope).await.unwrap();
        assert!(aborted.was_running);
        let withdrawn: Vec<_> = aborted
            .withdrawn
            .iter()
            .map(|submission| match &submission.content[0] {
                Part::Text { text } => text.clone(),
                _ => String::new(),
            })
            .collect();
        assert_eq!(withdrawn, texts);
        gates.open("hold");
        assert_eq!(settled(&engine, first).await, "unanswered Aborted");
        let view = view(&engine, id).await;
        assert!(
            view.run.is_none(),
            "nothing starts until the next submission"
        );
        assert_eq!(
            state(&engine.submission(later).await.unwrap().unwrap()),
            queued
        );
        assert_eq!(
            view.inbox.len(),
            1 + usize::from(scope == AbortScope::Run),
            "writes are kept"
        );
        engine.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d027_a_head_older_than_where_the_context_begins_is_stale() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    let first = say(&engine, id, "one").await;
    settled(&engine, first).await;
    let second = say(&engine, id, "two").await;
    settled(&engine, second).await;
    let entries = view(&engine, id).await.entries;
    let (early, late) = (entries[0].id, entries[2].id);
    for (head, expected) in [
        (Head::From(late), "done"),
        (Head::From(early), "unanswered Stale"),
        (Head::From(late), "done"),
        (Head::Here, "done"),
        (Head::From(late), "unanswered Stale"),
    ] {
        let body = WriteBody {
            kind: "pi.compaction".into(),
            head: Some(head),
            ..note("summary")
        };
        let placed = engine.write(write(id, body)).await.unwrap().submission;
        assert_eq!(state(&placed), expected, "{head:?}");
        let stored = engine.submission(placed.id).await.unwrap();
        assert_eq!(stored, Some(placed), "{head:?}");
    }
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_and_edits_change_what_the_model_sees_but_not_the_transcript() {
    let world = World::new();
    world
        .prompt
        .0
        .lock()
        .unwrap()
        .push(mooring_durable::prompt::Section {
            name: "role".into(),
            text: "be brief".into(),
        });
    let (engine, id) = world.begin().await;
    for text in ["one", "two"] {
        let submission = say(&engine, id, text).await;
        settled(&engine, submission).await;
    }
    let two = view(&engine, id).await.entries.iter().find(|entry| matches!(&entry.message, Some(Message::User { content }) if content[0] == Part::text("two"))).unwrap().id;
    let body = WriteBody {
        kind: "pi.compaction".into(),
        head: Some(Head::From(two)),
        ..note("summary of one")
    };
    engine.write(write(id, body)).await.unwrap();
    let replace = Some(Message::User {
        content: vec![Part::text("2")],
    });
    let body = WriteBody {
        message: None,
        edits: vec![Edit {
            target: two,
            replace,
        }],
        ..note("")
    };
    engine.write(write(id, body)).await.unwrap();
    let submission = say(&engine, id, "three").await;
    settled(&engine, submission).await;
    let request = world.model.requests.lock().unwrap().last().unwrap().clone();
    let words: Vec<_> = request
        .messages
        .iter()
        .map(|message| match message {
            Message::User { content } | Message::Assistant { content } => {
                format!("{:?}", content[0])
                    .replace("Text { text: ", "")
                    .replace(" }", "")
            }
            Message::System { text } => text.clone(),
            Message::ToolResult { .. } => String::new(),
        })
        .collect();
    assert_eq!(
        words,
        [
            "\"summary of one\"",
            "\"2\"",
            "\"fine\"",
            "\"three\"",
            "be brief"
        ],
        "the baseline is told again after a head"
    );
    assert_eq!(
        transcript(&view(&engine, id).await.entries)[4],
        "U:two".to_owned().replace("U:two", "A:fine")
    );
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queued_input_is_withdrawn_and_a_placed_one_is_left() {
    let world = World::new();
    let gates = holding(&world);
    let (engine, id) = world.begin().await;
    let first = say(&engine, id, "go").await;
    held(&engine, id).await;
    let queued = say(&engine, id, "queued").await;
    assert_eq!(
        state(&engine.withdraw(queued).await.unwrap().unwrap()),
        "unanswered Withdrawn"
    );
    assert_eq!(
        state(&engine.withdraw(first).await.unwrap().unwrap()),
        "placed"
    );
    assert_eq!(
        engine
            .withdraw(mooring_durable::id::SubmissionId(999))
            .await
            .unwrap(),
        None
    );
    gates.open("hold");
    assert_eq!(settled(&engine, first).await, "done");
    assert!(view(&engine, id).await.run.is_none());
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d003_keys_of_any_name_come_back_as_they_went_in() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    let data = json!({"__proto__": {"constructor": "x"}, "ünï\u{0}\"'": [1, 2.5, null, "\u{1F600}"], "": true});
    let submission = Input {
        data: data.clone(),
        ..input(
            id,
            "nul \u{0} and \"quotes\" and \u{1F600}",
            WhenBusy::FollowUp,
        )
    };
    let content = submission.content.clone();
    let first = engine.submit(submission).await.unwrap().submission;
    settled(&engine, first.id).await;
    let stored = engine.submission(first.id).await.unwrap().unwrap();
    assert_eq!((stored.data, stored.content), (data, content));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_queued_input_is_replaced_in_one_commit_and_a_placed_one_is_left() {
    let world = World::new();
    let gates = holding(&world);
    let (engine, id) = world.begin().await;
    let first = say(&engine, id, "go").await;
    held(&engine, id).await;
    let queued = say(&engine, id, "tpyo").await;
    let corrected = |request: &str| Input {
        request_id: request_id(request),
        ..input(id, "typo", WhenBusy::FollowUp)
    };
    let replaced = engine
        .replace(queued, corrected("m@2"))
        .await
        .unwrap()
        .unwrap();
    assert!(!replaced.repeated);
    eventually("both in one commit", async || {
        let told = world.ledger.told.lock().unwrap();
        let commit = |found: &dyn Fn(&Change) -> bool| {
            told.iter().find(|(_, change)| found(change)).map(|(commit, _)| *commit)
        };
        let back = commit(&|change| {
            matches!(change, Change::Settled { submission } if submission.id == queued)
        });
        let anew = commit(&|change| {
            matches!(change, Change::Admitted { submission } if submission.id == replaced.submission.id)
        });
        back.is_some() && back == anew
    })
    .await;
    let old = engine.submission(queued).await.unwrap().unwrap();
    assert_eq!(state(&old), "unanswered Withdrawn");
    // The same again is the same; what is not queued any more is left.
    let again = engine
        .replace(queued, corrected("m@2"))
        .await
        .unwrap()
        .unwrap();
    assert!(again.repeated && again.submission.id == replaced.submission.id);
    let late = engine.replace(first, corrected("m@3")).await;
    assert_eq!(late.unwrap(), None);
    gates.open("hold");
    assert_eq!(settled(&engine, replaced.submission.id).await, "done");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn the_model_of_the_next_request_is_set_and_stays_set() {
    let world = World::new();
    world.script(|_| Reply::Say("answer"));
    let (engine, id) = world.begin().await;
    engine.set_model(id, "other".into()).await.unwrap();
    assert_eq!(view(&engine, id).await.model, "other");
    engine.close().await.unwrap();
    let engine = world.open().await;
    assert_eq!(view(&engine, id).await.model, "other");
    engine.close().await.unwrap();
}
