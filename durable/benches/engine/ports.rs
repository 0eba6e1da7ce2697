//! Ports that answer at once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use async_trait::async_trait;
use mooring_durable::{
    Ports,
    gate::{Approval, Gate, Verdict},
    id::{CommitNo, ConversationId, Millis},
    ledger::{Change, Ledger},
    message::{Message, Part, ToolSchema},
    model::{
        Model, ModelError, ModelRequest, ModelResponse, Models, PartialSink, RequestContext, Usage,
    },
    prompt::{Prompt, Rendered, Section},
    tool::{
        Call, OutputSink, Replay, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure, ToolResult,
        Toolbox,
    },
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::turn::{CALLS, Turn, call};

pub struct Bench {
    turn: Turn,
    tools: Vec<Arc<dyn Tool>>,
    own: Weak<Bench>,
    /// Who waits for the ends of a conversation's runs.
    ends: Mutex<HashMap<ConversationId, mpsc::UnboundedSender<()>>>,
    /// Told of each request; `true`: it is to stay without an answer.
    pub hang: Mutex<Option<mpsc::UnboundedSender<std::time::Instant>>>,
}

impl Bench {
    pub fn new() -> Arc<Bench> {
        let turn = Turn::new();
        let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Look::new(turn.result.clone()))];
        Arc::new_cyclic(|own| Bench {
            turn,
            tools,
            own: own.clone(),
            ends: Mutex::default(),
            hang: Mutex::default(),
        })
    }

    pub fn ports(self: &Arc<Self>) -> Ports {
        Ports {
            models: self.clone(),
            tools: self.clone(),
            gate: self.clone(),
            ledger: self.clone(),
            prompt: self.clone(),
        }
    }

    /// Tells of the ends of a conversation's runs.
    pub fn ends(&self, conversation: ConversationId) -> mpsc::UnboundedReceiver<()> {
        let (tell, ends) = mpsc::unbounded_channel();
        self.ends
            .lock()
            .expect("no panics")
            .insert(conversation, tell);
        ends
    }
}

struct Answers(Arc<Bench>);

impl Models for Bench {
    fn resolve(&self, _name: &str) -> Option<Arc<dyn Model>> {
        Some(Arc::new(Answers(self.own.upgrade()?)))
    }
}

#[async_trait]
impl Model for Answers {
    fn adapter(&self) -> String {
        "bench/1".into()
    }
    fn options(&self) -> Value {
        json!({"provider": "none", "thinking": "low", "max_tokens": 4096})
    }
    fn estimate(&self, request: &ModelRequest) -> u64 {
        request.messages.len() as u64 * 100
    }
    async fn respond(
        &self,
        request: &ModelRequest,
        _context: &RequestContext,
        _sink: &dyn PartialSink,
        cancel: CancellationToken,
    ) -> Result<ModelResponse, ModelError> {
        let hang = self.0.hang.lock().expect("no panics").clone();
        if let Some(tell) = hang {
            let _ = tell.send(std::time::Instant::now());
            cancel.cancelled().await;
        }
        let content = match request.messages.last() {
            Some(Message::ToolResult { .. }) => vec![Part::text(&self.0.turn.answer)],
            _ => (0..CALLS)
                .map(|ordinal| Part::ToolCall(call(ordinal)))
                .collect(),
        };
        Ok(ModelResponse {
            content,
            usage: Some(Usage {
                input: 10,
                cached: 0,
                output: 5,
            }),
            stop_reason: None,
        })
    }
}

struct Look {
    text: String,
    declaration: ToolDeclaration,
}

impl Look {
    fn new(text: String) -> Look {
        let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let schema = ToolSchema {
            name: "look".into(),
            description: "Looks at a part of a file".into(),
            parameters,
        };
        Look {
            text,
            declaration: ToolDeclaration {
                schema,
                replay: Replay::Safe,
                sequential: false,
            },
        }
    }
}

#[async_trait]
impl Tool for Look {
    fn declaration(&self) -> ToolDeclaration {
        self.declaration.clone()
    }
    fn summary(&self, arguments: &Value) -> String {
        arguments["path"].as_str().unwrap_or_default().to_owned()
    }
    async fn execute(
        &self,
        _call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let content = vec![Part::text(&self.text)];
        Ok(ToolEnd::Completed(ToolResult {
            content,
            is_error: false,
            terminate: false,
            data: Value::Null,
            documents: Vec::new(),
        }))
    }
}

impl Toolbox for Bench {
    fn tools(&self, _conversation: ConversationId, _settings: &Value) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }
}

#[async_trait]
impl Gate for Bench {
    async fn decide(&self, _call: &Call, _approvals: &[Approval]) -> Verdict {
        Verdict::Allow {
            record: Value::Null,
        }
    }
}

impl Ledger for Bench {
    fn committed(&self, _commit: CommitNo, _at: Millis, changes: &[Change]) {
        for change in changes {
            if let Change::RunEnded { run, .. } = change
                && let Some(tell) = self.ends.lock().expect("no panics").get(&run.conversation)
            {
                let _ = tell.send(());
            }
        }
    }
}

#[async_trait]
impl Prompt for Bench {
    async fn sections(
        &self,
        _conversation: ConversationId,
        _settings: &Value,
    ) -> Result<Rendered, String> {
        let section = Section {
            name: "role".into(),
            text: "You look at programs.".into(),
        };
        Ok(vec![section].into())
    }
}
