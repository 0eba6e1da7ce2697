//! Messages that replied to the card of an open question: found again in their thread's
//! history, they are what they were, and no inputs.

use mooring_durable::{
    id::{Millis, TaskId},
    ledger::{Bind, Statement},
};
use sqlx::SqlitePool;

use super::text;

/// Whether a reply counted as the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It answered the question.
    Counted,
    /// It was not from somebody who may answer it.
    Refused,
}

/// The message of that request id replied to a question.
pub fn replied(request_id: &str, question: TaskId, reply: Reply, at: Millis) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_answer (request_id, question, counted, at)
              VALUES (?1, ?2, ?3, ?4) ON CONFLICT (request_id) DO NOTHING",
        binds: vec![
            text(request_id),
            Bind::Int(question.0),
            Bind::Int((reply == Reply::Counted).into()),
            Bind::Int(at.0),
        ],
    }
}

/// What the message was, where it replied to a question.
pub async fn find(pool: &SqlitePool, request_id: &str) -> sqlx::Result<Option<Reply>> {
    let counted: Option<bool> =
        sqlx::query_scalar("SELECT counted FROM mooring_answer WHERE request_id = ?1")
            .bind(request_id)
            .fetch_optional(pool)
            .await?;
    Ok(counted.map(|counted| match counted {
        true => Reply::Counted,
        false => Reply::Refused,
    }))
}

/// The key of the row that a message shows, where it is the card of a question.
pub async fn card(pool: &SqlitePool, message_id: &str) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar("SELECT key FROM mooring_outbox WHERE message_id = ?1 AND kind = 'question'")
        .bind(message_id)
        .fetch_optional(pool)
        .await
}
