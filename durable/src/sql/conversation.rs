//! Conversations.

use serde_json::Value;
use sqlx::{Row as _, sqlite::SqliteRow};

use super::batch::Batch;
use crate::{
    id::{ConversationId, EntryId, Millis, TaskId},
    view::Shows,
};

pub(crate) const PUT: &str = "INSERT INTO conversation
 (id, parent, parent_entry, owner_task, side_chat, title, settings, model, created_at, last_at, created_commit,
  owner_conversation, background)
 VALUES (?2, ?7, ?8, ?9, ?10, ?3, ?4, ?5, ?6, ?6, ?1, ?11, ?12)";

/// The title is set once, by the first input.
pub(crate) const TOUCH: &str =
    "UPDATE conversation SET last_at = ?4, title = coalesce(?3, title) WHERE id = ?2";

pub(crate) const MODEL: &str = "UPDATE conversation SET model = ?3 WHERE id = ?2";

pub(crate) const INHERIT: &str = "INSERT INTO inherited (conversation, depth, source, through_seq)
 VALUES (?2, ?3, ?4, ?5)";
/// The ancestors of a conversation, nearest first.
pub(crate) const INHERITED: &str =
    "SELECT source, through_seq FROM inherited WHERE conversation = ? ORDER BY depth";

pub(crate) const READ: &str =
    "SELECT id, title, settings, model, last_at, parent, parent_entry, owner_task, side_chat,
 owner_conversation, background FROM conversation WHERE id = ? AND deleted_commit IS NULL";

/// How many there are.
pub(crate) const COUNT: &str = "SELECT count(*) FROM conversation WHERE deleted_commit IS NULL";

/// Newest activity first, with what is open in each; from a conversation on.
pub(crate) const LIST: &str = "SELECT c.id, c.title, c.settings, c.model, c.last_at,
 c.parent, c.parent_entry, c.owner_task, c.side_chat, c.owner_conversation, c.background,
 (SELECT t.checkpoint->>'$.run.state' FROM open_work o JOIN task t ON t.id = o.id WHERE o.conversation = c.id AND o.what = 0),
 (SELECT count(*) FROM open_work o WHERE o.conversation = c.id AND o.what = 2),
 (SELECT count(*) FROM open_work o JOIN submission s ON s.id = o.id
  WHERE o.conversation = c.id AND o.what = 3 AND s.state = 'queued'),
 (SELECT max(seq) FROM entry e WHERE e.conversation = c.id),
 (SELECT e.submission FROM entry e WHERE e.conversation = c.id AND e.submission IS NOT NULL ORDER BY e.seq LIMIT 1)
 FROM conversation c
 WHERE c.deleted_commit IS NULL AND c.side_chat = 0 AND c.owner_task IS NULL
  AND (? IS NULL OR (c.last_at, c.id) < ((SELECT last_at FROM conversation WHERE id = ?), ?))
 ORDER BY c.last_at DESC, c.id DESC LIMIT ?";

/// A conversation as stored.
#[derive(Debug, Clone)]
pub(crate) struct ConversationRow {
    pub id: ConversationId,
    pub title: String,
    pub settings: Value,
    pub model: String,
    pub last_at: Millis,
    pub origin: Origin,
}

/// Whom a conversation works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Where the task is.
    pub conversation: ConversationId,
    /// The task.
    pub task: TaskId,
    /// Nobody waits for it.
    pub background: bool,
}

/// Where a conversation comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// Whose history it inherits, through which entry.
    pub parent: Option<(ConversationId, EntryId)>,
    /// The task that it works for.
    pub owner: Option<Owner>,
    /// What its views show.
    pub shows: Shows,
}

impl ConversationRow {
    pub fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(ConversationRow {
            id: ConversationId(row.try_get(0)?),
            title: row.try_get(1)?,
            settings: super::entry::parse(row.try_get::<&str, _>(2)?)?,
            model: row.try_get(3)?,
            last_at: Millis(row.try_get(4)?),
            origin: Origin {
                parent: row
                    .try_get::<Option<i64>, _>(5)?
                    .zip(row.try_get::<Option<i64>, _>(6)?)
                    .map(|(parent, entry)| (ConversationId(parent), EntryId(entry))),
                owner: row
                    .try_get::<Option<i64>, _>(7)?
                    .zip(row.try_get::<Option<i64>, _>(9)?)
                    .map(|(task, conversation)| {
                        Ok::<_, sqlx::Error>(Owner {
                            conversation: ConversationId(conversation),
                            task: TaskId(task),
                            background: row.try_get(10)?,
                        })
                    })
                    .transpose()?,
                shows: match row.try_get(8)? {
                    true => Shows::Own,
                    false => Shows::All,
                },
            },
        })
    }
}

impl Batch {
    pub fn insert_conversation(&mut self, row: &ConversationRow) {
        self.conversations
            .row()
            .int(row.id.0)
            .text(&row.title)
            .json(&row.settings)
            .text(&row.model)
            .int(row.last_at.0)
            .opt_int(row.origin.parent.map(|(parent, _)| parent.0))
            .opt_int(row.origin.parent.map(|(_, entry)| entry.0))
            .opt_int(row.origin.owner.map(|owner| owner.task.0))
            .flag(row.origin.shows == Shows::Own)
            .opt_int(row.origin.owner.map(|owner| owner.conversation.0))
            .flag(row.origin.owner.is_some_and(|owner| owner.background));
    }

    /// The model of the requests to come.
    pub fn set_model(&mut self, id: ConversationId, model: &str) {
        self.conversation_models.row().int(id.0).text(model);
    }

    /// What a fork sees of an ancestor.
    pub fn inherit(
        &mut self,
        id: ConversationId,
        depth: i64,
        source: ConversationId,
        through: i64,
    ) {
        self.inheritances
            .row()
            .int(id.0)
            .int(depth)
            .int(source.0)
            .int(through);
    }

    pub fn touch_conversation(&mut self, id: ConversationId, title: Option<&str>, at: Millis) {
        self.conversation_touches
            .row()
            .int(id.0)
            .opt_text(title)
            .int(at.0);
    }
}
