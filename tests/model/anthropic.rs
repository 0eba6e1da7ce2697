//! Anthropic's messages: what the server refuses, and what it streams.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    reply::{Reply, pieces},
    server::{Conversation, Refused},
};

const FIELDS: [&str; 13] = [
    "model",
    "messages",
    "stream",
    "system",
    "tools",
    "tool_choice",
    "max_tokens",
    "thinking",
    "output_config",
    "temperature",
    "top_p",
    "stop_sequences",
    "metadata",
];

/// Data of a redacted thinking block that the server gave out.
const REDACTED: &str = "EmwKAhgBEgy3va3pzix/LafPsn4=";

/// Checks a request as the real server does.
pub(super) fn check(body: &Value) -> Result<Conversation, Refused> {
    let top = body
        .as_object()
        .ok_or_else(|| refused("The request body is not valid JSON"))?;
    if let Some(field) = top.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(refused(format!("{field}: Extra inputs are not permitted")));
    }
    let model = body["model"]
        .as_str()
        .ok_or_else(|| refused("model: Field required"))?;
    if !model.starts_with("claude-") || model.starts_with("claude-missing") {
        let error = json!({"type": "not_found_error", "message": format!("model: {model}")});
        return Err(Refused {
            status: 404,
            body: json!({"type": "error", "error": error}),
        });
    }
    if body["stream"] != true {
        return Err(refused("the stand-in only streams"));
    }
    let most = body["max_tokens"]
        .as_u64()
        .ok_or_else(|| refused("max_tokens: Field required"))?;
    if body["thinking"]["type"] == "enabled" {
        let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
        if budget < 1024 {
            return Err(refused(
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
            ));
        }
        if budget >= most {
            return Err(refused(
                "`max_tokens` must be greater than `thinking.budget_tokens`.",
            ));
        }
    }
    if !(body["system"].is_null() || body["system"].is_string()) {
        blocks(&body["system"], "system", &["text"])?;
    }
    for (at, tool) in body["tools"].as_array().into_iter().flatten().enumerate() {
        let name = tool["name"].as_str().unwrap_or_default();
        if name.is_empty() || tool["input_schema"]["type"] != "object" {
            return Err(refused(format!(
                "tools.{at}.custom.input_schema.type: Field required"
            )));
        }
    }
    messages(
        body["messages"]
            .as_array()
            .ok_or_else(|| refused("messages: Field required"))?,
    )
}

fn messages(messages: &[Value]) -> Result<Conversation, Refused> {
    let mut conversation = Conversation::default();
    if messages.is_empty() {
        return Err(refused("messages: at least one message is required"));
    }
    if messages[0]["role"] != "user" {
        return Err(refused(
            "messages: first message must use the \"user\" role",
        ));
    }
    let mut waiting: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages.{at}");
        let content = &message["content"];
        if content.as_str().is_some_and(|text| text.trim().is_empty()) {
            return Err(refused(format!(
                "{place}: user messages must have non-empty content"
            )));
        }
        match message["role"].as_str() {
            Some("user") => {
                let results = results(content, &place)?;
                if results != waiting {
                    let missing: Vec<&String> =
                        waiting.iter().filter(|id| !results.contains(id)).collect();
                    return Err(refused(if missing.is_empty() {
                        format!(
                            "{place}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {results:?}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                        )
                    } else {
                        format!(
                            "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing:?}.",
                            at.saturating_sub(1)
                        )
                    }));
                }
                waiting.clear();
                if conversation.first_user.is_none() {
                    conversation.first_user = Some(text(content));
                }
            }
            Some("assistant") => {
                if !waiting.is_empty() {
                    return Err(refused(format!(
                        "{place}: `tool_use` ids were found without `tool_result` blocks immediately after"
                    )));
                }
                conversation.answers += 1;
                waiting = calls(content, &place)?;
            }
            _ => {
                return Err(refused(format!(
                    "{place}.role: Input should be 'user' or 'assistant'"
                )));
            }
        }
    }
    if !waiting.is_empty() {
        return Err(refused(
            "`tool_use` ids were found without `tool_result` blocks immediately after",
        ));
    }
    Ok(conversation)
}

