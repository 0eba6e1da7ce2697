//! Estimated tokens, for reservations and thresholds.

use mooring_durable::{
    message::{Message, Part},
    model::ModelRequest,
};

/// Estimated input tokens of `request`: a token for four bytes of text, 1,600
/// for an image, and a few for the frame of each message and tool. For English
/// and code this is 10 to 20 % too high, which is the right side for a budget.
pub(super) fn tokens(request: &ModelRequest) -> u64 {
    let tools: u64 = request
        .tools
        .iter()
        .map(|tool| {
            8 + text(&tool.name) + text(&tool.description) + text(&tool.parameters.to_string())
        })
        .sum();
    let messages: u64 = request.messages.iter().map(|m| 4 + message(m)).sum();
    tools + messages
}

fn message(message: &Message) -> u64 {
    match message {
        Message::System { text: t } => text(t),
        Message::User { content } | Message::Assistant { content } => parts(content),
        Message::ToolResult {
            content, call_id, ..
        } => text(call_id) + parts(content),
    }
}

/// Estimated tokens of some content.
pub(super) fn parts(content: &[Part]) -> u64 {
    content.iter().map(part).sum()
}

fn part(part: &Part) -> u64 {
    match part {
        Part::Text { text: t } => text(t),
        Part::Image { .. } => 1600,
        Part::Thinking { text: t, signature } => text(t) + signature.as_deref().map_or(0, text),
        Part::ToolCall(call) => 8 + text(&call.name) + text(&call.arguments.to_string()),
    }
}

fn text(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}
