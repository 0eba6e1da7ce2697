//! A double of the harness, inside the tests: it ledgers request ids, keeps threads
//! with their cursors, outbox rows and acks as the contract says, and answers each
//! input by a script in place of a model.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mooring_wire::code::{Code, status};
use mooring_wire::harness as wire;
use mooring_wire::harness::harness_server::{Harness, HarnessServer};
use mooring_wire::shown::{Anchor, Card};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status};

pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64
}

/// An input as it was admitted.
#[derive(Clone, Debug)]
pub struct Input {
    pub id: i64,
    pub request_id: String,
    pub conversation: i64,
    pub text: String,
    pub images: usize,
    pub author: wire::Author,
    pub thread: wire::Thread,
    pub state: &'static str,
}

/// An outbox row.
#[derive(Clone, Debug)]
pub struct Row {
    pub key: String,
    pub thread: String,
    pub kind: &'static str,
    pub json: String,
    pub target: Option<String>,
    pub reply_to: String,
    pub first_offered: i64,
    pub attempts: u32,
    pub message: Option<String>,
    /// `delivered`, `replaced`, or why it is undeliverable.
    pub closed: Option<String>,
    next_at: i64,
}

#[derive(Clone, Debug, Default)]
pub struct Thread {
    pub channel: String,
    pub conversation: i64,
    pub cursor: String,
    pub deleted: bool,
}

#[derive(Default)]
pub struct State {
    pub inputs: Vec<Input>,
    pub threads: BTreeMap<String, Thread>,
    pub rows: Vec<Row>,
    pub approvals: BTreeMap<String, wire::Approval>,
    pub decisions: Vec<wire::DecideRequest>,
    /// Calls of `Submit`, repeated ones too.
    pub submits: usize,
    /// Users who are no members.
    pub strangers: Vec<String>,
    /// The answer to each input is written at once; else by [`Double::answer`].
    pub answers_itself: bool,
    /// Every call is refused as if nobody listened.
    pub away: bool,
    /// So many calls of `Submit` are cut after they were committed.
    pub cut_submits: usize,
    pub decide_delay: Duration,
    /// Conversations with a run, and the input that it answers.
    running: HashMap<i64, i64>,
    conversations: i64,
    epoch: u64,
}

/// The double with its server.
pub struct Double {
    pub state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
    pub address: String,
}

impl Double {
    pub async fn start() -> Arc<Double> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = State {
            answers_itself: true,
            ..State::default()
        };
        let double = Arc::new(Double {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(watch::Sender::new(0)),
            address,
        });
        let service =
            HarnessServer::new(Service(double.clone())).max_decoding_message_size(64 << 20);
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        double
    }

    pub fn act<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let done = act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|count| *count += 1);
        done
    }

    pub fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub async fn until<T>(&self, what: &str, mut found: impl FnMut(&State) -> Option<T>) -> T {
        let mut changes = self.changed.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = self.look(&mut found) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(crate::stage::BOUND, waiting).await {
            Ok(found) => found,
            Err(_) => panic!(
                "not within the bound: {what}; {}",
                self.look(State::summary)
            ),
        }
    }

    /// Ends every open stream, normally.
    pub fn break_streams(&self) {
        self.act(|state| state.epoch += 1);
    }

    /// Ends the run of an input with an answer (`Ok`) or a reason (`Err`).
    pub fn answer(&self, input: i64, outcome: Result<&str, &str>, run_ms: i64) {
        self.act(|state| state.end(input, outcome, run_ms));
    }

    /// Asks for an approval in the conversation of an input.
    pub fn ask(&self, id: &str, input: i64, command: &str) {
        self.act(|state| {
            let input = state
                .inputs
                .iter()
                .find(|known| known.id == input)
                .unwrap()
                .clone();
            let approval = wire::Approval {
                id: id.into(),
                conversation: input.conversation,
                tool: "bash".into(),
                summary: command.into(),
                state: "pending".into(),
                expires_ms: now_ms() + 4 * 3_600_000,
                requesters: vec![input.author.display_name.clone()],
                ..wire::Approval::default()
            };
            state.approvals.insert(id.into(), approval.clone());
            let json = serde_json::to_string(&card(&approval)).unwrap();
            state.row(
                &input.thread.thread_id,
                format!("{id}-card"),
                "card",
                json,
                None,
                "",
            );
        });
    }

    /// Decides from elsewhere.
    pub fn decide(&self, id: &str, approve: bool, by: &str, via: &str) {
        self.act(|state| state.settle(id, approve, by, via));
    }
}

