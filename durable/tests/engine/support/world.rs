//! A world for an engine: its file, its ports, and what came of a test.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::AtomicUsize},
};

use mooring_durable::{
    Component, Durability, Engine, Options, Ports,
    gate::{Approval, Verdict},
    id::ConversationId,
    ledger::Change,
    model::ModelRequest,
    tool::{Call, Replay, Start, ToolEnd, ToolFailure},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ports::{
    Out, Reply, TestClock, TestGate, TestLedger, TestModel, TestModels, TestPrompt, TestTool,
    TestTools,
};
use super::words::state;

/// Everything that a test scripts; lives longer than an engine.
pub struct World {
    pub folder: tempfile::TempDir,
    pub clock: Arc<TestClock>,
    pub model: Arc<TestModel>,
    pub tools: Arc<TestTools>,
    pub gate: Arc<TestGate>,
    pub prompt: Arc<TestPrompt>,
    pub ledger: Arc<TestLedger>,
    pub components: Mutex<Vec<Component>>,
}

impl World {
    pub fn new() -> World {
        World {
            folder: tempfile::tempdir().unwrap(),
            clock: TestClock::new(),
            model: Arc::new(TestModel {
                script: Mutex::new(Arc::new(|_, _| Reply::Say("fine"))),
                requests: Mutex::default(),
                options: Mutex::new(json!({"thinking": "low"})),
                cancelled: AtomicUsize::new(0),
                missing: Mutex::new(false),
                flow: tokio::sync::watch::Sender::new(true),
                streamed: AtomicUsize::new(0),
                window: Mutex::default(),
                summary: Mutex::new(Arc::new(|_, _| Reply::Say("the summary"))),
                summaries: Mutex::default(),
            }),
            tools: Arc::default(),
            gate: Arc::new(TestGate(
                Mutex::new(Arc::new(|_, _| Verdict::Allow {
                    record: Value::Null,
                })),
                AtomicUsize::new(0),
            )),
            prompt: Arc::default(),
            ledger: Arc::default(),
            components: Mutex::default(),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mooring.db")
    }

    pub fn ports(&self) -> Ports {
        Ports {
            models: Arc::new(TestModels(self.model.clone())),
            tools: self.tools.clone(),
            gate: self.gate.clone(),
            ledger: self.ledger.clone(),
            prompt: self.prompt.clone(),
        }
    }

    pub fn options(&self) -> Options {
        Options {
            durability: Durability::Full,
            clock: self.clock.clone(),
            components: self.components.lock().unwrap().clone(),
        }
    }

    pub async fn open_at(&self, path: &Path) -> Result<Engine, mooring_durable::error::OpenError> {
        Engine::open(path, self.options(), self.ports()).await
    }

    pub async fn open(&self) -> Engine {
        self.open_at(&self.path()).await.unwrap()
    }

    /// Opens, and lets work run.
    pub async fn start(&self) -> Engine {
        let engine = self.open().await;
        engine.start();
        engine
    }

    /// An engine with one conversation.
    pub async fn begin(&self) -> (Engine, ConversationId) {
        let engine = self.start().await;
        let id = engine
            .create_conversation("m", json!({}), Vec::new())
            .await
            .unwrap();
        (engine, id)
    }

    pub fn script(&self, script: impl Fn(&ModelRequest) -> Reply + Send + Sync + 'static) {
        *self.model.script.lock().unwrap() = Arc::new(move |request, _| script(request));
    }

    pub fn summaries(&self, script: impl Fn() -> Reply + Send + Sync + 'static) {
        *self.model.summary.lock().unwrap() = Arc::new(move |_, _| script());
    }

    pub fn gate(&self, rule: impl Fn(&Call, &[Approval]) -> Verdict + Send + Sync + 'static) {
        *self.gate.0.lock().unwrap() = Arc::new(rule);
    }

    pub fn tool<F>(
        &self,
        name: &str,
        replay: Replay,
        body: impl Fn(Call, Start, Out, CancellationToken) -> F + Send + Sync + 'static,
    ) -> Arc<TestTool>
    where
        F: Future<Output = Result<ToolEnd, ToolFailure>> + Send + 'static,
    {
        self.put_tool(name, replay, false, body)
    }

    pub fn put_tool<F>(
        &self,
        name: &str,
        replay: Replay,
        sequential: bool,
        body: impl Fn(Call, Start, Out, CancellationToken) -> F + Send + Sync + 'static,
    ) -> Arc<TestTool>
    where
        F: Future<Output = Result<ToolEnd, ToolFailure>> + Send + 'static,
    {
        let mut tool = TestTool::new(name, replay, body);
        if let Some(tool) = Arc::get_mut(&mut tool) {
            tool.declaration.sequential = sequential;
        }
        let mut tools = self.tools.0.lock().unwrap();
        tools.retain(|tool| tool.declaration.schema.name != name);
        tools.push(tool.clone());
        tool
    }

    /// What the ledger was told, one word each.
    pub fn told(&self) -> Vec<String> {
        self.ledger
            .told
            .lock()
            .unwrap()
            .iter()
            .map(|(_, change)| word(change))
            .collect()
    }
}

fn word(change: &Change) -> String {
    match change {
        Change::ConversationCreated { .. } => "created".into(),
        Change::Admitted { submission } => format!("admitted {}", state(submission)),
        Change::Placed { .. } => "placed".into(),
        Change::RunStarted { .. } => "run".into(),
        Change::AttemptStarted { attempt, .. } => format!("attempt {attempt}"),
        Change::AttemptEnded {
            attempt,
            ended,
            lost,
            ..
        } => format!(
            "attempt {attempt} {ended:?}{}",
            if *lost { " lost" } else { "" }
        ),
        Change::CallDecided { verdict, .. } => match verdict {
            Verdict::Allow { .. } => "allow".into(),
            Verdict::Deny { .. } => "deny".into(),
            Verdict::Ask(_) => "ask".into(),
        },
        Change::ApprovalAsked { .. } => "asked".into(),
        Change::ApprovalSettled { approval } => format!("approval {:?}", approval.state),
        Change::QuestionAsked { .. } => "question".into(),
        Change::QuestionSettled { .. } => "question settled".into(),
        Change::CallStarted { call } => format!("start {}", call.tool),
        Change::CallEnded { call, outcome, .. } => format!("end {} {outcome:?}", call.tool),
        Change::RunChanged { run } => format!("now {:?}", run.state),
        Change::RunEnded { outcome, .. } => match outcome {
            mooring_durable::ledger::RunOutcome::Answered { .. } => "answered".into(),
            mooring_durable::ledger::RunOutcome::Unanswered { reason, .. } => {
                format!("unanswered {reason:?}")
            }
        },
        Change::Settled { submission } => format!("settled {}", state(submission)),
    }
}
