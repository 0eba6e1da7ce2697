//! An answer as it grows out of a stream, in the order in which it came.

use genai::chat::{ContentPart, StreamEnd, ToolCall as GenaiCall, Usage as GenaiUsage};
use mooring_crds::Provider;
use mooring_durable::{
    message::{Part, ToolCall},
    model::{PartialSink, Usage},
};
use serde_json::{Map, Value};

use super::context::{GEMINI, REDACTED};

/// How a provider's stream tells of tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Each chunk holds what is new of the arguments.
    New,
    /// Each chunk holds the arguments so far.
    SoFar,
    /// Calls are taken from the stream's end.
    AtTheEnd,
}

impl Telling {
    pub(super) fn of(provider: &Provider) -> Telling {
        match provider {
            Provider::Anthropic => Telling::SoFar,
            Provider::OpenAI | Provider::Groq | Provider::Xai | Provider::DeepSeek => Telling::New,
            Provider::Gemini | Provider::Ollama | Provider::Rehearsal => Telling::AtTheEnd,
        }
    }
}

/// What a call counts for beside its bytes: no turn has a thousand calls.
const CALL_WEIGHT: usize = 10 * 1024;

/// The answer so far.
pub(super) struct Answer {
    telling: Telling,
    parts: Vec<Growing>,
    bytes: usize,
}

enum Growing {
    Text(String),
    Thinking { text: String, signature: String },
    Call(Call),
}

struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Answer {
    pub(super) fn new(telling: Telling) -> Answer {
        Answer {
            telling,
            parts: Vec::new(),
            bytes: 0,
        }
    }

    /// Bytes of all that has come.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn text(&mut self, delta: &str, sink: &dyn PartialSink) {
        self.bytes += delta.len();
        sink.text(delta);
        match self.parts.last_mut() {
            Some(Growing::Text(text)) => text.push_str(delta),
            _ => self.parts.push(Growing::Text(delta.to_owned())),
        }
    }

    pub(super) fn thinking(&mut self, delta: &str, sink: &dyn PartialSink) {
        self.bytes += delta.len();
        sink.thinking(delta);
        match self.parts.last_mut() {
            Some(Growing::Thinking { text, signature }) if signature.is_empty() => {
                text.push_str(delta);
            }
            _ => self.parts.push(Growing::Thinking {
                text: delta.to_owned(),
                signature: String::new(),
            }),
        }
    }

    pub(super) fn signature(&mut self, delta: &str) {
        self.bytes += delta.len();
        match self.parts.last_mut() {
            Some(Growing::Thinking { signature, .. }) => signature.push_str(delta),
            _ => self.parts.push(Growing::Thinking {
                text: String::new(),
                signature: delta.to_owned(),
            }),
        }
    }

    pub(super) fn call(&mut self, chunk: GenaiCall) {
        if self.telling == Telling::AtTheEnd {
            return;
        }
        let GenaiCall {
            call_id,
            fn_name,
            fn_arguments,
            ..
        } = chunk;
        let text = match fn_arguments {
            Value::String(text) => text,
            other => other.to_string(),
        };
        self.bytes += fn_name.len();
        let telling = self.telling;
        match self.open_call(&call_id, &fn_name) {
            Some(call) => {
                let before = call.arguments.len();
                match telling {
                    Telling::SoFar => call.arguments = text,
                    _ => call.arguments.push_str(&text),
                }
                let grown = call.arguments.len().saturating_sub(before);
                self.bytes += grown;
            }
            None => {
                self.bytes += text.len() + call_id.len() + CALL_WEIGHT;
                self.parts.push(Growing::Call(Call {
                    id: call_id,
                    name: fn_name,
                    arguments: text,
                }));
            }
        }
    }

    /// The call that a chunk goes on with. Only a call's first chunk has its id
    /// and name on OpenAI's wire; for the others `genai` makes an id of the
    /// call's index, `call_0`.
    fn open_call(&mut self, id: &str, name: &str) -> Option<&mut Call> {
        let index = id
            .strip_prefix("call_")
            .and_then(|index| index.parse::<usize>().ok());
        let mut calls: Vec<&mut Call> = self
            .parts
            .iter_mut()
            .filter_map(|part| match part {
                Growing::Call(call) => Some(call),
                _ => None,
            })
            .collect();
        if let Some(at) = calls.iter().position(|call| call.id == id) {
            return Some(calls.swap_remove(at));
        }
        match index.filter(|index| *index < calls.len()) {
            // Some servers repeat the name, and leave out the id.
            Some(index) if name.is_empty() || calls[index].name == name => {
                Some(calls.swap_remove(index))
            }
            _ if name.is_empty() => calls.pop(),
            _ => None,
        }
    }

    /// The whole answer. `cut_off` says that the limit of its length ended it.
    pub(super) fn finish(self, end: StreamEnd, cut_off: bool) -> Vec<Part> {
        let captured = end
            .captured_content
            .map(|content| content.into_parts())
            .unwrap_or_default();
        if self.telling == Telling::AtTheEnd {
            return at_the_end(captured, end.captured_reasoning_content);
        }
        let thoughts = thoughts(captured);
        let count = self.parts.len();
        let own = self
            .parts
            .into_iter()
            .enumerate()
            .filter_map(|(at, part)| match part {
                Growing::Text(text) => (!text.is_empty()).then(|| Part::text(text)),
                // The stream's end tells signed blocks apart, redacted ones too.
                Growing::Thinking { .. } if !thoughts.is_empty() => None,
                Growing::Thinking { text, signature } => {
                    (!text.is_empty() || !signature.is_empty()).then(|| Part::Thinking {
                        text,
                        signature: (!signature.is_empty()).then_some(signature),
                    })
                }
                Growing::Call(call) => {
                    let cut_off = cut_off && at + 1 == count;
                    Some(Part::ToolCall(ToolCall {
                        arguments: arguments(call.arguments, cut_off),
                        id: call.id,
                        name: call.name,
                    }))
                }
            });
        let own: Vec<Part> = own.collect();
        unique(thoughts.into_iter().chain(own).collect())
    }
}

