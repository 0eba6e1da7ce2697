//! Ports that tests script, and a clock that they drive.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use mooring_durable::{
    clock::Clock,
    gate::{Approval, Gate, Verdict},
    id::{CommitNo, ConversationId, Millis},
    ledger::{Change, Ledger, Refusal, Run, Statement},
    message::{Part, ToolCall, ToolSchema},
    model::{
        Model, ModelError, ModelRequest, ModelResponse, Models, PartialSink, Purpose,
        RequestContext, Usage,
    },
    prompt::{Prompt, Rendered, Section},
    tool::{Call, OutputSink, Replay, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure, Toolbox},
    wait::Settled,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::words::{done, eventually};

/// Time that stands still until it is moved.
#[derive(Default)]
pub struct TestClock {
    now: AtomicI64,
    moved: Notify,
    /// Deadlines that are waited for.
    pub waiting: Mutex<Vec<i64>>,
}

pub const START: i64 = 1_700_000_000_000;

impl TestClock {
    pub fn new() -> Arc<TestClock> {
        Arc::new(TestClock {
            now: AtomicI64::new(START),
            ..TestClock::default()
        })
    }
    pub fn advance(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::SeqCst);
        self.moved.notify_waiters();
    }
    /// Waits until somebody waits for the time `after_ms` from the start, or later.
    pub async fn awaited(&self, ms: i64) {
        eventually("a deadline", async || {
            self.waiting.lock().unwrap().contains(&ms)
        })
        .await;
    }
}

#[async_trait]
impl Clock for TestClock {
    fn now(&self) -> Millis {
        Millis(self.now.load(Ordering::SeqCst))
    }
    async fn until(&self, deadline: Millis) {
        self.waiting.lock().unwrap().push(deadline.0);
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.now() >= deadline {
                return;
            }
            moved.await;
        }
    }
}

