//! Ports that hold every request and every call until the test lets it end.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use mooring_durable::{
    id::{ConversationId, TaskId},
    message::{Part, ToolCall, ToolSchema},
    model::{
        Model, ModelError, ModelRequest, ModelResponse, Models, PartialSink, Purpose,
        RequestContext,
    },
    prompt::{Prompt, Rendered, Section},
    tool::{
        Call, OutputSink, Replay, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure, ToolResult,
        Toolbox,
    },
};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::operation::{End, Failing};

/// What a request comes to.
pub enum Reply {
    Say(String),
    /// Ids of calls, and whether each may run again.
    Call(Vec<(String, bool)>),
    Fail(Failing),
}

/// A request that is held.
struct Asked {
    ticket: u64,
    request: ModelRequest,
    reply: oneshot::Sender<Reply>,
}

/// A call that is held.
struct Called {
    ticket: u64,
    task: TaskId,
    end: oneshot::Sender<(End, String)>,
}

#[derive(Default)]
struct Slots {
    tickets: u64,
    turns: BTreeMap<ConversationId, Asked>,
    summaries: BTreeMap<ConversationId, Asked>,
    calls: BTreeMap<(ConversationId, String), Called>,
    section: String,
}

/// What is held now.
#[derive(Clone, Default)]
pub struct Held(Arc<Mutex<Slots>>);

/// Names of what is held: a request by its conversation and messages, a call by its id.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Holding {
    pub turns: BTreeMap<ConversationId, ModelRequest>,
    pub summaries: BTreeMap<ConversationId, ModelRequest>,
    pub calls: BTreeMap<(ConversationId, String), TaskId>,
}

impl Held {
    pub fn now(&self) -> Holding {
        let slots = self.0.lock().unwrap();
        let requests = |asked: &BTreeMap<ConversationId, Asked>| {
            let of = |(id, asked): (&ConversationId, &Asked)| (*id, asked.request.clone());
            asked.iter().map(of).collect()
        };
        let calls = slots.calls.iter();
        Holding {
            turns: requests(&slots.turns),
            summaries: requests(&slots.summaries),
            calls: calls
                .map(|(key, called)| (key.clone(), called.task))
                .collect(),
        }
    }

    pub fn tell(&self, section: &str) {
        self.0.lock().unwrap().section = section.into();
    }

    /// Lets a run's request end.
    pub fn answer(&self, conversation: ConversationId, reply: Reply) {
        let asked = self.0.lock().unwrap().turns.remove(&conversation);
        let _ = asked.unwrap().reply.send(reply);
    }

    /// Lets a summary's request end.
    pub fn summarize(&self, conversation: ConversationId, reply: Reply) {
        let asked = self.0.lock().unwrap().summaries.remove(&conversation);
        let _ = asked.unwrap().reply.send(reply);
    }

    /// Lets a call end.
    pub fn end(&self, conversation: ConversationId, call: &str, end: End, text: String) {
        let key = (conversation, call.to_owned());
        let called = self.0.lock().unwrap().calls.remove(&key);
        let _ = called.unwrap().end.send((end, text));
    }
}

/// Lets go of what is held when whoever waits for it goes away.
struct Letting<F: FnMut(&mut Slots)>(Held, F);

impl<F: FnMut(&mut Slots)> Drop for Letting<F> {
    fn drop(&mut self) {
        (self.1)(&mut self.0.0.lock().unwrap());
    }
}

