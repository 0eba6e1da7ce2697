//! Submissions: inputs and writes, from the inbox to their end.

use serde_json::Value;
use sqlx::{Row as _, sqlite::SqliteRow};

use super::{
    batch::Batch,
    entry::{parse, parse_opt},
};
use crate::{
    id::{ConversationId, EntryId, Millis, RequestId, SubmissionId},
    message::{Message, Part},
    submission::{Submission, SubmissionState, Unanswered, WhenBusy},
    write::WriteBody,
};

pub(crate) const INSERT: &str = "INSERT INTO submission
 (id, conversation, type, request_id, requester, content, when_busy, autonomous, data, state, entry, at, reason, detail,
  created_commit, settled_commit)
 VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?1,
  CASE WHEN ?11 IN ('done', 'unanswered') THEN ?1 END)";

/// How many wait for their turn, in all conversations.
pub(crate) const QUEUED: &str = "SELECT count(*) FROM submission WHERE state = 'queued'";

/// Conversations in which inputs wait for their turn.
pub(crate) const QUEUED_IN: &str = "SELECT DISTINCT o.conversation FROM open_work o
 JOIN submission s ON s.id = o.id WHERE o.what = 3 AND s.state = 'queued' AND s.type = 'input'";

/// Moves submissions on; a placed one's content is in its entry.
pub(crate) const MOVE: &str = "UPDATE submission SET state = ?3, reason = ?4, detail = ?5,
 entry = coalesce(?6, entry), answer = ?7, content = CASE WHEN coalesce(?6, entry) IS NULL THEN content END,
 settled_commit = CASE WHEN ?3 IN ('done', 'unanswered') THEN ?1 END
 WHERE id = ?2 AND state IN ('queued', 'placed')";

macro_rules! columns {
    () => {
        "SELECT s.id, s.conversation, s.type, s.request_id, s.requester, coalesce(s.content, e.message), s.when_busy,
 s.autonomous, s.data, s.state, s.reason, s.detail, s.entry, s.at FROM "
    };
}

/// Queued and placed submissions of a conversation, oldest first.
pub(crate) const OPEN: &str = concat!(
    columns!(),
    "open_work o JOIN submission s ON s.id = o.id LEFT JOIN entry e ON e.id = s.entry
 WHERE o.conversation = ? AND o.what = 3 ORDER BY o.id"
);
pub(crate) const BY_ID: &str = concat!(
    columns!(),
    "submission s LEFT JOIN entry e ON e.id = s.entry WHERE s.id = ?"
);
pub(crate) const BY_REQUEST: &str = concat!(
    columns!(),
    "submission s LEFT JOIN entry e ON e.id = s.entry WHERE s.conversation = ? AND s.request_id = ?"
);

/// How a submission ended, and what answered it.
pub(crate) const END: &str = "SELECT s.state, s.reason, s.detail, e.message
 FROM submission s LEFT JOIN entry e ON e.id = s.answer WHERE s.conversation = ? AND s.request_id = ?";
/// The first conversation that used a request id.
pub(crate) const CONVERSATION_OF_REQUEST: &str =
    "SELECT s.conversation FROM submission s JOIN conversation c ON c.id = s.conversation
 WHERE s.request_id = ? AND c.deleted_commit IS NULL ORDER BY s.id LIMIT 1";

/// Input or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubmissionType {
    Input,
    Write,
}

/// A submission as stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SubmissionRow {
    pub submission: Submission,
    /// What a write writes; `None` for inputs and for writes that are done.
    pub write: Option<WriteBody>,
    pub kind: SubmissionType,
    pub entry: Option<EntryId>,
    pub at: Millis,
}

