//! Doing plainly what a message says, a line a turn.

use mooring_durable::message::{Message, Part};
use serde_json::{Value, json};

use super::{ANNOUNCEMENT, Call, Turn};

/// What a line asks for, as people write it.
const USAGE: [(&str, &str); 7] = [
    ("run <command>", "runs it in the sandbox's bash"),
    ("read <path>", "shows a file"),
    (
        "write <path>: <text>",
        "writes a file; \\n in the text begins a new line",
    ),
    (
        "edit <path>: <old> => <new>",
        "replaces a text that is there once",
    ),
    ("search <pattern>", "looks for lines that match"),
    ("find <glob>", "looks for files by name"),
    ("ls <path>", "lists a folder"),
];

/// Characters of a result that the report shows.
const SHOWN: usize = 400;

/// One line that was understood.
#[derive(Clone, Debug, PartialEq)]
struct Deed {
    /// As the report names it.
    line: String,
    /// The call, or what is wrong with the line.
    call: Result<Call, String>,
}

/// The next turn of a conversation.
pub(super) fn turn(messages: &[Message]) -> Turn {
    let (text, after) = last_words(messages);
    let deeds: Vec<Deed> = text.lines().filter_map(deed).collect();
    if deeds.is_empty() {
        return Turn {
            text: help(),
            ..Turn::default()
        };
    }
    let results = results(after);
    let mut calls = deeds
        .iter()
        .filter_map(|deed| deed.call.as_ref().ok())
        .skip(results.len());
    let Some(next) = calls.next() else {
        return Turn {
            text: report(&deeds, &results),
            ..Turn::default()
        };
    };
    let count = deeds.iter().filter(|deed| deed.call.is_ok()).count();
    let line = deeds
        .iter()
        .filter(|deed| deed.call.is_ok())
        .nth(results.len());
    let line = line.map_or("", |deed| deed.line.as_str());
    let step = format!("{} of {count}: {line}", results.len() + 1);
    let text = match results.len() {
        0 => format!("{ANNOUNCEMENT}\n\n{step}"),
        _ => step,
    };
    Turn {
        text,
        calls: vec![next.clone()],
        ..Turn::default()
    }
}

/// What people said last, with all that were placed together, and what came
/// after it.
fn last_words(messages: &[Message]) -> (String, &[Message]) {
    let is_user = |message: &Message| matches!(message, Message::User { .. });
    let Some(last) = messages.iter().rposition(is_user) else {
        return (String::new(), &[]);
    };
    let first = messages[..last]
        .iter()
        .rposition(|m| !matches!(m, Message::User { .. } | Message::System { .. }))
        .map_or(0, |before| before + 1);
    let mut texts = Vec::new();
    for message in &messages[first..=last] {
        if let Message::User { content } = message {
            texts.push(words(content));
        }
    }
    (texts.join("\n"), &messages[last + 1..])
}

/// The result of each call that was made since, in the order of the calls.
fn results(after: &[Message]) -> Vec<Option<(String, bool)>> {
    let calls = after.iter().filter_map(|message| match message {
        Message::Assistant { content } => Some(content),
        _ => None,
    });
    let calls = calls.flatten().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call.id.as_str()),
        _ => None,
    });
    let result = |id: &str| {
        after.iter().find_map(|message| match message {
            Message::ToolResult {
                call_id,
                content,
                is_error,
                ..
            } if call_id == id => Some((words(content), *is_error)),
            _ => None,
        })
    };
    calls.map(result).collect()
}

fn words(content: &[Part]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n")
}

