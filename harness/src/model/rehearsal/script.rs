//! Scripts for the rehearsal provider; `docs/models.md` has the format.

use std::{path::Path, time::Duration};

use mooring_durable::message::{Message, Part};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt;

use super::{ANNOUNCEMENT, Call, Ended, Failure, Turn, summary};

/// Bytes that a script may have.
const LARGEST: u64 = 1024 * 1024;
/// Milliseconds that one wait of a script may take.
const LONGEST_MS: u64 = 24 * 3600 * 1000;

/// A script file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Script {
    /// Tried in order.
    #[serde(default)]
    conversations: Vec<Conversation>,
    /// For conversations that match none of them.
    #[serde(default)]
    turns: Vec<Step>,
    #[serde(default = "yes")]
    announce: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Conversation {
    /// Stands in the conversation's first user text.
    #[serde(rename = "match")]
    marker: String,
    turns: Vec<Step>,
}

/// One turn.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Step {
    thinking: String,
    text: String,
    calls: Vec<ScriptCall>,
    /// Before the first piece.
    delay_ms: u64,
    /// Between pieces.
    pace_ms: u64,
    /// How the first attempts end; the next one answers.
    fail: Vec<ScriptFailure>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScriptCall {
    tool: String,
    /// An object; anything else reaches the engine as invalid arguments.
    #[serde(default = "nothing")]
    arguments: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScriptFailure {
    #[serde(rename = "as")]
    kind: FailureKind,
    #[serde(default)]
    text: String,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FailureKind {
    Retryable,
    Overflow,
    Fatal,
    Cut,
}

fn yes() -> bool {
    true
}

fn nothing() -> Value {
    Value::Object(Map::new())
}

/// The turn that a script has for a request, at its `attempt`th attempt. The
/// error names the file and the way out.
pub(super) async fn turn(path: &Path, messages: &[Message], attempt: u32) -> Result<Turn, String> {
    let shown = path.display();
    let text = read(path).await.map_err(|error| {
        format!("the rehearsal script {shown} cannot be read: {error}; set `model` to a script's path relative to the Workspace file, or leave it out")
    })?;
    let script =
        parse(&text).map_err(|error| format!("the rehearsal script {shown} is wrong: {error}"))?;
    Ok(pick(&script, messages, attempt, &shown.to_string()))
}

async fn read(path: &Path) -> Result<String, String> {
    let file = tokio::fs::File::open(path)
        .await
        .map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(LARGEST + 1).read_to_string(&mut text).await;
    match read {
        Ok(bytes) if bytes as u64 > LARGEST => Err(format!("it has more than {LARGEST} bytes")),
        Ok(_) => Ok(text),
        Err(error) => Err(error.to_string()),
    }
}

fn parse(text: &str) -> Result<Script, String> {
    let script: Script = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    if script.conversations.is_empty() && script.turns.is_empty() {
        return Err("it has neither `turns` nor `conversations`".to_owned());
    }
    let own = script
        .conversations
        .iter()
        .map(|c| (format!("conversation {:?}", c.marker), &c.turns));
    for (of, turns) in own.chain([("the script".to_owned(), &script.turns)]) {
        for (at, step) in turns.iter().enumerate() {
            let number = at + 1;
            if step.text.trim().is_empty() && step.calls.is_empty() && step.fail.is_empty() {
                return Err(format!(
                    "turn {number} of {of} has neither `text` nor `calls` nor `fail`"
                ));
            }
            if step.delay_ms.max(step.pace_ms) > LONGEST_MS {
                return Err(format!("turn {number} of {of} waits longer than a day"));
            }
        }
    }
    Ok(script)
}

fn pick(script: &Script, messages: &[Message], attempt: u32, shown: &str) -> Turn {
    let opening = messages.iter().find_map(|message| match message {
        Message::User { content } => Some(content),
        _ => None,
    });
    let says = |marker: &str| {
        opening.is_some_and(|content| {
            content
                .iter()
                .any(|part| matches!(part, Part::Text { text } if text.contains(marker)))
        })
    };
    let turns = script
        .conversations
        .iter()
        .find(|conversation| says(&conversation.marker))
        .map_or(&script.turns, |conversation| &conversation.turns);
    let said = messages
        .iter()
        .filter(|m| matches!(m, Message::Assistant { .. }))
        .count();
    // Answers that a summary took the place of were given, too.
    let number =
        said + opening.map_or(0, |content| summary::answers(&crate::books::plain(content)));
    let mut turn = match turns.get(number) {
        Some(step) => played(step, attempt),
        None => Turn {
            text: format!(
                "The script {shown} has no turn {} for this conversation.",
                number + 1
            ),
            ..Turn::default()
        },
    };
    if script.announce && number == 0 {
        let text = std::mem::take(&mut turn.text);
        turn.text = format!("{ANNOUNCEMENT}\n\n{text}").trim_end().to_owned();
    }
    turn
}

fn played(step: &Step, attempt: u32) -> Turn {
    let tries = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    // A turn that only fails goes on failing as it last did.
    let says_nothing = step.text.trim().is_empty() && step.calls.is_empty();
    let failure = step
        .fail
        .get(tries)
        .or(if says_nothing { step.fail.last() } else { None });
    let failure = failure.map(|failure| {
        let said = |usual: &str| match failure.text.as_str() {
            "" => usual.to_owned(),
            text => text.to_owned(),
        };
        match failure.kind {
            FailureKind::Cut => Failure::Cut,
            FailureKind::Retryable => Failure::AtOnce(Ended::Retryable {
                text: said("the script says: overloaded"),
                retry_after: failure.retry_after_ms.map(Duration::from_millis),
            }),
            FailureKind::Overflow => Failure::AtOnce(Ended::Overflow {
                text: said("the script says: prompt is too long"),
            }),
            FailureKind::Fatal => Failure::AtOnce(Ended::Fatal {
                text: said("the script says: refused"),
            }),
        }
    });
    Turn {
        thinking: step.thinking.clone(),
        text: step.text.clone(),
        calls: step
            .calls
            .iter()
            .map(|call| Call {
                tool: call.tool.clone(),
                arguments: call.arguments.clone(),
            })
            .collect(),
        delay: Duration::from_millis(step.delay_ms),
        pace: Duration::from_millis(step.pace_ms),
        failure,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    const SCRIPT: &str = r#"
announce: false
conversations:
  - match: deploy
    turns:
      - thinking: let me see
        text: I look first.
        calls:
          - tool: bash
            arguments: { command: "git status" }
          - tool: ls
      - fail:
          - { as: retryable, text: busy, retryAfterMs: 2000 }
          - { as: cut }
        text: deployed
turns:
  - { text: hello, delayMs: 5, paceMs: 1 }
  - { calls: [{ tool: bash, arguments: "{broken" }] }
  - { fail: [{ as: overflow }] }
"#;

    fn context(opening: &str, answers: usize) -> Vec<Message> {
        let mut messages = vec![
            Message::System { text: "s".into() },
            Message::User {
                content: vec![Part::text(opening)],
            },
        ];
        for _ in 0..answers {
            messages.push(Message::Assistant {
                content: vec![Part::text("x")],
            });
        }
        messages
    }

    fn picked(opening: &str, answers: usize, attempt: u32) -> Turn {
        pick(
            &parse(SCRIPT).unwrap(),
            &context(opening, answers),
            attempt,
            "s.yaml",
        )
    }

    #[test]
    fn a_script_is_matched_by_the_first_user_text_and_the_turns_number() {
        let first = picked("please deploy it", 0, 1);
        assert_eq!(
            (first.thinking.as_str(), first.text.as_str()),
            ("let me see", "I look first.")
        );
        assert_eq!(first.calls[0].arguments, json!({"command": "git status"}));
        assert_eq!(
            first.calls[1],
            Call {
                tool: "ls".into(),
                arguments: json!({})
            }
        );
        let other = picked("hi", 0, 1);
        assert_eq!(
            (other.text.as_str(), other.delay),
            ("hello", Duration::from_millis(5))
        );
        assert_eq!(picked("hi", 1, 1).calls[0].arguments, json!("{broken"));
        assert!(picked("hi", 9, 1).text.contains("s.yaml has no turn 10"));
    }

    #[test]
    fn attempts_fail_in_turn_and_then_answer() {
        let busy = Ended::Retryable {
            text: "busy".into(),
            retry_after: Some(Duration::from_secs(2)),
        };
        assert_eq!(picked("deploy", 1, 1).failure, Some(Failure::AtOnce(busy)));
        assert_eq!(picked("deploy", 1, 2).failure, Some(Failure::Cut));
        assert_eq!(picked("deploy", 1, 3).failure, None);
        let overflow = Ended::Overflow {
            text: "the script says: prompt is too long".into(),
        };
        for attempt in [1, 5] {
            assert_eq!(
                picked("hi", 2, attempt).failure,
                Some(Failure::AtOnce(overflow.clone()))
            );
        }
    }

    #[test]
    fn a_wrong_script_says_where() {
        let rows = [
            ("turns: [{txt: a}]", "txt"),
            ("turns: [{text: a}, {thinking: b}]", "turn 2 of the script"),
            ("announce: true", "neither"),
            ("turns: [", "line"),
            (
                "turns: [{text: a, delayMs: 99999999999}]",
                "longer than a day",
            ),
        ];
        for (text, part) in rows {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn a_missing_script_is_named_with_the_way_out() {
        let error = turn(Path::new("/nowhere/x.yaml"), &context("a", 0), 1)
            .await
            .unwrap_err();
        assert!(error.contains("/nowhere/x.yaml") && error.contains("relative to the Workspace"));
    }

    #[test]
    fn a_script_says_first_that_it_is_no_language_model() {
        let script = parse("turns: [{text: hello}, {text: again}]").unwrap();
        assert_eq!(
            pick(&script, &context("a", 0), 1, "s").text,
            format!("{ANNOUNCEMENT}\n\nhello")
        );
        assert_eq!(pick(&script, &context("a", 1), 1, "s").text, "again");
    }
}
