//! The outbox: everything to be shown in a thread, written in the commit that
//! caused it, closed by the bot's ack.

use mooring_durable::{
    id::{ConversationId, Millis},
    ledger::{Bind, Statement},
};
use serde_json::Value;
use sqlx::{Row, SqlitePool, sqlite::SqliteRow};

use super::{json, optional, text};

/// What a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Anchor,
    AnchorEdit,
    Answer,
    Card,
    CardEdit,
    Question,
    QuestionEdit,
    Note,
}

impl Kind {
    /// Its word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Anchor => "anchor",
            Kind::AnchorEdit => "anchor-edit",
            Kind::Answer => "answer",
            Kind::Card => "card",
            Kind::CardEdit => "card-edit",
            Kind::Question => "question",
            Kind::QuestionEdit => "question-edit",
            Kind::Note => "note",
        }
    }
}

/// A row as offered.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct OutboxRow {
    pub seq: i64,
    pub key: String,
    pub thread_id: String,
    pub kind: String,
    pub json: String,
    pub first_offered_at: Option<Millis>,
    pub attempts: u32,
    /// Message that an edit is for, once its post was acked.
    pub target_message_id: Option<String>,
    pub reply_to: Option<String>,
}

/// A row for the conversation's thread; no row where it has none.
pub fn shown(
    at: Millis,
    conversation: ConversationId,
    key: &str,
    kind: Kind,
    content: &Value,
    target: Option<&str>,
    reply_to: Option<&str>,
) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_outbox
                (key, thread_id, conversation, kind, json, target, reply_to, created_at, next_at)
              SELECT ?1, thread_id, ?2, ?3, ?4, ?5, ?6, ?7, ?7
              FROM mooring_thread WHERE conversation = ?2 AND deleted = 0 LIMIT 1
              ON CONFLICT (key) DO NOTHING",
        binds: vec![
            text(key),
            Bind::Int(conversation.0),
            text(kind.word()),
            json(content),
            optional(target),
            optional(reply_to),
            Bind::Int(at.0),
        ],
    }
}

/// A card for people: in the conversation's thread or, where it has none, in that of the
/// nearest conversation that it works for, and then with its name in `from`.
pub fn card(
    at: Millis,
    conversation: ConversationId,
    key: &str,
    kind: Kind,
    content: &Value,
) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_outbox
                (key, thread_id, conversation, kind, json, created_at, next_at)
              SELECT ?1, home.thread_id, ?2, ?3,
                CASE home.depth WHEN 0 THEN ?4
                  ELSE json_set(?4, '$.from', (SELECT title FROM conversation WHERE id = ?2)) END,
                ?5, ?5
              FROM (WITH RECURSIVE up(id, depth) AS (
                      SELECT ?2, 0
                      UNION ALL
                      SELECT c.owner_conversation, up.depth + 1
                      FROM up JOIN conversation c ON c.id = up.id
                      WHERE c.owner_conversation IS NOT NULL AND up.depth < 20)
                    SELECT t.thread_id, up.depth FROM up
                    JOIN mooring_thread t ON t.conversation = up.id AND t.deleted = 0
                    ORDER BY up.depth LIMIT 1) AS home
              WHERE true ON CONFLICT (key) DO NOTHING",
        binds: vec![
            text(key),
            Bind::Int(conversation.0),
            text(kind.word()),
            json(content),
            Bind::Int(at.0),
        ],
    }
}

/// A card as it is in the end, where it was shown.
pub fn card_settled(
    at: Millis,
    conversation: ConversationId,
    key: &str,
    kind: Kind,
    content: &Value,
    target: &str,
) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_outbox
                (key, thread_id, conversation, kind, json, target, created_at, next_at)
              SELECT ?1, t.thread_id, ?2, ?3,
                json_set(?4, '$.from', coalesce(json_extract(t.json, '$.from'), '')), ?5, ?6, ?6
              FROM mooring_outbox t WHERE t.key = ?5
              ON CONFLICT (key) DO NOTHING",
        binds: vec![
            text(key),
            Bind::Int(conversation.0),
            text(kind.word()),
            json(content),
            text(target),
            Bind::Int(at.0),
        ],
    }
}

/// The conversations that work for the run of an anchor, as JSON.
macro_rules! children {
    ($anchor:literal) => {
        concat!(
            "json((SELECT json_group_array(json_object(
                     'name', name, 'state', state, 'toolCalls', tool_calls, 'tokens', tokens))
                   FROM (SELECT * FROM mooring_child WHERE anchor = ",
            $anchor,
            " ORDER BY conversation)))"
        )
    };
}
pub(super) use children;

