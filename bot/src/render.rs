//! What outbox rows look like in Discord. Pure: the same row gives the same text,
//! so that a message that was sent can be recognised after a crash.

use std::fmt::Write as _;

use mooring_wire::shown::{Anchor, Card};
use serde_json::{Value, json};

use crate::split::LIMIT;

/// Prefixes of the buttons' ids; [`crate::interact`] has a handler for each.
pub const APPROVE: &str = "approve:";
/// Approve, and the same rule for the rest of the conversation.
pub const APPROVE_CONVERSATION: &str = "approve-conversation:";
/// Deny.
pub const DENY: &str = "deny:";

/// All prefixes that are ever put on a button.
pub const BUTTONS: [&str; 3] = [APPROVE, APPROVE_CONVERSATION, DENY];

/// The line of an anchor that tells how the run is.
pub fn state_line(anchor: &Anchor) -> String {
    let mut line = match anchor.state.as_str() {
        "working" => "-# ⏳ working".to_owned(),
        "waiting" => "-# ✋ waiting".to_owned(),
        "answered" => "-# done".to_owned(),
        _ => "-# stopped".to_owned(),
    };
    if anchor.turns > 0 {
        let _ = write!(line, " · {} {}", anchor.turns, plural(anchor.turns, "turn"));
    }
    if anchor.tool_calls > 0 {
        let _ = write!(
            line,
            " · {} {}",
            anchor.tool_calls,
            plural(anchor.tool_calls, "tool call")
        );
    }
    if anchor.tokens > 0 {
        let _ = write!(line, " · {} tokens", thousands(anchor.tokens));
    }
    if let Some(cost) = anchor.cost_micros {
        let _ = write!(
            line,
            " · ${}.{:02}",
            cost / 1_000_000,
            cost % 1_000_000 / 10_000
        );
    }
    if anchor.ended_ms > 0 {
        let _ = write!(line, " · {}", duration(anchor.ended_ms - anchor.started_ms));
    } else if !anchor.note.is_empty() {
        let _ = write!(line, "\n-# {}", one_line(&anchor.note, 300));
    }
    line
}

/// Why a run has no answer, for people.
pub fn unanswered(anchor: &Anchor) -> String {
    let (word, detail) = anchor
        .reason
        .split_once(": ")
        .unwrap_or((&anchor.reason, ""));
    let mut text = match word {
        "aborted" => "Stopped.".to_owned(),
        "" => "This ended without an answer.".to_owned(),
        word => format!("No answer: {word}."),
    };
    if !detail.is_empty() {
        let _ = write!(text, "\n{}", cut(detail, 1_500));
    }
    text
}

fn plural(count: u32, word: &str) -> String {
    if count == 1 {
        word.to_owned()
    } else {
        format!("{word}s")
    }
}

fn thousands(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{}.{}k", number / 1_000, number % 1_000 / 100),
        _ => format!("{}.{}M", number / 1_000_000, number % 1_000_000 / 100_000),
    }
}

/// A time in the largest two units.
pub fn duration(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// The first `limit` characters.
pub fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit.saturating_sub(1)) {
        Some((at, c)) if text.len() > at + c.len_utf8() => format!("{}…", &text[..at]),
        _ => text.to_owned(),
    }
}

/// One line of at most `limit` characters.
pub fn one_line(text: &str, limit: usize) -> String {
    let flat: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    cut(flat.trim(), limit)
}

/// Text in a code block that it cannot leave.
pub fn code_block(text: &str, limit: usize) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.clamp(2, 60) + 1);
    let text = cut(text, limit);
    format!("{fence}\n{text}\n{fence}")
}

/// A Discord timestamp that each reader sees in their own time zone.
fn timestamp(ms: i64, style: char) -> String {
    format!("<t:{}:{style}>", ms / 1_000)
}

