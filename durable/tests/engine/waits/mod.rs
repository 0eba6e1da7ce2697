//! Calls that wait: questions, times, conversations of their own; and their ends.

mod blocked;
mod owned;
mod settling;

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
        let tasks = engine.tasks(id, 100).await.unwrap().tasks;
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
