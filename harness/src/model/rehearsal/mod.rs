//! The provider `rehearsal`: no language model.
//!
//! Without a script it does plainly what the last message says
//! ([`plain`]); with one it plays it ([`script`]). Its answer is a function of
//! the request and the attempt's number, so that a recovered request is
//! answered as it was.

mod plain;
mod script;
mod summary;

use std::{path::Path, time::Duration};

use mooring_durable::{
    message::{Part, ToolCall},
    model::{ModelError, ModelRequest, ModelResponse, PartialSink, Purpose, RequestContext, Usage},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::estimate;

/// The first line of what it says.
pub const ANNOUNCEMENT: &str =
    "I am the rehearsal provider, no language model: I do plainly what is asked, and nothing more.";

/// Characters of text that stream in one piece.
const PIECE: usize = 24;

/// One turn, ready to be played.
#[derive(Clone, Debug, Default, PartialEq)]
struct Turn {
    thinking: String,
    text: String,
    calls: Vec<Call>,
    delay: Duration,
    pace: Duration,
    failure: Option<Failure>,
}

/// One call of a turn.
#[derive(Clone, Debug, PartialEq)]
struct Call {
    tool: String,
    arguments: Value,
}

/// How a turn fails.
#[derive(Clone, Debug, PartialEq)]
enum Failure {
    /// Before anything is said.
    AtOnce(Ended),
    /// In the middle of the text.
    Cut,
}

/// With which of the engine's errors a turn ends.
#[derive(Clone, Debug, PartialEq)]
enum Ended {
    Retryable {
        text: String,
        retry_after: Option<Duration>,
    },
    Overflow {
        text: String,
    },
    Fatal {
        text: String,
    },
}

/// Answers once. `script` is a path relative to `folder`, or empty.
pub(super) async fn respond(
    folder: &Path,
    script: &str,
    request: &ModelRequest,
    context: &RequestContext,
    sink: &dyn PartialSink,
    cancel: CancellationToken,
) -> Result<ModelResponse, ModelError> {
    let turn = if context.purpose == Purpose::Summary {
        summary::turn(&request.messages)
    } else if script.is_empty() {
        plain::turn(&request.messages)
    } else {
        let path = folder.join(script);
        script::turn(&path, &request.messages, context.attempt)
            .await
            .map_err(|text| ModelError::Fatal { text })?
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ModelError::Cancelled),
        response = play(turn, request, sink) => response,
    }
}

async fn play(
    turn: Turn,
    request: &ModelRequest,
    sink: &dyn PartialSink,
) -> Result<ModelResponse, ModelError> {
    pause(turn.delay).await;
    if let Some(Failure::AtOnce(error)) = turn.failure {
        return Err(match error {
            Ended::Retryable { text, retry_after } => ModelError::Retryable {
                text,
                retry_after,
                usage: None,
            },
            Ended::Overflow { text } => ModelError::Overflow { text },
            Ended::Fatal { text } => ModelError::Fatal { text },
        });
    }
    for piece in pieces(&turn.thinking) {
        sink.thinking(piece);
        pause(turn.pace).await;
    }
    let pieces = pieces(&turn.text);
    let said = if turn.failure.is_some() {
        pieces.len() / 2
    } else {
        pieces.len()
    };
    for piece in &pieces[..said] {
        sink.text(piece);
        pause(turn.pace).await;
    }
    let input = estimate::tokens(request);
    if turn.failure.is_some() {
        let output = estimate::parts(&[Part::text(pieces[..said].concat())]);
        return Err(ModelError::Retryable {
            text: "the stream ended before the answer was complete".to_owned(),
            retry_after: None,
            usage: Some(Usage {
                input,
                cached: 0,
                output,
            }),
        });
    }
    let mut content = Vec::new();
    if !turn.thinking.is_empty() {
        content.push(Part::Thinking {
            text: turn.thinking,
            signature: None,
        });
    }
    if !turn.text.is_empty() {
        content.push(Part::text(turn.text));
    }
    let stop = if turn.calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    for (at, call) in turn.calls.into_iter().enumerate() {
        // Unlike any other of the context, since each request has more messages.
        let id = format!("rehearsal-{}-{}", request.messages.len(), at + 1);
        content.push(Part::ToolCall(ToolCall {
            id,
            name: call.tool,
            arguments: call.arguments,
        }));
    }
    let usage = Usage {
        input,
        cached: 0,
        output: estimate::parts(&content),
    };
    Ok(ModelResponse {
        content,
        usage: Some(usage),
        stop_reason: Some(stop.to_owned()),
    })
}

async fn pause(time: Duration) {
    if time.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}

/// The text in pieces that end behind a blank where there is one.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let far = rest
            .char_indices()
            .nth(PIECE)
            .map_or(rest.len(), |(at, _)| at);
        let end = match rest[..far].rfind(char::is_whitespace) {
            Some(blank) if far < rest.len() => {
                blank + rest[blank..].chars().next().map_or(1, char::len_utf8)
            }
            _ => far,
        };
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_up_the_text() {
        for text in [
            "",
            "short",
            "a longer text that has to go in several pieces",
            "ßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßß",
            "a\n\n\n\nb ",
        ] {
            let pieces = pieces(text);
            assert_eq!(pieces.concat(), text);
            assert!(
                pieces
                    .iter()
                    .all(|piece| !piece.is_empty() && piece.chars().count() <= PIECE)
            );
        }
    }
}
