//! Writes: entries that a program puts into a transcript at the next boundary.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    id::{ConversationId, EntryId, RequestId},
    ledger::Statement,
    message::Message,
    sql::entry::Edit,
    submission::Requester,
};

/// A write; placed at once while idle, else at the next boundary, before any input.
#[derive(Clone, Debug)]
pub struct Write {
    /// Where to.
    pub conversation: ConversationId,
    /// The caller's id; the same again finds the first submission.
    pub request_id: Option<RequestId>,
    /// From whom.
    pub requester: Requester,
    /// What.
    pub body: WriteBody,
    /// Statements of the caller's own tables, in the same commit.
    pub extra: Vec<Statement>,
}

/// The entry that a write makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WriteBody {
    /// The entry's kind; `pi.*` is the engine's, but for `pi.reset` and `pi.compaction`.
    pub kind: String,
    /// What the model is told, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// For the transcript.
    #[serde(default)]
    pub data: Value,
    /// Makes the context begin anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// How earlier entries are seen from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<Edit>,
}

/// Where the context begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Head {
    /// At the entry of the write.
    Here,
    /// At an earlier entry; the entry of the write comes first. Older than where
    /// the context begins by then: the write is `stale`.
    From(EntryId),
}
