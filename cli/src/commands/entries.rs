//! `mooring entries`: a transcript.

use std::path::Path;

use mooring_wire::harness::{EntriesRequest, Entry};

use super::{named_or_last, say};
use crate::args::{EntriesArgs, Output};
use crate::error::Error;
use crate::exit::Exit;
use crate::style::{Line, Style, paragraph};
use crate::text::{one_line, sanitize};
use crate::{cards, json, setup, terminal};

/// Prints entries, oldest first.
pub async fn run(project: Option<&Path>, args: EntriesArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let mut client = connection.client();
    let conversation = named_or_last(&connection, args.conversation).await?;
    let request = EntriesRequest {
        conversation,
        before: args.before,
        limit: args.limit,
        request: args.request.unwrap_or(0),
    };
    let response = client.entries(request).await?.into_inner();
    if args.request.is_some() {
        if !response.request_note.is_empty() {
            eprintln!("{}", sanitize(&response.request_note));
        }
        // As it was sent, to the byte.
        say(&response.request_json)?;
        return Ok(Exit::Done);
    }
    if args.output.output == Output::Json {
        for entry in &response.entries {
            say(json::entry(entry))?;
        }
        return Ok(Exit::Done);
    }
    let screen = terminal::stdout();
    if response.more
        && let Some(first) = response.entries.first()
    {
        let text = format!(
            "(older ones: mooring entries {conversation} --before {})",
            first.id
        );
        say(Line::new(Style::Dim, text).render(screen.colours))?;
    }
    for entry in &response.entries {
        for line in lines(entry, screen.width) {
            say(line.render(screen.colours))?;
        }
    }
    Ok(Exit::Done)
}

/// The number of the request that an entry came of; 0: none.
fn request_of(entry: &Entry) -> i64 {
    if entry.kind != "pi.compaction" {
        return entry.task;
    }
    let data: serde_json::Value = serde_json::from_str(&entry.json).unwrap_or_default();
    data["data"]["task"].as_i64().unwrap_or(0)
}

/// An entry whole: its kind, its state, its text.
fn lines(entry: &Entry, width: usize) -> Vec<Line> {
    let kind = entry.kind.strip_prefix("pi.").unwrap_or(&entry.kind);
    let style = match kind {
        "user" => Style::Accent,
        "assistant" => Style::Bold,
        _ => Style::Dim,
    };
    let state = match cards::entry_state(entry) {
        None => String::new(),
        Some(state) => format!("  {state}"),
    };
    let request = match (kind, request_of(entry)) {
        ("assistant" | "compaction", number) if number != 0 => format!("  request {number}"),
        _ => String::new(),
    };
    let mut lines = vec![
        Line::new(
            style,
            format!("{:>5} {}{state}{request}", entry.id, one_line(kind, 40)),
        )
        .cut(width),
    ];
    if !entry.text.trim().is_empty() {
        lines.extend(paragraph(
            Style::Plain,
            sanitize(entry.text.trim_end()).as_str(),
            "      ",
            width,
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_shows_its_number_kind_state_and_text() {
        let entry = Entry {
            id: 3,
            kind: "pi.assistant".into(),
            text: "one two three four\n".into(),
            state: "aborted".into(),
            ..Entry::default()
        };
        let texts: Vec<String> = lines(&entry, 20).iter().map(Line::text).collect();
        assert_eq!(
            texts,
            ["    3 assistant  (a…", "      one two three", "      four"]
        );
    }
}
