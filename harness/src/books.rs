//! The ledger: rows of the harness that belong to the engine's commits.

use std::sync::Arc;

use mooring_durable::{
    gate::{Approval, ApprovalState, Decision},
    id::{ConversationId, Incarnation, Millis, TaskId},
    ledger::{Change, Ledger, Refusal, Run, RunOutcome, RunState, Statement},
    message::Part,
    model::Usage,
    submission::{Requester, Submission},
    wait::{Question, WorkEnd},
};
use mooring_wire::shown;
use serde_json::Value;
use std::sync::OnceLock;
use tokio::sync::Notify;

use crate::{
    budget,
    card::Card,
    metrics::Metrics,
    model::Catalog,
    record::{
        audit, child, grant,
        outbox::{self, Kind},
        thread, usage,
    },
    tools::Hands,
    workspace::Source,
};

/// Keeps the harness's rows beside the engine's.
pub struct Books {
    source: Arc<Source>,
    catalog: Arc<Catalog>,
    incarnation: OnceLock<Incarnation>,
    metrics: Arc<Metrics>,
    hands: Arc<Hands>,
    /// Rung after a commit that may have added outbox rows.
    pub shown: Notify,
    /// Rung after a commit that moved an approval, or a call that may have waited for one.
    pub moved: Notify,
}

impl Books {
    /// Books of one harness.
    pub fn new(
        source: Arc<Source>,
        catalog: Arc<Catalog>,
        metrics: Arc<Metrics>,
        hands: Arc<Hands>,
    ) -> Arc<Books> {
        Arc::new(Books {
            source,
            catalog,
            metrics,
            hands,
            incarnation: OnceLock::new(),
            shown: Notify::new(),
            moved: Notify::new(),
        })
    }

    /// The file is open: keys of outbox rows contain its incarnation from now on.
    pub fn opened(&self, incarnation: Incarnation) {
        let _ = self.incarnation.set(incarnation);
    }

    fn key(&self, rest: std::fmt::Arguments<'_>) -> String {
        let incarnation = self
            .incarnation
            .get()
            .map(|i| i.0.as_str())
            .unwrap_or_default();
        format!("{incarnation}-{rest}")
    }

    /// The approval's id outside the file.
    pub fn approval_id(&self, approval: &Approval) -> String {
        self.key(format_args!("{}", approval.task))
    }

    /// The approval of an id that [`Books::approval_id`] has made; `None` for those of
    /// another file.
    pub fn approval_of(&self, id: &str) -> Option<TaskId> {
        let rest = id.strip_prefix(&self.incarnation.get()?.0)?;
        rest.strip_prefix('-')?.parse().ok().map(TaskId)
    }

    /// What `run` has cost so far; `None` where its model has no known price.
    pub fn cost(&self, run: &Run) -> Option<i64> {
        self.catalog.cost(&run.model, run.usage).map(|c| c.0)
    }

    /// The branch of a conversation's own worktree, as far as it is known; else empty.
    pub fn branch(&self, conversation: ConversationId) -> String {
        let checkout = self.hands.known_checkout(conversation);
        checkout.map(|it| it.branch).unwrap_or_default()
    }

    fn anchor(&self, run: &Run, state: &str) -> shown::Anchor {
        shown::Anchor {
            run: run.id.0,
            state: state.to_owned(),
            note: run.note.clone(),
            turns: run.turns,
            tool_calls: run.tool_calls,
            tokens: run.usage.input + run.usage.output,
            cost_micros: self.cost(run),
            started_ms: run.started_at.0,
            model: run.model.clone(),
            branch: self.branch(run.conversation),
            ..shown::Anchor::default()
        }
    }

    fn run_started(&self, at: Millis, run: &Run, reply_to: Option<&str>) -> Statement {
        let key = self.key(format_args!("{}-anchor", run.id));
        let anchor = value(&self.anchor(run, "working"));
        outbox::shown(
            at,
            run.conversation,
            &key,
            Kind::Anchor,
            &anchor,
            None,
            reply_to,
        )
    }

    fn run_changed(&self, at: Millis, run: &Run) -> [Statement; 2] {
        let target = self.key(format_args!("{}-anchor", run.id));
        // A run comes back to the same state; each change is a row of its own.
        let key = self.key(format_args!("{}-anchor-{}", run.id, at.0));
        let waits = waits(run);
        let anchor = value(&self.anchor(run, state_of(run)));
        let due = if waits {
            at
        } else {
            Millis(at.0 + pause_of_edits(at.0 - run.started_at.0))
        };
        [
            outbox::progress(at, due, run.conversation, &key, &anchor, &target),
            outbox::replaced(at, &target, &key),
        ]
    }

