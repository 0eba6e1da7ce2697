//! What outbox rows look like in Discord. Pure: the same row gives the same text,
//! so that a message that was sent can be recognised after a crash.

use std::fmt::Write as _;

use mooring_wire::shown::{Anchor, Card, Question};
use serde_json::{Value, json};

use crate::split::LIMIT;

/// Prefixes of the buttons' ids; [`crate::interact`] has a handler for each.
pub const APPROVE: &str = "approve:";
/// Approve, and the same rule for the rest of the conversation.
pub const APPROVE_CONVERSATION: &str = "approve-conversation:";
/// Deny.
pub const DENY: &str = "deny:";

/// Give one of a question's answers: the question's id and the answer's number.
pub const ANSWER: &str = "answer:";

/// All prefixes that are ever put on a button.
pub const BUTTONS: [&str; 4] = [APPROVE, APPROVE_CONVERSATION, DENY, ANSWER];
/// Characters of a button's label.
const LABEL: usize = 80;
/// Steps of a plan, and conversations that work for a run, that an anchor lists.
const LISTED: usize = 15;

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
    if !anchor.branch.is_empty() {
        let _ = write!(line, " · branch `{}`", one_line(&anchor.branch, 80));
    }
    tool_calls(&mut line, anchor.tool_calls);
    tokens(&mut line, anchor.tokens);
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

/// A run that goes on: its state, the plan, and the conversations that work for it.
pub fn progress(anchor: &Anchor) -> String {
    let mut text = state_line(anchor);
    if anchor.plan.iter().any(|step| step.state != "done") {
        for step in anchor.plan.iter().take(LISTED) {
            let mark = match step.state.as_str() {
                "done" => "☑",
                "doing" => "▸",
                _ => "☐",
            };
            let _ = write!(text, "\n-# {mark} {}", one_line(&step.text, 80));
        }
        more(&mut text, anchor.plan.len(), "steps");
    }
    for child in anchor.children.iter().take(LISTED) {
        let state = match child.state.as_str() {
            "answered" => "done",
            "unanswered" => "stopped",
            state => state,
        };
        let _ = write!(text, "\n-# ↳ {} · {state}", one_line(&child.name, 60));
        tool_calls(&mut text, child.tool_calls);
        tokens(&mut text, child.tokens);
    }
    more(&mut text, anchor.children.len(), "subagents");
    cut(&text, LIMIT)
}

fn more(text: &mut String, all: usize, of: &str) {
    if all > LISTED {
        let _ = write!(text, "\n-# … {} more {of}", all - LISTED);
    }
}

fn tool_calls(line: &mut String, calls: u32) {
    if calls > 0 {
        let _ = write!(line, " · {calls} {}", plural(calls, "tool call"));
    }
}

