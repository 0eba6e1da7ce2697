//! Rows of the harness's records, page by page: `mooring audit` and `mooring egress`.

use std::future::Future;

use serde_json::Value;

use super::say;
use crate::args::{AuditArgs, Output};
use crate::error::Error;
use crate::exit::Exit;

/// Rows that are asked for at once.
const PAGE: u32 = 1_000;

/// Prints rows, the oldest first. `page` gets those after an id, at most so many, each
/// with its id and its JSON; `line` makes a text of one; `none` is said where there are none.
pub async fn print<F>(
    args: &AuditArgs,
    none: &str,
    mut page: impl FnMut(i64, u32) -> F,
    line: impl Fn(&Value) -> String,
) -> Result<Exit, Error>
where
    F: Future<Output = Result<Vec<(i64, String)>, Error>>,
{
    let (mut after, mut printed) = (args.after, 0u64);
    while args.limit == 0 || printed < args.limit {
        let left = match args.limit {
            0 => PAGE,
            limit => u32::try_from(limit - printed).map_or(PAGE, |left| left.min(PAGE)),
        };
        let rows = page(after, left).await?;
        let Some((last, _)) = rows.last() else { break };
        after = *last;
        for (_, json) in &rows {
            printed += 1;
            match args.output.output {
                Output::Json => say(json)?,
                Output::Text => say(line(&serde_json::from_str(json).unwrap_or_default()))?,
            }
        }
    }
    if printed == 0 && args.output.output == Output::Text {
        say(none)?;
    }
    Ok(Exit::Done)
}