    fn run_ended(
        &self,
        at: Millis,
        run: &Run,
        outcome: &RunOutcome,
        reply_to: Option<&str>,
    ) -> [Statement; 2] {
        let target = self.key(format_args!("{}-anchor", run.id));
        let key = self.key(format_args!("{}-anchor-end", run.id));
        let mut anchor = self.anchor(run, "answered");
        anchor.ended_ms = at.0;
        match outcome {
            RunOutcome::Answered { content, .. } => anchor.answer = plain(content),
            RunOutcome::Unanswered { reason, detail } => {
                anchor.state = "unanswered".into();
                let word = serde_json::to_value(reason).unwrap_or_default();
                anchor.reason = match (word.as_str().unwrap_or_default(), detail.as_str()) {
                    (word, "") => word.to_owned(),
                    (word, detail) => format!("{word}: {detail}"),
                };
            }
        }
        [
            outbox::replaced(at, &target, &key),
            outbox::shown(
                at,
                run.conversation,
                &key,
                Kind::AnchorEdit,
                &value(&anchor),
                Some(&target),
                reply_to,
            ),
        ]
    }

    fn asked(&self, at: Millis, approval: &Approval) -> Statement {
        let key = self.key(format_args!("{}-card", approval.task));
        let card = value(&self.card(approval));
        outbox::card(at, approval.conversation, &key, Kind::Card, &card)
    }

    fn settled(&self, at: Millis, approval: &Approval) -> Vec<Statement> {
        let target = self.key(format_args!("{}-card", approval.task));
        let key = self.key(format_args!("{}-card-end", approval.task));
        let card = value(&self.card(approval));
        let edit = outbox::card_settled(
            at,
            approval.conversation,
            &key,
            Kind::CardEdit,
            &card,
            &target,
        );
        vec![audit::settled(approval), edit]
    }

    fn question_asked(&self, at: Millis, question: &Question, by: &[Requester]) -> Statement {
        let key = self.key(format_args!("{}-question", question.task));
        let mut card = self.question(question);
        card.requesters = by.iter().map(ToString::to_string).collect();
        outbox::card(
            at,
            question.conversation,
            &key,
            Kind::Question,
            &value(&card),
        )
    }

    fn question_settled(&self, at: Millis, question: &Question) -> Statement {
        let target = self.key(format_args!("{}-question", question.task));
        let key = self.key(format_args!("{}-question-end", question.task));
        outbox::card_settled(
            at,
            question.conversation,
            &key,
            Kind::QuestionEdit,
            &value(&self.question(question)),
            &target,
        )
    }

    /// The question's id outside the file.
    pub fn question_id(&self, question: TaskId) -> String {
        self.key(format_args!("{question}"))
    }

    /// The question of an id that [`Books::question_id`] has made, or of a key of a row
    /// that shows it; `None` for those of another file.
    pub fn question_of(&self, id: &str) -> Option<TaskId> {
        let (incarnation, rest) = (self.incarnation.get()?, id);
        let rest = rest.strip_prefix(&incarnation.0)?.strip_prefix('-')?;
        let task = rest.strip_suffix("-question").unwrap_or(rest);
        task.parse().ok().map(TaskId)
    }

    fn question(&self, question: &Question) -> shown::Question {
        let (state, answer, answered_by) = question_end(question);
        shown::Question {
            question: self.question_id(question.task),
            text: question.text.clone(),
            choices: question.choices.clone(),
            expires_ms: question.expires_at.map_or(0, |at| at.0),
            state: state.into(),
            answer,
            answered_by,
            ..shown::Question::default()
        }
    }

    /// How a conversation is that may work for another one's run.
    fn child_changed(&self, at: Millis, run: &Run, state: &str) -> [Statement; 3] {
        let key = self.key(format_args!("{}-child-{}", run.id, at.0));
        let due = match state {
            "working" => Millis(at.0 + pause_of_edits(at.0 - run.started_at.0)),
            _ => at,
        };
        child::changed(at, due, run, state, &key)
    }

