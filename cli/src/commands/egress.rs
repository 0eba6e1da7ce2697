//! `mooring egress`: the connections of commands to the world.

use std::path::Path;

use jiff::tz::TimeZone;
use mooring_wire::harness::EgressRequest;
use serde_json::Value;

use super::records;
use crate::args::AuditArgs;
use crate::error::Error;
use crate::exit::Exit;
use crate::text::one_line;
use crate::{format, setup};

/// Prints rows, the oldest first.
pub async fn run(project: Option<&Path>, args: AuditArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let page = |after, limit| {
        let mut client = connection.client();
        let request = EgressRequest {
            conversation: args.conversation.unwrap_or_default(),
            after,
            limit,
        };
        async move {
            let rows = client.egress(request).await?.into_inner().rows;
            Ok(rows.into_iter().map(|row| (row.id, row.json)).collect())
        }
    };
    records::print(
        &args,
        "no command has asked for a connection yet",
        page,
        |row| line(row, format::now_ms(), &TimeZone::system()),
    )
    .await
}

/// One line of the list: when, whose, where to, by which rule, how much and how it ended.
fn line(row: &Value, now_ms: i64, zone: &TimeZone) -> String {
    let text = |name: &str| one_line(row[name].as_str().unwrap_or_default(), 300);
    let number = |name: &str| row[name].as_i64().unwrap_or_default();
    let bytes = |name: &str| format::bytes(u64::try_from(number(name)).unwrap_or_default());
    let mut parts = vec![
        format!(
            "{:>5}  {}  {:<5}",
            number("id"),
            format::moment(now_ms, number("at"), zone),
            text("verdict"),
        ),
        format!("conversation {}", number("conversation")),
        format!("{}:{}", text("host"), number("port")),
        format!("by {}", text("rule")),
    ];
    if number("sent") + number("received") > 0 {
        parts.push(format!("{} up, {} down", bytes("sent"), bytes("received")));
    }
    match (row["endedAt"].as_i64(), row["outcome"].as_str()) {
        (None, _) => parts.push("open".into()),
        (Some(ended), Some("done")) => {
            parts.push(format!("→ done in {}", format::span(ended - number("at"))));
        }
        (Some(_), _) => parts.push(format!("→ {}", text("outcome"))),
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_tells_where_to_how_much_and_how_it_ended() {
        let row = json!({
            "id": 3, "at": 0, "endedAt": 2500, "conversation": 1, "call": 7, "host": "crates.io",
            "port": 443, "verdict": "allow", "rule": "egress rule \"crates.io:443\"",
            "sent": 900, "received": 0, "outcome": "done",
        });
        assert_eq!(
            line(&row, 1000, &TimeZone::UTC),
            "    3  00:00  allow  conversation 1  crates.io:443  by egress rule \"crates.io:443\"  \
             900 B up, 0 B down  → done in 2.5 s"
        );
        let row = json!({
            "id": 4, "at": 0, "endedAt": 0, "conversation": 2, "call": 7, "host": "evil\u{1b}[2J",
            "port": 22, "verdict": "deny", "rule": "no rule in the egress table",
            "sent": 0, "received": 0, "outcome": "cannot be reached",
        });
        let line = line(&row, 1000, &TimeZone::UTC);
        assert!(
            !line.contains('\u{1b}') && line.ends_with("→ cannot be reached"),
            "{line}"
        );
    }
}
