//! Compaction: a summary takes the place of the beginning of a context. What is cut, and
//! what the model that writes the summary is asked; functions of values only.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    context::{Item, calls_of, weight},
    id::EntryId,
    message::{Message, Part},
    model::ModelRequest,
    sql::entry::kind,
};

/// Why a context is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Somebody asked for it.
    Manual,
    /// It is filling up; the run goes on meanwhile.
    Background,
    /// It is nearly full; the next request waits for it.
    Threshold,
    /// The provider refused a request as too long; the next request waits for it.
    Overflow,
}

impl Mode {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Manual => "manual",
            Mode::Background => "background",
            Mode::Threshold => "threshold",
            Mode::Overflow => "overflow",
        }
    }
}

/// How a compaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// The context begins with its summary.
    Compacted,
    /// There was nothing to compact, or the context begins later by now.
    Skipped,
    /// It was stopped.
    Aborted,
    /// There is no summary.
    Failed,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// A summary is being written, since now or since before.
    Going(Mode),
    /// There is nothing that a summary could take the place of.
    Skipped,
    /// The budget has no room for its request; why, for people.
    Refused(String),
}

/// Percent of the window from which a compaction begins in the background.
const EARLY: u64 = 70;
/// Percent of the window from which a request waits for a compaction.
const FULL: u64 = 90;
/// Percent of the window that stays as it is.
const KEPT: u64 = 20;
/// Bytes that stand for a token.
const BYTES: u64 = 4;
/// The window where the model does not say.
const USUAL_WINDOW: u64 = 100_000;

/// Whether an estimate asks for a compaction before the request.
pub(crate) fn is_full(estimate: u64, window: u64) -> bool {
    estimate.saturating_mul(100) >= window.saturating_mul(FULL)
}

/// Whether an estimate asks for a compaction beside the request.
pub(crate) fn is_filling(estimate: u64, window: u64) -> bool {
    estimate.saturating_mul(100) >= window.saturating_mul(EARLY)
}

/// The input of a compaction's task: with the entries before the cut it makes the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Input {
    pub mode: Mode,
    /// The first entry that stays.
    pub cut: EntryId,
    /// The newest entry at that time.
    pub cutoff: EntryId,
    /// What people want of the summary.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// Most bytes of the transcript that is summarised.
    pub bytes: usize,
    /// About the tokens of the context before.
    pub before: u64,
}

/// Plans a compaction of a context; `None` where nothing can be cut off.
pub(crate) fn plan(
    items: &[Item],
    mode: Mode,
    window: Option<u64>,
    instructions: String,
) -> Option<Input> {
    let window = window.unwrap_or(USUAL_WINDOW);
    let total: usize = items.iter().map(heft).sum();
    let keep = (window * KEPT / 100 * BYTES).min(total as u64 / 2);
    let cut = select(items, keep as usize)?;
    Some(Input {
        mode,
        cut: items[cut].row.id,
        cutoff: items.iter().map(|item| item.row.id).max()?,
        instructions,
        // Half of the window, so that the request fits where estimates are wrong.
        bytes: (window * BYTES / 2) as usize,
        before: total as u64 / BYTES,
    })
}

fn heft(item: &Item) -> usize {
    if !item.row.state.is_empty() {
        return 0;
    }
    item.message().as_ref().map_or(0, weight)
}

/// The place of the first item that stays: what stays weighs at most `keep`, but no call
/// is separated from its results, and a call without its result stays.
fn select(items: &[Item], keep: usize) -> Option<usize> {
    let mut bound = vec![false; items.len()];
    let mut open: HashMap<&str, usize> = HashMap::new();
    let (mut calls_at, mut spans): (Vec<usize>, HashMap<usize, usize>) = Default::default();
    for (at, item) in items.iter().enumerate() {
        match &item.row.message {
            Some(Message::Assistant { content }) if item.row.state.is_empty() => {
                for call in calls_of(content) {
                    open.insert(&call.id, at);
                    calls_at.push(at);
                }
            }
            Some(Message::ToolResult { call_id, .. }) => {
                if let Some(from) = open.remove(call_id.as_str()) {
                    let end = spans.entry(from).or_insert(at);
                    *end = at.max(*end);
                }
            }
            _ => {}
        }
    }
    for from in open.into_values() {
        spans.insert(from, items.len() - 1);
    }
    for (from, to) in spans {
        bound[from + 1..=to]
            .iter_mut()
            .for_each(|bound| *bound = true);
    }
    let mut kept = 0;
    let mut first = items.len();
    while first > 0 {
        kept += heft(&items[first - 1]);
        if kept > keep {
            break;
        }
        first -= 1;
    }
    let free = |at: &usize| !bound[*at];
    let last = items.len().checked_sub(1)?;
    let cut = (first.min(last)..=last)
        .find(free)
        .or_else(|| (1..first.min(last)).rev().find(free))?;
    // A summary of nothing but the last summary says nothing new.
    items[..cut]
        .iter()
        .any(|item| item.row.head.is_none() && item.row.kind != kind::SYSTEM && heft(item) > 0)
        .then_some(cut)
}