fn tokens(line: &mut String, count: u64) {
    if count > 0 {
        let _ = write!(line, " · {} tokens", thousands(count));
    }
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

/// What a card is about, exactly.
fn exact(card: &Card) -> &str {
    match card.detail.as_str() {
        "" => &card.summary,
        detail => detail,
    }
}

/// Characters of it that a card that is open shows.
const EXACT: usize = 1_100;
/// Characters of a question, or of an answer.
const ASKED: usize = 1_300;

/// What a card cannot show whole, as a file beside it.
pub fn card_file(card: &Card) -> Option<String> {
    let exact = exact(card);
    (exact.chars().count() > EXACT).then(|| exact.to_owned())
}

/// Who asks, where it is not the thread's own conversation.
fn asker(text: &mut String, from: &str) {
    if !from.is_empty() {
        let _ = write!(text, " · for ↳ {}", one_line(from, 60));
    }
}

/// A question: its text and its buttons.
pub fn question(question: &Question) -> (String, Value) {
    let open = question.state == "open";
    let mut text = match question.state.as_str() {
        "open" => "**Question**".to_owned(),
        "answered" => "**Answered**".to_owned(),
        "expired" => "**Not answered in time**".to_owned(),
        _ => "**No longer asked**".to_owned(),
    };
    asker(&mut text, &question.from);
    let limit = if open { ASKED } else { ASKED / 2 };
    let _ = write!(text, "\n{}", cut(question.text.trim(), limit));
    if !open {
        if question.state == "answered" {
            let _ = write!(
                text,
                "\n**{}:** {}",
                one_line(&question.answered_by, 100),
                cut(question.answer.trim(), ASKED / 2)
            );
        }
        return (cut(&text, LIMIT), json!([]));
    }
    let asked_by = one_line(&question.requesters.join(", "), 150);
    let who = match asked_by.as_str() {
        "" => String::new(),
        names => format!(", {names}"),
    };
    let _ = write!(text, "\nWho may answer: approvers{who}");
    if question.expires_ms > 0 {
        let _ = write!(text, "\nExpires {}", timestamp(question.expires_ms, 'R'));
    }
    let _ = write!(
        text,
        "\n-# Reply to this message to answer in your own words · question {}",
        question.question
    );
    let buttons: Vec<Value> = question
        .choices
        .iter()
        .enumerate()
        .filter(|(_, choice)| !choice.trim().is_empty())
        .take(5)
        .map(|(n, choice)| {
            json!({"type": 2, "style": 2, "label": one_line(choice, LABEL),
                   "custom_id": format!("{ANSWER}{}:{}", question.question, n + 1)})
        })
        .collect();
    let rows = match buttons.is_empty() {
        true => json!([]),
        false => json!([{"type": 1, "components": buttons}]),
    };
    (cut(&text, LIMIT), rows)
}

/// A question that its card cannot show whole, as a file beside it.
pub fn question_file(question: &Question) -> Option<String> {
    let text = question.text.trim();
    (text.chars().count() > ASKED).then(|| text.to_owned())
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
    asker(&mut text, &card.from);
    // The exact command stands in the text; a preview or an embed may hide it.
    let exact = exact(card);
    let limit = if pending { EXACT } else { 500 };
    let _ = write!(text, "\n{}", code_block(exact, limit));
    if exact.chars().count() > limit {
        let _ = write!(
            text,
            "\n-# {} characters in all; {} the whole",
            exact.chars().count(),
            if exact.chars().count() > EXACT {
                "the file has"
            } else {
                "`mooring approvals` or `kubectl get apr` shows"
            }
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

/// Who answered, for a click that came second.
pub fn answered(state: &str, by: &str, answer: &str) -> String {
    match state {
        "answered" => format!(
            "Already answered by {}: {}",
            one_line(by, 100),
            one_line(answer, 300)
        ),
        "expired" => "Nobody answered in time; the question is closed.".into(),
        _ => "This is no longer asked.".into(),
    }
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
    fn a_question_shows_its_answers_and_then_who_gave_which() {
        let open = Question {
            question: "abc-7".into(),
            text: "Which branch?".into(),
            choices: vec!["main".into(), " ".into(), "x".repeat(90)],
            requesters: vec!["discord:ada".into()],
            state: "open".into(),
            from: "look around".into(),
            ..Question::default()
        };
        let (text, buttons) = question(&open);
        for part in [
            "**Question** · for ↳ look around\nWhich branch?",
            "Who may answer: approvers, discord:ada",
            "question abc-7",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let buttons = buttons[0]["components"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let ids: Vec<_> = buttons.iter().map(|b| b["custom_id"].clone()).collect();
        assert_eq!(
            ids,
            ["answer:abc-7:1", "answer:abc-7:3"],
            "a blank is no label"
        );
        let (text, buttons) = question(&Question {
            state: "answered".into(),
            answer: "a".repeat(9_000),
            answered_by: "discord:ada".into(),
            ..open.clone()
        });
        assert!(text.contains("**discord:ada:** aaa") && text.chars().count() <= LIMIT);
        assert_eq!(buttons, json!([]));
        let long = Question {
            text: "q".repeat(4_000),
            ..open
        };
        assert!(question(&long).0.chars().count() <= LIMIT);
        assert_eq!(question_file(&long).map(|file| file.len()), Some(4_000));
    }

    #[test]
    fn an_anchor_lists_the_plan_and_the_conversations_that_work_for_it() {
        use mooring_wire::shown::{Child, Step};
        let step = |text: &str, state: &str| Step {
            text: text.into(),
            state: state.into(),
        };
        let mut anchor = Anchor {
            state: "waiting".into(),
            plan: vec![step("read", "done"), step("write", "doing")],
            children: vec![Child {
                name: "look\naround".into(),
                state: "answered".into(),
                tool_calls: 2,
                tokens: 1_500,
            }],
            ..Anchor::default()
        };
        assert_eq!(
            progress(&anchor),
            "-# ✋ waiting\n-# ☑ read\n-# ▸ write\n-# ↳ look around · done · 2 tool calls · 1.5k tokens"
        );
        anchor.plan = vec![step("read", "done")];
        anchor.children = vec![Child::default(); 40];
        assert!(
            !progress(&anchor).contains('☑'),
            "a plan that is done is left out"
        );
        assert!(progress(&anchor).ends_with("-# … 25 more subagents"));
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
