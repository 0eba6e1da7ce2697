//! What people read of calls, runs, approvals and the harness: values in, lines out.

use jiff::tz::TimeZone;
use mooring_wire::harness::status_response::Sandbox;
use mooring_wire::harness::{
    Approval, Call, Child, Entry, Question, Run, StatusResponse, Submission,
};

use crate::format;
use crate::style::{Line, Style, paragraph};
use crate::text::{one_line, sanitize};

/// Whether a call in this state never changes again.
pub fn is_over(call_state: &str) -> bool {
    matches!(
        call_state,
        "done" | "error" | "denied" | "interrupted" | "aborted"
    )
}

/// One line of a call: what it does, how it stands, how long it took.
pub fn call_line(call: &Call, now_ms: i64, width: usize) -> Line {
    let (mark, style, word) = match call.state.as_str() {
        "done" => ("✓", Style::Good, ""),
        "error" => ("✗", Style::Bad, "error"),
        "denied" => ("✗", Style::Bad, "denied"),
        "interrupted" => ("✗", Style::Bad, "interrupted"),
        "aborted" => ("✗", Style::Notice, "aborted"),
        "waiting-approval" => ("?", Style::Notice, "waits for approval"),
        "unreachable" => ("…", Style::Notice, "sandbox not reachable"),
        "running" => ("•", Style::Accent, ""),
        "asking" => ("?", Style::Notice, "asks you"),
        "sleeping" => ("☾", Style::Dim, ""),
        "delegated" => ("↳", Style::Accent, ""),
        _ => ("•", Style::Dim, ""),
    };
    let took = match (call.started_ms, call.ended_ms) {
        (0, _) => None,
        (begin, 0) => Some(now_ms - begin),
        (begin, end) => Some(end - begin),
    };
    let mut tail: Vec<String> = Vec::new();
    if !word.is_empty() {
        tail.push(word.into());
    }
    if let Some(took) = took.filter(|took| *took >= 100) {
        tail.push(format::span(took));
    }
    if !call.note.is_empty() && call.note != word {
        tail.push(one_line(&call.note, 100));
    }
    let tail = if tail.is_empty() {
        String::new()
    } else {
        format!("  {}", tail.join(", "))
    };
    let head = format!("{mark} ");
    let tool = one_line(&call.tool, 40);
    let used = 2 + tool.chars().count() + 1 + tail.chars().count();
    let summary = one_line(&call.summary, width.saturating_sub(used).max(10));
    let tail_style = if style == Style::Good {
        Style::Dim
    } else {
        style
    };
    Line::new(style, head)
        .with(Style::Bold, tool)
        .with(Style::Plain, format!(" {summary}"))
        .with(tail_style, tail)
        .cut(width)
}

/// How far a conversation is that works for a run, under its card.
pub fn child_line(child: &Child, width: usize) -> Line {
    let (style, state) = match child.state.as_str() {
        "" => (Style::Dim, "begins"),
        "done" => (Style::Good, "done"),
        "unanswered" => (Style::Bad, "unanswered"),
        state => (Style::Accent, state),
    };
    let mut parts = vec![state.to_owned()];
    if child.tool_calls > 0 {
        parts.push(format::count(child.tool_calls.into(), "tool"));
    }
    if child.tokens > 0 {
        parts.push(format!("{} tokens", format::tokens(child.tokens)));
    }
    if !child.doing.is_empty() {
        parts.push(one_line(&child.doing, 100));
    }
    let depth = usize::try_from(child.depth).unwrap_or(0).min(8);
    Line::new(style, format!("  {}↳ ", "  ".repeat(depth)))
        .with(Style::Plain, one_line(&child.title, 60))
        .with(
            Style::Dim,
            format!(
                "  conversation {} · {}",
                child.conversation,
                parts.join(" · ")
            ),
        )
        .cut(width)
}

/// The run card: how a run went or goes, its figures and what it waits for.
pub fn run_card(run: &Run, outcome: &str, now_ms: i64) -> Line {
    let style = match outcome {
        "done" => Style::Good,
        "unanswered" => Style::Bad,
        _ => Style::Notice,
    };
    Line::new(style, format!("[{outcome}]")).with(Style::Dim, format!(" {}", figures(run, now_ms)))
}

/// Turns, tools, time, tokens and cost of a run.
pub fn figures(run: &Run, now_ms: i64) -> String {
    let mut parts = Vec::new();
    if run.turns > 0 {
        parts.push(format::count(run.turns.into(), "turn"));
    }
    if run.tool_calls > 0 {
        parts.push(format::count(run.tool_calls.into(), "tool"));
    }
    if run.started_ms > 0 {
        let end = if run.ended_ms > 0 {
            run.ended_ms
        } else {
            now_ms
        };
        parts.push(format::span(end - run.started_ms));
    }
    if run.input_tokens + run.output_tokens > 0 {
        parts.push(format!(
            "{} in, {} out",
            format::tokens(run.input_tokens),
            format::tokens(run.output_tokens)
        ));
        parts.push(format::cost(run.cost_micros, run.cost_known));
    }
    if !run.model.is_empty() {
        parts.push(one_line(&run.model, 40));
    }
    if !run.branch.is_empty() {
        parts.push(format!("branch {}", one_line(&run.branch, 60)));
    }
    parts.join(" · ")
}

