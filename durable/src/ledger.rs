//! The ledger port: rows of other components that belong to the engine's commits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    gate::{Approval, Verdict},
    id::{CommitNo, ConversationId, EntryId, Millis, SubmissionId, TaskId},
    message::Part,
    model::Usage,
    submission::{Requester, Submission, Unanswered},
    tool::Call,
    wait::Question,
};

/// A statement of a component's own tables. The text is one of a closed set.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// One SQL statement with positional binds `?1 …`.
    pub sql: &'static str,
    /// Its binds.
    pub binds: Vec<Bind>,
}

/// A bound value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Bind {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// One thing that a commit makes true, told in the order it happens.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Change {
    ConversationCreated {
        conversation: ConversationId,
        settings: Value,
    },
    /// A new submission; its state says whether it was placed at once.
    Admitted {
        submission: Submission,
    },
    /// An input entered the transcript.
    Placed {
        submission: Submission,
        entry: EntryId,
        run: SubmissionId,
    },
    RunStarted {
        run: Run,
    },
    /// A request is about to be sent; what it may cost is to be reserved.
    AttemptStarted {
        run: Run,
        task: TaskId,
        attempt: u32,
        model: String,
        estimate: u64,
    },
    /// `usage` is `None` where it is unknown; `lost` where a crash hid it.
    AttemptEnded {
        run: Run,
        task: TaskId,
        attempt: u32,
        model: String,
        usage: Option<Usage>,
        lost: bool,
        ended: AttemptEnd,
    },
    /// The gate decided, before the intent.
    CallDecided {
        call: Arc<Call>,
        verdict: Verdict,
    },
    ApprovalAsked {
        approval: Approval,
    },
    ApprovalSettled {
        approval: Approval,
    },
    /// A call asks people something.
    QuestionAsked {
        question: Question,
        requesters: Vec<Requester>,
    },
    /// Somebody answered it, or it ended otherwise.
    QuestionSettled {
        question: Question,
    },
    CallStarted {
        call: Arc<Call>,
    },
    CallEnded {
        call: Arc<Call>,
        outcome: CallOutcome,
        text: String,
        data: Value,
    },
    /// The run's state changed in a way that people see (waiting, retrying).
    RunChanged {
        run: Run,
    },
    RunEnded {
        run: Run,
        outcome: RunOutcome,
        inputs: Vec<Submission>,
    },
    /// A submission ended outside a run (withdrawn, stale).
    Settled {
        submission: Submission,
    },
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AttemptEnd {
    Answer,
    Tools,
    Retry,
    Overflow,
    Failed,
    Aborted,
}

impl AttemptEnd {
    /// Its word in the file and in metrics.
    pub fn word(self) -> &'static str {
        match self {
            AttemptEnd::Answer => "answer",
            AttemptEnd::Tools => "tools",
            AttemptEnd::Retry => "retry",
            AttemptEnd::Overflow => "overflow",
            AttemptEnd::Failed => "failed",
            AttemptEnd::Aborted => "aborted",
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CallOutcome {
    Done,
    Error,
    Denied,
    Interrupted,
    Aborted,
}

impl CallOutcome {
    /// Its word in the audit and in metrics.
    pub fn word(self) -> &'static str {
        match self {
            CallOutcome::Done => "done",
            CallOutcome::Error => "error",
            CallOutcome::Denied => "denied",
            CallOutcome::Interrupted => "interrupted",
            CallOutcome::Aborted => "aborted",
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum RunOutcome {
    Answered { entry: EntryId, content: Vec<Part> },
    Unanswered { reason: Unanswered, detail: String },
}

/// A run: the turns from an input to its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Run {
    /// Its first submission.
    pub id: SubmissionId,
    pub conversation: ConversationId,
    /// All authors so far, first asker first.
    pub requesters: Vec<Requester>,
    pub started_at: Millis,
    pub turns: u32,
    pub tool_calls: u32,
    pub usage: Usage,
    /// Milliseconds of model and tool time so far.
    pub active_ms: u64,
    pub model: String,
    pub state: RunState,
    /// "retry 2 of 5 in 4 s: overloaded"
    pub note: String,
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum RunState {
    Preparing,
    Requesting,
    Retrying,
    Tools,
    Waiting,
    NeedsKey,
    Compacting,
    Ending,
}

/// A refusal by the ledger: the run ends `unanswered: budget`.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// What is left and when it resets, for people.
    pub detail: String,
}

/// Adds a component's rows to commits, and keeps budgets.
pub trait Ledger: Send + Sync {
    /// May `run` send another request of about `estimate` tokens?
    fn admit(&self, _run: &Run, _model: &str, _estimate: u64) -> Result<(), Refusal> {
        Ok(())
    }
    /// May `run` make `calls` more calls?
    fn admit_calls(&self, _run: &Run, _calls: u32) -> Result<(), Refusal> {
        Ok(())
    }
    /// Rows that belong to a commit that makes `changes` true at `at`. Pure; no effects.
    fn statements(&self, _at: Millis, _changes: &[Change]) -> Vec<Statement> {
        Vec::new()
    }
    /// The commit stands. Called on the thread of the commit line, outside of any runtime:
    /// all other commits wait until it returns.
    fn committed(&self, _commit: CommitNo, _at: Millis, _changes: &[Change]) {}
}

/// A ledger that adds nothing and refuses nothing.
pub struct NoLedger;
impl Ledger for NoLedger {}
