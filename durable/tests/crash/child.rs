//! The scripted run: five tools, one of which has an execution that outlives the
//! process, an approval, a steer, a follow-up; and beside it whatever makes the other
//! commits. Started again in the same folder, it goes on where it stopped.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mooring_durable::{
    Approvals, Component, Durability, Engine, Options,
    clock::Clock,
    document::{DocumentChange, DocumentKind, ForkPolicy, History, Op, Scope},
    fork::Fork,
    gate::{ApprovalState, Question, Verdict},
    id::{ConversationId, Millis, SubmissionId, TaskId},
    ledger::{Bind, Change, RunOutcome, Statement},
    message::{Message, Part},
    model::ModelError,
    submission::{AbortScope, SubmissionState, WhenBusy},
    tool::{Replay, Start, ToolEnd, ToolFailure, ToolResult},
    view::{EntryView, Shows},
    wait::{Awaited, Delegate, WaitMode, Waits, Work},
    write::{Write as EngineWrite, WriteBody},
};
use serde_json::{Value, json};

use crate::{outcome::Outcome, support::*};

/// The exit status when the session failed.
pub const SESSION_FAILED: i32 = 9;

/// A clock that is always there already.
struct Leaping(AtomicI64);

#[async_trait]
impl Clock for Leaping {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
    async fn until(&self, deadline: Millis) {
        // Others have their turn first, as they would while time passes.
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.0.fetch_max(deadline.0, Ordering::SeqCst);
    }
}

static PLAN: DocumentKind = DocumentKind::new(
    "test.plan",
    1,
    History::Rewindable,
    ForkPolicy::AsOf,
    |_, value| Ok(value),
);

/// Opened once the conversation in the background may answer.
static BESIDE: std::sync::LazyLock<Gates> = std::sync::LazyLock::new(Gates::default);

/// A tool that waits for a question, a time and two conversations.
fn delegate() -> Arc<TestTool> {
    let conversation = |text: &str, background| {
        Work::Conversation(Delegate {
            model: String::new(),
            settings: json!({"title": text}),
            input: vec![Part::text(text)],
            background,
        })
    };
    let on = vec![
        Awaited {
            key: "question".into(),
            work: Work::Question {
                text: "which?".into(),
                choices: Vec::new(),
                expires_at: None,
            },
        },
        Awaited {
            key: "timer".into(),
            work: Work::Timer {
                until: Millis(START + 60_000),
            },
        },
        Awaited {
            key: "child".into(),
            work: conversation("a child", false),
        },
        Awaited {
            key: "background".into(),
            work: conversation("beside", true),
        },
    ];
    let waits = ToolEnd::Waits(Waits {
        mode: WaitMode::AllSettled,
        on,
    });
    TestTool::new("delegate", Replay::Safe, move |_, _, _, _| {
        let waits = waits.clone();
        async move { Ok(waits) }
    })
}

fn fork_of(parent: ConversationId) -> Fork {
    Fork {
        parent,
        at: None,
        shows: Shows::All,
        model: None,
        settings: Value::Null,
        note: Some("a fork".into()),
        extra: Vec::new(),
    }
}

fn effect(folder: &Path, line: &str) {
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("effects"))
        .unwrap();
    writeln!(file, "{line}").unwrap();
}

const ROWS: Component = Component {
    name: "rows",
    migrations: &["CREATE TABLE told (word TEXT NOT NULL, unique_key TEXT UNIQUE) STRICT"],
};