fn card(approval: &wire::Approval) -> Card {
    Card {
        approval: approval.id.clone(),
        tool: approval.tool.clone(),
        summary: approval.summary.clone(),
        requesters: approval.requesters.clone(),
        expires_ms: approval.expires_ms,
        state: approval.state.clone(),
        decided_by: approval.decided_by.clone(),
        decided_via: approval.decided_via.clone(),
        decided_ms: approval.decided_ms,
        decision_reason: approval.decision_reason.clone(),
        ..Card::default()
    }
}

impl State {
    /// For messages of failed tests.
    pub fn summary(&self) -> String {
        let inputs: Vec<_> = self
            .inputs
            .iter()
            .map(|input| {
                format!(
                    "{}:{}:{}",
                    input.request_id,
                    input.state,
                    input.text.chars().take(20).collect::<String>()
                )
            })
            .collect();
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                format!(
                    "{} {} attempts {} -> {:?} {:?}",
                    row.key, row.kind, row.attempts, row.message, row.closed
                )
            })
            .collect();
        format!("inputs {inputs:#?} rows {rows:#?}")
    }

    pub fn input(&self, request_id: &str) -> Option<&Input> {
        self.inputs
            .iter()
            .find(|input| input.request_id == request_id)
    }

    /// Whether every row is closed.
    pub fn settled(&self) -> bool {
        self.rows.iter().all(|row| row.closed.is_some())
    }

    fn row(
        &mut self,
        thread: &str,
        key: String,
        kind: &'static str,
        json: String,
        target: Option<String>,
        reply_to: &str,
    ) {
        if self.rows.iter().any(|row| row.key == key) {
            return;
        }
        // An open edit is replaced by a newer one of the same message.
        for row in &mut self.rows {
            if target.is_some() && row.target == target && row.closed.is_none() {
                row.closed = Some("replaced".into());
            }
        }
        self.rows.push(Row {
            key,
            thread: thread.into(),
            kind,
            json,
            target,
            reply_to: reply_to.into(),
            first_offered: 0,
            attempts: 0,
            message: None,
            closed: None,
            next_at: 0,
        });
    }

    fn begin(&mut self, id: i64) {
        let input = self.inputs.iter_mut().find(|input| input.id == id).unwrap();
        input.state = "placed";
        let input = input.clone();
        self.running.insert(input.conversation, id);
        let anchor = Anchor {
            run: id,
            state: "working".into(),
            started_ms: now_ms(),
            ..Anchor::default()
        };
        let json = serde_json::to_string(&anchor).unwrap();
        let (thread, reply_to) = (input.thread.thread_id, input.thread.message_id);
        // As the harness's, the key is of this workspace alone.
        self.row(
            &thread,
            format!("{thread}-{id}-anchor"),
            "anchor",
            json,
            None,
            &reply_to,
        );
        if self.answers_itself {
            self.end(id, Ok(&format!("answer to {}", input.text)), 5);
        }
    }

    fn end(&mut self, id: i64, outcome: Result<&str, &str>, run_ms: i64) {
        let input = self.inputs.iter_mut().find(|input| input.id == id).unwrap();
        input.state = "done";
        let input = input.clone();
        let mut anchor = Anchor {
            run: id,
            state: "answered".into(),
            started_ms: 1_000,
            ended_ms: 1_000 + run_ms,
            turns: 1,
            ..Anchor::default()
        };
        match outcome {
            Ok(answer) => anchor.answer = answer.into(),
            Err(reason) => {
                anchor.state = "unanswered".into();
                anchor.reason = reason.into();
            }
        }
        let json = serde_json::to_string(&anchor).unwrap();
        let thread = &input.thread.thread_id;
        let target = Some(format!("{thread}-{id}-anchor"));
        self.row(
            thread,
            format!("{thread}-{id}-anchor-end"),
            "anchor-edit",
            json,
            target,
            "",
        );
        self.running.remove(&input.conversation);
        let next = self
            .inputs
            .iter()
            .find(|next| next.conversation == input.conversation && next.state == "queued")
            .map(|next| next.id);
        if let Some(next) = next {
            self.begin(next);
        }
    }

    fn settle(&mut self, id: &str, approve: bool, by: &str, via: &str) {
        let approval = self.approvals.get_mut(id).unwrap();
        approval.state = if approve { "approved" } else { "denied" }.into();
        approval.decided_by = by.into();
        approval.decided_via = via.into();
        approval.decided_ms = now_ms();
        let json = serde_json::to_string(&card(approval)).unwrap();
        let thread = self
            .rows
            .iter()
            .find(|row| row.key == format!("{id}-card"))
            .unwrap()
            .thread
            .clone();
        self.row(
            &thread,
            format!("{id}-card-end"),
            "card-edit",
            json,
            Some(format!("{id}-card")),
            "",
        );
    }

    /// The oldest open row of each thread that is due.
    fn due(&mut self, given: &[String]) -> Option<wire::OutboxRow> {
        let now = now_ms();
        let mut threads = Vec::new();
        for at in 0..self.rows.len() {
            let row = &self.rows[at];
            if row.closed.is_some() || threads.contains(&row.thread) {
                continue;
            }
            threads.push(row.thread.clone());
            if row.next_at > now || given.contains(&row.key) {
                continue;
            }
            let target = row
                .target
                .as_ref()
                .and_then(|key| self.rows.iter().find(|row| row.key == *key))
                .and_then(|row| row.message.clone());
            let row = &mut self.rows[at];
            let offered = wire::OutboxRow {
                key: row.key.clone(),
                thread_id: row.thread.clone(),
                kind: row.kind.into(),
                json: row.json.clone(),
                first_offered_ms: row.first_offered,
                target_message_id: target.unwrap_or_default(),
                reply_to_message_id: row.reply_to.clone(),
                attempts: row.attempts,
            };
            row.attempts += 1;
            if row.first_offered == 0 {
                row.first_offered = now;
            }
            return Some(offered);
        }
        None
    }
}

