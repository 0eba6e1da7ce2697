//! Messages that were refused because a run was going (`whenBusy: Reject`). Said
//! once, it stays so: the bot may find the message again in the thread's history.

use mooring_durable::{
    id::Millis,
    ledger::{Bind, Statement},
};
use sqlx::SqlitePool;

use super::text;

/// How long a refusal is remembered: longer than any sweep of history looks back.
const REMEMBERED_MS: i64 = 90 * 86_400_000;

/// The message is refused.
pub fn refused(request_id: &str, at: Millis) -> [Statement; 2] {
    [
        Statement {
            sql: "INSERT INTO mooring_refused (request_id, at) VALUES (?1, ?2)
                  ON CONFLICT (request_id) DO NOTHING",
            binds: vec![text(request_id), Bind::Int(at.0)],
        },
        Statement {
            sql: "DELETE FROM mooring_refused WHERE at < ?1",
            binds: vec![Bind::Int(at.0 - REMEMBERED_MS)],
        },
    ]
}

/// Whether the message was refused before.
pub async fn is_refused(pool: &SqlitePool, request_id: &str) -> sqlx::Result<bool> {
    let found = sqlx::query("SELECT 1 FROM mooring_refused WHERE request_id = ?1")
        .bind(request_id)
        .fetch_optional(pool)
        .await?;
    Ok(found.is_some())
}