/// One row for each thing that must happen once.
fn rows(changes: &[Change]) -> Vec<Statement> {
    let row = |word: String, key: Option<String>| Statement {
        sql: "INSERT INTO told VALUES (?2, ?1)",
        binds: vec![key.map_or(Bind::Null, Bind::Text), Bind::Text(word)],
    };
    changes
        .iter()
        .filter_map(|change| match change {
            Change::Placed { submission, .. } => Some(row(
                format!("placed {}", request(submission)),
                Some(format!("p{}", submission.id)),
            )),
            Change::CallEnded { call, outcome, .. } => Some(row(
                format!("call {} {outcome:?}", call.tool),
                Some(format!("c{}", call.task)),
            )),
            Change::RunEnded { run, outcome, .. } => Some(row(
                match outcome {
                    RunOutcome::Answered { .. } => "run answered".into(),
                    RunOutcome::Unanswered { reason, .. } => format!("run {reason:?}"),
                },
                Some(format!("r{}", run.id)),
            )),
            Change::ApprovalSettled { approval } => Some(row(
                format!("approval {:?}", approval.state),
                Some(format!("a{}", approval.task)),
            )),
            Change::AttemptStarted { .. } => Some(row("attempt started".into(), None)),
            Change::AttemptEnded { .. } => Some(row("attempt ended".into(), None)),
            _ => None,
        })
        .collect()
}

fn request(submission: &mooring_durable::submission::Submission) -> String {
    submission
        .request_id
        .as_ref()
        .map_or_else(String::new, |id| id.0.clone())
}