/// An approval card: its text and its buttons.
pub fn card(card: &Card) -> (String, Value) {
    let pending = card.state == "pending";
    let mut text = match card.state.as_str() {
        "pending" => format!("**Approval needed** · `{}`", card.tool),
        "approved" => format!("**Approved** · `{}`", card.tool),
        "denied" => format!("**Denied** · `{}`", card.tool),
        "expired" => format!("**Expired** · `{}`", card.tool),
        state => format!("**No longer needed** ({state}) · `{}`", card.tool),
    };
    // The exact command stands in the text; a preview or an embed may hide it.
    let exact = if card.detail.is_empty() {
        &card.summary
    } else {
        &card.detail
    };
    let limit = if pending { 1_100 } else { 500 };
    let _ = write!(text, "\n{}", code_block(exact, limit));
    if exact.chars().count() > limit {
        let _ = write!(
            text,
            "\n-# {} characters in all; `mooring approvals` or `kubectl get apr` shows the whole",
            exact.chars().count()
        );
    }
    if pending {
        for (name, value) in [
            ("Reason", one_line(&card.reason, 200)),
            ("Rule", one_line(&card.rule, 120)),
            ("Asked by", one_line(&card.requesters.join(", "), 150)),
            ("Sandbox", card.grade.clone()),
        ] {
            if !value.is_empty() {
                let _ = write!(text, "\n{name}: {value}");
            }
        }
        let who = if card.requester_may_approve {
            "Who may approve: approvers, also who asked"
        } else {
            "Who may approve: approvers, not who asked"
        };
        let _ = write!(text, "\n{who}");
        if card.expires_ms > 0 {
            let _ = write!(text, "\nExpires {}", timestamp(card.expires_ms, 'R'));
        }
        let _ = write!(text, "\n-# `/approve {0}` · `/deny {0}`", card.approval);
    } else if !card.decided_by.is_empty() {
        let _ = write!(
            text,
            "\nBy {} via {} {}",
            one_line(&card.decided_by, 100),
            card.decided_via,
            timestamp(card.decided_ms, 'f')
        );
        if !card.decision_reason.is_empty() {
            let _ = write!(text, "\nReason: {}", one_line(&card.decision_reason, 200));
        }
    }
    let buttons = if pending {
        let button = |style: u8, label: &str, prefix: &str| {
            json!({"type": 2, "style": style, "label": label,
                   "custom_id": format!("{prefix}{}", card.approval)})
        };
        json!([{"type": 1, "components": [
            button(3, "Approve", APPROVE),
            button(2, "Approve for this conversation", APPROVE_CONVERSATION),
            button(4, "Deny", DENY),
        ]}])
    } else {
        json!([])
    };
    (cut(&text, LIMIT), buttons)
}

/// Who decided, for a click that came second.
pub fn decided(state: &str, by: &str, via: &str, at_ms: i64) -> String {
    let what = match state {
        "approved" => "Already approved",
        "denied" => "Already denied",
        "expired" => return "This approval has expired. Ask for the step again.".into(),
        "superseded" => return "This approval was superseded by a newer one.".into(),
        _ => return format!("This approval is no longer open ({state})."),
    };
    format!(
        "{what} by {} via {via} {}.",
        one_line(by, 100),
        timestamp(at_ms, 'f')
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending() -> Card {
        Card {
            approval: "abc-7".into(),
            tool: "bash".into(),
            summary: "git push".into(),
            requesters: vec!["ada".into()],
            expires_ms: 1_700_000_000_000,
            state: "pending".into(),
            ..Card::default()
        }
    }

    #[test]
    fn a_card_shows_the_exact_command_and_when_it_expires() {
        let (text, buttons) = card(&pending());
        for part in [
            "```\ngit push\n```",
            "<t:1700000000:R>",
            "Asked by: ada",
            "/approve abc-7",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert_eq!(buttons[0]["components"].as_array().map(Vec::len), Some(3));
        let (_, none) = card(&Card {
            state: "approved".into(),
            ..pending()
        });
        assert_eq!(none, json!([]));
    }

    #[test]
    fn a_command_cannot_leave_its_code_block_and_the_card_fits() {
        let (text, _) = card(&Card {
            detail: "a\n```\n@everyone\n````x".into(),
            ..pending()
        });
        assert!(
            text.contains("`````\na\n```\n@everyone\n````x\n`````"),
            "{text}"
        );
        let long = Card {
            detail: "x".repeat(9_000),
            reason: "r".repeat(900),
            rule: "u".repeat(900),
            requesters: vec!["n".repeat(900)],
            ..pending()
        };
        assert!(card(&long).0.chars().count() <= LIMIT);
    }

    #[test]
    fn the_state_line_tells_what_was_used() {
        let anchor = Anchor {
            state: "answered".into(),
            turns: 3,
            tool_calls: 1,
            tokens: 12_345,
            cost_micros: Some(1_230_000),
            started_ms: 1_000,
            ended_ms: 75_000,
            ..Anchor::default()
        };
        assert_eq!(
            state_line(&anchor),
            "-# done · 3 turns · 1 tool call · 12.3k tokens · $1.23 · 1 min 14 s"
        );
    }

    #[test]
    fn text_is_cut_between_characters() {
        for (text, limit, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("ééé", 2, "é…"),
            ("", 2, ""),
        ] {
            assert_eq!(cut(text, limit), expected);
        }
    }
}
