//! Ports that tests script, a clock that they drive, and waits that are bounded.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use mooring_durable::{
    Component, Durability, Engine, Options, Ports,
    clock::Clock,
    gate::{Approval, Gate, Question, Verdict},
    id::{CommitNo, ConversationId, Millis, RequestId, SubmissionId},
    ledger::{Change, Ledger, Refusal, Run, Statement},
    message::{Message, Part, ToolCall, ToolSchema},
    model::{
        Model, ModelError, ModelRequest, ModelResponse, Models, PartialSink, RequestContext, Usage,
    },
    prompt::{Prompt, Section},
    submission::{Input, Requester, Submission, SubmissionState, WhenBusy},
    tool::{
        Call, OutputSink, Replay, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure, ToolResult,
        Toolbox,
    },
    view::{ConversationView, EntryView},
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The longest wait for anything.
pub const BOUND: Duration = Duration::from_secs(20);

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
}

type Script = Arc<dyn Fn(&ModelRequest, &RequestContext) -> Reply + Send + Sync>;

pub struct TestModel {
    pub script: Mutex<Script>,
    pub requests: Mutex<Vec<ModelRequest>>,
    pub options: Mutex<Value>,
    pub cancelled: AtomicUsize,
    pub missing: Mutex<bool>,
    /// Whether streaming may begin.
    pub flow: tokio::sync::watch::Sender<bool>,
    pub streamed: AtomicUsize,
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
    async fn respond(
        &self,
        request: &ModelRequest,
        context: &RequestContext,
        sink: &dyn PartialSink,
        cancel: CancellationToken,
    ) -> Result<ModelResponse, ModelError> {
        self.requests.lock().unwrap().push(request.clone());
        let script = self.script.lock().unwrap().clone();
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

struct TestModels(Arc<TestModel>);
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
    fn tools(&self, _conversation: ConversationId) -> Vec<Arc<dyn Tool>> {
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
    async fn sections(&self, _conversation: ConversationId) -> Result<Vec<Section>, String> {
        if *self.1.lock().unwrap() {
            Err("broken".into())
        } else {
            Ok(self.0.lock().unwrap().clone())
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
        let tool = Arc::new(TestTool {
            declaration: ToolDeclaration {
                schema: ToolSchema {
                    name: name.into(),
                    description: format!("does {name}"),
                    parameters: json!({"type": "object"}),
                },
                replay,
                sequential,
            },
            body: Arc::new(move |call, start, out, cancel| {
                Box::pin(body(call, start, out, cancel))
            }),
            binding: json!({"boot": 1}),
            released: Arc::default(),
            killed: Arc::default(),
            reachable: Arc::new(std::sync::atomic::AtomicBool::new(true)),
        });
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

/// A submission's state in one word, its reason included.
pub fn state(submission: &Submission) -> String {
    match &submission.state {
        SubmissionState::Queued => "queued".into(),
        SubmissionState::Placed => "placed".into(),
        SubmissionState::Done => "done".into(),
        SubmissionState::Unanswered { reason, .. } => format!("unanswered {reason:?}"),
    }
}

pub fn anna() -> Requester {
    Requester::Local {
        name: "anna".into(),
    }
}

pub fn input(conversation: ConversationId, text: &str, when_busy: WhenBusy) -> Input {
    Input {
        conversation,
        request_id: None,
        requester: anna(),
        content: vec![Part::text(text)],
        when_busy,
        autonomous: false,
        data: Value::Null,
        extra: Vec::new(),
    }
}

pub fn request_id(id: &str) -> Option<RequestId> {
    Some(RequestId(id.into()))
}

/// Submits, and gives the id.
pub async fn say(engine: &Engine, conversation: ConversationId, text: &str) -> SubmissionId {
    engine
        .submit(input(conversation, text, WhenBusy::FollowUp))
        .await
        .unwrap()
        .submission
        .id
}

/// A result that is a text.
pub fn done(text: &str) -> Result<ToolEnd, ToolFailure> {
    Ok(ToolEnd::Completed(ToolResult {
        content: vec![Part::text(text)],
        is_error: false,
        terminate: false,
        data: Value::Null,
        documents: Vec::new(),
    }))
}

pub fn ask(rule: &str) -> Verdict {
    Verdict::Ask(Question {
        rule: rule.into(),
        expires_at: None,
        data: Value::Null,
    })
}

pub fn approve(approved: bool) -> mooring_durable::gate::Decision {
    mooring_durable::gate::Decision {
        approved,
        by: Requester::Local {
            name: "bert".into(),
        },
        via: "terminal".into(),
        reason: if approved {
            String::new()
        } else {
            "not today".into()
        },
        scope: "once".into(),
        at: Millis(START),
    }
}

/// Polls until something holds, within the bound.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + BOUND;
    while !holds().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{what} did not come about"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for the end of a submission and gives its state.
pub async fn settled(engine: &Engine, id: SubmissionId) -> String {
    let mut found = String::new();
    eventually("the end of a submission", async || {
        let submission = engine.submission(id).await.unwrap().unwrap();
        found = state(&submission);
        !matches!(
            submission.state,
            SubmissionState::Queued | SubmissionState::Placed
        )
    })
    .await;
    // A commit can be read from the file a moment before the ledger and watchers are
    // told of it. Its conversation answers this, which changes nothing, after that.
    let _ = tokio::time::timeout(BOUND, engine.withdraw(id)).await;
    found
}

pub async fn view(engine: &Engine, id: ConversationId) -> ConversationView {
    engine.view(id, 1_000, None).await.unwrap().unwrap()
}

/// Waits until a view shows something.
pub async fn shows(
    engine: &Engine,
    id: ConversationId,
    what: &str,
    mut holds: impl FnMut(&ConversationView) -> bool,
) -> ConversationView {
    let mut last = None;
    eventually(what, async || {
        let view = view(engine, id).await;
        let found = holds(&view);
        last = Some(view);
        found
    })
    .await;
    last.unwrap()
}

/// A transcript as words: `U:text`, `A:text`, `A2` (calls), `R:text`, `S`, and states.
pub fn transcript(entries: &[EntryView]) -> Vec<String> {
    entries.iter().map(entry_word).collect()
}

fn entry_word(entry: &EntryView) -> String {
    let text = |content: &[Part]| {
        content
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect::<Vec<_>>()
            .join("|")
    };
    let body = match &entry.message {
        Some(Message::System { text }) => format!("S:{text}"),
        Some(Message::User { content }) => format!("U:{}", text(content)),
        Some(Message::Assistant { content }) => {
            match content
                .iter()
                .filter(|part| matches!(part, Part::ToolCall(_)))
                .count()
            {
                0 => format!("A:{}", text(content)),
                calls => format!("A{calls}"),
            }
        }
        Some(Message::ToolResult {
            content, is_error, ..
        }) => format!("R{}:{}", if *is_error { "!" } else { "" }, text(content)),
        None => format!("{} {}", entry.kind, entry.data),
    };
    if entry.state.is_empty() {
        body
    } else {
        format!("{body} ({})", entry.state)
    }
}

/// How many results the context has after its last user message.
pub fn results(request: &ModelRequest) -> usize {
    request
        .messages
        .iter()
        .rev()
        .take_while(|message| !matches!(message, Message::User { .. }))
        .filter(|message| matches!(message, Message::ToolResult { .. }))
        .count()
}

/// The newest user text of a request.
pub fn last_user(request: &ModelRequest) -> String {
    request
        .messages
        .iter()
        .rev()
        .find_map(|message| match message {
            Message::User { content } => content.iter().find_map(|part| match part {
                Part::Text { text } => Some(text.clone()),
                _ => None,
            }),
            _ => None,
        })
        .unwrap_or_default()
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