/// What is told where runs wait for room on the disk.
pub fn full_disk(status: &StatusResponse, now_ms: i64) -> Option<String> {
    (status.full_since_ms != 0).then(|| {
        format!(
            "the disk of {} has been full for {}: runs wait and go on by themselves once there \
             is room; nothing that was shown is lost",
            one_line(&status.database_path, 300),
            format::span(now_ms - status.full_since_ms)
        )
    })
}

/// How an entry of the transcript ended that is no whole answer: `aborted`, or the
/// provider's words for a request that failed.
pub fn entry_state(entry: &Entry) -> Option<String> {
    let state = one_line(&entry.state, 60);
    if state.is_empty() {
        return None;
    }
    let value: serde_json::Value = serde_json::from_str(&entry.json).unwrap_or_default();
    let data = &value["data"];
    Some(
        match data["error"].as_str().filter(|text| !text.is_empty()) {
            None => format!("({state})"),
            Some(text) => {
                let attempt = match data["attempt"].as_u64() {
                    Some(attempt) => format!("attempt {attempt} failed"),
                    None => "the request failed".to_owned(),
                };
                format!("({attempt}: {})", one_line(text, 300))
            }
        },
    )
}

/// What a run is doing at this moment, in a few words.
pub fn run_state(run: &Run) -> String {
    let word = match run.state.as_str() {
        "preparing" => "preparing",
        "requesting" => "thinking",
        "retrying" => "trying again",
        "compacting" => "compacting the context",
        "tools" => "working",
        "waiting" => "waiting for you",
        "ending" => "ending",
        other => other,
    };
    match one_line(&run.note, 100) {
        note if note.is_empty() => word.into(),
        note => format!("{word}: {note}"),
    }
}

/// The plan that a call wrote down, a line for each of its items.
pub fn plan(call: &Call, width: usize) -> Vec<Line> {
    if call.tool != "todo" || call.state != "done" {
        return Vec::new();
    }
    let plan: serde_json::Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let items = plan["items"].as_array().map_or(&[][..], Vec::as_slice);
    let line = |item: &serde_json::Value| {
        let (mark, style) = match item["state"].as_str() {
            Some("done") => ("☑", Style::Dim),
            Some("doing") => ("▸", Style::Accent),
            _ => ("☐", Style::Plain),
        };
        let text = one_line(item["text"].as_str().unwrap_or_default(), 500);
        Line::new(style, format!("    {mark} {text}")).cut(width)
    };
    items.iter().map(line).collect()
}

/// A question that the agent asks, or how it ended.
pub fn question(question: &Question, width: usize) -> Vec<Line> {
    let head = Line::new(Style::Notice, "? question ").with(Style::Bold, question.id.to_string());
    match question.state.as_str() {
        "open" => {
            let mut lines = vec![head.cut(width)];
            lines.extend(paragraph(
                Style::Plain,
                sanitize(&question.text).as_str(),
                "  ",
                width,
            ));
            for choice in &question.choices {
                let text = format!("  – {}", one_line(choice, 200));
                lines.push(Line::new(Style::Accent, text).cut(width));
            }
            lines
        }
        "answered" => {
            let text = format!(
                "  {} answered: {}",
                one_line(&question.answered_by, 60),
                one_line(&question.answer, 400)
            );
            vec![head.with(Style::Good, text).cut(width)]
        }
        state => vec![
            head.with(Style::Dim, format!("  {}", one_line(state, 40)))
                .cut(width),
        ],
    }
}

/// How a compaction ended.
pub fn compaction_line(entry: &Entry, width: usize) -> Line {
    let data: serde_json::Value = serde_json::from_str(&entry.json).unwrap_or_default();
    let data = &data["data"];
    let style = match data["outcome"].as_str() {
        Some("failed") => Style::Bad,
        _ => Style::Dim,
    };
    let text = one_line(data["text"].as_str().unwrap_or("compacted"), 400);
    Line::new(style, format!("— {text} —")).cut(width)
}

