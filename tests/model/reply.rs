//! What the stand-in answers.

use std::time::Duration;

use serde_json::Value;

use super::Fault;

/// Characters of one piece of a stream.
const PIECE: usize = 8;

/// One answer, and how the attempts before it fail.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub(super) thinking: Option<String>,
    pub(super) redacted: bool,
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
    pub(super) interleaved: bool,
    pub(super) usage: Tokens,
    pub(super) stop: Option<String>,
    pub(super) pace: Duration,
    pub(super) faults: Vec<Fault>,
}

/// A call of a reply.
#[derive(Clone, Debug)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// Its arguments as they stand on the wire, which may be no JSON.
    pub arguments: String,
}

/// What the reply says it cost; on Anthropic's wire cached tokens stand beside
/// the input, so `input` there is without them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens {
            input: 100,
            cached: 0,
            output: 20,
        }
    }
}

impl Reply {
    /// An answer of text.
    pub fn says(text: impl Into<String>) -> Reply {
        Reply {
            text: text.into(),
            ..Reply::default()
        }
    }

    /// An answer that says nothing.
    pub fn empty() -> Reply {
        Reply::default()
    }

    /// Thinks first. On Anthropic's wire only where the request asks for it.
    pub fn thinking(mut self, text: impl Into<String>) -> Reply {
        self.thinking = Some(text.into());
        self
    }

    /// Has a redacted thinking block behind the plain one (Anthropic).
    pub fn redacted(mut self) -> Reply {
        self.redacted = true;
        self
    }

    /// Calls a tool.
    pub fn call(self, name: &str, arguments: Value) -> Reply {
        self.raw_call(name, &arguments.to_string())
    }

    /// Calls a tool with arguments that need not be JSON.
    pub fn raw_call(mut self, name: &str, arguments: &str) -> Reply {
        self.calls.push(Call {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        });
        self
    }

    /// Streams the arguments of all calls at once (OpenAI).
    pub fn interleaved(mut self) -> Reply {
        self.interleaved = true;
        self
    }

    /// Says that it cost this: input without cached tokens, cached, output.
    pub fn usage(mut self, input: u64, cached: u64, output: u64) -> Reply {
        self.usage = Tokens {
            input,
            cached,
            output,
        };
        self
    }

    /// Gives another stop reason than the usual one.
    pub fn stop(mut self, reason: &str) -> Reply {
        self.stop = Some(reason.to_owned());
        self
    }

    /// Waits between frames.
    pub fn pace(mut self, pace: Duration) -> Reply {
        self.pace = pace;
        self
    }

    /// Fails one more attempt; faults are used up in order, then it answers.
    pub fn failing(mut self, fault: Fault) -> Reply {
        self.faults.push(fault);
        self
    }

    /// Fails `times` attempts.
    pub fn failing_times(mut self, fault: Fault, times: usize) -> Reply {
        self.faults.extend(std::iter::repeat_n(fault, times));
        self
    }
}

/// A text in pieces of a few characters, each whole.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest
            .char_indices()
            .nth(PIECE)
            .map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}
