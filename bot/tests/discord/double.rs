//! A double of the harness, inside the tests: it ledgers request ids, keeps threads
//! with their cursors, outbox rows and acks as the contract says, and answers each
//! input by a script in place of a model.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::service::Service;
use mooring_wire::harness as wire;
use mooring_wire::harness::harness_server::HarnessServer;
use mooring_wire::shown::{Anchor, Card};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;

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
    pub next_at: i64,
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
    /// Calls of `Submit` are.
    pub takes_nothing: bool,
    /// So many calls of `Submit` are cut after they were committed.
    pub cut_submits: usize,
    pub decide_delay: Duration,
    /// Conversations with a run, and the input that it answers.
    pub running: HashMap<i64, i64>,
    pub conversations: i64,
    pub epoch: u64,
}

/// The double with its server.
pub struct Double {
    pub state: Arc<Mutex<State>>,
    pub changed: Arc<watch::Sender<u64>>,
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

    pub fn begin(&mut self, id: i64) {
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

    pub fn end(&mut self, id: i64, outcome: Result<&str, &str>, run_ms: i64) {
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

    pub fn settle(&mut self, id: &str, approve: bool, by: &str, via: &str) {
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
    pub fn due(&mut self, given: &[String]) -> Option<wire::OutboxRow> {
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

pub fn larger(a: &str, b: &str) -> bool {
    (a.len(), a) > (b.len(), b)
}
