//! What a response means for its run.

use std::time::Duration;

use crate::{
    id::Millis,
    ledger::AttemptEnd,
    message::{Part, ToolCall},
    model::{ModelError, ModelResponse, Usage},
    retry,
    submission::Unanswered,
};

/// What follows from a response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The run is answered.
    Answer { content: Vec<Part> },
    /// A tool round begins.
    Tools {
        content: Vec<Part>,
        calls: Vec<ToolCall>,
    },
    /// Another attempt, then.
    Retry {
        text: String,
        until: Millis,
        delay: Duration,
    },
    /// The run waits for a key.
    NeedsKey { needs: String },
    /// The run ends without an answer.
    Failed {
        reason: Unanswered,
        text: String,
        end: AttemptEnd,
    },
}

/// A classified response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Classified {
    pub outcome: Outcome,
    pub usage: Option<Usage>,
}

impl Outcome {
    /// How the attempt ended.
    pub fn attempt_end(&self) -> AttemptEnd {
        match self {
            Outcome::Answer { .. } => AttemptEnd::Answer,
            Outcome::Tools { .. } => AttemptEnd::Tools,
            Outcome::Retry { .. } | Outcome::NeedsKey { .. } => AttemptEnd::Retry,
            Outcome::Failed { end, .. } => *end,
        }
    }
}

/// Classifies the response to attempt number `attempt` (from 1, waits for keys not counted).
pub(crate) fn classify(
    response: Result<ModelResponse, ModelError>,
    attempt: u32,
    now: Millis,
    jitter: f64,
) -> Classified {
    let (outcome, usage) = match response {
        Ok(response) => {
            let usage = response.usage;
            let content = unique_calls(response.content);
            let calls: Vec<_> = content
                .iter()
                .filter_map(|part| match part {
                    Part::ToolCall(call) => Some(call.clone()),
                    _ => None,
                })
                .collect();
            let outcome = if !calls.is_empty() {
                Outcome::Tools { content, calls }
            } else if says_something(&content) {
                Outcome::Answer { content }
            } else {
                retryable(
                    "the model sent an empty answer".into(),
                    None,
                    attempt,
                    now,
                    jitter,
                )
            };
            (outcome, usage)
        }
        Err(ModelError::Retryable {
            text,
            retry_after,
            usage,
        }) => (retryable(text, retry_after, attempt, now, jitter), usage),
        Err(ModelError::Overflow { text }) => (
            Outcome::Failed {
                reason: Unanswered::ModelError,
                text,
                end: AttemptEnd::Overflow,
            },
            None,
        ),
        Err(ModelError::Fatal { text }) => (failed(text), None),
        Err(ModelError::NotConfigured { needs }) => {
            (Outcome::NeedsKey { needs }, Some(Usage::default()))
        }
        Err(ModelError::Cancelled) => {
            // Nobody cancelled: an abort does not wait for this answer.
            (
                retryable("the request was cut off".into(), None, attempt, now, jitter),
                None,
            )
        }
    };
    Classified { outcome, usage }
}

fn failed(text: String) -> Outcome {
    Outcome::Failed {
        reason: Unanswered::ModelError,
        text,
        end: AttemptEnd::Failed,
    }
}

fn retryable(
    text: String,
    retry_after: Option<Duration>,
    attempt: u32,
    now: Millis,
    jitter: f64,
) -> Outcome {
    match retry::next(attempt, retry_after, jitter) {
        retry::Next::After(delay) => {
            let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
            Outcome::Retry {
                text,
                until: Millis(now.0.saturating_add(delay_ms)),
                delay,
            }
        }
        retry::Next::Exhausted => failed(text),
        retry::Next::TooLate(asked) => {
            let at = i64::try_from(asked.as_millis())
                .ok()
                .and_then(|wait| now.0.checked_add(wait));
            let when = at.and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
            failed(match when {
                Some(when) => format!(
                    "{text} (the provider asks to try again after {})",
                    when.strftime("%Y-%m-%d %H:%M UTC")
                ),
                None => text,
            })
        }
    }
}