/// What a scripted model does.
pub enum Reply {
    Say(&'static str),
    /// Calls of tools, by name and arguments.
    Call(Vec<(&'static str, Value)>),
    Fail(ModelError),
    /// Streams this, and then never ends.
    Hang(&'static str),
    /// Streams this, and breaks once a gate of that name is open.
    Break(Gates, &'static str, &'static str),
    /// Says this once a gate of that name is open.
    After(Gates, &'static str, &'static str),
}

pub type Script = Arc<dyn Fn(&ModelRequest, &RequestContext) -> Reply + Send + Sync>;

pub struct TestModel {
    pub script: Mutex<Script>,
    pub requests: Mutex<Vec<ModelRequest>>,
    pub options: Mutex<Value>,
    pub cancelled: AtomicUsize,
    pub missing: Mutex<bool>,
    /// Whether streaming may begin.
    pub flow: tokio::sync::watch::Sender<bool>,
    pub streamed: AtomicUsize,
    /// Tokens that fit.
    pub window: Mutex<Option<u64>>,
    /// What is said to requests for summaries, and those requests.
    pub summary: Mutex<Script>,
    pub summaries: Mutex<Vec<ModelRequest>>,
}

#[async_trait]
impl Model for TestModel {
    fn adapter(&self) -> String {
        "test/1".into()
    }
    fn options(&self) -> Value {
        self.options.lock().unwrap().clone()
    }
    fn estimate(&self, request: &ModelRequest) -> u64 {
        request.messages.len() as u64 * 10
    }
    fn window(&self) -> Option<u64> {
        *self.window.lock().unwrap()
    }
    async fn respond(
        &self,
        request: &ModelRequest,
        context: &RequestContext,
        sink: &dyn PartialSink,
        cancel: CancellationToken,
    ) -> Result<ModelResponse, ModelError> {
        let (requests, script) = match context.purpose {
            Purpose::Turn => (&self.requests, &self.script),
            Purpose::Summary => (&self.summaries, &self.summary),
        };
        requests.lock().unwrap().push(request.clone());
        let script = script.lock().unwrap().clone();
        let content = match script(request, context) {
            Reply::Say(text) => vec![Part::text(text)],
            Reply::Call(calls) => calls
                .into_iter()
                .enumerate()
                .map(|(at, (name, arguments))| {
                    Part::ToolCall(ToolCall {
                        id: format!("c{}-{at}", request.messages.len()),
                        name: name.into(),
                        arguments,
                    })
                })
                .collect(),
            Reply::Fail(error) => return Err(error),
            Reply::After(gates, name, text) => {
                tokio::select! {
                    () = gates.pass(name) => vec![Part::text(text)],
                    () = cancel.cancelled() => {
                        self.cancelled.fetch_add(1, Ordering::SeqCst);
                        return Err(ModelError::Cancelled);
                    }
                }
            }
            Reply::Break(gates, name, text) => {
                sink.text(text);
                gates.pass(name).await;
                panic!("a test's adapter breaks");
            }
            Reply::Hang(text) => {
                self.flow
                    .subscribe()
                    .wait_for(|flows| *flows)
                    .await
                    .unwrap();
                sink.text(text);
                self.streamed.fetch_add(1, Ordering::SeqCst);
                cancel.cancelled().await;
                self.cancelled.fetch_add(1, Ordering::SeqCst);
                return Err(ModelError::Cancelled);
            }
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

pub struct TestModels(pub Arc<TestModel>);
impl Models for TestModels {
    fn resolve(&self, _name: &str) -> Option<Arc<dyn Model>> {
        (!*self.0.missing.lock().unwrap()).then(|| self.0.clone() as Arc<dyn Model>)
    }
}

pub type Body = Arc<
    dyn Fn(Call, Start, Out, CancellationToken) -> BoxFuture<'static, Result<ToolEnd, ToolFailure>>
        + Send
        + Sync,
>;

/// Output of a test tool, which its body may keep.
#[derive(Clone, Default)]
pub struct Out(pub Arc<Mutex<Pieces>>, pub Arc<Notify>);
type Pieces = Vec<(u64, Vec<u8>)>;
impl Out {
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.0.lock().unwrap().push((offset, bytes.to_vec()));
        self.1.notify_one();
    }
}

pub struct TestTool {
    pub declaration: ToolDeclaration,
    pub body: Body,
    pub binding: Value,
    pub released: Arc<Mutex<Vec<String>>>,
    pub killed: Arc<Mutex<Vec<String>>>,
    pub reachable: Arc<std::sync::atomic::AtomicBool>,
}

#[async_trait]
impl Tool for TestTool {
    fn declaration(&self) -> ToolDeclaration {
        self.declaration.clone()
    }
    fn summary(&self, arguments: &Value) -> String {
        format!("{} {arguments}", self.declaration.schema.name)
    }
    async fn bind(&self, _call: &Call) -> Result<Value, ToolFailure> {
        Ok(self.binding.clone())
    }
    async fn execute(
        &self,
        call: &Call,
        start: Start,
        output: &dyn OutputSink,
        cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let out = Out::default();
        let mut body = (self.body)(call.clone(), start, out.clone(), cancel);
        loop {
            tokio::select! {
                biased;
                () = out.1.notified() => {}
                end = &mut body => {
                    out.0.lock().unwrap().drain(..).for_each(|(offset, bytes)| output.output(offset, &bytes));
                    return end;
                }
            }
            out.0
                .lock()
                .unwrap()
                .drain(..)
                .for_each(|(offset, bytes)| output.output(offset, &bytes));
        }
    }
    async fn resume(
        &self,
        _call: &Call,
        settled: &[Settled],
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let ends = settled.iter().map(|settled| format!("{:?}", settled.end));
        done(&ends.collect::<Vec<_>>().join("; "))
    }
    async fn release(&self, call: &Call) -> Result<(), ToolFailure> {
        self.reach()?;
        self.released.lock().unwrap().push(call.execution.clone());
        Ok(())
    }
    async fn kill(&self, call: &Call) -> Result<(), ToolFailure> {
        self.reach()?;
        self.killed.lock().unwrap().push(call.execution.clone());
        Ok(())
    }
}

impl TestTool {
    pub fn new<F>(
        name: &str,
        replay: Replay,
        body: impl Fn(Call, Start, Out, CancellationToken) -> F + Send + Sync + 'static,
    ) -> Arc<TestTool>
    where
        F: Future<Output = Result<ToolEnd, ToolFailure>> + Send + 'static,
    {
        Arc::new(TestTool {
            declaration: ToolDeclaration {
                schema: ToolSchema {
                    name: name.into(),
                    description: format!("does {name}"),
                    parameters: json!({"type": "object"}),
                },
                replay,
                sequential: false,
            },
            body: Arc::new(move |call, start, out, cancel| {
                Box::pin(body(call, start, out, cancel))
            }),
            binding: json!({"boot": 1}),
            released: Arc::default(),
            killed: Arc::default(),
            reachable: Arc::new(std::sync::atomic::AtomicBool::new(true)),
        })
    }

    fn reach(&self) -> Result<(), ToolFailure> {
        if self.reachable.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(ToolFailure::Unreachable("no sandbox".into()))
        }
    }
}

#[derive(Default)]
pub struct TestTools(pub Mutex<Vec<Arc<TestTool>>>);
impl Toolbox for TestTools {
    fn tools(&self, _conversation: ConversationId, _settings: &Value) -> Vec<Arc<dyn Tool>> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .map(|tool| tool.clone() as Arc<dyn Tool>)
            .collect()
    }
}

type Rule = Arc<dyn Fn(&Call, &[Approval]) -> Verdict + Send + Sync>;
pub struct TestGate(pub Mutex<Rule>, pub AtomicUsize);
#[async_trait]
impl Gate for TestGate {
    async fn decide(&self, call: &Call, approvals: &[Approval]) -> Verdict {
        self.1.fetch_add(1, Ordering::SeqCst);
        let rule = self.0.lock().unwrap().clone();
        rule(call, approvals)
    }
}

#[derive(Default)]
pub struct TestPrompt(pub Mutex<Vec<Section>>, pub Mutex<bool>);
#[async_trait]
impl Prompt for TestPrompt {
    async fn sections(
        &self,
        _conversation: ConversationId,
        _settings: &Value,
    ) -> Result<Rendered, String> {
        if *self.1.lock().unwrap() {
            Err("broken".into())
        } else {
            Ok(self.0.lock().unwrap().clone().into())
        }
    }
}

type Extra = Arc<dyn Fn(&[Change]) -> Vec<Statement> + Send + Sync>;

/// A ledger that notes what it is told.
#[derive(Default)]
pub struct TestLedger {
    pub told: Mutex<Vec<(i64, Change)>>,
    pub refuse: Mutex<Option<String>>,
    pub refuse_calls: Mutex<Option<String>>,
    pub extra: Mutex<Option<Extra>>,
}
impl Ledger for TestLedger {
    fn admit(&self, _run: &Run, _model: &str, _estimate: u64) -> Result<(), Refusal> {
        self.refuse
            .lock()
            .unwrap()
            .clone()
            .map_or(Ok(()), |detail| Err(Refusal { detail }))
    }
    fn admit_calls(&self, _run: &Run, _calls: u32) -> Result<(), Refusal> {
        self.refuse_calls
            .lock()
            .unwrap()
            .clone()
            .map_or(Ok(()), |detail| Err(Refusal { detail }))
    }
    fn statements(&self, _at: Millis, changes: &[Change]) -> Vec<Statement> {
        self.extra
            .lock()
            .unwrap()
            .as_ref()
            .map_or_else(Vec::new, |extra| extra(changes))
    }
    fn committed(&self, commit: CommitNo, _at: Millis, changes: &[Change]) {
        self.told
            .lock()
            .unwrap()
            .extend(changes.iter().map(|change| (commit.0, change.clone())));
    }
}

/// A barrier that a test opens, by name.
#[derive(Default, Clone)]
pub struct Gates(Arc<Mutex<HashMap<String, Arc<tokio::sync::Semaphore>>>>);
impl Gates {
    fn of(&self, name: &str) -> Arc<tokio::sync::Semaphore> {
        self.0
            .lock()
            .unwrap()
            .entry(name.into())
            .or_insert_with(|| Arc::new(tokio::sync::Semaphore::new(0)))
            .clone()
    }
    pub fn open(&self, name: &str) {
        self.of(name).add_permits(1);
    }
    pub async fn pass(&self, name: &str) {
        self.of(name).acquire().await.unwrap().forget();
    }
}