/// The approval card: what would run, exactly, and why it is asked.
pub fn approval_card(approval: &Approval, now_ms: i64, zone: &TimeZone, width: usize) -> Vec<Line> {
    let mut lines = vec![
        Line::new(Style::Notice, "? approval ")
            .with(Style::Bold, one_line(&approval.id, 80))
            .with(Style::Notice, format!("  {}", one_line(&approval.tool, 40)))
            .cut(width),
    ];
    let mut put =
        |style, text: &str| lines.extend(paragraph(style, &sanitize(text), "  │ ", width));
    put(Style::Bold, approval.summary.trim_end());
    if !approval.detail.trim().is_empty() && approval.detail.trim() != approval.summary.trim() {
        put(Style::Plain, approval.detail.trim_end());
    }
    let mut why = Vec::new();
    if !approval.rule.is_empty() && !approval.reason.contains(&approval.rule) {
        why.push(format!("asked by {}", one_line(&approval.rule, 200)));
    }
    if !approval.reason.is_empty() {
        why.push(approval.reason.clone());
    }
    if !approval.facts.trim().is_empty() && approval.facts.trim() != approval.summary.trim() {
        why.push(format!(
            "what the policy saw: {}",
            approval.facts.trim().replace('\n', "; ")
        ));
    }
    if approval.grade != "isolated" && !approval.grade.is_empty() {
        why.push(format!("the sandbox is {}", grade(&approval.grade)));
    }
    if approval.expires_ms > 0 {
        why.push(format!(
            "open until {}",
            format::moment(now_ms, approval.expires_ms, zone)
        ));
    }
    for line in why {
        lines.extend(paragraph(Style::Dim, &sanitize(&line), "  ", width));
    }
    lines
}

/// One line that tells how an approval ended.
pub fn decision_line(approval: &Approval, width: usize) -> Line {
    let style = if approval.state == "approved" {
        Style::Good
    } else {
        Style::Notice
    };
    let mut text = format!(
        "{} {}",
        one_line(&approval.id, 80),
        one_line(&approval.state, 20)
    );
    if !approval.decided_by.is_empty() {
        text.push_str(&format!(" by {}", one_line(&approval.decided_by, 60)));
    }
    if !approval.decided_via.is_empty() {
        text.push_str(&format!(" in the {}", one_line(&approval.decided_via, 20)));
    }
    if !matches!(approval.scope.as_str(), "" | "once") {
        text.push_str(&format!(" for the {}", one_line(&approval.scope, 20)));
    }
    if !approval.decision_reason.is_empty() {
        text.push_str(&format!(": {}", one_line(&approval.decision_reason, 200)));
    }
    Line::new(style, text).cut(width)
}

/// Why an input was not answered, in words, and what a person can do.
pub fn unanswered(submission: &Submission) -> String {
    let why = match submission.reason.as_str() {
        "no_model" => "there is no model to answer it",
        "model_error" => "the model's service failed",
        "aborted" => "the run was stopped",
        "withdrawn" => "it was withdrawn before it was read",
        "faulted" => "an internal fault ended the run; the log tells which",
        "reset" => "the conversation was reset",
        "stale" => "the conversation had moved on",
        "budget" => "a budget is used up",
        "denied" => "it was refused",
        other => other,
    };
    match sanitize(submission.detail.trim()) {
        detail if detail.is_empty() => format!("unanswered: {why}"),
        detail => format!("unanswered: {why}: {detail}"),
    }
}

/// Whether the sandbox is still on its way: neither there nor known to fail.
pub fn is_starting(sandbox: &Sandbox) -> bool {
    !sandbox.reachable && matches!(sandbox.error.as_str(), "" | "starting")
}

/// A sandbox's grade in words: isolated, confined, not isolated.
pub fn grade(word: &str) -> String {
    one_line(&word.replace('-', " "), 40)
}

/// What is told at the start of a session, in one line: project, model, sandbox,
/// policy and the way to help.
pub fn banner(status: &StatusResponse, project: &str, rehearsal: bool) -> Line {
    let model = if rehearsal {
        format!(
            "{} (no language model; set ANTHROPIC_API_KEY for one)",
            one_line(&status.model, 40)
        )
    } else {
        one_line(&status.model, 60)
    };
    let sandbox = match &status.sandbox {
        Some(sandbox) if sandbox.reachable || !sandbox.grade.is_empty() => {
            let missing = match sandbox.missing.len() {
                0 => String::new(),
                _ => format!(" (without {})", one_line(&sandbox.missing.join(", "), 60)),
            };
            let place = match sandbox.address.as_str() {
                "" => String::new(),
                address => format!(" at {}", one_line(address, 60)),
            };
            format!("sandbox {}{place}{missing}", grade(&sandbox.grade))
        }
        Some(sandbox) if !is_starting(sandbox) => {
            format!("no sandbox: {}", one_line(&sandbox.error, 80))
        }
        _ => "sandbox starting".into(),
    };
    let digest: String = sanitize(&status.policy_digest).chars().take(8).collect();
    Line::new(Style::Bold, one_line(project, 40))
        .with(
            Style::Plain,
            format!(" · {model} · {sandbox} · policy {digest}"),
        )
        .with(Style::Dim, " · /help")
}

#[cfg(test)]
#[path = "cards_tests.rs"]
mod tests;