/// Waits until the file has streamed text of a task.
async fn streamed(engine: Arc<OnceLock<Engine>>, conversation: ConversationId, task: TaskId) {
    let shown = async {
        loop {
            let view = engine.get().unwrap().view(conversation, 1, None).await;
            if view.is_ok_and(|view| {
                view.is_some_and(|view| view.chunks.iter().any(|chunk| chunk.task == task))
            }) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(BOUND, shown).await.unwrap();
}

/// Waits until a file is there.
async fn there(path: PathBuf) {
    let found = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(BOUND, found).await.unwrap();
}

fn world(folder: &Path, engine: &Arc<OnceLock<Engine>>) -> World {
    let world = World::new();
    world.components.lock().unwrap().push(ROWS);
    *world.ledger.extra.lock().unwrap() = Some(Arc::new(rows));
    *world.model.script.lock().unwrap() =
        Arc::new(
            |request, context| match (last_user(request).as_str(), results(request)) {
                ("go", 0) => Reply::Call(vec![
                    ("safe", json!({})),
                    ("never", json!({})),
                    ("outside", json!({})),
                    ("asked", json!({})),
                ]),
                ("steer", 0) => Reply::Call(vec![("last", json!({}))]),
                ("steer", _) => Reply::Say("all done"),
                ("follow", _) if context.attempt == 1 => Reply::Fail(ModelError::Retryable {
                    text: "overloaded".into(),
                    retry_after: None,
                    usage: None,
                }),
                ("hang" | "hang again", _) => Reply::Hang("a partial answer"),
                ("overflow", _) if context.attempt == 1 => Reply::Fail(ModelError::Overflow {
                    text: "too long".into(),
                }),
                ("fatal", _) => Reply::Fail(ModelError::Fatal {
                    text: "no such model".into(),
                }),
                // It ends after its owner's run has, so that the order is the same each time.
                ("beside", _) => Reply::After(BESIDE.clone(), "beside", "answered"),
                ("delegate", 0) => Reply::Call(vec![("delegate", json!({}))]),
                ("note it", 0) => Reply::Call(vec![("noted", json!({}))]),
                ("expire", 0) => Reply::Call(vec![("late", json!({}))]),
                ("away", 0) => Reply::Call(vec![("away", json!({}))]),
                _ => Reply::Say("answered"),
            },
        );
    *world.model.summary.lock().unwrap() = Arc::new(|_, context| match context.attempt {
        1 => Reply::Fail(ModelError::Retryable {
            text: "overloaded".into(),
            retry_after: None,
            usage: None,
        }),
        _ => Reply::Say("the summary"),
    });
    world.gate(|call, approvals| {
        match (
            call.tool.as_str(),
            approvals.last().map(|approval| approval.state),
        ) {
            ("asked" | "late", Some(ApprovalState::Approved)) => Verdict::Allow {
                record: Value::Null,
            },
            ("asked", _) => ask("by hand"),
            ("late", _) => Verdict::Ask(Question {
                rule: "soon".into(),
                expires_at: Some(Millis(START + 1)),
                data: Value::Null,
            }),
            _ => Verdict::Allow {
                record: json!({"rule": "all"}),
            },
        }
    });
    for (name, replay) in [
        ("safe", Replay::Safe),
        ("never", Replay::Never),
        ("asked", Replay::Never),
        ("last", Replay::Safe),
        ("late", Replay::Never),
    ] {
        let folder = folder.to_owned();
        world.tool(name, replay, move |call, _, _, _| {
            effect(&folder, &call.tool);
            async move { done(&format!("did {}", call.tool)) }
        });
    }
    world.tool("noted", Replay::Safe, |call, _, _, _| async move {
        Ok(ToolEnd::Completed(ToolResult {
            content: vec![Part::text("noted")],
            is_error: false,
            terminate: false,
            data: Value::Null,
            documents: vec![DocumentChange {
                scope: Scope::Conversation(call.conversation),
                kind: &PLAN,
                op: Op::Merge(json!({"tool": true})),
            }],
        }))
    });
    world.tools.0.lock().unwrap().push(delegate());
    let (outside, engine) = (folder.to_owned(), engine.clone());
    world.tool("outside", Replay::Attach, move |call, start, out, _| {
        let (folder, engine) = (outside.clone(), engine.clone());
        async move {
            let execution = folder.join(format!("execution-{}", call.execution));
            if !execution.exists() {
                launch(&folder, &execution);
            }
            let from = match start {
                Start::Fresh => 0,
                Start::Again { offset } => offset as usize,
            };
            there(execution.join("status")).await;
            let output = std::fs::read(execution.join("output")).unwrap();
            if from < output.len() {
                out.write(from as u64, &output[from..]);
                streamed(engine, call.conversation, call.task).await;
            }
            done("status 0")
        }
    });
    let away = folder.to_owned();
    world.tool("away", Replay::Attach, move |call, _, _, _| {
        let folder = away.clone();
        async move {
            let seen = folder.join(format!("away-{}", call.execution));
            if !seen.exists() {
                std::fs::write(&seen, "").unwrap();
                effect(&folder, "away");
                return Err(ToolFailure::Unreachable("no sandbox".into()));
            }
            done("reached")
        }
    });
    world
}

/// Starts a process that lives on when this one ends, once.
fn launch(folder: &Path, execution: &Path) {
    use std::os::unix::process::CommandExt;
    let script = "mkdir \"$1\" || exit 0; echo outside >> \"$2\"; echo from outside > \"$1/output\"; echo 0 > \"$1/status.new\"; mv \"$1/status.new\" \"$1/status\"";
    let mut process = std::process::Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(execution)
        .arg(folder.join("effects"))
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::spawn(move || process.wait());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scripted_run_comes_to_its_end() {
    let own = tempfile::tempdir().unwrap();
    let folder =
        std::env::var_os("MOORING_CHILD").map_or_else(|| own.path().to_owned(), PathBuf::from);
    let engine = Arc::new(OnceLock::new());
    let world = world(&folder, &engine);
    let options = Options {
        durability: Durability::Full,
        clock: Arc::new(Leaping(AtomicI64::new(START))),
        components: vec![ROWS],
    };
    let opened = Engine::open(&folder.join("mooring.db"), options, world.ports())
        .await
        .unwrap();
    engine.set(opened.clone()).ok();
    opened.start();
    tokio::select! {
        biased;
        // Known before anyone who waits for a commit is told.
        error = opened.failed() => {
            eprintln!("{error}");
            std::process::exit(SESSION_FAILED);
        }
        () = script(&opened, &folder) => {}
    }
    opened.close().await.unwrap();
    Outcome::read(&folder).check();
}

/// Hands everything in, whatever of it is there already.
async fn script(engine: &Engine, folder: &Path) {
    let conversation = async |at: usize| {
        let mut all = engine.conversations(10, None).await.unwrap();
        all.sort_by_key(|summary| summary.id);
        match all.get(at) {
            Some(summary) => summary.id,
            None => engine
                .create_conversation("m", json!({}), Vec::new())
                .await
                .unwrap(),
        }
    };
    let submit = async |to: ConversationId, text: &str, when: WhenBusy| {
        let input = mooring_durable::submission::Input {
            request_id: request_id(text),
            ..input(to, text, when)
        };
        engine.submit(input).await.unwrap().submission.id
    };
    let ended = async |id: SubmissionId| settled(engine, id).await;

    let first = conversation(0).await;
    let go = submit(first, "go", WhenBusy::FollowUp).await;
    // Until the call that is asked for is the only one left, or was decided before.
    let mut pending = Vec::new();
    eventually("the question", async || {
        pending = engine
            .approvals(Some(first), Approvals::Pending)
            .await
            .unwrap();
        let view = view(engine, first).await;
        let others = view
            .calls
            .iter()
            .filter(|call| call.tool != "asked")
            .all(|call| call.ended_at.is_some());
        let decided = engine
            .approvals(Some(first), Approvals::All)
            .await
            .unwrap()
            .iter()
            .any(|approval| approval.decision.is_some());
        decided || (!pending.is_empty() && !view.calls.is_empty() && others)
    })
    .await;
    let steer = submit(first, "steer", WhenBusy::Steer).await;
    let follow = submit(first, "follow", WhenBusy::FollowUp).await;
    for approval in pending {
        engine
            .decide(approval.task, approve(true), Vec::new())
            .await
            .unwrap();
    }
    for id in [go, steer, follow] {
        assert_eq!(ended(id).await, "done");
    }

    let second = conversation(1).await;
    let body = WriteBody {
        kind: "host.note".into(),
        message: Some(Message::User {
            content: vec![Part::text("note")],
        }),
        data: Value::Null,
        head: None,
        edits: Vec::new(),
    };
    let note = EngineWrite {
        conversation: second,
        request_id: request_id("note"),
        requester: anna(),
        body,
        extra: Vec::new(),
    };
    engine.write(note).await.unwrap();
    let hang = submit(second, "hang", WhenBusy::FollowUp).await;
    eventually("a partial answer", async || {
        let view = view(engine, second).await;
        view.run.is_none_or(|run| run.id != hang) || !view.chunks.is_empty()
    })
    .await;
    if state(&engine.submission(hang).await.unwrap().unwrap()) == "placed" {
        let queued = submit(second, "queued", WhenBusy::FollowUp).await;
        let mut corrected = input(second, "corrected", WhenBusy::FollowUp);
        corrected.request_id = request_id("corrected");
        let replaced = engine.replace(queued, corrected).await.unwrap();
        let replaced = replaced.map_or(queued, |replaced| replaced.submission.id);
        engine.withdraw(replaced).await.unwrap();
        engine.abort(second, AbortScope::Run).await.unwrap();
    }
    assert_eq!(ended(hang).await, "unanswered Aborted");
    for (text, end) in [
        ("fatal", "unanswered ModelError"),
        ("expire", "done"),
        ("away", "done"),
    ] {
        let id = submit(second, text, WhenBusy::FollowUp).await;
        assert_eq!(ended(id).await, end, "{text}");
    }

    // A fork, a document that a result changes and one that the host changes, and a
    // reset that ends a run.
    let third = match engine.conversations(10, None).await.unwrap().len() {
        2 => engine.fork(fork_of(second)).await.unwrap(),
        _ => conversation(2).await,
    };
    engine.set_model(second, "another".into()).await.unwrap();
    let plan = DocumentChange {
        scope: Scope::Conversation(third),
        kind: &PLAN,
        op: Op::Merge(json!({"host": true})),
    };
    engine.change_documents(&[plan], Vec::new()).await.unwrap();
    let noted = submit(third, "note it", WhenBusy::FollowUp).await;
    assert_eq!(ended(noted).await, "done");
    let compacted = view(engine, third).await;
    let mut entries = compacted.entries.iter();
    let begun = compacted.compaction.is_some();
    if !begun && !entries.any(|entry| entry.kind == "pi.compaction") {
        engine
            .compact(third, anna(), "the names".into())
            .await
            .unwrap();
    }
    eventually("the end of the compaction", async || {
        view(engine, third).await.compaction.is_none()
    })
    .await;
    // A request that is too long makes the run wait for a summary, which is tried twice.
    let large = submit(third, "overflow", WhenBusy::FollowUp).await;
    assert_eq!(ended(large).await, "done");
    // A call that asks, sleeps and lets two conversations work, one of them unwatched.
    let owner = submit(third, "delegate", WhenBusy::FollowUp).await;
    eventually("the question", async || {
        let state = engine.submission(owner).await.unwrap().unwrap();
        state.state == SubmissionState::Done || !engine.questions().await.unwrap().is_empty()
    })
    .await;
    for question in engine.questions().await.unwrap() {
        engine
            .answer(question.task, "blue".into(), anna(), Vec::new())
            .await
            .unwrap();
    }
    assert_eq!(ended(owner).await, "done");
    for _ in 0..4 {
        BESIDE.open("beside");
    }
    // Told, and answered; what comes later may be going already.
    eventually("the end in the background", async || {
        let entries = view(engine, third).await.entries;
        let told = |entry: &EntryView| {
            entry.kind == "pi.user" && format!("{:?}", entry.message).contains("in the background")
        };
        let answered = |entry: &EntryView| entry.kind == "pi.assistant" && entry.state.is_empty();
        let mut after = entries.iter().skip_while(|entry| !told(entry));
        after.any(answered)
    })
    .await;
    let long = submit(third, "hang again", WhenBusy::FollowUp).await;
    let after = submit(third, "after the reset", WhenBusy::FollowUp).await;
    engine
        .reset(third, request_id("reset"), anna(), Some("anew".into()))
        .await
        .unwrap();
    assert_eq!(ended(long).await, "unanswered Reset");
    assert_eq!(ended(after).await, "done");
    eventually("the release of executions", async || {
        engine.open_executions().await.unwrap().is_empty()
    })
    .await;
    copy_and_delete(engine, second, folder).await;
}

/// Imports a copy, whole or not at all, and deletes it; once.
async fn copy_and_delete(engine: &Engine, id: ConversationId, folder: &Path) {
    let done = folder.join("copied");
    if !done.exists() {
        let listed = engine.conversations(10, None).await.unwrap();
        let copy = match listed.len() {
            3 => {
                let mut export = engine.export(id).await.unwrap();
                let header = export.next().await.unwrap().unwrap();
                let mut import = engine.import(&header).await.unwrap();
                while let Some(line) = export.next().await {
                    import.take(&line.unwrap()).await.unwrap();
                }
                import.finish().await.unwrap()
            }
            _ => listed.iter().map(|it| it.id).max().unwrap(),
        };
        let words = async |id| transcript(&view(engine, id).await.entries);
        assert_eq!(words(copy).await, words(id).await);
        engine.delete(copy, Vec::new()).await.unwrap();
        std::fs::write(done, "").unwrap();
    }
    let left = "SELECT count(*) FROM conversation WHERE deleted_commit IS NOT NULL";
    eventually("nothing of what was deleted", async || {
        let row = sqlx::query(left).fetch_one(engine.reader()).await.unwrap();
        sqlx::Row::get::<i64, _>(&row, 0) == 0
    })
    .await;
}
