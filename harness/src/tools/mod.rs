//! The built-in tools. What they do to files and processes they do in the sandbox,
//! never here.

mod act;
mod ask;
mod bash;
pub mod changes;
mod checkout;
mod file;
mod look;
mod subagent;
pub mod todo;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock},
};

use mooring_durable::{
    Engine,
    id::{ConversationId, TaskId},
    message::{Part, ToolSchema},
    tool::{Call, Replay, Tool, ToolDeclaration, ToolEnd, ToolFailure, ToolResult},
};
use mooring_wire::sandbox::{
    ReleaseRequest, SignalRequest, sandbox_client::SandboxClient, signal_request::Signal,
};
use serde_json::{Value, json};
use tonic::{Status, transport::Channel};

use act::Act;
use checkout::Checkout;

use crate::{
    boundary::Boundary,
    first_checkout::FirstCheckout,
    sandbox::{Link, State},
    workspace::Source,
};

/// What every tool works with.
pub struct Hands {
    /// The sandbox.
    pub link: Arc<Link>,
    /// The Workspace in use.
    pub source: Arc<Source>,
    /// What commands reach outside.
    pub boundary: Arc<Boundary>,
    /// The project's first checkout, which tools wait for.
    pub first_checkout: Arc<FirstCheckout>,
    /// Canonical paths on which the gate has decided, by call. The operation
    /// that follows names exactly these.
    decided: Mutex<HashMap<TaskId, String>>,
    /// Worktrees that the daemon has told of.
    checkouts: Mutex<HashMap<ConversationId, Checkout>>,
    /// Once it is open.
    engine: OnceLock<Engine>,
}

impl Hands {
    /// Hands for one harness.
    pub fn new(
        link: Arc<Link>,
        source: Arc<Source>,
        boundary: Arc<Boundary>,
        first_checkout: Arc<FirstCheckout>,
    ) -> Arc<Hands> {
        Arc::new(Hands {
            link,
            source,
            boundary,
            first_checkout,
            decided: Mutex::default(),
            checkouts: Mutex::default(),
            engine: OnceLock::new(),
        })
    }

    /// The engine is open.
    pub fn opened(&self, engine: Engine) {
        let _ = self.engine.set(engine);
    }

    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.get()
    }

    /// The gate has decided `task` on this canonical path.
    pub fn decided_on(&self, task: TaskId, canonical: String) {
        let mut decided = self
            .decided
            .lock()
            .expect("never poisoned: no panic while held");
        // Calls that were denied or aborted leave theirs behind; they are few,
        // and ids ascend, so that the oldest are the stale ones.
        if decided.len() >= 1_000
            && let Some(oldest) = decided.keys().min().copied()
        {
            decided.remove(&oldest);
        }
        decided.insert(task, canonical);
    }

    fn client(&self) -> Result<SandboxClient<Channel>, ToolFailure> {
        match self.link.state() {
            State::Refused { reason, .. } => Err(ToolFailure::Failed(reason)),
            _ => self.link.client().map_err(ToolFailure::Unreachable),
        }
    }

    /// What an intent remembers: where it will run, and on which path.
    async fn bind(&self, call: &Call) -> Result<Value, ToolFailure> {
        if let Some(why) = self.first_checkout.soon().await {
            return Err(ToolFailure::Unreachable(why));
        }
        let status = match self.link.state() {
            State::Ready(status) | State::Unproved { status, .. } => status,
            State::Refused { reason, .. } => return Err(ToolFailure::Failed(reason)),
            State::Down { error, .. } => return Err(ToolFailure::Unreachable(error)),
        };
        let checkout = self.checkout(call.conversation).await?;
        let path = self
            .decided
            .lock()
            .expect("never poisoned: no panic while held")
            .remove(&call.task);
        Ok(json!({
            "state": status.state_id, "boot": status.boot_id, "path": path,
            "cwd": checkout.map(|checkout| checkout.path),
        }))
    }

    /// A status of the daemon as the engine understands it.
    fn failure(&self, status: &Status) -> ToolFailure {
        match self.link.broke(status) {
            true => ToolFailure::Unreachable(status.message().to_owned()),
            false => ToolFailure::Failed(status.message().to_owned()),
        }
    }

    async fn release(&self, call: &Call) -> Result<(), ToolFailure> {
        self.boundary.credentials.end(&call.execution);
        let request = ReleaseRequest {
            execution_ids: vec![call.execution.clone()],
        };
        self.client()?
            .release(request)
            .await
            .map_err(|status| self.failure(&status))?;
        Ok(())
    }

    async fn kill(&self, call: &Call) -> Result<(), ToolFailure> {
        let request = SignalRequest {
            execution_id: call.execution.clone(),
            signal: Some(Signal::Kill(true)),
        };
        self.client()?
            .signal(request)
            .await
            .map_err(|status| self.failure(&status))?;
        self.release(call).await
    }
}

/// The text argument `name`.
pub(crate) fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn number(arguments: &Value, name: &str) -> u64 {
    arguments
        .get(name)
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

fn bound<'a>(call: &'a Call, name: &str) -> &'a str {
    text(&call.binding, name)
}

/// The canonical path on which the gate decided.
fn decided_path(call: &Call) -> Result<String, ToolFailure> {
    match bound(call, "path") {
        "" => Err(ToolFailure::Failed(
            "no canonical path was decided for this call".into(),
        )),
        path => Ok(path.to_owned()),
    }
}

fn done(text: impl Into<String>, data: Value) -> Result<ToolEnd, ToolFailure> {
    Ok(ToolEnd::Completed(ToolResult {
        content: vec![Part::text(text)],
        is_error: false,
        terminate: false,
        data,
        documents: Vec::new(),
    }))
}

fn failed(text: impl Into<String>) -> Result<ToolEnd, ToolFailure> {
    Ok(ToolEnd::Completed(ToolResult {
        content: vec![Part::text(text)],
        is_error: true,
        terminate: false,
        data: Value::Null,
        documents: Vec::new(),
    }))
}

fn declare(name: &str, description: &str, replay: Replay, parameters: Value) -> ToolDeclaration {
    ToolDeclaration {
        schema: ToolSchema {
            name: name.into(),
            description: description.into(),
            parameters,
        },
        replay,
        sequential: false,
    }
}

/// A JSON Schema of an object with these properties.
fn object(required: &[&str], properties: Value) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Tools that read and change files.
pub fn files(hands: &Arc<Hands>) -> Vec<Arc<dyn Tool>> {
    vec![
        act::in_sandbox(look::Read, hands),
        act::in_sandbox(file::Write, hands),
        act::in_sandbox(file::Edit, hands),
        act::in_sandbox(look::Grep, hands),
        act::in_sandbox(look::Find, hands),
        act::in_sandbox(look::Ls, hands),
    ]
}

/// The tool that runs commands.
pub fn commands(hands: &Arc<Hands>) -> Vec<Arc<dyn Tool>> {
    vec![act::in_sandbox(bash::Bash, hands)]
}

/// The tool that keeps a conversation's plan.
pub fn plan() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(todo::Todo)]
}

/// Tools that wait for a person or a time.
pub fn waiting() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(ask::AskUser), Arc::new(ask::SleepUntil)]
}

/// The tool that lets another agent work.
pub fn subagents(source: &Arc<Source>) -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(subagent::Subagent(source.clone()))]
}
