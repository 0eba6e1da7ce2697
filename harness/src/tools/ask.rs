//! `ask_user` and `sleep_until`: calls that wait for a person or a time, and take no
//! more than a row while they do.

use async_trait::async_trait;
use jiff::Timestamp;
use mooring_durable::{
    clock::{Clock, SystemClock},
    id::Millis,
    tool::{Call, OutputSink, Replay, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure},
    wait::{Awaited, Settled, WaitMode, Waits, Work, WorkEnd},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{declare, done, failed, number, object, text};

/// Waits for one thing.
fn one(work: Work) -> Result<ToolEnd, ToolFailure> {
    Ok(ToolEnd::Waits(Waits {
        mode: WaitMode::AllSettled,
        on: vec![Awaited {
            key: "it".into(),
            work,
        }],
    }))
}

pub(super) struct AskUser;

#[async_trait]
impl Tool for AskUser {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "ask_user",
            "Asks people a question and waits for the answer, however long it takes. Only for what \
             you can neither find out nor decide yourself.",
            Replay::Safe,
            object(
                &["question"],
                json!({
                    "question": { "type": "string", "minLength": 1, "maxLength": 4000 },
                    "choices": {
                        "type": "array",
                        "maxItems": 5,
                        "items": { "type": "string", "minLength": 1, "maxLength": 80 },
                        "description": "Answers to choose from; people may answer otherwise.",
                    },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        text(arguments, "question").to_owned()
    }

    async fn execute(
        &self,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        if call.autonomous {
            return failed(
                "Nobody can be asked in this run: decide yourself, and say what you assumed.",
            );
        }
        let choices = call.arguments.get("choices").and_then(Value::as_array);
        one(Work::Question {
            text: text(&call.arguments, "question").to_owned(),
            choices: choices
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            expires_at: None,
        })
    }

    async fn resume(
        &self,
        _call: &Call,
        settled: &[Settled],
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        match settled.first().map(|settled| &settled.end) {
            Some(WorkEnd::Answered { text, by }) => {
                done(format!("{by} answered: {text}"), json!({ "by": by }))
            }
            _ => failed("Nobody answered."),
        }
    }
}

pub(super) struct SleepUntil;

/// The longest sleep.
const LONGEST_MS: i64 = 366 * 24 * 3600 * 1000;

/// When a sleep that begins at `now` ends.
fn wakes(arguments: &Value, now: Millis) -> Result<Millis, String> {
    let until = match text(arguments, "until") {
        "" => {
            let seconds = i64::try_from(number(arguments, "seconds")).unwrap_or(i64::MAX);
            now.0.saturating_add(seconds.saturating_mul(1_000))
        }
        until => until
            .parse::<Timestamp>()
            .map_err(|error| format!("`until` is no time such as 2030-01-31T12:00:00Z: {error}"))?
            .as_millisecond(),
    };
    if until > now.0.saturating_add(LONGEST_MS) {
        return Err("that is more than a year away".into());
    }
    Ok(Millis(until))
}

#[async_trait]
impl Tool for SleepUntil {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "sleep_until",
            "Waits until a time, or for a number of seconds, and costs nothing meanwhile. It fires once, \
             at once where the time has passed.",
            Replay::Safe,
            object(
                &[],
                json!({
                    "until": { "type": "string", "description": "RFC 3339, with a zone." },
                    "seconds": { "type": "integer", "minimum": 0 },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        match text(arguments, "until") {
            "" => format!("{} s", number(arguments, "seconds")),
            until => until.to_owned(),
        }
    }

    async fn execute(
        &self,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        match wakes(&call.arguments, SystemClock.now()) {
            Ok(until) => one(Work::Timer { until }),
            Err(why) => failed(why),
        }
    }

    async fn resume(
        &self,
        _call: &Call,
        _settled: &[Settled],
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let now = Timestamp::from_millisecond(SystemClock.now().0).unwrap_or_default();
        done(format!("It is {now:.0} now."), Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_end_at_a_time_or_after_seconds() {
        let now = Millis(1_000);
        for (arguments, expected) in [
            (json!({"seconds": 2}), Ok(3_000)),
            (json!({}), Ok(1_000)),
            (json!({"until": "1970-01-01T00:00:05Z"}), Ok(5_000)),
            (json!({"until": "1970-01-01T01:00:05+01:00"}), Ok(5_000)),
            (json!({"until": "soon"}), Err("`until` is no time")),
            (json!({"seconds": u64::MAX}), Err("more than a year")),
            (
                json!({"until": "2100-01-01T00:00:00Z"}),
                Err("more than a year"),
            ),
        ] {
            match (wakes(&arguments, now), expected) {
                (Ok(until), Ok(expected)) => assert_eq!(until.0, expected, "{arguments}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (found, _) => panic!("{arguments}: {found:?}"),
            }
        }
    }
}
