//! Audit rows: every decision about a call, who approved it, and what came of it.

use mooring_durable::{
    gate::{Approval, Verdict},
    id::{ConversationId, Hash, Millis},
    ledger::{Bind, CallOutcome, Statement},
    tool::Call,
};
use serde_json::{Value, json};
use sqlx::{Row, SqlitePool};

use super::{json, text};

/// Bytes of a script that are kept with the decision about it.
const MAX_INPUT: usize = 64 << 10;

/// A row as JSON, for `mooring audit` and for `policy diff --calls`.
#[derive(Clone, Debug)]
pub struct AuditRow {
    /// Ascending.
    pub id: i64,
    /// All of it.
    pub json: Value,
}

/// The gate decided `call`.
pub fn decided(at: Millis, call: &Call, verdict: &Verdict) -> Statement {
    let (word, mut record) = match verdict {
        Verdict::Allow { record } => ("allow", record.clone()),
        Verdict::Deny { reason, record } => ("deny", json!({ "reason": reason, "record": record })),
        Verdict::Ask(question) => (
            "ask",
            json!({ "rule": question.rule, "card": question.data }),
        ),
    };
    if let Value::Object(fields) = &mut record {
        fields.insert("call".into(), input(call));
    }
    Statement {
        sql: "INSERT INTO mooring_audit
                (at, conversation, call, tool, arguments_hash, requesters, verdict, record)
              VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        binds: vec![
            Bind::Int(at.0),
            Bind::Int(call.conversation.0),
            Bind::Int(call.task.0),
            text(&call.tool),
            text(&call.arguments_hash.0),
            json(&call.requesters),
            text(word),
            json(&record),
        ],
    }
}

/// What a policy decides a call by: what `policy diff --calls` needs to decide it
/// again. A text that is too long to be kept is left out.
fn input(call: &Call) -> Value {
    let kept = |name: &str| {
        let text = call.arguments.get(name).and_then(Value::as_str);
        text.filter(|text| text.len() <= MAX_INPUT)
    };
    match call.tool.as_str() {
        "bash" => json!({ "bash": kept("command") }),
        _ => json!({ "path": kept("path") }),
    }
}

/// A call asked for an approval on its way.
pub fn asked_on_the_way(at: Millis, approval: &Approval) -> Statement {
    let record = json!({ "rule": approval.question.rule, "card": approval.question.data });
    Statement {
        sql: "INSERT INTO mooring_audit
                (at, conversation, call, tool, arguments_hash, requesters, verdict, record, outcome)
              VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'ask', ?7, 'asked')",
        binds: vec![
            Bind::Int(at.0),
            Bind::Int(approval.conversation.0),
            Bind::Int(approval.call.0),
            text(&approval.tool),
            text(&approval.arguments_hash.0),
            json(&approval.requesters),
            json(&record),
        ],
    }
}

/// A push ended.
pub fn pushed(
    at: Millis,
    origin: &crate::boundary::Origin,
    verdict: &str,
    record: &Value,
    outcome: &str,
) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_audit
                (at, conversation, call, tool, arguments_hash, requesters, verdict, record, outcome, ended_at)
              VALUES (?1, ?2, ?3, 'git push', ?4, '[]', ?5, ?6, ?7, ?1)",
        binds: vec![
            Bind::Int(at.0),
            Bind::Int(origin.conversation.0),
            Bind::Int(origin.task.0),
            text(&Hash::of(record["push"].to_string().as_bytes()).0),
            text(verdict),
            json(record),
            text(outcome),
        ],
    }
}

/// Somebody, or time, settled an approval of the call.
pub fn settled(approval: &Approval) -> Statement {
    Statement {
        sql: "UPDATE mooring_audit SET decision = ?2
              WHERE id = (SELECT max(id) FROM mooring_audit WHERE call = ?1 AND verdict = 'ask')",
        binds: vec![
            Bind::Int(approval.call.0),
            json(&json!({ "state": approval.state, "decision": approval.decision })),
        ],
    }
}

/// The call ended.
pub fn ended(at: Millis, call: &Call, outcome: CallOutcome) -> Statement {
    Statement {
        sql: "UPDATE mooring_audit SET outcome = ?2, ended_at = ?3
              WHERE call = ?1 AND outcome IS NULL",
        binds: vec![
            Bind::Int(call.task.0),
            text(outcome.word()),
            Bind::Int(at.0),
        ],
    }
}