/// How a run is, beside its anchor: an edit that waits until `due`, or until the one
/// that it replaces would have been shown. So many changes make few edits, and a
/// change is never put off for ever.
pub fn progress(
    at: Millis,
    due: Millis,
    conversation: ConversationId,
    key: &str,
    content: &Value,
    target: &str,
) -> Statement {
    Statement {
        sql: concat!(
            "INSERT INTO mooring_outbox
                (key, thread_id, conversation, kind, json, target, created_at, next_at)
              SELECT ?1, thread_id, ?2, ?3,
                json_set(?4, '$.plan', json(coalesce((
                  SELECT json_extract(r.value, '$.items')
                  FROM document d JOIN document_revision r ON r.document = d.id
                  WHERE d.scope = 'conversation' AND d.owner = ?2 AND d.name = 'mooring.todo'
                    AND d.retired_commit IS NULL ORDER BY r.revision DESC LIMIT 1), '[]')),
                  '$.children', ",
            children!("?5"),
            "), ?5, ?6,
                min(?7, coalesce((SELECT min(next_at) FROM mooring_outbox
                                  WHERE target = ?5 AND closed_at IS NULL), ?7))
              FROM mooring_thread WHERE conversation = ?2 AND deleted = 0 LIMIT 1
              ON CONFLICT (key) DO NOTHING"
        ),
        binds: vec![
            text(key),
            Bind::Int(conversation.0),
            text(Kind::AnchorEdit.word()),
            json(content),
            text(target),
            Bind::Int(at.0),
            Bind::Int(due.0),
        ],
    }
}

/// Open edits of the same target are replaced by a newer one: an edit that was
/// offered and is not acked does no harm before or after it, as the bot shows the
/// rows of a thread in their order.
pub fn replaced(at: Millis, target: &str, by: &str) -> Statement {
    Statement {
        sql: "UPDATE mooring_outbox SET closed_at = ?3, closed = 'replaced'
              WHERE target = ?1 AND key <> ?2 AND closed_at IS NULL",
        binds: vec![text(target), text(by), Bind::Int(at.0)],
    }
}

/// It was first given to a bot.
pub fn offered(key: &str, at: Millis) -> Statement {
    Statement {
        sql: "UPDATE mooring_outbox
              SET first_offered_at = coalesce(first_offered_at, ?2), attempts = attempts + 1
              WHERE key = ?1 AND closed_at IS NULL",
        binds: vec![text(key), Bind::Int(at.0)],
    }
}

/// The bot has shown it as `message_id`.
pub fn delivered(key: &str, message_id: &str, at: Millis) -> Statement {
    Statement {
        sql: "UPDATE mooring_outbox SET message_id = ?2, closed_at = ?3, closed = 'delivered'
              WHERE key = ?1 AND closed_at IS NULL",
        binds: vec![text(key), text(message_id), Bind::Int(at.0)],
    }
}

/// It can never be shown.
pub fn undeliverable(key: &str, reason: &str, at: Millis) -> Statement {
    Statement {
        sql: "UPDATE mooring_outbox SET closed_at = ?3, closed = ?2
              WHERE key = ?1 AND closed_at IS NULL",
        binds: vec![text(key), text(reason), Bind::Int(at.0)],
    }
}

/// Rows that wait to be shown.
pub async fn waiting(pool: &SqlitePool) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM mooring_outbox WHERE closed_at IS NULL")
        .fetch_one(pool)
        .await
}

/// It is offered again at `at`.
pub fn retried(key: &str, at: Millis) -> Statement {
    Statement {
        sql: "UPDATE mooring_outbox SET next_at = ?2 WHERE key = ?1 AND closed_at IS NULL",
        binds: vec![text(key), Bind::Int(at.0)],
    }
}

/// The oldest open row of each thread, where its time has come: rows of a thread
/// are delivered in order, but one that was never offered and whose time has not come
/// holds up no other. An edit waits for the post that it edits.
pub async fn due(pool: &SqlitePool, now: Millis) -> sqlx::Result<Vec<OutboxRow>> {
    let rows = sqlx::query(
        "SELECT o.seq, o.key, o.thread_id, o.kind, o.json, o.first_offered_at, o.attempts,
                o.reply_to, t.message_id AS target_message_id
         FROM mooring_outbox o LEFT JOIN mooring_outbox t ON t.key = o.target
         WHERE o.closed_at IS NULL AND o.next_at <= ?1
           AND o.seq = (SELECT min(seq) FROM mooring_outbox
                        WHERE thread_id = o.thread_id AND closed_at IS NULL
                          AND NOT (next_at > ?1 AND first_offered_at IS NULL))
         ORDER BY o.seq LIMIT 1000",
    )
    .bind(now.0)
    .fetch_all(pool)
    .await?;
    rows.iter().map(read).collect()
}

/// When the next row that waits is due.
pub async fn next_due(pool: &SqlitePool, now: Millis) -> sqlx::Result<Option<Millis>> {
    let row = sqlx::query(
        "SELECT min(next_at) AS at FROM mooring_outbox WHERE closed_at IS NULL AND next_at > ?1",
    )
    .bind(now.0)
    .fetch_one(pool)
    .await?;
    Ok(row.try_get::<Option<i64>, _>("at")?.map(Millis))
}

/// The conversation and kind of a row, and how often it was offered.
pub async fn find(
    pool: &SqlitePool,
    key: &str,
) -> sqlx::Result<Option<(ConversationId, String, u32)>> {
    let row = sqlx::query("SELECT conversation, kind, attempts FROM mooring_outbox WHERE key = ?1")
        .bind(key)
        .fetch_optional(pool)
        .await?;
    row.map(|row| {
        Ok((
            ConversationId(row.try_get("conversation")?),
            row.try_get("kind")?,
            u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or(u32::MAX),
        ))
    })
    .transpose()
}

fn read(row: &SqliteRow) -> sqlx::Result<OutboxRow> {
    Ok(OutboxRow {
        seq: row.try_get("seq")?,
        key: row.try_get("key")?,
        thread_id: row.try_get("thread_id")?,
        kind: row.try_get("kind")?,
        json: row.try_get("json")?,
        first_offered_at: row
            .try_get::<Option<i64>, _>("first_offered_at")?
            .map(Millis),
        attempts: u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or(u32::MAX),
        target_message_id: row.try_get("target_message_id")?,
        reply_to: row.try_get("reply_to")?,
    })
}

/// A conversation was deleted: what was to be shown of it is not any more.
pub fn forgotten(conversation: ConversationId, now: Millis) -> Statement {
    Statement {
        sql: "UPDATE mooring_outbox SET closed_at = ?2, closed = 'the conversation was deleted'
              WHERE conversation = ?1 AND closed_at IS NULL",
        binds: vec![Bind::Int(conversation.0), Bind::Int(now.0)],
    }
}