    /// The card as it is shown.
    pub fn card(&self, approval: &Approval) -> shown::Card {
        let card = Card::read(approval);
        let decision = approval.decision.as_ref();
        let told = |field: fn(&Decision) -> String| decision.map(field).unwrap_or_default();
        shown::Card {
            approval: self.approval_id(approval),
            tool: approval.tool.clone(),
            summary: card.summary,
            detail: card.detail,
            facts: card.facts,
            rule: card.rule,
            reason: card.reason,
            requesters: approval
                .requesters
                .iter()
                .map(ToString::to_string)
                .collect(),
            requester_may_approve: card.requester_may_approve,
            expires_ms: approval.question.expires_at.map_or(0, |at| at.0),
            state: state_word(approval.state).to_owned(),
            decided_by: told(|d| d.by.to_string()),
            decided_via: told(|d| d.via.clone()),
            decided_ms: decision.map_or(0, |d| d.at.0),
            decision_reason: told(|d| d.reason.clone()),
            grade: card.grade,
            from: String::new(),
        }
    }

    fn attempt_ended(
        &self,
        at: Millis,
        run: &Run,
        model: &str,
        usage: Option<Usage>,
        lost: bool,
    ) -> Option<Statement> {
        let usage = match usage {
            Some(usage) => usage,
            // The request was sent and its size was lost: by estimate.
            None if lost => Usage::default(),
            None => return None,
        };
        Some(usage::spent(&usage::Spent {
            at,
            conversation: run.conversation,
            model,
            requester: run
                .requesters
                .first()
                .map(ToString::to_string)
                .unwrap_or_default(),
            usage,
            cost_micros: self.catalog.cost(model, usage).map(|c| c.0),
            unknown: lost,
        }))
    }
}

fn waits(run: &Run) -> bool {
    matches!(run.state, RunState::Waiting | RunState::NeedsKey)
}

fn state_of(run: &Run) -> &'static str {
    if waits(run) { "waiting" } else { "working" }
}

/// How a question stands: its state's word, the answer, and who gave it.
pub fn question_end(question: &Question) -> (&'static str, String, String) {
    match &question.end {
        None => ("open", String::new(), String::new()),
        Some(WorkEnd::Answered { text, by }) => ("answered", text.clone(), by.to_string()),
        Some(WorkEnd::Expired) => ("expired", String::new(), String::new()),
        Some(_) => ("aborted", String::new(), String::new()),
    }
}

/// Milliseconds until a change of a run that is `age_ms` old is shown: the longer
/// it goes on, the fewer edits.
fn pause_of_edits(age_ms: i64) -> i64 {
    (age_ms / 4).clamp(1_500, 60_000)
}

/// The approval state's word on the wire.
pub fn state_word(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Pending => "pending",
        ApprovalState::Approved => "approved",
        ApprovalState::Denied => "denied",
        ApprovalState::Expired => "expired",
        ApprovalState::Superseded => "superseded",
        ApprovalState::Aborted => "aborted",
    }
}

/// The text of `content`, for people.
pub fn plain(content: &[Part]) -> String {
    let mut out = String::new();
    for part in content {
        if let Part::Text { text } = part {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(text);
        }
    }
    out
}

fn value(content: &impl serde::Serialize) -> Value {
    serde_json::to_value(content).expect("what is shown is always JSON")
}

fn discord<'a>(submission: &'a Submission, name: &str) -> Option<&'a str> {
    submission
        .data
        .get("discord")?
        .get(name)?
        .as_str()
        .filter(|text| !text.is_empty())
}

/// The row of a thread, with the conversation that was made for it.
fn begun(conversation: ConversationId, settings: &Value) -> Option<Statement> {
    let field = |name: &str| settings.get(name).and_then(Value::as_str);
    Some(thread::made(
        field("thread")?,
        field("channel")?,
        Some(conversation),
        field("cursor")?,
        field("title").unwrap_or_default(),
    ))
}

/// Thread, cursor and messages of an input that came from Discord.
fn admitted(submission: &Submission) -> Vec<Statement> {
    let Some(thread_id) = discord(submission, "thread") else {
        return Vec::new();
    };
    let field = |name| discord(submission, name).unwrap_or_default();
    let message = field("message");
    let mut statements = vec![thread::made(
        thread_id,
        field("channel"),
        Some(submission.conversation),
        message,
        field("name"),
    )];
    if let Some(previous) = discord(submission, "previous") {
        let newest = discord(submission, "newest").unwrap_or(message);
        statements.push(thread::advanced(thread_id, previous, newest));
    }
    statements
}

impl Ledger for Books {
    fn admit(&self, run: &Run, model: &str, estimate: u64) -> Result<(), Refusal> {
        let workspace = self.source.current();
        let next = Usage {
            input: estimate,
            cached: 0,
            output: 0,
        };
        budget::admit_request(
            &workspace.spec.budgets.per_run,
            run,
            estimate,
            self.cost(run).unwrap_or(0),
            self.catalog.cost(model, next).map_or(0, |c| c.0),
        )
    }