/// Arguments as JSON; as a string where they are none, so that the model is
/// told of it.
fn arguments(text: String, cut_off: bool) -> Value {
    if text.trim().is_empty() {
        return if cut_off {
            Value::String(text)
        } else {
            Value::Object(Map::new())
        };
    }
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_)) => value,
        _ => Value::String(text),
    }
}

/// Signed and redacted thinking blocks, in their order.
fn thoughts(captured: Vec<ContentPart>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for part in captured {
        match part {
            ContentPart::ThoughtSignature(signature) => {
                parts.push(Part::Thinking {
                    text: String::new(),
                    signature: Some(signature),
                });
            }
            ContentPart::ReasoningContent(reasoning) => {
                if let Some(Part::Thinking { text, .. }) = parts.last_mut() {
                    text.push_str(&reasoning);
                }
            }
            ContentPart::Custom(block) if block.typ() == Some("redacted_thinking") => {
                let data = block
                    .data
                    .get("data")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                parts.push(Part::Thinking {
                    text: String::new(),
                    signature: Some(format!("{REDACTED}{data}")),
                });
            }
            _ => {}
        }
    }
    parts
}

/// For providers whose stream tells of calls and signatures at its end only.
fn at_the_end(captured: Vec<ContentPart>, reasoning: Option<String>) -> Vec<Part> {
    let mut parts = Vec::new();
    if let Some(text) = reasoning.filter(|text| !text.is_empty()) {
        parts.push(Part::Thinking {
            text,
            signature: None,
        });
    }
    for part in captured {
        match part {
            ContentPart::Text(text) if !text.is_empty() => parts.push(Part::text(text)),
            ContentPart::ThoughtSignature(signature) => parts.push(Part::Thinking {
                text: String::new(),
                signature: Some(format!("{GEMINI}{signature}")),
            }),
            ContentPart::ToolCall(call) => parts.push(Part::ToolCall(ToolCall {
                id: call.call_id,
                name: call.fn_name,
                arguments: call.fn_arguments,
            })),
            _ => {}
        }
    }
    unique(parts)
}

/// Gives calls without an id, or with one that was there before, an id.
fn unique(mut parts: Vec<Part>) -> Vec<Part> {
    let mut seen: Vec<String> = Vec::new();
    for part in &mut parts {
        if let Part::ToolCall(call) = part {
            let mut number = seen.len();
            while call.id.is_empty() || seen.contains(&call.id) {
                call.id = format!("call-{number}");
                number += 1;
            }
            seen.push(call.id.clone());
        }
    }
    parts
}

