//! Messages that answered a question: found again in their thread's history, they are
//! answers still, and no inputs.

use mooring_durable::{
    id::{Millis, TaskId},
    ledger::{Bind, Statement},
};
use sqlx::SqlitePool;

use super::text;

/// The message of that request id has answered a question.
pub fn answered(request_id: &str, question: TaskId, at: Millis) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_answer (request_id, question, at) VALUES (?1, ?2, ?3)
              ON CONFLICT (request_id) DO NOTHING",
        binds: vec![text(request_id), Bind::Int(question.0), Bind::Int(at.0)],
    }
}

/// Whether the message has answered a question.
pub async fn is_answer(pool: &SqlitePool, request_id: &str) -> sqlx::Result<bool> {
    let found = sqlx::query("SELECT 1 FROM mooring_answer WHERE request_id = ?1")
        .bind(request_id)
        .fetch_optional(pool)
        .await?;
    Ok(found.is_some())
}

/// The key of the row that a message shows, where it is the card of a question.
pub async fn card(pool: &SqlitePool, message_id: &str) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar("SELECT key FROM mooring_outbox WHERE message_id = ?1 AND kind = 'question'")
        .bind(message_id)
        .fetch_optional(pool)
        .await
}