/// What a line asks for; `None` where it asks for nothing known.
fn deed(line: &str) -> Option<Deed> {
    let line = line.trim();
    let line = line
        .strip_prefix("- ")
        .or_else(|| line.strip_prefix("* "))
        .unwrap_or(line);
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let wants = |shape: &str| Err(format!("write it as `{shape}`"));
    let call = |tool: &str, arguments: Value| {
        Ok(Call {
            tool: tool.to_owned(),
            arguments,
        })
    };
    let call = match word.to_ascii_lowercase().as_str() {
        "ls" if rest.is_empty() => call("ls", json!({})),
        "ls" => call("ls", json!({"path": rest})),
        "run" if rest.is_empty() => wants("run <command>"),
        "run" => call("bash", json!({"command": rest})),
        "read" if rest.is_empty() => wants("read <path>"),
        "read" => call("read", json!({"path": rest})),
        "search" if rest.is_empty() => wants("search <pattern>"),
        "search" => call("grep", json!({"pattern": rest})),
        "find" if rest.is_empty() => wants("find <glob>"),
        "find" => call("find", json!({"glob": rest})),
        "write" => match rest.split_once(':') {
            Some((path, text)) if !path.trim().is_empty() => {
                let mut content = unescaped(text.strip_prefix(' ').unwrap_or(text));
                if !content.is_empty() && !content.ends_with('\n') {
                    content.push('\n');
                }
                call("write", json!({"path": path.trim(), "content": content}))
            }
            _ => wants("write <path>: <text>"),
        },
        "edit" => match rest.split_once(':').and_then(|(path, change)| {
            let (old, new) = change.split_once("=>")?;
            Some((path.trim(), unescaped(old.trim()), unescaped(new.trim())))
        }) {
            Some((path, old, new)) if !path.is_empty() && !old.is_empty() => {
                call("edit", json!({"path": path, "old": old, "new": new}))
            }
            _ => wants("edit <path>: <old> => <new>"),
        },
        _ => return None,
    };
    Some(Deed {
        line: line.to_owned(),
        call,
    })
}

/// `\n`, `\t` and `\\` as what they stand for.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('\\') => out.push('\\'),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            c => out.push(c),
        }
    }
    out
}

fn help() -> String {
    let mut text = format!("{ANNOUNCEMENT}\n\nWrite one or more of these, a line each:\n\n");
    for (shape, what) in USAGE {
        text.push_str(&format!("- `{shape}` – {what}\n"));
    }
    text.push_str("\nFor real answers name a model with a key in the Workspace's `models`.");
    text
}

fn report(deeds: &[Deed], results: &[Option<(String, bool)>]) -> String {
    let count = deeds.iter().filter(|deed| deed.call.is_ok()).count();
    let failed = results
        .iter()
        .filter(|result| !matches!(result, Some((_, false))))
        .count();
    let mut text = format!(
        "Rehearsal, no language model: {} of {count} went well.\n",
        count - failed.min(count)
    );
    let mut results = results.iter();
    for (at, Deed { line, call }) in deeds.iter().enumerate() {
        let outcome = match call {
            Err(wrong) => format!("not done, {wrong}"),
            Ok(_) => match results.next() {
                Some(Some((result, false))) => format!("ok{}", shown(result)),
                Some(Some((result, true))) => format!("failed{}", shown(result)),
                Some(None) | None => "no result came".to_owned(),
            },
        };
        text.push_str(&format!(
            "\n{}. `{}`: {outcome}",
            at + 1,
            line.replace('`', "'")
        ));
    }
    text
}