/// Ids of the results of a user's message, which come before all else.
fn results(content: &Value, place: &str) -> Result<Vec<String>, Refused> {
    if content.is_string() {
        return Ok(Vec::new());
    }
    blocks(content, place, &["text", "image", "tool_result"])?;
    let mut ids = Vec::new();
    let mut other = false;
    for block in content.as_array().into_iter().flatten() {
        if block["type"] != "tool_result" {
            other = true;
            continue;
        }
        if other {
            return Err(refused(format!(
                "{place}: `tool_result` blocks must come first"
            )));
        }
        if block["content"].is_array() {
            blocks(&block["content"], place, &["text", "image"])?;
        }
        ids.push(block["tool_use_id"].as_str().unwrap_or_default().to_owned());
    }
    Ok(ids)
}

/// Ids of the calls of an assistant's message, whose thoughts come first.
fn calls(content: &Value, place: &str) -> Result<Vec<String>, Refused> {
    if content.is_string() {
        return Ok(Vec::new());
    }
    blocks(
        content,
        place,
        &["text", "tool_use", "thinking", "redacted_thinking"],
    )?;
    let mut ids = Vec::new();
    let mut said = false;
    for (at, block) in content.as_array().into_iter().flatten().enumerate() {
        match block["type"].as_str() {
            Some("thinking") => {
                let thought = block["thinking"].as_str().unwrap_or_default();
                if said || block["signature"] != signature(thought) {
                    return Err(refused(format!(
                        "{place}.content.{at}: Invalid `signature` in `thinking` block"
                    )));
                }
            }
            Some("redacted_thinking") if said || block["data"] != REDACTED => {
                return Err(refused(format!(
                    "{place}.content.{at}: Invalid `data` in `redacted_thinking` block"
                )));
            }
            Some("redacted_thinking") => {}
            Some("tool_use") => {
                said = true;
                let id = block["id"].as_str().unwrap_or_default();
                let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
                if id.is_empty() || !id.bytes().all(plain) {
                    return Err(refused(format!(
                        "{place}.content.{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                    )));
                }
                if !block["input"].is_object() {
                    return Err(refused(format!(
                        "{place}.content.{at}.tool_use.input: Input should be a valid dictionary"
                    )));
                }
                if ids.iter().any(|other| other == id) {
                    return Err(refused(format!("{place}: `tool_use` ids must be unique")));
                }
                ids.push(id.to_owned());
            }
            _ => said = true,
        }
    }
    Ok(ids)
}

/// Blocks of allowed types, with something in them.
fn blocks(content: &Value, place: &str, allowed: &[&str]) -> Result<(), Refused> {
    let blocks = content.as_array().filter(|blocks| !blocks.is_empty());
    let blocks = blocks.ok_or_else(|| refused(format!("{place}: content must not be empty")))?;
    for (at, block) in blocks.iter().enumerate() {
        let kind = block["type"].as_str().unwrap_or_default();
        if !allowed.contains(&kind) {
            return Err(refused(format!(
                "{place}.content.{at}: Input tag '{kind}' is not allowed here"
            )));
        }
        if kind == "text" && block["text"].as_str().unwrap_or_default().trim().is_empty() {
            return Err(refused(format!(
                "{place}: text content blocks must be non-empty"
            )));
        }
        if kind == "image" {
            let source = &block["source"];
            let known = ["image/jpeg", "image/png", "image/gif", "image/webp"];
            if !known.contains(&source["media_type"].as_str().unwrap_or_default())
                || source["data"].as_str().is_none_or(str::is_empty)
            {
                return Err(refused(format!(
                    "{place}.content.{at}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
                )));
            }
        }
    }
    Ok(())
}

fn text(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().into_iter().flatten();
    blocks
        .filter_map(|block| block["text"].as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

fn refused(message: impl Into<String>) -> Refused {
    let error = json!({"type": "invalid_request_error", "message": message.into()});
    Refused {
        status: 400,
        body: json!({"type": "error", "error": error}),
    }
}

/// The signature that the server gives a thought, and wants back with it.
fn signature(thought: &str) -> String {
    hex::encode(Sha256::digest(thought.as_bytes()))
}

/// The frames of an answer.
pub(super) fn frames(reply: &Reply, request: &Value) -> Vec<String> {
    let mut frames = start(reply);
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        let mut frames = vec![event(
            "content_block_start",
            json!({"index": index, "content_block": start}),
        )];
        frames.extend(deltas.into_iter().map(|delta| {
            event(
                "content_block_delta",
                json!({"index": index, "delta": delta}),
            )
        }));
        frames.push(event("content_block_stop", json!({"index": index})));
        index += 1;
        frames
    };
    let thinks =
        ["enabled", "adaptive"].contains(&request["thinking"]["type"].as_str().unwrap_or_default());
    if let Some(thought) = reply.thinking.as_deref().filter(|_| thinks) {
        let signature = signature(thought);
        let (head, tail) = signature.split_at(20);
        let mut deltas: Vec<Value> = pieces(thought)
            .map(|piece| json!({"type": "thinking_delta", "thinking": piece}))
            .collect();
        deltas
            .extend([head, tail].map(|part| json!({"type": "signature_delta", "signature": part})));
        frames.extend(block(
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            deltas,
        ));
    }
    if reply.redacted && thinks {
        frames.extend(block(
            json!({"type": "redacted_thinking", "data": REDACTED}),
            Vec::new(),
        ));
    }
    if !reply.text.is_empty() {
        let deltas = pieces(&reply.text)
            .map(|piece| json!({"type": "text_delta", "text": piece}))
            .collect();
        frames.extend(block(json!({"type": "text", "text": ""}), deltas));
    }
    let answer = request["messages"].as_array().map_or(0, Vec::len);
    for (at, call) in reply.calls.iter().enumerate() {
        let mut deltas = vec![json!({"type": "input_json_delta", "partial_json": ""})];
        deltas.extend(
            pieces(&call.arguments)
                .map(|piece| json!({"type": "input_json_delta", "partial_json": piece})),
        );
        let start = json!({"type": "tool_use", "id": format!("toolu_{answer}x{at}"), "name": call.name, "input": {}});
        frames.extend(block(start, deltas));
    }
    let usual = if reply.calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    frames.push(event(
        "message_delta",
        json!({
            "delta": {"stop_reason": reply.stop.as_deref().unwrap_or(usual), "stop_sequence": null},
            "usage": {"output_tokens": reply.usage.output},
        }),
    ));
    frames.push(event("message_stop", json!({})));
    frames
}

fn start(reply: &Reply) -> Vec<String> {
    let used = reply.usage;
    vec![
        event(
            "message_start",
            json!({"message": {
                "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude",
                "stop_reason": null, "stop_sequence": null,
                "usage": {
                    "input_tokens": used.input, "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": used.cached, "output_tokens": 1,
                },
            }}),
        ),
        event("ping", json!({})),
    ]
}

/// The frames that an answer without end begins with.
pub(super) fn begin(in_arguments: bool) -> Vec<String> {
    let mut frames = start(&Reply::default());
    let block = if in_arguments {
        json!({"type": "tool_use", "id": "toolu_huge", "name": "bash", "input": {}})
    } else {
        json!({"type": "text", "text": ""})
    };
    frames.push(event(
        "content_block_start",
        json!({"index": 0, "content_block": block}),
    ));
    frames
}

/// A frame of text or of arguments, for an answer without end.
pub(super) fn more(text: &str, in_arguments: bool) -> String {
    let delta = if in_arguments {
        json!({"type": "input_json_delta", "partial_json": text})
    } else {
        json!({"type": "text_delta", "text": text})
    };
    event("content_block_delta", json!({"index": 0, "delta": delta}))
}

/// An error in the stream.
pub(super) fn error(kind: &str) -> String {
    let message = if kind == "overloaded_error" {
        "Overloaded"
    } else {
        "Internal server error"
    };
    event(
        "error",
        json!({"error": {"type": kind, "message": message}}),
    )
}

fn event(name: &str, data: Value) -> String {
    let mut whole = json!({"type": name});
    let fields = data.as_object().cloned().unwrap_or_default();
    whole
        .as_object_mut()
        .expect("made as an object")
        .extend(fields);
    format!("event: {name}\ndata: {whole}\n\n")
}