#[async_trait]
impl Model for Held {
    fn adapter(&self) -> String {
        "held/1".into()
    }
    fn options(&self) -> Value {
        json!({})
    }
    fn estimate(&self, _request: &ModelRequest) -> u64 {
        10
    }
    async fn respond(
        &self,
        request: &ModelRequest,
        context: &RequestContext,
        _sink: &dyn PartialSink,
        cancel: CancellationToken,
    ) -> Result<ModelResponse, ModelError> {
        let (reply, replied) = oneshot::channel();
        let (id, purpose) = (context.conversation, context.purpose);
        let ticket = {
            let mut slots = self.0.lock().unwrap();
            slots.tickets += 1;
            let ticket = slots.tickets;
            let asked = Asked {
                ticket,
                request: request.clone(),
                reply,
            };
            requests(&mut slots, purpose).insert(id, asked);
            ticket
        };
        let _letting = Letting(self.clone(), move |slots| {
            let held = requests(slots, purpose);
            if held.get(&id).is_some_and(|asked| asked.ticket == ticket) {
                held.remove(&id);
            }
        });
        let reply = tokio::select! {
            reply = replied => reply.map_err(|_| ModelError::Cancelled)?,
            () = cancel.cancelled() => return Err(ModelError::Cancelled),
        };
        let content = match reply {
            Reply::Say(text) => vec![Part::text(text)],
            Reply::Call(calls) => calls.into_iter().map(call).collect(),
            Reply::Fail(how) => return Err(failure(how)),
        };
        Ok(ModelResponse {
            content,
            usage: None,
            stop_reason: None,
        })
    }
}

fn requests(slots: &mut Slots, purpose: Purpose) -> &mut BTreeMap<ConversationId, Asked> {
    match purpose {
        Purpose::Turn => &mut slots.turns,
        Purpose::Summary => &mut slots.summaries,
    }
}

fn call((id, safe): (String, bool)) -> Part {
    Part::ToolCall(ToolCall {
        id,
        name: if safe { "safe" } else { "never" }.into(),
        arguments: json!({}),
    })
}

fn failure(how: Failing) -> ModelError {
    let text = format!("{how:?}");
    match how {
        Failing::Fatal => ModelError::Fatal { text },
        Failing::Overflow => ModelError::Overflow { text },
        Failing::Retryable => ModelError::Retryable {
            text,
            retry_after: None,
            usage: None,
        },
    }
}

impl Models for Held {
    fn resolve(&self, _name: &str) -> Option<Arc<dyn Model>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Prompt for Held {
    async fn sections(
        &self,
        _conversation: ConversationId,
        _settings: &Value,
    ) -> Result<Rendered, String> {
        let text = self.0.lock().unwrap().section.clone();
        let name = "role".into();
        Ok(vec![Section { name, text }].into())
    }
}

impl Toolbox for Held {
    fn tools(&self, _conversation: ConversationId, _settings: &Value) -> Vec<Arc<dyn Tool>> {
        let tool = |name, replay| {
            Arc::new(HeldTool {
                held: self.clone(),
                name,
                replay,
            }) as Arc<dyn Tool>
        };
        vec![tool("safe", Replay::Safe), tool("never", Replay::Never)]
    }
}

struct HeldTool {
    held: Held,
    name: &'static str,
    replay: Replay,
}

#[async_trait]
impl Tool for HeldTool {
    fn declaration(&self) -> ToolDeclaration {
        ToolDeclaration {
            schema: ToolSchema {
                name: self.name.into(),
                description: String::new(),
                parameters: json!({"type": "object"}),
            },
            replay: self.replay,
            sequential: false,
        }
    }
    fn summary(&self, _arguments: &Value) -> String {
        self.name.into()
    }
    async fn execute(
        &self,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let (end, ended) = oneshot::channel();
        let key = (call.conversation, call.call_id.clone());
        let ticket = {
            let mut slots = self.held.0.lock().unwrap();
            slots.tickets += 1;
            let (ticket, task) = (slots.tickets, call.task);
            slots
                .calls
                .insert(key.clone(), Called { ticket, task, end });
            ticket
        };
        let _letting = Letting(self.held.clone(), move |slots| {
            if slots
                .calls
                .get(&key)
                .is_some_and(|called| called.ticket == ticket)
            {
                slots.calls.remove(&key);
            }
        });
        let (end, text) = tokio::select! {
            end = ended => end.map_err(|_| ToolFailure::Cancelled)?,
            () = cancel.cancelled() => return Err(ToolFailure::Cancelled),
        };
        Ok(ToolEnd::Completed(ToolResult {
            content: vec![Part::text(text)],
            is_error: end == End::WithError,
            terminate: end == End::Last,
            data: Value::Null,
            documents: Vec::new(),
        }))
    }
}
