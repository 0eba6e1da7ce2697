//! What the engine shows, in the words of the rules.

use mooring_durable::{
    message::{Message, Part},
    model::ModelRequest,
    submission::{SubmissionState, Unanswered},
    view::EntryView,
};

use super::rules::Fate;

const SUMMARY: &str =
    "The beginning of this conversation was compacted. This is the summary of it:\n\n";

/// A request's messages.
pub fn request(request: &ModelRequest) -> Vec<String> {
    request.messages.iter().map(message).collect()
}

/// An entry as people see it.
pub fn entry(entry: &EntryView) -> String {
    match &entry.message {
        _ if !entry.state.is_empty() => "failed".into(),
        Some(said) => message(said),
        None if entry.kind == "pi.compaction" => {
            format!("(compaction {})", entry.data["outcome"].as_str().unwrap())
        }
        None => format!("({})", entry.kind),
    }
}

fn message(message: &Message) -> String {
    match message {
        Message::System { text } => format!("S:{text}"),
        Message::User { content } => {
            let text = text(content);
            match text.strip_prefix(SUMMARY) {
                Some(summary) => format!("U:summary {summary}"),
                None => format!("U:{text}"),
            }
        }
        Message::Assistant { content } => {
            let calls = content.iter().filter_map(|part| match part {
                Part::ToolCall(call) => Some(call.id.as_str()),
                _ => None,
            });
            let calls: Vec<_> = calls.collect();
            match calls.is_empty() {
                true => format!("A:{}", text(content)),
                false => format!("A({})", calls.join(",")),
            }
        }
        Message::ToolResult {
            call_id,
            content,
            is_error,
            ..
        } => format!("R:{call_id}={}", end(&text(content), *is_error)),
    }
}

/// How a call ended; of what the engine says itself, the beginning.
fn end(text: &str, is_error: bool) -> String {
    let own = [
        ("The call was aborted", "aborted"),
        ("The process that ran this call ended", "interrupted"),
        ("There is no result", "missing"),
    ];
    match own.iter().find(|(start, _)| text.starts_with(start)) {
        Some((_, word)) if is_error => (*word).into(),
        _ if is_error => format!("!{text}"),
        _ => text.into(),
    }
}

fn text(content: &[Part]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("|")
}

/// What became of a submission.
pub fn fate(state: &SubmissionState) -> Fate {
    match state {
        SubmissionState::Queued => Fate::Queued,
        SubmissionState::Placed => Fate::Placed,
        SubmissionState::Done => Fate::Done,
        SubmissionState::Unanswered { reason, .. } => Fate::Unanswered(match reason {
            Unanswered::Aborted => "Aborted",
            Unanswered::Reset => "Reset",
            Unanswered::Stale => "Stale",
            Unanswered::Withdrawn => "Withdrawn",
            Unanswered::ModelError => "ModelError",
            _ => "another reason",
        }),
    }
}
