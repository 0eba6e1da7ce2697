//! What a stream shows before it is understood: life, bytes and usage.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef};
use mooring_durable::model::Usage;
use serde_json::Value;

use super::Limits;

/// Sees each frame of one stream, so that pings and comments count as life,
/// frames that nobody understands count as bytes, and an answer that is cut
/// leaves behind what it cost.
pub(super) struct Pulse {
    began: Instant,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    last: Option<Instant>,
    bytes: u64,
    usage: Option<Usage>,
}

/// Frames that hold usage are short; longer ones are not read for it.
const USAGE_FRAME: usize = 64 * 1024;

impl Pulse {
    pub(super) fn new() -> Arc<Pulse> {
        Arc::new(Pulse {
            began: Instant::now(),
            seen: Mutex::default(),
        })
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen
            .lock()
            .expect("no code panics while it holds what was seen")
    }

    /// Bytes of all frames so far.
    pub(super) fn bytes(&self) -> u64 {
        self.seen().bytes
    }

    /// Usage as far as the provider has told it.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.seen().usage
    }

    /// What is left of the allowed silence; zero when the stream has stalled or
    /// the answer has taken too long.
    pub(super) fn patience(&self, limits: &Limits) -> Duration {
        let silence = match self.seen().last {
            None => limits.first.saturating_sub(self.began.elapsed()),
            Some(last) => limits.idle.saturating_sub(last.elapsed()),
        };
        silence.min(limits.whole.saturating_sub(self.began.elapsed()))
    }

    /// What to say when patience is at its end.
    pub(super) fn complaint(&self, limits: &Limits) -> String {
        if self.began.elapsed() >= limits.whole {
            format!(
                "the answer was not complete after {} s",
                limits.whole.as_secs_f32()
            )
        } else if self.seen().last.is_none() {
            format!("nothing came within {} s", limits.first.as_secs_f32())
        } else {
            format!(
                "the stream stalled: nothing came for {} s",
                limits.idle.as_secs_f32()
            )
        }
    }
}

impl ChatFrameSink for Pulse {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        let usage = usage_of(frame.data);
        let mut seen = self.seen();
        seen.last = Some(Instant::now());
        seen.bytes += frame.data.len() as u64;
        if let Some((input, cached, output)) = usage {
            let known = seen.usage.get_or_insert_default();
            known.input = input.unwrap_or(known.input);
            known.cached = cached.unwrap_or(known.cached);
            known.output = output.unwrap_or(known.output);
        }
    }
}

/// Input, cached and output tokens that a frame of either wire tells.
fn usage_of(data: &str) -> Option<(Option<u64>, Option<u64>, Option<u64>)> {
    if data.len() > USAGE_FRAME || !data.contains("\"usage\"") {
        return None;
    }
    let frame: Value = serde_json::from_str(data).ok()?;
    let usage = frame
        .pointer("/message/usage")
        .or_else(|| frame.get("usage"))?
        .as_object()?;
    let number = |name: &str| usage.get(name).and_then(Value::as_u64);
    if usage.contains_key("prompt_tokens") {
        let cached = usage
            .get("prompt_tokens_details")
            .and_then(|d| d["cached_tokens"].as_u64());
        return Some((number("prompt_tokens"), cached, number("completion_tokens")));
    }
    // Anthropic counts cached tokens beside the input, not in it.
    let cached = number("cache_read_input_tokens");
    let written = number("cache_creation_input_tokens").unwrap_or(0);
    let input = number("input_tokens").map(|fresh| fresh + cached.unwrap_or(0) + written);
    Some((input, cached, number("output_tokens")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_frames_of_both_wires() {
        let rows = [
            (
                r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}"#,
                Some((Some(9), Some(4), Some(2))),
            ),
            (r#"{"choices":[],"usage":null}"#, None),
            (
                r#"{"type":"message_start","message":{"usage":{"input_tokens":5,"cache_read_input_tokens":3,"cache_creation_input_tokens":1,"output_tokens":1}}}"#,
                Some((Some(9), Some(3), Some(1))),
            ),
            (
                r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":7}}"#,
                Some((None, None, Some(7))),
            ),
            (r#"{"text":"my \"usage\" of it"}"#, None),
            ("[DONE]", None),
        ];
        for (frame, usage) in rows {
            assert_eq!(usage_of(frame), usage, "{frame}");
        }
    }
}