/// Rows after `after`, oldest first; of one conversation, or of all.
pub async fn list(
    pool: &SqlitePool,
    conversation: Option<ConversationId>,
    after: i64,
    limit: u32,
) -> sqlx::Result<Vec<AuditRow>> {
    let rows = sqlx::query(
        "SELECT id, at, conversation, call, tool, arguments_hash, requesters, verdict, record,
                decision, outcome, ended_at
         FROM mooring_audit
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
            let parsed = |name: &str| -> sqlx::Result<Value> {
                let text: Option<String> = row.try_get(name)?;
                Ok(text
                    .and_then(|t| serde_json::from_str(&t).ok())
                    .unwrap_or(Value::Null))
            };
            let id: i64 = row.try_get("id")?;
            let record = parsed("record")?;
            let call = record["call"].clone();
            Ok(AuditRow {
                id,
                json: json!({
                    "bash": call["bash"],
                    "path": call["path"],
                    "git": call["git"],
                    "id": id,
                    "at": row.try_get::<i64, _>("at")?,
                    "conversation": row.try_get::<i64, _>("conversation")?,
                    "call": row.try_get::<i64, _>("call")?,
                    "tool": row.try_get::<String, _>("tool")?,
                    "argumentsHash": row.try_get::<String, _>("arguments_hash")?,
                    "requesters": parsed("requesters")?,
                    "verdict": row.try_get::<String, _>("verdict")?,
                    "record": without_call(record),
                    "decision": parsed("decision")?,
                    "outcome": row.try_get::<Option<String>, _>("outcome")?,
                    "endedAt": row.try_get::<Option<i64>, _>("ended_at")?,
                }),
            })
        })
        .collect()
}

/// The table's name in exports.
pub const TABLE: &str = "mooring_audit";

/// Rows of one conversation after an id, as they are exported, at most 100.
pub async fn exported(
    pool: &SqlitePool,
    conversation: ConversationId,
    after: i64,
) -> sqlx::Result<Vec<(i64, String)>> {
    let rows = sqlx::query(
        "SELECT id, json_object('at', at, 'conversation', conversation, 'call', call, 'tool', tool,
                'arguments_hash', arguments_hash, 'requesters', requesters, 'verdict', verdict,
                'record', record, 'decision', decision, 'outcome', outcome, 'ended_at', ended_at)
         FROM mooring_audit WHERE conversation = ?1 AND id > ?2 ORDER BY id LIMIT 100",
    )
    .bind(conversation.0)
    .bind(after)
    .fetch_all(pool)
    .await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// A row that was exported, of a conversation and a call as they are called here.
pub fn imported(conversation: ConversationId, call: i64, row: &Value) -> Statement {
    Statement {
        sql: "INSERT INTO mooring_audit
                (at, conversation, call, tool, arguments_hash, requesters, verdict, record,
                 decision, outcome, ended_at)
              SELECT ?3->>'$.at', ?1, ?2, ?3->>'$.tool', ?3->>'$.arguments_hash',
                     ?3->>'$.requesters', ?3->>'$.verdict', ?3->>'$.record', ?3->>'$.decision',
                     ?3->>'$.outcome', ?3->>'$.ended_at'",
        binds: vec![Bind::Int(conversation.0), Bind::Int(call), json(row)],
    }
}

/// The ids of at most 200 rows from before a time, after an id.
pub async fn older(pool: &SqlitePool, after: i64, since: Millis) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar(
        "SELECT id FROM mooring_audit WHERE id > ?1 AND at < ?2 ORDER BY id LIMIT 200",
    )
    .bind(after)
    .bind(since.0)
    .fetch_all(pool)
    .await
}

/// Removes rows.
pub fn removed(ids: &[i64]) -> Statement {
    Statement {
        sql: "DELETE FROM mooring_audit WHERE id IN (SELECT value FROM json_each(?1))",
        binds: vec![json(&ids)],
    }
}

fn without_call(mut record: Value) -> Value {
    if let Value::Object(fields) = &mut record {
        fields.remove("call");
    }
    record
}