    fn admit_calls(&self, run: &Run, calls: u32) -> Result<(), Refusal> {
        budget::admit_calls(&self.source.current().spec.budgets.per_run, run, calls)
    }

    fn statements(&self, at: Millis, changes: &[Change]) -> Vec<Statement> {
        let mut out = Vec::new();
        let mut reply_to = None;
        for change in changes {
            match change {
                Change::Admitted { submission } => {
                    out.extend(admitted(submission));
                    reply_to = discord(submission, "message").map(str::to_owned);
                }
                Change::Placed { submission, .. } => {
                    reply_to = discord(submission, "message").map(str::to_owned);
                }
                Change::RunStarted { run } => {
                    out.push(self.run_started(at, run, reply_to.as_deref()));
                    out.extend(self.child_changed(at, run, "working"));
                }
                Change::AttemptStarted {
                    run,
                    task,
                    attempt,
                    model,
                    estimate,
                } => {
                    out.push(usage::reserved(
                        at, *task, *attempt, run.id, model, *estimate,
                    ));
                }
                Change::AttemptEnded {
                    run,
                    task,
                    attempt,
                    model,
                    usage,
                    lost,
                    ..
                } => {
                    out.extend(self.attempt_ended(at, run, model, *usage, *lost));
                    out.push(usage::released(*task, *attempt));
                }
                Change::CallDecided { call, verdict } => {
                    out.push(audit::decided(at, call, verdict));
                }
                Change::ApprovalAsked { approval } => {
                    if approval.on_the_way {
                        out.push(audit::asked_on_the_way(at, approval));
                    }
                    out.push(self.asked(at, approval));
                }
                Change::ApprovalSettled { approval } => out.extend(self.settled(at, approval)),
                Change::CallEnded { call, outcome, .. } => {
                    out.push(audit::ended(at, call, *outcome));
                }
                Change::RunChanged { run } => {
                    out.extend(self.run_changed(at, run));
                    out.extend(self.child_changed(at, run, state_of(run)));
                }
                Change::RunEnded {
                    run,
                    outcome,
                    inputs,
                } => {
                    // The end replies to who asked first, so that it notifies.
                    let asked = inputs.first().and_then(|input| discord(input, "message"));
                    out.extend(self.run_ended(at, run, outcome, asked));
                    let state = match outcome {
                        RunOutcome::Answered { .. } => "answered",
                        RunOutcome::Unanswered { .. } => "unanswered",
                    };
                    out.extend(self.child_changed(at, run, state));
                }
                Change::ConversationCreated {
                    conversation,
                    settings,
                } => out.extend(begun(*conversation, settings)),
                Change::QuestionAsked {
                    question,
                    requesters,
                } => out.push(self.question_asked(at, question, requesters)),
                Change::QuestionSettled { question } => {
                    out.push(self.question_settled(at, question));
                }
                Change::CallStarted { .. } | Change::Settled { .. } => {}
            }
        }
        out
    }

    fn committed(&self, _commit: mooring_durable::id::CommitNo, at: Millis, changes: &[Change]) {
        self.metrics.committed(at, changes, |model, usage| {
            self.catalog.cost(model, usage).map(|cost| cost.0)
        });
        let shows = changes.iter().any(|change| {
            matches!(
                change,
                Change::RunStarted { .. }
                    | Change::RunChanged { .. }
                    | Change::RunEnded { .. }
                    | Change::ApprovalAsked { .. }
                    | Change::ApprovalSettled { .. }
                    | Change::QuestionAsked { .. }
                    | Change::QuestionSettled { .. }
            )
        });
        if shows {
            self.shown.notify_waiters();
        }
        let moves = changes.iter().any(|change| {
            matches!(
                change,
                Change::ApprovalAsked { .. }
                    | Change::ApprovalSettled { .. }
                    | Change::CallStarted { .. }
                    | Change::CallEnded { .. }
            )
        });
        if moves {
            self.moved.notify_waiters();
        }
    }
}

/// A grant that goes with a decision, in the decision's commit.
pub fn grant_statement(
    approval: &Approval,
    rule: &mooring_policy::GrantRule,
    by: &str,
    at: Millis,
    workspace_until: Option<Millis>,
) -> Statement {
    let conversation = workspace_until.is_none().then_some(approval.conversation);
    grant::given(
        conversation,
        &approval.tool,
        rule,
        &approval.question.rule,
        by,
        at,
        workspace_until,
    )
}
