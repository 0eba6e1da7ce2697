//! Calls that wait: questions, times, conversations of their own; and their ends.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use mooring_durable::{
    Engine,
    id::{ConversationId, Millis, TaskId},
    message::{Message, Part, ToolSchema},
    submission::{AbortScope, Requester, WhenBusy},
    tool::{Call, OutputSink, Replay, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure, Toolbox},
    wait::{Awaited, Delegate, Settled, WaitMode, Waits, Work, WorkEnd},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{branches::talk, support::*};

/// A tool that waits for what its arguments say, and tells how that ended.
struct Waiter {
    runs: AtomicUsize,
    resumes: AtomicUsize,
}

fn work(value: &Value) -> Awaited {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let work = match value["is"].as_str().unwrap() {
        "timer" => Work::Timer {
            until: Millis(START + value["ms"].as_i64().unwrap()),
        },
        "question" => Work::Question {
            text: text("text"),
            choices: Vec::new(),
            expires_at: value["expires"].as_i64().map(|ms| Millis(START + ms)),
        },
        "call" => Work::Call {
            task: TaskId(value["task"].as_i64().unwrap()),
        },
        kind => Work::Conversation(Delegate {
            model: String::new(),
            settings: value["settings"].clone(),
            input: vec![Part::text(text("text"))],
            background: kind == "background",
        }),
    };
    Awaited {
        key: text("key"),
        work,
    }
}

#[async_trait]
impl Tool for Waiter {
    fn declaration(&self) -> ToolDeclaration {
        ToolDeclaration {
            schema: ToolSchema {
                name: "wait".into(),
                description: "waits".into(),
                parameters: json!({"type": "object"}),
            },
            replay: Replay::Safe,
            sequential: false,
        }
    }
    fn summary(&self, arguments: &Value) -> String {
        arguments.to_string()
    }
    async fn execute(
        &self,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let on = call.arguments["on"].as_array().unwrap();
        Ok(ToolEnd::Waits(Waits {
            mode: match call.arguments["fast"] == json!(true) {
                true => WaitMode::FailFast,
                false => WaitMode::AllSettled,
            },
            on: on.iter().map(work).collect(),
        }))
    }
    async fn resume(
        &self,
        call: &Call,
        settled: &[Settled],
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let again = self.resumes.fetch_add(1, Ordering::SeqCst);
        if let Some(then) = call.arguments["then"].as_array().filter(|_| again == 0) {
            return Ok(ToolEnd::Waits(Waits {
                mode: WaitMode::AllSettled,
                on: then.iter().map(work).collect(),
            }));
        }
        let words: Vec<_> = settled
            .iter()
            .map(|settled| {
                let end = match &settled.end {
                    WorkEnd::Fired => "fired".into(),
                    WorkEnd::Answered { text, by } => format!("{by} {text}"),
                    WorkEnd::Expired => "expired".into(),
                    WorkEnd::Done { text, .. } => format!("done {text}"),
                    WorkEnd::Failed { reason } => format!("failed {reason}"),
                    WorkEnd::Begun => "begun".into(),
                    WorkEnd::Aborted => "aborted".into(),
                };
                format!("{}: {end}", settled.key)
            })
            .collect();
        done(&words.join("; "))
    }
}

/// The world's tools, and the one that waits.
struct Tools(Arc<TestTools>, Arc<Waiter>);
impl Toolbox for Tools {
    fn tools(&self, conversation: ConversationId, settings: &Value) -> Vec<Arc<dyn Tool>> {
        let mut tools = self.0.tools(conversation, settings);
        if settings["plain"] != json!(true) {
            tools.push(self.1.clone());
        }
        tools
    }
}

struct Waiting {
    world: World,
    waiter: Arc<Waiter>,
}

