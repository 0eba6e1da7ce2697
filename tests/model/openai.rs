//! OpenAI's chat completions: what the server refuses, and what it streams.

use serde_json::{Value, json};

use super::{
    reply::{Reply, pieces},
    server::{Conversation, Refused},
};

const FIELDS: [&str; 18] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "n",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_options",
    "user",
];

/// Checks a request as the real server does.
pub(super) fn check(body: &Value) -> Result<Conversation, Refused> {
    let top = body
        .as_object()
        .ok_or_else(|| refused("We could not parse the JSON body of your request."))?;
    if let Some(field) = top.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(refused(format!(
            "Unrecognized request argument supplied: {field}"
        )));
    }
    let model = body["model"]
        .as_str()
        .ok_or_else(|| refused("you must provide a model parameter"))?;
    if model.starts_with("missing") {
        return Err(Refused {
            status: 404,
            body: json!({"error": {
                "message": format!("The model `{model}` does not exist or you do not have access to it."),
                "type": "invalid_request_error", "param": null, "code": "model_not_found",
            }}),
        });
    }
    if body["stream"] != true {
        return Err(refused("the stand-in only streams"));
    }
    let thinks = model.starts_with("gpt-5")
        || model.starts_with("gpt-6")
        || ["o1", "o3", "o4"].iter().any(|o| model.starts_with(o));
    if thinks && !body["max_tokens"].is_null() {
        return Err(refused(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        ));
    }
    if !thinks && model.starts_with("gpt-") && !body["reasoning_effort"].is_null() {
        return Err(refused(
            "Unrecognized request argument supplied: reasoning_effort",
        ));
    }
    for (at, tool) in body["tools"].as_array().into_iter().flatten().enumerate() {
        let function = &tool["function"];
        let named = function["name"].as_str().is_some_and(|name| {
            !name.is_empty()
                && name.len() <= 64
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        });
        if tool["type"] != "function" || !named || function["parameters"]["type"] != "object" {
            return Err(refused(format!("Invalid 'tools[{at}]'")));
        }
    }
    messages(
        body["messages"]
            .as_array()
            .ok_or_else(|| refused("Missing required parameter: 'messages'."))?,
    )
}

fn messages(messages: &[Value]) -> Result<Conversation, Refused> {
    let mut conversation = Conversation::default();
    let mut waiting: Vec<&str> = Vec::new();
    if messages.is_empty() {
        return Err(refused("Invalid 'messages': empty array."));
    }
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !waiting.is_empty() {
            return Err(refused(format!(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
                waiting.join(", ")
            )));
        }
        match role {
            "system" | "developer" | "user" => {
                let text = content(&message["content"], at, role == "user")?;
                if role == "user" && conversation.first_user.is_none() {
                    conversation.first_user = Some(text);
                }
            }
            "assistant" => {
                conversation.answers += 1;
                let calls = message["tool_calls"].as_array();
                if !message["content"].is_string() && calls.is_none() {
                    return Err(refused(format!(
                        "Invalid value for 'messages.[{at}].content': expected a string, got null."
                    )));
                }
                for call in calls.into_iter().flatten() {
                    let arguments = call["function"]["arguments"].as_str();
                    // The real server takes any string; templates of compatible
                    // servers want an object.
                    let object = arguments
                        .and_then(|a| serde_json::from_str::<Value>(a).ok())
                        .is_some_and(|a| a.is_object());
                    if !object || call["type"] != "function" {
                        return Err(refused(format!(
                            "Invalid 'messages[{at}].tool_calls[0].function.arguments'"
                        )));
                    }
                    waiting.push(call["id"].as_str().unwrap_or_default());
                }
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let Some(place) = waiting.iter().position(|open| *open == id) else {
                    return Err(refused(
                        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
                    ));
                };
                waiting.remove(place);
                if !message["content"].is_string() {
                    return Err(refused(format!(
                        "Invalid type for 'messages[{at}].content'"
                    )));
                }
            }
            other => {
                return Err(refused(format!(
                    "Invalid value: '{other}'. Supported values are: 'system', 'assistant', 'user', 'tool' and 'developer'."
                )));
            }
        }
    }
    if !waiting.is_empty() {
        return Err(refused(
            "An assistant message with 'tool_calls' must be followed by tool messages",
        ));
    }
    Ok(conversation)
}