/// The provider's count, where it gave one.
pub(super) fn usage(usage: &GenaiUsage) -> Option<Usage> {
    let count = |tokens: Option<i32>| tokens.map(|n| u64::try_from(n).unwrap_or(0));
    let (input, output) = (count(usage.prompt_tokens), count(usage.completion_tokens));
    (input.is_some() || output.is_some()).then(|| Usage {
        input: input.unwrap_or(0),
        cached: count(
            usage
                .prompt_tokens_details
                .as_ref()
                .and_then(|d| d.cached_tokens),
        )
        .unwrap_or(0),
        output: output.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Deaf;

    impl PartialSink for Deaf {
        fn text(&self, _: &str) {}
        fn thinking(&self, _: &str) {}
    }

    /// Chunks as `id name arguments`, with `-` for nothing.
    fn told(telling: Telling, chunks: &[&str]) -> Vec<(String, Value)> {
        let mut answer = Answer::new(telling);
        for chunk in chunks {
            let mut fields = chunk
                .splitn(3, ' ')
                .map(|field| if field == "-" { "" } else { field });
            let mut field = || fields.next().unwrap_or_default().to_owned();
            answer.call(GenaiCall {
                call_id: field(),
                fn_name: field(),
                fn_arguments: Value::String(field()),
                thought_signatures: None,
            });
        }
        let parts = answer.finish(StreamEnd::default(), false);
        let calls = parts.into_iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some((call.id, call.arguments)),
            _ => None,
        });
        calls.collect()
    }

    #[test]
    fn calls_are_put_together_however_a_server_tells_them() {
        let (a, b) = (json!({"a": 1}), json!({"b": 2}));
        let rows: [(&str, Telling, &[&str]); 7] = [
            (
                "in turn",
                Telling::New,
                &[
                    "x bash -",
                    "call_0 - {\"a\":",
                    "call_0 - 1}",
                    "y ls -",
                    "call_1 - {\"b\":2}",
                ],
            ),
            (
                "mixed",
                Telling::New,
                &[
                    "x bash -",
                    "y ls -",
                    "call_1 - {\"b\":",
                    "call_0 - {\"a\":1}",
                    "call_1 - 2}",
                ],
            ),
            (
                "ids on each",
                Telling::New,
                &["x bash {\"a\":", "x bash 1}", "y ls {\"b\":", "y ls 2}"],
            ),
            (
                "names on each",
                Telling::New,
                &[
                    "x bash {\"a\":",
                    "call_0 bash 1}",
                    "y ls {\"b\":",
                    "call_1 ls 2}",
                ],
            ),
            (
                "no ids",
                Telling::New,
                &["call_0 bash {\"a\":", "call_0 - 1}", "call_1 ls {\"b\":2}"],
            ),
            (
                "one index for all",
                Telling::New,
                &["x bash {\"a\":1}", "y ls {\"b\":2}"],
            ),
            (
                "so far",
                Telling::SoFar,
                &[
                    "x bash -",
                    "x bash {\"a\":",
                    "x bash {\"a\":1}",
                    "y ls {\"b\":2}",
                ],
            ),
        ];
        for (how, telling, chunks) in rows {
            let calls = told(telling, chunks);
            let arguments: Vec<&Value> = calls.iter().map(|(_, arguments)| arguments).collect();
            assert_eq!(arguments, [&a, &b], "{how}: {calls:?}");
            assert_ne!(calls[0].0, calls[1].0, "{how}");
        }
    }

    #[test]
    fn parts_keep_the_order_in_which_they_came() {
        let mut answer = Answer::new(Telling::New);
        answer.thinking("hm", &Deaf);
        answer.text("first", &Deaf);
        answer.call(GenaiCall {
            call_id: "x".into(),
            fn_name: "ls".into(),
            fn_arguments: Value::String("{}".into()),
            thought_signatures: None,
        });
        answer.text("then", &Deaf);
        let kinds: Vec<&str> = answer
            .finish(StreamEnd::default(), false)
            .iter()
            .map(|part| match part {
                Part::Thinking { .. } => "thinking",
                Part::Text { .. } => "text",
                Part::ToolCall(_) => "call",
                Part::Image { .. } => "image",
            })
            .collect();
        assert_eq!(kinds, ["thinking", "text", "call", "text"]);
    }
}
