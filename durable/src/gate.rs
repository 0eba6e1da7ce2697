//! The gate port: whether a call may run. Approvals are durable tasks.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    id::{ConversationId, Hash, Millis, TaskId},
    submission::Requester,
    tool::Call,
};

/// The gate's answer to one call.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Runs. `record` is stored with the call, for audit.
    Allow {
        /// Facts and rules, as the gate wants them kept.
        record: Value,
    },
    /// Does not run; the model gets `reason`.
    Deny {
        /// For the model.
        reason: String,
        /// Facts and rules, as the gate wants them kept.
        record: Value,
    },
    /// Waits for a person.
    Ask(Question),
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The rule that asked. Arguments' hash and rule name an approval: the same
    /// pair, asked again after a crash, finds the same one.
    pub rule: String,
    /// When silence becomes a denial.
    pub expires_at: Option<Millis>,
    /// What the card shows, and what audit keeps.
    pub data: Value,
}

/// How an approval stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    /// Nobody has decided.
    Pending,
    /// The call may run.
    Approved,
    /// It may not.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// The policy changed; another rule asks now, or none.
    Superseded,
    /// The call was aborted while it waited.
    Aborted,
}

/// A person's decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Yes or no.
    pub approved: bool,
    /// Who.
    pub by: Requester,
    /// By which way: `terminal`, `discord`, `kubernetes`.
    pub via: String,
    /// Why, in their words.
    pub reason: String,
    /// `once`, `conversation`, `workspace`.
    pub scope: String,
    /// When.
    pub at: Millis,
}

/// One approval task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// Its task.
    pub task: TaskId,
    /// The conversation of the call.
    pub conversation: ConversationId,
    /// The call that waits for it.
    pub call: TaskId,
    /// The tool's name.
    pub tool: String,
    /// Of the call's final arguments.
    pub arguments_hash: Hash,
    /// Who asked for the call.
    pub requesters: Vec<Requester>,
    /// What was asked.
    pub question: Question,
    /// When.
    pub asked_at: Millis,
    /// How it stands.
    pub state: ApprovalState,
    /// Who decided.
    pub decision: Option<Decision>,
    /// The call asked for it on its way, after it had begun; see
    /// [`crate::Engine::ask_on_the_way`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_the_way: bool,
    /// When one that was asked for on the way was used; it is used once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Millis>,
}

/// Decides calls: before the intent, after a decision, after a change of policy,
/// and again after a crash.
#[async_trait]
pub trait Gate: Send + Sync {
    /// Decides `call`. `approvals` are those that this call already has, oldest
    /// first, pending and decided. Must answer `Allow` for an approved one
    /// unless the policy now denies, and may answer `Ask` with the same rule to
    /// keep a pending one.
    async fn decide(&self, call: &Call, approvals: &[Approval]) -> Verdict;
}
