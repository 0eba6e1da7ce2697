//! `mooring conversations` and `abort`.

use std::path::Path;

use mooring_wire::harness::conversations_response::Conversation;
use mooring_wire::harness::{AbortRequest, ConversationsRequest};

use super::{named_or_last, say};
use crate::args::{AbortArgs, ListArgs, Output};
use crate::error::Error;
use crate::exit::Exit;
use crate::style::{Line, Style};
use crate::text::one_line;
use crate::{format, json, setup, terminal};

/// Lists conversations.
pub async fn list(project: Option<&Path>, args: ListArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let request = ConversationsRequest {
        limit: args.limit,
        before: 0,
    };
    let found = connection
        .client()
        .conversations(request)
        .await?
        .into_inner()
        .conversations;
    if args.output.output == Output::Json {
        for conversation in &found {
            say(json::conversation(conversation))?;
        }
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        say("there is no conversation yet")?;
    }
    let screen = terminal::stdout();
    for conversation in &found {
        say(line(conversation, format::now_ms(), screen.width).render(screen.colours))?;
    }
    Ok(Exit::Done)
}

/// One line of the list.
pub fn line(conversation: &Conversation, now_ms: i64, width: usize) -> Line {
    let mut notes = vec![format::ago(now_ms, conversation.last_at_ms)];
    if !matches!(conversation.state.as_str(), "" | "idle") {
        notes.push(one_line(&conversation.state, 30));
    }
    if conversation.pending_approvals > 0 {
        notes.push(format::count(
            conversation.pending_approvals.into(),
            "open approval",
        ));
    }
    if conversation.queued > 0 {
        notes.push(format!("{} queued", conversation.queued));
    }
    let head = format!("{:>4}  ", conversation.id);
    let tail = format!("  {}", notes.join(", "));
    let room = width.saturating_sub(head.len() + tail.len()).max(10);
    let title = match one_line(&conversation.title, room) {
        title if title.is_empty() => "(untitled)".into(),
        title => title,
    };
    Line::new(Style::Accent, head)
        .with(Style::Plain, title)
        .with(Style::Dim, tail)
        .cut(width)
}

/// Stops the run of a conversation.
pub async fn abort(project: Option<&Path>, args: AbortArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let mut client = connection.client();
    let conversation = named_or_last(&connection, args.conversation).await?;
    let request = AbortRequest {
        conversation,
        run_only: args.run_only,
        author: None,
    };
    let response = client.abort(request).await?.into_inner();
    say(if response.was_running {
        "stopped"
    } else {
        "nothing was running"
    })?;
    for submission in response.withdrawn {
        say(format_args!(
            "withdrawn: {}",
            one_line(&submission.text, 200)
        ))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_one_line() {
        let mut conversation = Conversation {
            id: 12,
            title: "Fix the\nparser".into(),
            state: "waiting".into(),
            pending_approvals: 1,
            queued: 2,
            ..Conversation::default()
        };
        assert_eq!(
            line(&conversation, 180_000, 80).text(),
            "  12  Fix the parser  3 min ago, waiting, 1 open approval, 2 queued"
        );
        conversation = Conversation {
            id: 1,
            state: "idle".into(),
            ..Conversation::default()
        };
        assert_eq!(line(&conversation, 0, 80).text(), "   1  (untitled)  now");
        for width in 1..40 {
            assert!(line(&conversation, 0, width).width() <= width);
        }
    }
}