impl Waiting {
    /// `wait N` calls the tool once for each of the N-th plans' lists; anything else is
    /// answered with the newest result, or with itself.
    fn new(plans: Vec<Vec<Value>>) -> Waiting {
        let world = World::new();
        world.script(move |request| {
            let said = last_user(request);
            let plan = said
                .strip_prefix("wait ")
                .and_then(|number| number.parse::<usize>().ok());
            match (plan, results(request)) {
                (Some(plan), 0) => Reply::Call(
                    plans[plan]
                        .iter()
                        .map(|arguments| ("wait", arguments.clone()))
                        .collect(),
                ),
                _ if said == "hang" => Reply::Hang("so far"),
                _ if said == "fail" => Reply::Fail(mooring_durable::model::ModelError::Fatal {
                    text: "broken".into(),
                }),
                _ => Reply::Say("answered"),
            }
        });
        let waiter = Arc::new(Waiter {
            runs: AtomicUsize::new(0),
            resumes: AtomicUsize::new(0),
        });
        Waiting { world, waiter }
    }

    async fn start(&self) -> Engine {
        let mut ports = self.world.ports();
        ports.tools = Arc::new(Tools(self.world.tools.clone(), self.waiter.clone()));
        let engine = Engine::open(&self.world.path(), self.world.options(), ports)
            .await
            .unwrap();
        engine.start();
        engine
    }

    async fn begin(&self) -> (Engine, ConversationId) {
        let engine = self.start().await;
        let id = engine.create_conversation("m", json!({}), Vec::new()).await;
        (engine, id.unwrap())
    }
}

async fn in_state(engine: &Engine, id: ConversationId, state: &str) {
    shows(engine, id, state, |view| {
        view.calls.iter().any(|call| call.state == state)
    })
    .await;
}

/// Results of calls, in order.
async fn told(engine: &Engine, id: ConversationId) -> Vec<String> {
    let entries = view(engine, id).await.entries;
    let results = entries
        .iter()
        .filter(|entry| entry.kind == "pi.tool-result");
    transcript(&results.cloned().collect::<Vec<_>>())
}

/// The conversation that a call of this one owns.
async fn owned(engine: &Engine, id: ConversationId) -> ConversationId {
    let mut found = None;
    eventually("the owned conversation", async || {
        let tasks = engine.tasks(id).await.unwrap();
        found = tasks.iter().find_map(|task| task.owns);
        match found {
            Some(id) => !view(engine, id).await.entries.is_empty(),
            None => false,
        }
    })
    .await;
    found.unwrap()
}

fn bert() -> Requester {
    Requester::Local {
        name: "bert".into(),
    }
}

fn open_work(world: &World) -> i64 {
    let file = rusqlite::Connection::open(world.path()).unwrap();
    file.query_row("SELECT count(*) FROM open_work", [], |row| row.get(0))
        .unwrap()
}

