//! Connections of commands to the world.

use mooring_durable::{
    id::{ConversationId, Millis, TaskId},
    ledger::{Bind, Statement},
};
use serde_json::{Value, json};
use sqlx::{Row, SqlitePool};

use super::text;

/// Rows that are kept.
const KEPT: i64 = 10_000;
/// Days whose sums are kept.
const DAYS: i64 = 400;

/// A connection that was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Names it for ever.
    pub key: i64,
    /// When.
    pub at: Millis,
    /// Whose command.
    pub conversation: ConversationId,
    /// Of which call.
    pub call: TaskId,
    /// Where to.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The policy's word.
    pub verdict: String,
    /// The rule that decided.
    pub rule: String,
}

/// It was asked for; `refused` says why it was not made.
pub fn asked(row: &Asked, refused: Option<&str>) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_egress
                (key, at, ended_at, conversation, call, host, port, verdict, rule, outcome)
              VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
              ON CONFLICT (key) DO UPDATE SET ended_at = ?3, outcome = ?10",
        binds: vec![
            Bind::Int(row.key),
            Bind::Int(row.at.0),
            super::number(refused.map(|_| row.at.0)),
            Bind::Int(row.conversation.0),
            Bind::Int(row.call.0),
            text(&row.host),
            Bind::Int(i64::from(row.port)),
            text(&row.verdict),
            text(&row.rule),
            super::optional(refused),
        ],
    }
}

/// It ended, after so many bytes.
pub fn ended(key: i64, at: Millis, sent: u64, received: u64, outcome: &str) -> Statement {
    Statement {
        sql: "UPDATE mooring_egress SET ended_at = ?2, sent = ?3, received = ?4, outcome = ?5
              WHERE key = ?1",
        binds: vec![
            Bind::Int(key),
            Bind::Int(at.0),
            count(sent),
            count(received),
            text(outcome),
        ],
    }
}

/// Connections of a former process have ended.
pub fn interrupted(at: Millis) -> Statement {
    Statement {
        sql: "UPDATE mooring_egress SET ended_at = ?1, outcome = 'the harness ended'
              WHERE ended_at IS NULL",
        binds: vec![Bind::Int(at.0)],
    }
}

/// Keeps the newest rows.
pub fn trimmed() -> Statement {
    Statement {
        sql: "DELETE FROM mooring_egress WHERE id <= (SELECT max(id) FROM mooring_egress) - ?1",
        binds: vec![Bind::Int(KEPT)],
    }
}

/// So many bytes more of a day.
pub fn moved(day: &str, bytes: u64) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_egress_day (day, bytes) VALUES (?1, ?2)
              ON CONFLICT (day) DO UPDATE SET bytes = bytes + ?2",
        binds: vec![text(day), count(bytes)],
    }
}

/// Keeps the newest days.
pub fn days_trimmed() -> Statement {
    Statement {
        sql: "DELETE FROM mooring_egress_day WHERE day NOT IN
                (SELECT day FROM mooring_egress_day ORDER BY day DESC LIMIT ?1)",
        binds: vec![Bind::Int(DAYS)],
    }
}

fn count(bytes: u64) -> Bind {
    Bind::Int(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// The bytes of a day.
pub async fn of_day(pool: &SqlitePool, day: &str) -> sqlx::Result<u64> {
    let row = sqlx::query("SELECT bytes FROM mooring_egress_day WHERE day = ?1")
        .bind(day)
        .fetch_optional(pool)
        .await?;
    let bytes = row.map_or(Ok(0), |row| row.try_get::<i64, _>("bytes"))?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Rows after `after`, oldest first, each with its id; of one conversation, or of all.
pub async fn list(
    pool: &SqlitePool,
    conversation: Option<ConversationId>,
    after: i64,
    limit: u32,
) -> sqlx::Result<Vec<(i64, Value)>> {
    let rows = sqlx::query(
        "SELECT id, at, ended_at, conversation, call, host, port, verdict, rule, sent, received,
                outcome
         FROM mooring_egress
         WHERE id > ?1 AND (?2 IS NULL OR conversation = ?2)
         ORDER BY id LIMIT ?3",
    )
    .bind(after)
    .bind(conversation.map(|c| c.0))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.iter()
        .map(|row| {
            let id: i64 = row.try_get("id")?;
            let json = json!({
                "id": id,
                "at": row.try_get::<i64, _>("at")?,
                "endedAt": row.try_get::<Option<i64>, _>("ended_at")?,
                "conversation": row.try_get::<i64, _>("conversation")?,
                "call": row.try_get::<i64, _>("call")?,
                "host": row.try_get::<String, _>("host")?,
                "port": row.try_get::<i64, _>("port")?,
                "verdict": row.try_get::<String, _>("verdict")?,
                "rule": row.try_get::<String, _>("rule")?,
                "sent": row.try_get::<i64, _>("sent")?,
                "received": row.try_get::<i64, _>("received")?,
                "outcome": row.try_get::<Option<String>, _>("outcome")?,
            });
            Ok((id, json))
        })
        .collect()
}