/// The beginning of a result, in a fence that it cannot close.
fn shown(result: &str) -> String {
    let result = result.trim_end();
    if result.trim().is_empty() {
        return ", no output".to_owned();
    }
    let lines = result.lines().count();
    let head: Vec<&str> = result
        .lines()
        .take(if lines <= 6 { 6 } else { 4 })
        .collect();
    let mut head = head.join("\n");
    let mut cut = lines > 6;
    if let Some((at, _)) = head.char_indices().nth(SHOWN) {
        head.truncate(at);
        cut = true;
    }
    let mut fence = "```".to_owned();
    while head.contains(&fence) {
        fence.push('`');
    }
    let more = if cut {
        format!("\n… ({lines} lines)")
    } else {
        String::new()
    };
    format!("\n{fence}\n{head}{more}\n{fence}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use mooring_durable::message::ToolCall;

    use super::*;

    fn user(text: &str) -> Message {
        Message::User {
            content: vec![Part::text(text)],
        }
    }

    fn round(id: &str, result: &str, is_error: bool) -> [Message; 2] {
        let call = ToolCall {
            id: id.into(),
            name: "bash".into(),
            arguments: json!({}),
        };
        [
            Message::Assistant {
                content: vec![Part::text("…"), Part::ToolCall(call)],
            },
            Message::ToolResult {
                call_id: id.into(),
                name: "bash".into(),
                content: vec![Part::text(result)],
                is_error,
            },
        ]
    }

    #[test]
    fn each_line_is_the_call_that_it_says() {
        let rows = [
            (
                "run cargo test -- --nocapture",
                "bash",
                json!({"command": "cargo test -- --nocapture"}),
            ),
            (
                "  Run  ls | wc -l ",
                "bash",
                json!({"command": "ls | wc -l"}),
            ),
            ("- read src/main.rs", "read", json!({"path": "src/main.rs"})),
            (
                "write a.txt: one\\ntwo",
                "write",
                json!({"path": "a.txt", "content": "one\ntwo\n"}),
            ),
            (
                "write a.txt: a: b",
                "write",
                json!({"path": "a.txt", "content": "a: b\n"}),
            ),
            (
                "write empty.txt:",
                "write",
                json!({"path": "empty.txt", "content": ""}),
            ),
            (
                "edit a.rs: let x = 1; => let x = 2;",
                "edit",
                json!({"path": "a.rs", "old": "let x = 1;", "new": "let x = 2;"}),
            ),
            (
                "edit a.rs: gone =>",
                "edit",
                json!({"path": "a.rs", "old": "gone", "new": ""}),
            ),
            ("search fn main", "grep", json!({"pattern": "fn main"})),
            ("find *.rs", "find", json!({"glob": "*.rs"})),
            ("ls src", "ls", json!({"path": "src"})),
            ("ls", "ls", json!({})),
        ];
        for (line, tool, arguments) in rows {
            let turn = turn(&[user(line)]);
            assert_eq!(
                turn.calls,
                [Call {
                    tool: tool.into(),
                    arguments
                }],
                "{line}"
            );
        }
    }

    #[test]
    fn a_message_that_asks_for_nothing_known_is_told_what_can_be_asked() {
        for text in ["hello", "", "please fix the bug\nthanks", "runaway"] {
            let turn = turn(&[user(text)]);
            assert!(turn.calls.is_empty());
            assert!(
                turn.text
                    .lines()
                    .next()
                    .unwrap()
                    .contains("no language model"),
                "{}",
                turn.text
            );
            for (shape, _) in USAGE {
                assert!(turn.text.contains(shape), "{}", turn.text);
            }
        }
    }

    #[test]
    fn several_lines_go_in_turn_and_end_with_a_report() {
        let mut messages = vec![user("hello\nrun true\nwrite nonsense\nrun false\nread x")];
        let first = turn(&messages);
        assert_eq!(first.calls[0].arguments, json!({"command": "true"}));
        assert!(first.text.starts_with(ANNOUNCEMENT) && first.text.contains("1 of 3: run true"));
        messages.extend(round("a", "", false));
        assert_eq!(
            turn(&messages).calls[0].arguments,
            json!({"command": "false"})
        );
        messages.extend(round("b", "exit status 1", true));
        assert_eq!(turn(&messages).calls[0].tool, "read");
        messages.extend(round("c", "```\nx\n```", false));
        let last = turn(&messages);
        assert!(last.calls.is_empty());
        assert_eq!(
            last.text,
            "Rehearsal, no language model: 2 of 3 went well.\n\
             \n1. `run true`: ok, no output\
             \n2. `write nonsense`: not done, write it as `write <path>: <text>`\
             \n3. `run false`: failed\n```\nexit status 1\n```\
             \n4. `read x`: ok\n````\n```\nx\n```\n````"
        );
        assert_eq!(
            turn(&messages),
            last,
            "the same request has the same answer"
        );
    }

    #[test]
    fn what_is_said_meanwhile_takes_the_place_of_what_was_said_before() {
        let mut messages = vec![user("run a\nrun b")];
        messages.extend(round("a", "", false));
        messages.push(user("run c"));
        assert_eq!(turn(&messages).calls[0].arguments, json!({"command": "c"}));
        messages.extend(round("c", "", false));
        assert!(turn(&messages).text.contains("1 of 1 went well"));
    }

    #[test]
    fn messages_placed_together_are_done_together() {
        let system = Message::System {
            text: "rules".into(),
        };
        let messages = [user("run a"), system, user("run b")];
        assert!(turn(&messages).text.contains("1 of 2: run a"));
    }

    #[test]
    fn a_long_result_is_cut_in_the_report() {
        let mut messages = vec![user("run yes")];
        messages.extend(round("a", &"y\n".repeat(1_000_000), false));
        let text = turn(&messages).text;
        assert!(
            text.len() < 1000 && text.contains("(1000000 lines)"),
            "{text}"
        );
    }
}