#[tokio::test]
async fn a_question_waits_over_restarts_and_the_first_answer_wins() {
    let plan = json!({"on": [{"is": "question", "key": "q", "text": "which?"}]});
    let waiting = Waiting::new(vec![vec![plan]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    in_state(&engine, id, "asking").await;
    for _ in 0..2 {
        engine.close().await.unwrap();
        let engine = waiting.start().await;
        assert_eq!(view(&engine, id).await.questions[0].text, "which?");
        engine.close().await.unwrap();
    }
    let engine = waiting.start().await;
    let questions = engine.questions().await.unwrap();
    assert_eq!(questions.len(), 1);
    let task = questions[0].task;
    let (first, question) = engine
        .answer(task, "blue".into(), bert(), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(first && question.end.is_some());
    let (first, question) = engine
        .answer(task, "red".into(), anna(), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(!first);
    let blue = WorkEnd::Answered {
        text: "blue".into(),
        by: bert(),
    };
    assert_eq!(question.end, Some(blue));
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(told(&engine, id).await, ["R:q: local:bert blue"]);
    assert_eq!(waiting.waiter.runs.load(Ordering::SeqCst), 1);
    let none = engine
        .answer(TaskId(99), "x".into(), bert(), Vec::new())
        .await;
    assert!(none.unwrap().is_none());
    assert_eq!(open_work(&waiting.world), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_timer_fires_once_also_if_the_process_was_down_at_the_time() {
    for down in [false, true] {
        let plan = json!({"on": [{"is": "timer", "key": "t", "ms": 5_000}]});
        let waiting = Waiting::new(vec![vec![plan]]);
        let (mut engine, id) = waiting.begin().await;
        let asleep = say(&engine, id, "wait 0").await;
        in_state(&engine, id, "sleeping").await;
        if down {
            engine.close().await.unwrap();
            waiting.world.clock.advance(60_000);
            engine = waiting.start().await;
        } else {
            waiting.world.clock.awaited(START + 5_000).await;
            waiting.world.clock.advance(5_000);
        }
        assert_eq!(settled(&engine, asleep).await, "done");
        assert_eq!(told(&engine, id).await, ["R:t: fired"]);
        assert_eq!(waiting.waiter.resumes.load(Ordering::SeqCst), 1);
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_sleeps_is_not_in_memory() {
    let plan = json!({"on": [{"is": "timer", "key": "t", "ms": 50_000}]});
    let waiting = Waiting::new(vec![vec![plan]]);
    let engine = waiting.start().await;
    for _ in 0..100 {
        let id = engine.create_conversation("m", json!({}), Vec::new()).await;
        say(&engine, id.unwrap(), "wait 0").await;
    }
    eventually("all sleep", async || engine.waiting() == 100).await;
    engine.close().await.unwrap();
    let engine = waiting.start().await;
    assert_eq!((engine.waiting(), engine.running()), (100, 0));
    waiting.world.clock.awaited(START + 50_000).await;
    waiting.world.clock.advance(50_000);
    eventually("all are awake", async || {
        engine.waiting() == 0 && engine.running() == 0
    })
    .await;
    assert_eq!(waiting.waiter.resumes.load(Ordering::SeqCst), 100);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d067_work_of_a_key_is_the_same_work_and_other_work_is_refused() {
    let first = json!({"is": "question", "key": "q", "text": "which?"});
    let other = json!({"is": "question", "key": "q", "text": "other?"});
    for (then, expected) in [
        (first.clone(), "R:q: local:bert blue"),
        (other, "R!:The key q stands for other work already."),
    ] {
        let plan = json!({"on": [first], "then": [then]});
        let waiting = Waiting::new(vec![vec![plan]]);
        let (engine, id) = waiting.begin().await;
        let asked = say(&engine, id, "wait 0").await;
        in_state(&engine, id, "asking").await;
        let task = engine.questions().await.unwrap()[0].task;
        let answer = engine.answer(task, "blue".into(), bert(), Vec::new()).await;
        answer.unwrap();
        assert_eq!(settled(&engine, asked).await, "done");
        assert_eq!(told(&engine, id).await, [expected]);
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn d069_of_a_wait_that_fails_fast_the_siblings_are_aborted_in_order() {
    let on = json!([
        {"is": "question", "key": "a", "text": "a?"},
        {"is": "question", "key": "b", "text": "b?", "expires": 1_000},
        {"is": "conversation", "key": "c", "text": "hang"},
        {"is": "timer", "key": "d", "ms": 500_000},
    ]);
    let waiting = Waiting::new(vec![vec![json!({"on": on, "fast": true})]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    in_state(&engine, id, "asking").await;
    let child = owned(&engine, id).await;
    waiting.world.clock.awaited(START + 1_000).await;
    waiting.world.clock.advance(1_000);
    assert_eq!(settled(&engine, asked).await, "done");
    let expected = "R:a: aborted; b: expired; c: aborted; d: aborted";
    assert_eq!(told(&engine, id).await, [expected]);
    assert!(view(&engine, child).await.run.is_none());
    assert_eq!(open_work(&waiting.world), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d071_siblings_of_what_failed_before_a_crash_are_ended_when_it_is_open_again() {
    let on = json!([
        {"is": "conversation", "key": "a", "text": "fail"},
        {"is": "conversation", "key": "b", "text": "hang"},
    ]);
    let waiting = Waiting::new(vec![vec![json!({"on": on, "fast": true})]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    // The process ends somewhere around the failure.
    eventually("the failure", async || {
        engine.conversations(1, None).await.is_ok()
            && waiting.world.model.requests.lock().unwrap().len() >= 3
    })
    .await;
    engine.abandon().await;
    let engine = waiting.start().await;
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(told(&engine, id).await, ["R:a: failed broken; b: aborted"]);
    assert_eq!(open_work(&waiting.world), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d083_a_conversation_of_a_call_answers_it_is_found_again_and_runs_on_its_own_afterwards() {
    let settings = json!({"title": "child", "plain": true});
    let on = json!([{"is": "conversation", "key": "c", "text": "look", "settings": settings}]);
    let waiting = Waiting::new(vec![vec![json!({ "on": on })]]);
    let (engine, id) = waiting.begin().await;
    let gates = Gates::default();
    let held = gates.clone();
    let script = waiting.world.model.script.lock().unwrap().clone();
    *waiting.world.model.script.lock().unwrap() =
        Arc::new(move |request, context| match last_user(request).as_str() {
            "look" => Reply::After(held.clone(), "look", "found it"),
            _ => script(request, context),
        });
    let asked = say(&engine, id, "wait 0").await;
    in_state(&engine, id, "delegated").await;
    let child = owned(&engine, id).await;
    let shown = view(&engine, child).await;
    assert_eq!(shown.origin.owner.map(|owner| owner.conversation), Some(id));
    assert_eq!(transcript(&shown.entries), ["U:look"]);
    let listed = engine.conversations(10, None).await.unwrap();
    assert_eq!(listed.len(), 1, "it is listed below its parent only");
    // It has its own tools, and none of its parent's history.
    eventually("its request", async || {
        waiting.world.model.requests.lock().unwrap().len() == 2
    })
    .await;
    let request = waiting.world.model.requests.lock().unwrap()[1].clone();
    assert!(request.tools.is_empty() && request.messages.len() == 1);
    for _ in 0..2 {
        engine.abandon().await;
        let engine = waiting.start().await;
        assert_eq!(owned(&engine, id).await, child);
        engine.abandon().await;
    }
    let engine = waiting.start().await;
    // It is steered on its own.
    let steered = input(child, "and quickly", WhenBusy::Steer);
    engine.submit(steered).await.unwrap();
    for _ in 0..4 {
        gates.open("look");
    }
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(told(&engine, id).await, ["R:c: done found it"]);
    let run = view(&engine, child).await;
    assert!(run.run.is_none());
    // What was a subagent's runs like any other.
    talk(&engine, child, "once more").await;
    assert_eq!(open_work(&waiting.world), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_conversation_in_the_background_answers_at_once_and_tells_its_end() {
    let on = json!([{"is": "background", "key": "c", "text": "look", "settings": {"plain": true}}]);
    for busy in [false, true] {
        let waiting = Waiting::new(vec![vec![json!({ "on": on })]]);
        let gates = Gates::default();
        let (held, busy_gate) = (gates.clone(), gates.clone());
        let script = waiting.world.model.script.lock().unwrap().clone();
        *waiting.world.model.script.lock().unwrap() =
            Arc::new(move |request, context| match last_user(request).as_str() {
                "look" => Reply::After(held.clone(), "look", "found it"),
                "long" => Reply::After(busy_gate.clone(), "long", "long answer"),
                _ => script(request, context),
            });
        let (engine, id) = waiting.begin().await;
        let asked = say(&engine, id, "wait 0").await;
        assert_eq!(
            settled(&engine, asked).await,
            "done",
            "it is not waited for"
        );
        assert_eq!(told(&engine, id).await, ["R:c: begun"]);
        // Neither ends it with its owner's conversation.
        engine.abort(id, AbortScope::Conversation).await.unwrap();
        if busy {
            say(&engine, id, "long").await;
        }
        engine.abandon().await;
        let engine = waiting.start().await;
        gates.open("look");
        gates.open("look");
        let said = "The subagent in conversation 2, which worked in the background, has ended: \n\nfound it";
        if busy {
            shows(&engine, id, "the queued end", |view| {
                view.inbox.iter().any(|it| it.requester != anna())
            })
            .await;
            gates.open("long");
            gates.open("long");
        }
        let shown = shows(&engine, id, "the end", |view| {
            view.run.is_none()
                && transcript(&view.entries)
                    .iter()
                    .any(|word| word.starts_with("U:The subagent"))
        })
        .await;
        let ends = shown.entries.iter().filter(|entry| {
            matches!(&entry.message, Some(Message::User { content }) if content == &[Part::text(said)])
        });
        assert_eq!(ends.count(), 1, "{:?}", transcript(&shown.entries));
        eventually("nothing is open", async || open_work(&waiting.world) == 0).await;
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn d073_an_abort_goes_bottom_up_also_over_a_crash() {
    for crash in [false, true] {
        let on = json!([
            {"is": "conversation", "key": "c", "text": "wait 1"},
            {"is": "question", "key": "q", "text": "which?"},
        ]);
        let deeper = json!([{"is": "conversation", "key": "c", "text": "hang"}]);
        let waiting = Waiting::new(vec![
            vec![json!({ "on": on })],
            vec![json!({ "on": deeper })],
        ]);
        let (mut engine, id) = waiting.begin().await;
        let asked = say(&engine, id, "wait 0").await;
        let child = owned(&engine, id).await;
        let grandchild = owned(&engine, child).await;
        eventually("the deepest request", async || {
            waiting.world.model.requests.lock().unwrap().len() == 3
        })
        .await;
        engine.abort(id, AbortScope::Run).await.unwrap();
        if crash {
            engine.abandon().await;
            engine = waiting.start().await;
        }
        assert_eq!(settled(&engine, asked).await, "unanswered Aborted");
        for id in [child, grandchild] {
            let view = view(&engine, id).await;
            assert!(view.run.is_none() && view.inbox.is_empty());
        }
        // The deepest ended first.
        let file = rusqlite::Connection::open(waiting.world.path()).unwrap();
        let mut statement = file
            .prepare("SELECT conversation FROM submission WHERE state = 'unanswered' ORDER BY settled_commit")
            .unwrap();
        let order: Vec<i64> = statement
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(order, [grandchild.0, child.0, id.0]);
        assert_eq!(open_work(&waiting.world), 0);
        assert!(engine.questions().await.unwrap().is_empty());
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn d077_a_call_that_waits_for_another_goes_when_that_ends() {
    let waiting = Waiting::new(vec![vec![json!({})]]);
    let world = &waiting.world;
    // The first call of the round has the task after the generation's.
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![
                ("hold", json!({})),
                (
                    "wait",
                    json!({"on": [{"is": "call", "key": "k", "task": 2}]}),
                ),
            ]),
            ("other", 0) => Reply::Call(vec![(
                "wait",
                json!({"on": [{"is": "call", "key": "k", "task": 2}]}),
            )]),
            _ => Reply::Say("answered"),
        },
    );
    let gates = Gates::default();
    let pass = gates.clone();
    world.tool("hold", Replay::Never, move |_, _, _, _| {
        let pass = pass.clone();
        async move {
            pass.pass("hold").await;
            done("held")
        }
    });
    let (engine, id) = waiting.begin().await;
    let go = say(&engine, id, "go").await;
    in_state(&engine, id, "delegated").await;
    gates.open("hold");
    assert_eq!(settled(&engine, go).await, "done");
    assert_eq!(told(&engine, id).await, ["R:held", "R:k: done "]);
    let other = say(&engine, id, "other").await;
    assert_eq!(settled(&engine, other).await, "done");
    let told = told(&engine, id).await;
    assert_eq!(told[2], "R!:There is no call 2 in this round.");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d081_of_two_calls_that_wait_for_each_other_the_second_is_refused() {
    let waiting = Waiting::new(vec![vec![
        json!({"on": [{"is": "call", "key": "k", "task": 3}]}),
        json!({"on": [{"is": "call", "key": "k", "task": 2}]}),
    ]]);
    let (engine, id) = waiting.begin().await;
    let go = say(&engine, id, "wait 0").await;
    assert_eq!(settled(&engine, go).await, "done");
    let mut told = told(&engine, id).await;
    told.sort();
    assert_eq!(told.len(), 2);
    assert!(
        told[0].starts_with("R!:The call would wait for itself"),
        "{told:?}"
    );
    assert_eq!(told[1], "R:k: done ");
    assert_eq!(open_work(&waiting.world), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_call_whose_code_is_missing_stays_and_goes_on_once_it_is_back() {
    let plan = json!({"on": [{"is": "question", "key": "q", "text": "which?"}]});
    let waiting = Waiting::new(vec![vec![plan]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    in_state(&engine, id, "asking").await;
    engine.close().await.unwrap();
    // A program without the tool answers the question.
    let engine = waiting.world.start().await;
    let task = engine.questions().await.unwrap()[0].task;
    let answer = engine.answer(task, "blue".into(), bert(), Vec::new()).await;
    assert!(answer.unwrap().unwrap().0);
    let shown = shows(&engine, id, "the missing tool", |view| {
        view.calls.iter().any(|call| call.state == "unreachable")
    })
    .await;
    assert!(shown.calls[0].note.contains("there is no tool wait"));
    engine.close().await.unwrap();
    let engine = waiting.start().await;
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(told(&engine, id).await, ["R:q: local:bert blue"]);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d079_of_a_blocked_call_what_it_owns_is_aborted_first_and_it_is_orphaned() {
    let on = json!([{"is": "conversation", "key": "c", "text": "hang"}]);
    let waiting = Waiting::new(vec![vec![json!({ "on": on })]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    let child = owned(&engine, id).await;
    let requests = async |least: usize| {
        eventually("the child's request", async || {
            waiting.world.model.requests.lock().unwrap().len() >= least
        })
        .await;
    };
    // The parent's and the child's own, which is sent once more after the crash.
    requests(2).await;
    engine.abandon().await;
    // A program without the tool.
    let engine = waiting.world.start().await;
    in_state(&engine, id, "delegated").await;
    requests(3).await;
    engine.abort(id, AbortScope::Run).await.unwrap();
    assert_eq!(settled(&engine, asked).await, "unanswered Aborted");
    assert!(view(&engine, child).await.run.is_none());
    let told = waiting.world.told();
    let ends: Vec<_> = told
        .iter()
        .filter(|word| *word == "unanswered Aborted" || word.starts_with("end wait"))
        .collect();
    assert_eq!(
        ends,
        [
            "unanswered Aborted",
            "end wait Aborted",
            "unanswered Aborted"
        ],
        "the child's, the call's, its run's"
    );
    let file = rusqlite::Connection::open(waiting.world.path()).unwrap();
    let sql = "SELECT status FROM task WHERE kind = 'pi.tool'";
    let status: String = file.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(status, "orphaned");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_call_that_has_begun_is_not_decided_again_when_the_policy_changes() {
    let plan = json!({"on": [{"is": "question", "key": "q", "text": "which?"}]});
    let waiting = Waiting::new(vec![vec![plan]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    in_state(&engine, id, "asking").await;
    let decided = waiting.world.gate.1.load(Ordering::SeqCst);
    engine.policy_changed();
    let task = engine.questions().await.unwrap()[0].task;
    let answer = engine.answer(task, "blue".into(), bert(), Vec::new()).await;
    assert!(answer.unwrap().unwrap().0);
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(waiting.world.gate.1.load(Ordering::SeqCst), decided);
    assert_eq!(waiting.waiter.runs.load(Ordering::SeqCst), 1);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_subagent_may_use_its_share_and_what_it_used_counts_for_its_parent() {
    for (tokens, expected) in [(1_000, "R:c: done answered"), (12, "R:c: failed")] {
        let settings = json!({"plain": true, "tokens": tokens});
        let on = json!([{"is": "conversation", "key": "c", "text": "look", "settings": settings}]);
        let waiting = Waiting::new(vec![vec![json!({ "on": on })]]);
        if tokens == 12 {
            // One request fits, the second does not.
            waiting
                .world
                .tool("t", Replay::Safe, |_, _, _, _| async { done("did") });
            let script = waiting.world.model.script.lock().unwrap().clone();
            *waiting.world.model.script.lock().unwrap() =
                Arc::new(move |request, context| {
                    match (last_user(request).as_str(), results(request)) {
                        ("look", 0) => Reply::Call(vec![("t", json!({}))]),
                        _ => script(request, context),
                    }
                });
        }
        let (engine, id) = waiting.begin().await;
        let asked = say(&engine, id, "wait 0").await;
        assert_eq!(settled(&engine, asked).await, "done");
        let told = told(&engine, id).await;
        assert!(told[0].starts_with(expected), "{told:?}");
        let usage = waiting
            .world
            .ledger
            .told
            .lock()
            .unwrap()
            .iter()
            .rev()
            .find_map(|(_, change)| match change {
                mooring_durable::ledger::Change::RunEnded { run, .. } => Some(run.usage),
                _ => None,
            });
        if tokens == 1_000 {
            assert_eq!(
                usage.unwrap().input,
                30,
                "two requests of its own and one of the child"
            );
        }
        engine.close().await.unwrap();
    }
}
