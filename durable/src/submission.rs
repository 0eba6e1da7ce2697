//! Submissions: what people and programs hand in.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    id::{ConversationId, RequestId, SubmissionId},
    ledger::Statement,
    message::Part,
};

/// Who handed something in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Requester {
    /// A person at this machine.
    Local {
        /// Login name.
        name: String,
    },
    /// A Discord user.
    Discord {
        /// User id.
        id: String,
        /// Name as shown at the time.
        name: String,
    },
    /// A Kubernetes user.
    Kubernetes {
        /// User name.
        user: String,
    },
    /// A task of this file (the end of a background subagent).
    Task {
        /// Task id.
        id: i64,
    },
}

impl std::fmt::Display for Requester {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Requester::Local { name } => write!(f, "local:{name}"),
            Requester::Discord { name, .. } => write!(f, "discord:{name}"),
            Requester::Kubernetes { user } => write!(f, "kubernetes:{user}"),
            Requester::Task { id } => write!(f, "task:{id}"),
        }
    }
}

/// What an input does while a run is going.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WhenBusy {
    /// Joins the run after the current tool round.
    Steer,
    /// Starts the next run.
    #[default]
    FollowUp,
    /// Is refused, without a record.
    Reject,
}

/// An input.
#[derive(Clone, Debug)]
pub struct Input {
    /// Where to.
    pub conversation: ConversationId,
    /// The caller's id; the same again finds the first submission.
    pub request_id: Option<RequestId>,
    /// From whom.
    pub requester: Requester,
    /// What.
    pub content: Vec<Part>,
    /// While a run is going.
    pub when_busy: WhenBusy,
    /// Nobody can be asked during the run that this starts.
    pub autonomous: bool,
    /// The caller's own data, kept with the submission (Discord ids).
    pub data: Value,
    /// Statements of the caller's own tables, in the same commit.
    pub extra: Vec<Statement>,
}

/// Where a submission stands; terminal states never change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum SubmissionState {
    /// In the inbox.
    Queued,
    /// In the transcript; its run is going.
    Placed,
    /// Answered (an input) or placed (a write).
    Done,
    /// Ended without an answer.
    Unanswered {
        /// Why.
        reason: Unanswered,
        /// The provider's text, what is left of a budget, …
        detail: String,
    },
}

/// Why an input has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Unanswered {
    NoModel,
    ModelError,
    Aborted,
    Faulted,
    Reset,
    Stale,
    Withdrawn,
    Budget,
    Denied,
    MissingTask,
    TaskTooOld,
    MigrationFailed,
}

/// A submission as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// Its id.
    pub id: SubmissionId,
    /// Where to.
    pub conversation: ConversationId,
    /// The caller's id.
    pub request_id: Option<RequestId>,
    /// From whom.
    pub requester: Requester,
    /// What.
    pub content: Vec<Part>,
    /// While a run is going.
    pub when_busy: WhenBusy,
    /// Nobody can be asked.
    pub autonomous: bool,
    /// The caller's own data.
    pub data: Value,
    /// Where it stands.
    pub state: SubmissionState,
}

/// What `submit` found or made.
#[derive(Clone, Debug, PartialEq)]
pub struct Submitted {
    /// The submission.
    pub submission: Submission,
    /// The request id was known: nothing was committed.
    pub repeated: bool,
}

/// How much an abort ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortScope {
    /// The run; the inbox stays, and nothing starts until the next submission.
    Run,
    /// The run, and queued inputs are withdrawn.
    Conversation,
}

/// What an abort ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aborted {
    /// A run was going.
    pub was_running: bool,
    /// Inputs that were withdrawn, oldest first.
    pub withdrawn: Vec<Submission>,
}
