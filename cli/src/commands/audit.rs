//! `mooring audit`: every decision about a call, and what came of it.

use std::path::Path;

use jiff::tz::TimeZone;
use mooring_wire::harness::AuditRequest;
use serde_json::Value;

use super::records;
use crate::args::AuditArgs;
use crate::error::Error;
use crate::exit::Exit;
use crate::text::one_line;
use crate::{format, setup, terminal};

/// Prints rows, the oldest first.
pub async fn run(project: Option<&Path>, args: AuditArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let width = terminal::stdout().width;
    let page = |after, limit| {
        let mut client = connection.client();
        let request = AuditRequest {
            conversation: args.conversation.unwrap_or_default(),
            after,
            limit,
        };
        async move {
            let rows = client.audit(request).await?.into_inner().rows;
            Ok(rows.into_iter().map(|row| (row.id, row.json)).collect())
        }
    };
    records::print(&args, "nothing was decided yet", page, |row| {
        line(row, format::now_ms(), &TimeZone::system(), width)
    })
    .await
}

/// One line of the list: when, what, how it was decided, by which rule and whom,
/// and what came of it.
fn line(row: &Value, now_ms: i64, zone: &TimeZone, width: usize) -> String {
    let text = |value: &Value| value.as_str().map(|text| one_line(text, 200));
    let record = &row["record"];
    let decision = [
        &record["decision"],
        &record["record"]["decision"],
        &record["card"],
    ]
    .into_iter()
    .find(|value| !value.is_null())
    .unwrap_or(&Value::Null);
    let rule = text(&record["rule"]).or_else(|| {
        let rule = &decision["rule"];
        let (table, pattern) = (text(&rule["table"])?, text(&rule["pattern"])?);
        Some(match table.as_str() {
            "built-in" => format!("built-in rule: {pattern}"),
            _ => format!("{table} rule \"{pattern}\""),
        })
    });
    let mut parts = vec![format!(
        "{:>5}  {}  {:<5}",
        row["id"].as_i64().unwrap_or_default(),
        format::moment(now_ms, row["at"].as_i64().unwrap_or_default(), zone),
        text(&row["verdict"]).unwrap_or_default(),
    )];
    let what = text(&row["bash"])
        .or_else(|| text(&row["path"]))
        .unwrap_or_default();
    let limit = width.saturating_sub(50).max(20);
    parts.push(one_line(
        &format!("{} {what}", text(&row["tool"]).unwrap_or_default()),
        limit,
    ));
    if let Some(rule) = rule.filter(|rule| !rule.is_empty()) {
        parts.push(format!("by {rule}"));
    }
    if let Some(grant) = record["grant"].as_i64() {
        parts.push(format!("under grant {grant}"));
    } else if row["verdict"] == "allow" && decision["verdict"] == "ask" {
        parts.push("after an approval".into());
    }
    if let Some(state) = text(&row["decision"]["state"]) {
        let by = &row["decision"]["decision"]["by"];
        let who = text(&by["name"])
            .or_else(|| text(by))
            .or_else(|| text(&by["id"]));
        parts.push(match who {
            Some(who) => format!("{state} by {who}"),
            None => state,
        });
    }
    if let Some(outcome) = text(&row["outcome"]) {
        parts.push(format!("→ {outcome}"));
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_tells_who_decided_what_and_what_came_of_it() {
        let row = json!({
            "id": 3, "at": 0, "tool": "bash", "bash": "rm -rf build", "path": null,
            "verdict": "ask", "record": { "rule": "bash rule \"rm -rf *\"", "card": {} },
            "decision": { "state": "approved", "decision": { "by": { "kind": "local", "name": "ann" } } },
            "outcome": "done",
        });
        assert_eq!(
            line(&row, 1000, &TimeZone::UTC, 80),
            "    3  00:00  ask    bash rm -rf build  by bash rule \"rm -rf *\"  approved by ann  → done"
        );
        let row = json!({
            "id": 4, "at": 0, "tool": "read", "path": "a.txt", "verdict": "allow",
            "record": { "decision": { "rule": { "table": "tool", "pattern": "*" } } },
            "outcome": null,
        });
        assert_eq!(
            line(&row, 1000, &TimeZone::UTC, 80),
            "    4  00:00  allow  read a.txt  by tool rule \"*\""
        );
    }
}
