//! `mooring usage`: tokens and cost.

use std::path::Path;

use mooring_wire::harness::UsageRequest;
use mooring_wire::harness::usage_response::Row;

use super::say;
use crate::args::{Output, UsageArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::text::one_line;
use crate::{format, json, setup};

/// Prints what was used, by day and model.
pub async fn run(project: Option<&Path>, args: UsageArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let request = UsageRequest {
        conversation: args.conversation.unwrap_or_default(),
    };
    let rows = connection.client().usage(request).await?.into_inner().rows;
    match args.output.output {
        Output::Json => rows.iter().try_for_each(|row| say(json::usage(row)))?,
        Output::Text => table(&rows).into_iter().try_for_each(say)?,
    }
    Ok(Exit::Done)
}

/// The rows with a head and, where there are several, a sum.
pub fn table(rows: &[Row]) -> Vec<String> {
    if rows.is_empty() {
        return vec!["nothing was used yet".into()];
    }
    let model_width = rows
        .iter()
        .map(|row| one_line(&row.model, 30).chars().count())
        .max()
        .unwrap_or(0)
        .max(5);
    let line = |day: &str, model: &str, requests: &str, tokens: [&str; 3], cost: &str| {
        format!(
            "{day:<10}  {model:<model_width$}  {requests:>8}  {:>7}  {:>7}  {:>7}  {cost}",
            tokens[0], tokens[1], tokens[2]
        )
    };
    let mut lines = vec![line(
        "day",
        "model",
        "requests",
        ["in", "cached", "out"],
        "cost",
    )];
    let mut sum = Row {
        cost_known: true,
        ..Row::default()
    };
    for row in rows {
        lines.push(row_line(
            &line,
            row,
            &one_line(&row.day, 10),
            &one_line(&row.model, 30),
        ));
        sum.requests += row.requests;
        sum.input_tokens += row.input_tokens;
        sum.cached_tokens += row.cached_tokens;
        sum.output_tokens += row.output_tokens;
        sum.cost_micros += row.cost_micros;
        sum.unknown_requests += row.unknown_requests;
        sum.cost_known &= row.cost_known;
    }
    if rows.len() > 1 {
        lines.push(row_line(&line, &sum, "together", ""));
    }
    if sum.unknown_requests > 0 {
        lines.push(format!(
            "{} cut off by a crash and counted by estimate",
            format::count(sum.unknown_requests, "request")
        ));
    }
    lines
}

fn row_line(
    line: &impl Fn(&str, &str, &str, [&str; 3], &str) -> String,
    row: &Row,
    day: &str,
    model: &str,
) -> String {
    line(
        day,
        model,
        &row.requests.to_string(),
        [
            &format::tokens(row.input_tokens),
            &format::tokens(row.cached_tokens),
            &format::tokens(row.output_tokens),
        ],
        &format::cost(row.cost_micros, row.cost_known),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_a_table_with_a_sum() {
        assert_eq!(table(&[]), ["nothing was used yet"]);
        let row = |day: &str, known| Row {
            day: day.into(),
            model: "claude".into(),
            requests: 3,
            input_tokens: 12_000,
            cached_tokens: 800,
            output_tokens: 950,
            cost_micros: 41_000,
            cost_known: known,
            unknown_requests: 1,
        };
        assert_eq!(
            table(&[row("2026-03-02", true), row("2026-03-01", false)]),
            [
                "day         model   requests       in   cached      out  cost",
                "2026-03-02  claude         3      12k      800      950  $0.0410",
                "2026-03-01  claude         3      12k      800      950  at least $0.0410",
                "together                   6      24k     1.6k     1.9k  at least $0.0820",
                "2 requests cut off by a crash and counted by estimate",
            ]
        );
    }
}