fn says_something(content: &[Part]) -> bool {
    content.iter().any(|part| match part {
        Part::Text { text } => !text.trim().is_empty(),
        Part::Image { .. } | Part::ToolCall(_) => true,
        Part::Thinking { .. } => false,
    })
}

/// Gives calls without an id, or with one that came before, an id of their own:
/// results are matched by it.
fn unique_calls(mut content: Vec<Part>) -> Vec<Part> {
    let mut seen = std::collections::HashSet::new();
    for (at, part) in content.iter_mut().enumerate() {
        if let Part::ToolCall(call) = part
            && (call.id.is_empty() || !seen.insert(call.id.clone()))
        {
            call.id = format!("{}#{at}", call.id);
            seen.insert(call.id.clone());
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Part {
        Part::ToolCall(ToolCall {
            id: id.into(),
            name: "bash".into(),
            arguments: serde_json::json!({}),
        })
    }

    fn response(content: Vec<Part>) -> Result<ModelResponse, ModelError> {
        Ok(ModelResponse {
            content,
            usage: None,
            stop_reason: None,
        })
    }

    fn retryable_error(seconds: Option<u64>) -> Result<ModelResponse, ModelError> {
        Err(ModelError::Retryable {
            text: "overloaded".into(),
            retry_after: seconds.map(Duration::from_secs),
            usage: None,
        })
    }

    #[test]
    fn responses_are_told_apart() {
        let now = Millis(1_000);
        for (name, response, attempt, expected) in [
            ("answer", response(vec![Part::text("yes")]), 1, "answer"),
            (
                "calls",
                response(vec![Part::text("so"), call("a"), call("b")]),
                1,
                "tools 2",
            ),
            (
                "nothing",
                response(vec![]),
                1,
                "retry at 3000: the model sent an empty answer",
            ),
            (
                "blank",
                response(vec![Part::text(" \n")]),
                1,
                "retry at 3000: the model sent an empty answer",
            ),
            (
                "only thoughts",
                response(vec![Part::Thinking {
                    text: "hm".into(),
                    signature: None,
                }]),
                5,
                "failed Failed: the model sent an empty answer",
            ),
            ("503", retryable_error(None), 1, "retry at 3000: overloaded"),
            (
                "503 later",
                retryable_error(None),
                3,
                "retry at 9000: overloaded",
            ),
            (
                "503 at last",
                retryable_error(None),
                5,
                "failed Failed: overloaded",
            ),
            (
                "429",
                retryable_error(Some(60)),
                2,
                "retry at 61000: overloaded",
            ),
            (
                "429 tomorrow",
                retryable_error(Some(86_400)),
                1,
                "failed Failed: overloaded (the provider asks to try again after 1970-01-02 00:00 UTC)",
            ),
            (
                "overflow",
                Err(ModelError::Overflow {
                    text: "too long".into(),
                }),
                1,
                "failed Overflow: too long",
            ),
            (
                "fatal",
                Err(ModelError::Fatal {
                    text: "bad key".into(),
                }),
                1,
                "failed Failed: bad key",
            ),
            (
                "no key",
                Err(ModelError::NotConfigured {
                    needs: "A_KEY".into(),
                }),
                1,
                "needs A_KEY",
            ),
        ] {
            let found = match classify(response, attempt, now, 0.0).outcome {
                Outcome::Answer { .. } => "answer".into(),
                Outcome::Tools { calls, .. } => format!("tools {}", calls.len()),
                Outcome::Retry { text, until, .. } => format!("retry at {until:?}: {text}")
                    .replace("Millis(", "")
                    .replace(')', ""),
                Outcome::NeedsKey { needs } => format!("needs {needs}"),
                Outcome::Failed { text, end, .. } => format!("failed {end:?}: {text}"),
            };
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn calls_with_one_id_get_their_own() {
        let Outcome::Tools { calls, content } = classify(
            response(vec![call("a"), call("a"), call("")]),
            1,
            Millis(0),
            0.0,
        )
        .outcome
        else {
            panic!("calls");
        };
        let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["a", "a#1", "#2"]);
        assert_eq!(content.len(), 3);
    }
}
