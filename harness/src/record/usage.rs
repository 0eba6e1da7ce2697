//! What was spent, and what requests in flight have reserved.

use mooring_durable::{
    id::{ConversationId, Millis, SubmissionId, TaskId},
    ledger::{Bind, Statement},
    model::Usage,
};
use sqlx::{Row, SqlitePool};

use super::text;

/// A request is about to be sent.
pub fn reserved(
    at: Millis,
    task: TaskId,
    attempt: u32,
    run: SubmissionId,
    model: &str,
    estimate: u64,
) -> Statement {
    Statement {
        sql: "INSERT OR REPLACE INTO mooring_reservation (task, attempt, run, model, estimate, at)
              VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        binds: vec![
            Bind::Int(task.0),
            Bind::Int(i64::from(attempt)),
            Bind::Int(run.0),
            text(model),
            Bind::Int(clamp(estimate)),
            Bind::Int(at.0),
        ],
    }
}

/// It ended, whatever the end.
pub fn released(task: TaskId, attempt: u32) -> Statement {
    Statement {
        sql: "DELETE FROM mooring_reservation WHERE task = ?1 AND attempt = ?2",
        binds: vec![Bind::Int(task.0), Bind::Int(i64::from(attempt))],
    }
}

/// What one request came to.
#[derive(Clone, Debug)]
pub struct Spent<'a> {
    /// When; its UTC day is counted.
    pub at: Millis,
    /// Where.
    pub conversation: ConversationId,
    /// Which model.
    pub model: &'a str,
    /// Who is charged.
    pub requester: String,
    /// Tokens; by estimate where `unknown`.
    pub usage: Usage,
    /// `None` where the model has no known price.
    pub cost_micros: Option<i64>,
    /// A crash hid the real size.
    pub unknown: bool,
}

/// Adds one request to its day.
pub fn spent(spent: &Spent) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_usage
                (day, conversation, model, requester, requests, input, cached, output,
                 cost_micros, unpriced, unknown)
              VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8, ?9, ?10)
              ON CONFLICT (day, conversation, model, requester) DO UPDATE SET
                requests = requests + 1,
                input = input + excluded.input,
                cached = cached + excluded.cached,
                output = output + excluded.output,
                cost_micros = cost_micros + excluded.cost_micros,
                unpriced = unpriced + excluded.unpriced,
                unknown = unknown + excluded.unknown",
        binds: vec![
            text(day(spent.at)),
            Bind::Int(spent.conversation.0),
            text(spent.model),
            text(&spent.requester),
            Bind::Int(clamp(spent.usage.input)),
            Bind::Int(clamp(spent.usage.cached)),
            Bind::Int(clamp(spent.usage.output)),
            Bind::Int(spent.cost_micros.unwrap_or(0)),
            Bind::Int(i64::from(spent.cost_micros.is_none())),
            Bind::Int(i64::from(spent.unknown)),
        ],
    }
}

fn clamp(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// The day of a moment, by UTC.
pub fn day(at: Millis) -> String {
    jiff::Timestamp::from_millisecond(at.0)
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .strftime("%Y-%m-%d")
        .to_string()
}

/// A day's spend on one model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct UsageRow {
    pub day: String,
    pub model: String,
    pub requests: u64,
    pub input: u64,
    pub cached: u64,
    pub output: u64,
    pub cost_micros: i64,
    pub unpriced: u64,
    pub unknown: u64,
}

/// By day and model, newest first; of one conversation, or of all.
pub async fn list(
    pool: &SqlitePool,
    conversation: Option<ConversationId>,
) -> sqlx::Result<Vec<UsageRow>> {
    let rows = sqlx::query(
        "SELECT day, model, sum(requests) AS requests, sum(input) AS input, sum(cached) AS cached,
                sum(output) AS output, sum(cost_micros) AS cost_micros,
                sum(unpriced) AS unpriced, sum(unknown) AS unknown
         FROM mooring_usage WHERE ?1 IS NULL OR conversation = ?1
         GROUP BY day, model ORDER BY day DESC, model LIMIT 1000",
    )
    .bind(conversation.map(|c| c.0))
    .fetch_all(pool)
    .await?;
    rows.iter()
        .map(|row| {
            let count = |name: &str| -> sqlx::Result<u64> {
                Ok(u64::try_from(row.try_get::<i64, _>(name)?).unwrap_or(0))
            };
            Ok(UsageRow {
                day: row.try_get("day")?,
                model: row.try_get("model")?,
                requests: count("requests")?,
                input: count("input")?,
                cached: count("cached")?,
                output: count("output")?,
                cost_micros: row.try_get("cost_micros")?,
                unpriced: count("unpriced")?,
                unknown: count("unknown")?,
            })
        })
        .collect()
}