fn larger(a: &str, b: &str) -> bool {
    (a.len(), a) > (b.len(), b)
}

struct Service(Arc<Double>);

type Answer<T> = Result<Response<T>, Status>;
type Frames<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    fn here(&self) -> Result<(), Status> {
        if self.0.look(|state| state.away) {
            return Err(Status::unavailable("nobody listens"));
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl Harness for Service {
    type WatchStream = Frames<wire::WatchFrame>;
    type OutboxStream = Frames<wire::OutboxRow>;

    async fn submit(&self, request: Request<wire::SubmitRequest>) -> Answer<wire::SubmitResponse> {
        self.here()?;
        let request = request.into_inner();
        self.0.act(|state| {
            state.submits += 1;
            let author = request.author.unwrap_or_default();
            if state.strangers.contains(&author.discord_user_id) {
                return Err(status(
                    Code::Forbidden,
                    "you are no member of this workspace",
                ));
            }
            let thread = request.thread.unwrap_or_default();
            if let Some(known) = state.input(&request.request_id) {
                return Ok(Response::new(wire::SubmitResponse {
                    conversation: known.conversation,
                    submission: known.id,
                    state: known.state.into(),
                    repeated: true,
                }));
            }
            let row = state
                .threads
                .entry(thread.thread_id.clone())
                .or_insert_with(|| Thread {
                    channel: thread.channel_id.clone(),
                    cursor: thread.previous_message_id.clone(),
                    ..Thread::default()
                });
            if row.conversation == 0 {
                state.conversations += 1;
                row.conversation = state.conversations;
            }
            let newest = thread
                .also_message_ids
                .iter()
                .chain([&thread.message_id])
                .max()
                .unwrap();
            if !thread.previous_message_id.is_empty()
                && row.cursor == thread.previous_message_id
                && larger(newest, &row.cursor)
            {
                row.cursor = newest.clone();
            }
            let conversation = row.conversation;
            let busy = state.running.contains_key(&conversation);
            if busy && request.when_busy == wire::WhenBusy::Reject as i32 {
                return Err(status(Code::Busy, "a run is going"));
            }
            let id = state.inputs.len() as i64 + 1;
            let mut text = String::new();
            let mut images = 0;
            for part in request.content {
                match part.part {
                    Some(wire::part::Part::Text(more)) => text.push_str(&more),
                    Some(wire::part::Part::Image(_)) => images += 1,
                    None => {}
                }
            }
            let request_id = request.request_id;
            state.inputs.push(Input {
                id,
                request_id,
                conversation,
                text,
                images,
                author,
                thread,
                state: "queued",
            });
            if !busy {
                state.begin(id);
            }
            if state.cut_submits > 0 {
                state.cut_submits -= 1;
                return Err(Status::unavailable("cut after the commit"));
            }
            Ok(Response::new(wire::SubmitResponse {
                conversation,
                submission: id,
                state: "queued".into(),
                repeated: false,
            }))
        })
    }

    async fn view(&self, request: Request<wire::ViewRequest>) -> Answer<wire::ConversationView> {
        self.here()?;
        let conversation = request.into_inner().conversation;
        Ok(Response::new(self.0.look(|state| {
            wire::ConversationView {
                conversation,
                run: Some(wire::Run {
                    state: if state.running.contains_key(&conversation) {
                        "requesting"
                    } else {
                        "idle"
                    }
                    .into(),
                    ..wire::Run::default()
                }),
                inbox: state
                    .inputs
                    .iter()
                    .filter(|input| input.conversation == conversation && input.state == "queued")
                    .map(|input| wire::Submission {
                        id: input.id,
                        request_id: input.request_id.clone(),
                        state: "queued".into(),
                        text: input.text.clone(),
                        ..wire::Submission::default()
                    })
                    .collect(),
                ..wire::ConversationView::default()
            }
        })))
    }

    async fn conversations(
        &self,
        _: Request<wire::ConversationsRequest>,
    ) -> Answer<wire::ConversationsResponse> {
        self.here()?;
        Ok(Response::new(self.0.look(|state| {
            wire::ConversationsResponse {
                conversations: state
                    .threads
                    .iter()
                    .filter(|(_, thread)| thread.conversation != 0)
                    .map(|(id, thread)| wire::conversations_response::Conversation {
                        id: thread.conversation,
                        thread_id: id.clone(),
                        state: if state.running.contains_key(&thread.conversation) {
                            "requesting"
                        } else {
                            "idle"
                        }
                        .into(),
                        ..Default::default()
                    })
                    .collect(),
            }
        })))
    }

    async fn approvals(
        &self,
        _: Request<wire::ApprovalsRequest>,
    ) -> Answer<wire::ApprovalsResponse> {
        self.here()?;
        let approvals = self
            .0
            .look(|state| state.approvals.values().cloned().collect());
        Ok(Response::new(wire::ApprovalsResponse { approvals }))
    }

    async fn decide(&self, request: Request<wire::DecideRequest>) -> Answer<wire::DecideResponse> {
        self.here()?;
        let delay = self.0.look(|state| state.decide_delay);
        tokio::time::sleep(delay).await;
        let request = request.into_inner();
        self.0.act(|state| {
            let author = request.author.clone().unwrap_or_default();
            if state.strangers.contains(&author.discord_user_id) {
                return Err(status(Code::Forbidden, "approving needs the role Approver"));
            }
            let found = state.approvals.get(&request.id).cloned();
            let Some(found) = found else {
                return Err(status(Code::NotFound, "there is no such approval"));
            };
            let first = found.state == "pending";
            if first {
                state.settle(
                    &request.id,
                    request.approve,
                    &author.display_name,
                    &request.via,
                );
            }
            state.decisions.push(request.clone());
            let approval = state.approvals.get(&request.id).cloned();
            Ok(Response::new(wire::DecideResponse { first, approval }))
        })
    }

    async fn abort(&self, request: Request<wire::AbortRequest>) -> Answer<wire::AbortResponse> {
        self.here()?;
        let conversation = request.into_inner().conversation;
        let was_running = self.0.act(|state| {
            let running = state.running.get(&conversation).copied();
            if let Some(input) = running {
                state.end(input, Err("aborted"), 5);
            }
            running.is_some()
        });
        Ok(Response::new(wire::AbortResponse {
            was_running,
            withdrawn: vec![],
        }))
    }

    async fn withdraw(
        &self,
        request: Request<wire::WithdrawRequest>,
    ) -> Answer<wire::WithdrawResponse> {
        self.here()?;
        let wanted = request.into_inner().submission;
        self.0.act(|state| {
            let Some(input) = state.inputs.iter_mut().find(|input| input.id == wanted) else {
                return Err(status(Code::NotFound, "there is no such submission"));
            };
            if input.state == "queued" {
                input.state = "unanswered";
            }
            let submission = wire::Submission {
                id: wanted,
                state: input.state.into(),
                ..Default::default()
            };
            Ok(Response::new(wire::WithdrawResponse {
                submission: Some(submission),
            }))
        })
    }

    async fn usage(&self, _: Request<wire::UsageRequest>) -> Answer<wire::UsageResponse> {
        self.here()?;
        let row = wire::usage_response::Row {
            day: "2026-01-02".into(),
            model: "main".into(),
            requests: 3,
            input_tokens: 1_000,
            output_tokens: 50,
            cost_micros: 1_230_000,
            cost_known: true,
            ..Default::default()
        };
        Ok(Response::new(wire::UsageResponse { rows: vec![row] }))
    }

    async fn status(&self, _: Request<wire::StatusRequest>) -> Answer<wire::StatusResponse> {
        self.here()?;
        let running = self.0.look(|state| state.running.len() as u32);
        Ok(Response::new(wire::StatusResponse {
            running,
            ..Default::default()
        }))
    }

    async fn threads(&self, _: Request<wire::ThreadsRequest>) -> Answer<wire::ThreadsResponse> {
        self.here()?;
        Ok(Response::new(self.0.look(|state| {
            wire::ThreadsResponse {
                rows: state
                    .threads
                    .iter()
                    .map(|(id, thread)| wire::threads_response::Row {
                        thread_id: id.clone(),
                        channel_id: thread.channel.clone(),
                        conversation: thread.conversation,
                        cursor: thread.cursor.clone(),
                        deleted: thread.deleted,
                        ..Default::default()
                    })
                    .collect(),
            }
        })))
    }

    async fn advance(
        &self,
        request: Request<wire::AdvanceRequest>,
    ) -> Answer<wire::AdvanceResponse> {
        self.here()?;
        let request = request.into_inner();
        Ok(Response::new(self.0.act(|state| {
            if request.deleted {
                if let Some(thread) = state.threads.get_mut(&request.thread_id) {
                    thread.deleted = true;
                }
            } else if request.from.is_empty() {
                state
                    .threads
                    .entry(request.thread_id.clone())
                    .or_insert_with(|| Thread {
                        channel: request.channel_id.clone(),
                        cursor: request.to.clone(),
                        ..Thread::default()
                    });
            } else if let Some(thread) = state.threads.get_mut(&request.thread_id)
                && thread.cursor == request.from
                && larger(&request.to, &thread.cursor)
            {
                thread.cursor = request.to.clone();
            }
            let cursor = state
                .threads
                .get(&request.thread_id)
                .map(|thread| thread.cursor.clone());
            wire::AdvanceResponse {
                cursor: cursor.unwrap_or_default(),
            }
        })))
    }

    async fn outbox(&self, _: Request<wire::OutboxRequest>) -> Answer<Self::OutboxStream> {
        self.here()?;
        let double = self.0.clone();
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let mut changes = double.changed.subscribe();
            let epoch = double.look(|state| state.epoch);
            let mut given: Vec<String> = Vec::new();
            loop {
                changes.borrow_and_update();
                if double.look(|state| state.epoch != epoch || state.away) {
                    return;
                }
                // Committed as offered before it is given.
                let due = {
                    let mut state = double.state.lock().unwrap_or_else(PoisonError::into_inner);
                    given.retain(|key| {
                        state
                            .rows
                            .iter()
                            .any(|row| row.key == *key && row.next_at <= now_ms())
                    });
                    state.due(&given)
                };
                match due {
                    Some(row) => {
                        given.push(row.key.clone());
                        if sender.send(Ok(row)).await.is_err() {
                            return;
                        }
                    }
                    None => {
                        let _ = tokio::time::timeout(Duration::from_millis(100), changes.changed())
                            .await;
                        if sender.is_closed() {
                            return;
                        }
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn ack(&self, request: Request<wire::AckRequest>) -> Answer<wire::AckResponse> {
        self.here()?;
        let request = request.into_inner();
        self.0.act(|state| {
            let row = state
                .rows
                .iter_mut()
                .find(|row| row.key == request.key)
                .unwrap();
            if row.closed.is_some() {
                return;
            }
            if !request.undeliverable.is_empty() {
                row.closed = Some(request.undeliverable.clone());
            } else if !request.retry.is_empty() {
                row.next_at = now_ms() + 300;
            } else {
                row.message = Some(request.message_id.clone());
                row.closed = Some("delivered".into());
            }
        });
        Ok(Response::new(wire::AckResponse {}))
    }

    async fn watch(&self, _: Request<wire::WatchRequest>) -> Answer<Self::WatchStream> {
        Err(Status::unimplemented("watch"))
    }

    async fn entries(&self, _: Request<wire::EntriesRequest>) -> Answer<wire::EntriesResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn grants(&self, _: Request<wire::GrantsRequest>) -> Answer<wire::GrantsResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn revoke_grant(
        &self,
        _: Request<wire::RevokeGrantRequest>,
    ) -> Answer<wire::RevokeGrantResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn audit(&self, _: Request<wire::AuditRequest>) -> Answer<wire::AuditResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn configure(
        &self,
        _: Request<wire::ConfigureRequest>,
    ) -> Answer<wire::ConfigureResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn stop(&self, _: Request<wire::StopRequest>) -> Answer<wire::StopResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }
}