const TASK: &str = "You write the summary that takes the place of the beginning of a conversation \
between people and a coding agent. The agent goes on with it and does not see what it stands for, so \
keep what it needs: what people want, in their own words where they matter; decisions and their \
reasons; what was done, with the paths, names and commands that matter; what was found out; what \
failed and why; what is still to be done, the next step first. Leave out what no longer matters. Write \
the summary alone, in plain text.";

/// The request for a summary of what stands before the cut.
pub(crate) fn request(items: &[Item], input: &Input, model: &str, options: &Value) -> ModelRequest {
    let before = items
        .iter()
        .take_while(|item| item.row.id != input.cut)
        .filter(|item| item.row.state.is_empty())
        .filter_map(Item::message);
    let mut text = transcript(&before.collect::<Vec<_>>(), input.bytes);
    text.push_str("\n\n(End of the part to be summarised.)\n");
    if !input.instructions.is_empty() {
        text.push_str("For this summary people ask: ");
        text.push_str(&input.instructions);
        text.push('\n');
    }
    ModelRequest {
        model: model.to_owned(),
        options: options.clone(),
        tools: Vec::new(),
        messages: vec![
            Message::System { text: TASK.into() },
            Message::User {
                content: vec![Part::text(text)],
            },
        ],
    }
}

/// What the context begins with afterwards.
pub(crate) fn summary(text: &str) -> Message {
    Message::User {
        content: vec![Part::text(format!(
            "The beginning of this conversation was compacted. This is the summary of it:\n\n{text}"
        ))],
    }
}

/// The most that is shown of one text, in turn, until all fits.
const LIMITS: [usize; 4] = [8_000, 2_000, 500, 120];

/// Messages as text of at most about `bytes`: long texts are cut in their middle, and
/// where that is not enough the oldest messages but the first are left out.
fn transcript(messages: &[Message], bytes: usize) -> String {
    let mut shown: Vec<String> = Vec::new();
    for limit in LIMITS {
        shown = messages
            .iter()
            .map(|message| told(message, limit))
            .collect();
        if shown.iter().map(String::len).sum::<usize>() <= bytes {
            return shown.concat();
        }
    }
    let total: usize = shown.iter().map(String::len).sum();
    let (mut left_out, mut over) = (0, total.saturating_sub(bytes));
    while over > 0 && left_out + 1 < shown.len() {
        left_out += 1;
        over = over.saturating_sub(shown[left_out].len());
    }
    let first = shown.first().cloned().unwrap_or_default();
    let rest = shown.get(left_out + 1..).unwrap_or_default().concat();
    format!("{first}\n[{left_out} messages are left out here]\n{rest}")
}

fn told(message: &Message, limit: usize) -> String {
    let (who, content) = match message {
        Message::System { text } => return format!("\n<system>\n{}\n", cut(text, limit)),
        Message::User { content } => ("user".to_owned(), content),
        Message::Assistant { content } => ("assistant".to_owned(), content),
        Message::ToolResult {
            name,
            content,
            is_error,
            ..
        } => {
            let what = if *is_error { "error" } else { "result" };
            (format!("{what} of {name}"), content)
        }
    };
    let mut text = format!("\n<{who}>\n");
    for part in content {
        match part {
            Part::Text { text: said } => text.push_str(&cut(said, limit)),
            Part::Thinking { .. } => continue,
            Part::Image { media_type, .. } => text.push_str(&format!("[{media_type}]")),
            Part::ToolCall(call) => {
                let arguments = cut(&call.arguments.to_string(), limit);
                text.push_str(&format!("[calls {} {arguments}]", call.name));
            }
        }
        text.push('\n');
    }
    text
}

fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let head = &text[..crate::window::floor(text, limit / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - limit / 2)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head} [{left_out} bytes] {tail}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        id::{ConversationId, Millis},
        message::ToolCall,
        sql::entry::EntryRow,
    };

    /// `u10`: a user's text of ten bytes; `a5:x,y` an answer with two calls; `rx7` the
    /// result of `x`; `h9` a head; `s3` a system text.
    fn items(text: &str) -> Vec<Item> {
        let one = |(at, word): (usize, &str)| {
            let id = EntryId(at as i64 + 1);
            let (word, calls) = word.split_once(':').unwrap_or((word, ""));
            let digits = word.trim_start_matches(|c: char| !c.is_ascii_digit());
            let said = "x".repeat(digits.parse().unwrap_or(0));
            let content = vec![Part::text(said.clone())];
            let (kind, message) = match &word[..1] {
                "u" | "h" => (kind::USER, Message::User { content }),
                "s" => (kind::SYSTEM, Message::System { text: said }),
                "r" => {
                    let call_id = word[1..2].to_owned();
                    let result = Message::ToolResult {
                        call_id,
                        name: "t".into(),
                        content,
                        is_error: false,
                    };
                    (kind::TOOL_RESULT, result)
                }
                _ => {
                    let mut content = content;
                    for id in calls.split(',').filter(|id| !id.is_empty()) {
                        content.push(Part::ToolCall(ToolCall {
                            id: id.into(),
                            name: "t".into(),
                            arguments: Value::Null,
                        }));
                    }
                    (kind::ASSISTANT, Message::Assistant { content })
                }
            };
            Item {
                row: Arc::new(EntryRow {
                    id,
                    conversation: ConversationId(1),
                    seq: id.0,
                    kind: kind.into(),
                    state: "",
                    message: Some(message),
                    data: Value::Null,
                    head: word.starts_with('h').then_some(id),
                    edits: Vec::new(),
                    writer: None,
                    submission: None,
                    at: Millis(0),
                }),
                texts: Vec::new(),
            }
        };
        text.split_whitespace().enumerate().map(one).collect()
    }

    #[test]
    fn a_cut_keeps_what_fits_and_separates_no_call_from_its_result() {
        for (text, keep, expected) in [
            ("u10 a10 u10 a10", 500, Some(2)),
            ("u10 a10 u10 a10", 300, Some(3)),
            ("u10 a5:x rx10 u10 a10", 700, Some(3)),
            // Within a round the cut moves past it, where something is left to keep.
            ("u10 a5:x,y rx10 ry10 u10", 500, Some(4)),
            ("u10 a10 a5:x,y ry10 rx10", 300, Some(2)),
            // A call without its result stays, and what comes after it.
            ("u10 a10 a5:x u10 u10", 250, Some(2)),
            ("a5:x u10 u10", 250, None),
            ("u10", 0, None),
            ("", 0, None),
            // A summary alone is not summarised again.
            ("h10 u10", 210, None),
            ("h10 s10 u10", 210, None),
            ("h10 u10 u10", 210, Some(2)),
        ] {
            assert_eq!(select(&items(text), keep), expected, "{text} {keep}");
        }
    }

    #[test]
    fn d087_a_last_result_that_is_too_long_stays_with_its_answer() {
        for keep in [0, 100, 400] {
            let items = items("u10 a10 u10 a5:x rx9000");
            assert_eq!(select(&items, keep), Some(3), "{keep}");
        }
    }

    #[test]
    fn thresholds_are_parts_of_the_window() {
        for (estimate, window, filling, full) in [
            (0, 100, false, false),
            (69, 100, false, false),
            (70, 100, true, false),
            (90, 100, true, true),
            (u64::MAX, 1, true, true),
        ] {
            assert_eq!(
                (is_filling(estimate, window), is_full(estimate, window)),
                (filling, full),
                "{estimate} of {window}"
            );
        }
    }

    #[test]
    fn a_transcript_fits_its_bytes_and_says_what_it_leaves_out() {
        let many: Vec<_> = items(&"u5000 ".repeat(200))
            .iter()
            .filter_map(Item::message)
            .collect();
        for bytes in [2_000_000, 500_000, 100_000, 10_000, 500] {
            let text = transcript(&many, bytes);
            assert!(text.len() <= bytes + 400, "{} of {bytes}", text.len());
        }
        assert!(transcript(&many, 10_000).contains("messages are left out here"));
        assert!(transcript(&many, 100_000).contains(" bytes] "));
        assert!(!transcript(&many, 2_000_000).contains(" bytes] "));
    }

    #[test]
    fn a_request_is_a_function_of_what_stands_before_the_cut() {
        let all = items("u10 a5:x rx10 u20");
        let input = plan(&all, Mode::Manual, None, "keep names".into()).expect("a plan");
        assert_eq!((input.cut, input.cutoff), (EntryId(4), EntryId(4)));
        let whole = request(&all, &input, "m", &Value::Null);
        assert_eq!(whole, request(&all[..3], &input, "m", &Value::Null));
        let text = format!("{:?}", whole.messages);
        assert!(
            text.contains("[calls t null]") && text.contains("keep names"),
            "{text}"
        );
        assert!(!text.contains(&"x".repeat(20)));
    }
}
