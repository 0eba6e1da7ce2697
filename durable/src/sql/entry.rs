//! Entries: the transcript, append-only.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use sqlx::{Row as _, sqlite::SqliteRow};

use super::batch::Batch;
use crate::{
    id::{ConversationId, EntryId, Millis, SubmissionId, TaskId},
    message::Message,
};

pub(crate) const INSERT: &str = "INSERT INTO entry
 (id, conversation, seq, kind, state, message, data, head, edits, writer, submission, at, commit_no)
 VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?1)";

/// The columns that [`EntryRow::read`] takes.
macro_rules! columns {
    () => {
        "SELECT id, conversation, seq, kind, state, message, data, head, edits, writer, submission, at FROM entry "
    };
}

/// The newest head of a conversation through a sequence, at or before an entry: its own
/// entry, and the one that its range begins at.
pub(crate) const HEAD: &str = "SELECT id, head FROM entry
 WHERE conversation = ? AND seq <= ? AND head IS NOT NULL AND id <= ? ORDER BY seq DESC LIMIT 1";

/// A page from a sequence on.
pub(crate) const FROM: &str = concat!(
    columns!(),
    "WHERE conversation = ? AND seq >= ? AND seq <= ? AND id <= ? ORDER BY seq"
);
/// A page before an entry, newest first.
pub(crate) const BEFORE: &str = concat!(
    columns!(),
    "WHERE conversation = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
);
/// Where an entry stands.
pub(crate) const PLACE: &str = "SELECT conversation, seq FROM entry WHERE id = ?";
/// The newest entry through a sequence.
pub(crate) const LAST: &str =
    "SELECT id, seq FROM entry WHERE conversation = ? AND seq <= ? ORDER BY seq DESC LIMIT 1";
pub(crate) const BY_ID: &str = concat!(columns!(), "WHERE id = ?");
pub(crate) const LAST_SEQ: &str = "SELECT max(seq) FROM entry WHERE conversation = ?";

/// Entry kinds of the engine.
pub(crate) mod kind {
    pub const USER: &str = "pi.user";
    pub const ASSISTANT: &str = "pi.assistant";
    pub const TOOL_RESULT: &str = "pi.tool-result";
    pub const SYSTEM: &str = "pi.system";
    pub const COMPACTION: &str = "pi.compaction";
    pub const RESET: &str = "pi.reset";
}

/// A change to how an earlier entry is seen by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edit {
    /// Which entry.
    pub target: EntryId,
    /// What stands there instead; nothing: it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace: Option<Message>,
}

/// An entry as stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EntryRow {
    pub id: EntryId,
    pub conversation: ConversationId,
    pub seq: i64,
    pub kind: String,
    pub state: &'static str,
    pub message: Option<Message>,
    pub data: Value,
    pub head: Option<EntryId>,
    pub edits: Vec<Edit>,
    pub writer: Option<TaskId>,
    pub submission: Option<SubmissionId>,
    pub at: Millis,
}

impl EntryRow {
    pub fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(EntryRow {
            id: EntryId(row.try_get(0)?),
            conversation: ConversationId(row.try_get(1)?),
            seq: row.try_get(2)?,
            kind: row.try_get(3)?,
            state: match row.try_get::<&str, _>(4)? {
                "aborted" => "aborted",
                "error" => "error",
                _ => "",
            },
            message: parse_opt(row.try_get::<Option<&str>, _>(5)?)?,
            data: parse_opt(row.try_get::<Option<&str>, _>(6)?)?.unwrap_or(Value::Null),
            head: row.try_get::<Option<i64>, _>(7)?.map(EntryId),
            edits: parse_opt(row.try_get::<Option<&str>, _>(8)?)?.unwrap_or_default(),
            writer: row.try_get::<Option<i64>, _>(9)?.map(TaskId),
            submission: row.try_get::<Option<i64>, _>(10)?.map(SubmissionId),
            at: Millis(row.try_get(11)?),
        })
    }
}

/// Parses a JSON column; damage names itself.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

pub(crate) fn parse_opt<T: DeserializeOwned>(text: Option<&str>) -> Result<Option<T>, sqlx::Error> {
    text.map(parse).transpose()
}

impl Batch {
    pub fn insert_entry(&mut self, row: &EntryRow) {
        self.entries
            .row()
            .int(row.id.0)
            .int(row.conversation.0)
            .int(row.seq)
            .text(&row.kind)
            .text(row.state)
            .opt_json(row.message.as_ref())
            .opt_json((!row.data.is_null()).then_some(&row.data))
            .opt_int(row.head.map(|id| id.0))
            .opt_json((!row.edits.is_empty()).then_some(&row.edits))
            .opt_int(row.writer.map(|id| id.0))
            .opt_int(row.submission.map(|id| id.0))
            .int(row.at.0);
    }
}