fn content(content: &Value, at: usize, images: bool) -> Result<String, Refused> {
    if let Some(text) = content.as_str() {
        return Ok(text.to_owned());
    }
    let mut texts = Vec::new();
    for part in content.as_array().into_iter().flatten() {
        match part["type"].as_str() {
            Some("text") => texts.push(part["text"].as_str().unwrap_or_default()),
            Some("image_url") if images => {
                let url = part["image_url"]["url"].as_str().unwrap_or_default();
                if !url.starts_with("data:image/") {
                    return Err(refused("Invalid image URL."));
                }
            }
            _ => return Err(refused(format!("Invalid 'messages[{at}].content'"))),
        }
    }
    if content.as_array().is_none_or(Vec::is_empty) {
        return Err(refused(format!("Invalid 'messages[{at}].content': empty")));
    }
    Ok(texts.join("\n"))
}

fn refused(message: impl Into<String>) -> Refused {
    Refused {
        status: 400,
        body: json!({"error": {"message": message.into(), "type": "invalid_request_error", "param": null, "code": null}}),
    }
}

/// The frames of an answer.
pub(super) fn frames(reply: &Reply, request: &Value) -> Vec<String> {
    let mut frames = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    for piece in pieces(reply.thinking.as_deref().unwrap_or_default()) {
        frames.push(chunk(json!({"reasoning_content": piece}), None));
    }
    for piece in pieces(&reply.text) {
        frames.push(chunk(json!({"content": piece}), None));
    }
    let answer = request["messages"].as_array().map_or(0, Vec::len);
    let call = |index: usize, rest: Value| {
        let mut call = json!({"index": index});
        call.as_object_mut()
            .expect("made as an object")
            .extend(rest.as_object().cloned().unwrap_or_default());
        chunk(json!({"tool_calls": [call]}), None)
    };
    let begin = |index: usize, name: &str| {
        let id = format!("call_{answer}x{index}");
        call(
            index,
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": ""}}),
        )
    };
    let arguments =
        |index: usize, piece: &str| call(index, json!({"function": {"arguments": piece}}));
    if reply.interleaved {
        frames.extend(
            reply
                .calls
                .iter()
                .enumerate()
                .map(|(index, c)| begin(index, &c.name)),
        );
        let mut rest: Vec<_> = reply.calls.iter().map(|c| pieces(&c.arguments)).collect();
        loop {
            let round: Vec<String> = rest
                .iter_mut()
                .enumerate()
                .filter_map(|(index, pieces)| pieces.next().map(|piece| arguments(index, piece)))
                .collect();
            if round.is_empty() {
                break;
            }
            frames.extend(round);
        }
    } else {
        for (index, c) in reply.calls.iter().enumerate() {
            frames.push(begin(index, &c.name));
            frames.extend(pieces(&c.arguments).map(|piece| arguments(index, piece)));
        }
    }
    let usual = if reply.calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    frames.push(chunk(
        json!({}),
        Some(reply.stop.as_deref().unwrap_or(usual)),
    ));
    if request["stream_options"]["include_usage"] == true {
        let used = reply.usage;
        frames.push(data(&json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": request["model"],
            "choices": [],
            "usage": {
                "prompt_tokens": used.input + used.cached,
                "completion_tokens": used.output,
                "total_tokens": used.input + used.cached + used.output,
                "prompt_tokens_details": {"cached_tokens": used.cached},
            },
        })));
    }
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

/// A frame of text or of arguments, for an answer without end.
pub(super) fn more(text: &str, in_arguments: bool) -> String {
    if in_arguments {
        return chunk(
            json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
            None,
        );
    }
    chunk(json!({"content": text}), None)
}

/// The frames that an answer without end begins with.
pub(super) fn begin(in_arguments: bool) -> Vec<String> {
    let mut frames = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    if in_arguments {
        frames.push(chunk(
            json!({"tool_calls": [{"index": 0, "id": "call_huge", "type": "function", "function": {"name": "bash", "arguments": ""}}]}),
            None,
        ));
    }
    frames
}

/// An error in the stream.
pub(super) fn error(kind: &str) -> String {
    data(
        &json!({"error": {"message": "The server had an error while processing your request.", "type": kind, "code": null}}),
    )
}

fn chunk(delta: Value, finish: Option<&str>) -> String {
    data(&json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        "usage": null,
    }))
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}
