//! Grants: rules that an approver gave beside a decision.

use mooring_durable::{
    id::{ConversationId, Millis},
    ledger::{Bind, Statement},
};
use mooring_policy::GrantRule;
use sqlx::{Row, SqlitePool, sqlite::SqliteRow};

use super::{json, number, text};

/// A grant as stored.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Its id.
    pub id: i64,
    /// Where it holds; `None` is the whole workspace.
    pub conversation: Option<ConversationId>,
    /// The tool's name.
    pub tool: String,
    /// Exactly what it covers.
    pub rule: GrantRule,
    /// The rule that asked; the grant ends when that rule changes.
    pub asked_by: String,
    /// Who gave it.
    pub given_by: String,
    /// When.
    pub given_at: Millis,
    /// Until when.
    pub expires_at: Option<Millis>,
    /// When it was taken back.
    pub revoked_at: Option<Millis>,
    /// By whom.
    pub revoked_by: Option<String>,
}

impl Grant {
    /// It holds at `now`.
    pub fn holds(&self, now: Millis) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|until| now < until)
    }
}

/// A new grant; its id is the file's to give.
#[allow(clippy::too_many_arguments)]
pub fn given(
    conversation: Option<ConversationId>,
    tool: &str,
    rule: &GrantRule,
    asked_by: &str,
    given_by: &str,
    given_at: Millis,
    expires_at: Option<Millis>,
) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_grant
                (conversation, tool, rule, asked_by, given_by, given_at, expires_at)
              VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        binds: vec![
            number(conversation.map(|c| c.0)),
            text(tool),
            json(rule),
            text(asked_by),
            text(given_by),
            Bind::Int(given_at.0),
            number(expires_at.map(|t| t.0)),
        ],
    }
}

/// Takes a grant back; the first one to do so stands.
pub fn revoked(id: i64, at: Millis, by: &str) -> Statement {
    Statement {
        sql: "UPDATE mooring_grant SET revoked_at = ?2, revoked_by = ?3
              WHERE id = ?1 AND revoked_at IS NULL",
        binds: vec![Bind::Int(id), Bind::Int(at.0), text(by)],
    }
}

/// All grants that were ever given, newest first.
pub async fn list(pool: &SqlitePool) -> sqlx::Result<Vec<Grant>> {
    let rows = sqlx::query(
        "SELECT id, conversation, tool, rule, asked_by, given_by, given_at, expires_at,
                revoked_at, revoked_by
         FROM mooring_grant ORDER BY id DESC",
    )
    .fetch_all(pool)
    .await?;
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> sqlx::Result<Grant> {
    let rule: String = row.try_get("rule")?;
    Ok(Grant {
        id: row.try_get("id")?,
        conversation: row
            .try_get::<Option<i64>, _>("conversation")?
            .map(ConversationId),
        tool: row.try_get("tool")?,
        rule: serde_json::from_str(&rule).map_err(|error| sqlx::Error::Decode(error.into()))?,
        asked_by: row.try_get("asked_by")?,
        given_by: row.try_get("given_by")?,
        given_at: Millis(row.try_get("given_at")?),
        expires_at: row.try_get::<Option<i64>, _>("expires_at")?.map(Millis),
        revoked_at: row.try_get::<Option<i64>, _>("revoked_at")?.map(Millis),
        revoked_by: row.try_get("revoked_by")?,
    })
}
