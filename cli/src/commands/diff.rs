//! `mooring diff`: what a conversation changed.

use std::path::Path;

use mooring_wire::harness::DiffRequest;

use super::{named_or_last, say};
use crate::args::ConversationArgs;
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::style::{Line, Style};
use crate::text::sanitize;
use crate::{setup, terminal};

/// Prints a unified diff of the files that a conversation's calls wrote.
pub async fn run(project: Option<&Path>, args: ConversationArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let conversation = named_or_last(&connection, args.conversation).await?;
    let colours = terminal::stdout().colours;
    for line in lines(&connection, conversation).await? {
        say(line.render(colours))?;
    }
    Ok(Exit::Done)
}

/// The diff as lines.
pub async fn lines(connection: &Connection, conversation: i64) -> Result<Vec<Line>, Error> {
    let response = connection
        .call(move |mut c| async move { c.diff(DiffRequest { conversation }).await })
        .await?;
    let mut lines = shown(&response.diff);
    if response.files == 0 {
        let text = "no file is other than it was before this conversation wrote it";
        lines.push(Line::new(Style::Dim, text));
    }
    if response.cut {
        let text = format!(
            "({} files differ; not all of them are shown)",
            response.files
        );
        lines.push(Line::new(Style::Notice, text));
    }
    Ok(lines)
}

fn shown(diff: &str) -> Vec<Line> {
    sanitize(diff)
        .lines()
        .map(|line| {
            let style = match line.as_bytes() {
                [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Style::Bold,
                [b'+', ..] => Style::Good,
                [b'-', ..] => Style::Bad,
                [b'@', ..] => Style::Dim,
                _ => Style::Plain,
            };
            Line::new(style, line)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_is_shown_line_by_line() {
        let styles: Vec<_> = shown("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n c\n")
            .iter()
            .map(Line::style)
            .collect();
        use Style::{Bad, Bold, Dim, Good, Plain};
        assert_eq!(styles, [Bold, Bold, Dim, Bad, Good, Plain]);
    }
}