fn reason_word(reason: Unanswered) -> String {
    match serde_json::to_value(reason) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

impl SubmissionRow {
    pub fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let kind = if row.try_get::<&str, _>(2)? == "write" {
            SubmissionType::Write
        } else {
            SubmissionType::Input
        };
        let entry = row.try_get::<Option<i64>, _>(12)?.map(EntryId);
        let text = row.try_get::<Option<&str>, _>(5)?;
        let (content, write) = match (kind, text) {
            (SubmissionType::Input, Some(text)) if entry.is_some() => match parse::<Message>(text)?
            {
                Message::User { content } => (content, None),
                _ => (Vec::new(), None),
            },
            (SubmissionType::Input, Some(text)) => (parse::<Vec<Part>>(text)?, None),
            (SubmissionType::Write, Some(text)) if entry.is_none() => {
                (Vec::new(), Some(parse(text)?))
            }
            _ => (Vec::new(), None),
        };
        let state = match row.try_get::<&str, _>(9)? {
            "queued" => SubmissionState::Queued,
            "placed" => SubmissionState::Placed,
            "done" => SubmissionState::Done,
            _ => SubmissionState::Unanswered {
                reason: parse(&format!("\"{}\"", row.try_get::<&str, _>(10)?))?,
                detail: row.try_get::<Option<String>, _>(11)?.unwrap_or_default(),
            },
        };
        Ok(SubmissionRow {
            submission: Submission {
                id: SubmissionId(row.try_get(0)?),
                conversation: ConversationId(row.try_get(1)?),
                request_id: row.try_get::<Option<String>, _>(3)?.map(RequestId),
                requester: parse(row.try_get::<&str, _>(4)?)?,
                content,
                when_busy: parse::<WhenBusy>(&format!("\"{}\"", row.try_get::<&str, _>(6)?))?,
                autonomous: row.try_get(7)?,
                data: parse_opt(row.try_get::<Option<&str>, _>(8)?)?.unwrap_or(Value::Null),
                state,
            },
            write,
            kind,
            entry,
            at: Millis(row.try_get(13)?),
        })
    }
}

/// A state's word, its reason and its detail.
fn words(state: &SubmissionState) -> (&'static str, Option<String>, Option<&str>) {
    match state {
        SubmissionState::Queued => ("queued", None, None),
        SubmissionState::Placed => ("placed", None, None),
        SubmissionState::Done => ("done", None, None),
        SubmissionState::Unanswered { reason, detail } => (
            "unanswered",
            Some(reason_word(*reason)),
            Some(detail.as_str()),
        ),
    }
}

fn when_word(when: WhenBusy) -> &'static str {
    match when {
        WhenBusy::Steer => "steer",
        WhenBusy::FollowUp => "followUp",
        WhenBusy::Reject => "reject",
    }
}

impl Batch {
    /// A new submission, in the state and at the entry that the row says.
    pub fn insert_submission(&mut self, row: &SubmissionRow) {
        let submission = &row.submission;
        let out = self
            .submissions
            .row()
            .int(submission.id.0)
            .int(submission.conversation.0)
            .text(match row.kind {
                SubmissionType::Input => "input",
                SubmissionType::Write => "write",
            })
            .opt_text(submission.request_id.as_ref().map(|id| id.0.as_str()))
            .json(&submission.requester);
        let out = match (&row.write, row.entry) {
            (_, Some(_)) => out.null(),
            (Some(body), None) => out.json(body),
            (None, None) => out.json(&submission.content),
        };
        let (word, reason, detail) = words(&submission.state);
        out.text(when_word(submission.when_busy))
            .flag(submission.autonomous)
            .opt_json((!submission.data.is_null()).then_some(&submission.data))
            .text(word)
            .opt_int(row.entry.map(|id| id.0))
            .int(row.at.0)
            .opt_text(reason.as_deref())
            .opt_text(detail);
    }

    pub fn move_submission(
        &mut self,
        id: SubmissionId,
        state: &SubmissionState,
        entry: Option<EntryId>,
        answer: Option<EntryId>,
    ) {
        let (word, reason, detail) = words(state);
        self.submission_moves
            .row()
            .int(id.0)
            .text(word)
            .opt_text(reason.as_deref())
            .opt_text(detail)
            .opt_int(entry.map(|id| id.0))
            .opt_int(answer.map(|id| id.0));
    }
}
