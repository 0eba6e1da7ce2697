//! Discord threads and parent channels: which conversation, and up to where all
//! is ledgered.
//!
//! The cursor moves only in the commit that admits the input, and only when that
//! is contiguous: where the bot says which message came before and the cursor is
//! there. Ids are compared as numbers (Discord's snowflakes), by length first.

use mooring_durable::{
    id::ConversationId,
    ledger::{Bind, Statement},
};
use sqlx::{Row, SqlitePool, sqlite::SqliteRow};

use super::{number, text};

/// A thread, or a parent channel without a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ThreadRow {
    pub thread_id: String,
    pub channel_id: String,
    pub conversation: Option<ConversationId>,
    pub cursor: String,
    pub anchor: Option<String>,
    pub name: String,
    pub deleted: bool,
}

/// A thread that begins with `cursor` as its present end.
pub fn made(
    thread_id: &str,
    channel_id: &str,
    conversation: Option<ConversationId>,
    cursor: &str,
    name: &str,
) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_thread (thread_id, channel_id, conversation, cursor, name)
              VALUES (?1, ?2, ?3, ?4, ?5)
              ON CONFLICT (thread_id) DO UPDATE SET
                conversation = coalesce(mooring_thread.conversation, excluded.conversation),
                deleted = 0",
        binds: vec![
            text(thread_id),
            text(channel_id),
            number(conversation.map(|c| c.0)),
            text(cursor),
            text(name),
        ],
    }
}

/// Moves the cursor from `from` to `to`; does nothing where it is elsewhere, or
/// would go back.
pub fn advanced(thread_id: &str, from: &str, to: &str) -> Statement {
    Statement {
        sql: "UPDATE mooring_thread SET cursor = ?3
              WHERE thread_id = ?1 AND cursor = ?2
                AND (length(?3) > length(cursor) OR (length(?3) = length(cursor) AND ?3 > cursor))",
        binds: vec![text(thread_id), text(from), text(to)],
    }
}

/// The thread is gone in Discord; its row stays.
pub fn deleted(thread_id: &str) -> Statement {
    Statement {
        sql: "UPDATE mooring_thread SET deleted = 1 WHERE thread_id = ?1",
        binds: vec![text(thread_id)],
    }
}

/// The conversation goes on elsewhere; the row with its cursor stays.
pub fn left(conversation: ConversationId) -> Statement {
    Statement {
        sql: "UPDATE mooring_thread SET conversation = NULL WHERE conversation = ?1",
        binds: vec![Bind::Int(conversation.0)],
    }
}

/// The newest anchor's message.
pub fn anchored(conversation: ConversationId, message_id: &str) -> Statement {
    Statement {
        sql: "UPDATE mooring_thread SET anchor = ?2 WHERE conversation = ?1",
        binds: vec![Bind::Int(conversation.0), text(message_id)],
    }
}

/// All of them.
pub async fn list(pool: &SqlitePool) -> sqlx::Result<Vec<ThreadRow>> {
    let rows = sqlx::query(
        "SELECT thread_id, channel_id, conversation, cursor, anchor, name, deleted
         FROM mooring_thread ORDER BY thread_id",
    )
    .fetch_all(pool)
    .await?;
    rows.iter().map(read).collect()
}

/// One of them.
pub async fn find(pool: &SqlitePool, thread_id: &str) -> sqlx::Result<Option<ThreadRow>> {
    let row = sqlx::query(
        "SELECT thread_id, channel_id, conversation, cursor, anchor, name, deleted
         FROM mooring_thread WHERE thread_id = ?1",
    )
    .bind(thread_id)
    .fetch_optional(pool)
    .await?;
    row.as_ref().map(read).transpose()
}

fn read(row: &SqliteRow) -> sqlx::Result<ThreadRow> {
    Ok(ThreadRow {
        thread_id: row.try_get("thread_id")?,
        channel_id: row.try_get("channel_id")?,
        conversation: row
            .try_get::<Option<i64>, _>("conversation")?
            .map(ConversationId),
        cursor: row.try_get("cursor")?,
        anchor: row.try_get("anchor")?,
        name: row.try_get("name")?,
        deleted: row.try_get::<i64, _>("deleted")? != 0,
    })
}
