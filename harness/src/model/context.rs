//! From the engine's messages to a provider's.
//!
//! Two shapes: wires that take instructions anywhere (OpenAI and its kin), and
//! wires with one system text at the top (Anthropic, Gemini), where a later
//! instruction goes as a marked block into the next user message, so that its
//! position and the prompt cache before it are kept.

use genai::chat::{
    CacheControl, ChatMessage, ChatRequest, ChatRole, ContentPart, CustomPart, MessageContent,
    Tool, ToolCall as GenaiCall, ToolResponse,
};
use mooring_crds::Provider;
use mooring_durable::{
    message::{Message, Part, ToolCall},
    model::ModelRequest,
};
use serde_json::{Map, Value, json};

use super::Settings;

/// Stands before a signature that is a whole redacted thinking block.
pub(super) const REDACTED: &str = "redacted:";
/// Stands before a signature that only Gemini understands.
pub(super) const GEMINI: &str = "gemini:";

/// Types of images that all providers take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The provider's request; a pure function of the two.
pub(super) fn chat_request(settings: &Settings, request: &ModelRequest) -> ChatRequest {
    let messages = match settings.provider {
        Provider::Anthropic | Provider::Gemini => one_system(settings, &request.messages),
        _ => anywhere(settings, &request.messages),
    };
    let mut chat = ChatRequest::from_messages(messages);
    if !request.tools.is_empty() {
        chat.tools = Some(
            request
                .tools
                .iter()
                .map(|tool| {
                    Tool::new(tool.name.as_str())
                        .with_description(tool.description.as_str())
                        .with_schema(tool.parameters.clone())
                })
                .collect(),
        );
    }
    chat
}

/// For wires with one system text at the top.
fn one_system(settings: &Settings, messages: &[Message]) -> Vec<ChatMessage> {
    let mut system: Vec<&str> = Vec::new();
    let mut out: Vec<ChatMessage> = Vec::new();
    let mut user: Vec<ContentPart> = Vec::new();
    let mut results: Vec<ContentPart> = Vec::new();
    for message in messages {
        match message {
            Message::System { text } if out.is_empty() && user.is_empty() => system.push(text),
            Message::System { text } => user.push(ContentPart::Text(marked(text))),
            Message::User { content } => user.extend(user_parts(content)),
            Message::ToolResult {
                call_id,
                name,
                content,
                is_error,
            } => match settings.provider {
                Provider::Anthropic => {
                    results.push(anthropic_result(call_id, content, *is_error));
                }
                _ => {
                    results.push(ContentPart::ToolResponse(response(
                        call_id, name, content, *is_error,
                    )));
                    user.extend(images(content));
                }
            },
            Message::Assistant { content } => {
                close_user(settings, &mut out, &mut results, &mut user);
                let parts = assistant_parts(settings, content);
                if parts.is_empty() {
                    continue;
                }
                if out.is_empty() {
                    // Both wires want a user's message first.
                    out.push(ChatMessage::user("(The conversation goes on from here.)"));
                }
                out.push(ChatMessage::assistant(MessageContent::from_parts(parts)));
            }
        }
    }
    close_user(settings, &mut out, &mut results, &mut user);
    let cached = settings.provider == Provider::Anthropic;
    if cached {
        // The request before this one ended with the second of them, the next
        // one begins with all of this.
        let mut users = out
            .iter_mut()
            .filter(|message| message.role == ChatRole::User);
        for message in [users.next_back(), users.next_back()].into_iter().flatten() {
            message.options = Some(CacheControl::Ephemeral.into());
        }
    }
    if !system.is_empty() {
        let mut top = ChatMessage::system(system.join("\n\n"));
        top.options = cached.then(|| CacheControl::Ephemeral.into());
        out.insert(0, top);
    }
    out
}

/// Ends the user's message: results first, as the wire demands, then the rest.
fn close_user(
    settings: &Settings,
    out: &mut Vec<ChatMessage>,
    results: &mut Vec<ContentPart>,
    user: &mut Vec<ContentPart>,
) {
    if settings.provider == Provider::Anthropic {
        results.append(user);
        if !results.is_empty() {
            out.push(ChatMessage::user(MessageContent::from_parts(
                std::mem::take(results),
            )));
        }
        return;
    }
    if !results.is_empty() {
        out.push(ChatMessage::tool(MessageContent::from_parts(
            std::mem::take(results),
        )));
    }
    if !user.is_empty() {
        out.push(ChatMessage::user(MessageContent::from_parts(
            std::mem::take(user),
        )));
    }
}

/// For wires that take instructions anywhere.
fn anywhere(settings: &Settings, messages: &[Message]) -> Vec<ChatMessage> {
    let mut out: Vec<ChatMessage> = Vec::new();
    // Images of results, which the wire takes from users only: after the round.
    let mut shown: Vec<ContentPart> = Vec::new();
    for message in messages {
        if !matches!(message, Message::ToolResult { .. }) && !shown.is_empty() {
            out.push(ChatMessage::user(MessageContent::from_parts(
                std::mem::take(&mut shown),
            )));
        }
        match message {
            Message::System { text } => out.push(ChatMessage::system(text.as_str())),
            Message::User { content } => {
                let parts: Vec<ContentPart> = user_parts(content).collect();
                if !parts.is_empty() {
                    out.push(ChatMessage::user(MessageContent::from_parts(parts)));
                }
            }
            Message::Assistant { content } => {
                let parts = assistant_parts(settings, content);
                if !parts.is_empty() {
                    out.push(ChatMessage::assistant(MessageContent::from_parts(parts)));
                }
            }
            Message::ToolResult {
                call_id,
                name,
                content,
                is_error,
            } => {
                let result = ContentPart::ToolResponse(response(call_id, name, content, *is_error));
                out.push(ChatMessage::tool(MessageContent::from_parts(vec![result])));
                let images: Vec<ContentPart> = images(content).collect();
                if !images.is_empty() {
                    shown.push(ContentPart::Text(format!(
                        "(What `{name}` gave for call {call_id}:)"
                    )));
                    shown.extend(images);
                }
            }
        }
    }
    if !shown.is_empty() {
        out.push(ChatMessage::user(MessageContent::from_parts(shown)));
    }
    out
}

/// A later instruction, told apart from what people say.
fn marked(text: &str) -> String {
    format!("<system>\n{text}\n</system>")
}

fn user_parts(content: &[Part]) -> impl Iterator<Item = ContentPart> {
    content.iter().filter_map(|part| match part {
        Part::Text { text } if text.trim().is_empty() => None,
        Part::Text { text } => Some(ContentPart::Text(text.clone())),
        Part::Image { media_type, data } => Some(image(media_type, data)),
        Part::Thinking { .. } | Part::ToolCall(_) => None,
    })
}

fn image(media_type: &str, data: &str) -> ContentPart {
    if IMAGES.contains(&media_type) {
        ContentPart::from_binary_base64(media_type, data, None)
    } else {
        ContentPart::Text(format!(
            "[an image of type {media_type}, which models do not take, is left out]"
        ))
    }
}

fn images(content: &[Part]) -> impl Iterator<Item = ContentPart> {
    content.iter().filter_map(|part| match part {
        Part::Image { media_type, data } => Some(image(media_type, data)),
        _ => None,
    })
}

fn texts(content: &[Part]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n")
}

/// A result for wires that take only its text, and have no word for an error.
fn response(call_id: &str, name: &str, content: &[Part], is_error: bool) -> ToolResponse {
    let mut text = texts(content);
    if is_error && !text.to_ascii_lowercase().starts_with("error") {
        text.insert_str(0, "Error: ");
    }
    if text.is_empty() {
        let image = content
            .iter()
            .any(|part| matches!(part, Part::Image { .. }));
        text = if image {
            "(an image, see below)"
        } else {
            "(no output)"
        }
        .to_owned();
    }
    ToolResponse::new(call_id, text).with_fn_name(name)
}

/// A result with images and the error mark, which `genai` has no type for.
fn anthropic_result(call_id: &str, content: &[Part], is_error: bool) -> ContentPart {
    let blocks: Vec<Value> = content
        .iter()
        .filter_map(|part| match part {
            Part::Text { text } if text.trim().is_empty() => None,
            Part::Text { text } => Some(json!({"type": "text", "text": text})),
            Part::Image { media_type, data } if IMAGES.contains(&media_type.as_str()) => {
                let source = json!({"type": "base64", "media_type": media_type, "data": data});
                Some(json!({"type": "image", "source": source}))
            }
            Part::Image { media_type, .. } => {
                let text = format!(
                    "[an image of type {media_type}, which models do not take, is left out]"
                );
                Some(json!({"type": "text", "text": text}))
            }
            Part::Thinking { .. } | Part::ToolCall(_) => None,
        })
        .collect();
    let mut result = json!({"type": "tool_result", "tool_use_id": anthropic_id(call_id)});
    if !blocks.is_empty() {
        result["content"] = Value::Array(blocks);
    }
    if is_error {
        result["is_error"] = Value::Bool(true);
    }
    custom(result)
}

fn custom(data: Value) -> ContentPart {
    ContentPart::Custom(CustomPart {
        model_iden: None,
        data,
    })
}

/// Anthropic takes ids of letters, digits, `_` and `-`; another provider's may
/// have more.
fn anthropic_id(id: &str) -> String {
    id.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .collect()
}

fn assistant_parts(settings: &Settings, content: &[Part]) -> Vec<ContentPart> {
    let mut parts = Vec::new();
    let mut said = false;
    for part in content {
        match part {
            Part::Text { text } if text.trim().is_empty() => {}
            Part::Text { text } => {
                said = true;
                parts.push(ContentPart::Text(text.clone()));
            }
            Part::Thinking { text, signature } => {
                thinking(settings, text, signature.as_deref(), &mut parts);
            }
            Part::ToolCall(call) => {
                said = true;
                parts.push(ContentPart::ToolCall(genai_call(settings, call)));
            }
            Part::Image { .. } => {}
        }
    }
    // Thoughts alone are no message.
    if said { parts } else { Vec::new() }
}

/// Thoughts go back to the provider they came from, as they came.
fn thinking(
    settings: &Settings,
    text: &str,
    signature: Option<&str>,
    parts: &mut Vec<ContentPart>,
) {
    match (&settings.provider, signature) {
        (Provider::Anthropic, Some(signature)) => {
            if let Some(data) = signature.strip_prefix(REDACTED) {
                parts.push(custom(json!({"type": "redacted_thinking", "data": data})));
            } else if !signature.starts_with(GEMINI) {
                parts.push(ContentPart::ThoughtSignature(signature.to_owned()));
                parts.push(ContentPart::ReasoningContent(text.to_owned()));
            }
        }
        (Provider::Gemini, Some(signature)) => {
            if let Some(signature) = signature.strip_prefix(GEMINI) {
                parts.push(ContentPart::ThoughtSignature(signature.to_owned()));
            }
        }
        // OpenAI's own server refuses the field; compatible ones want it back.
        (Provider::DeepSeek, None) => parts.push(ContentPart::ReasoningContent(text.to_owned())),
        (Provider::OpenAI, None) if settings.endpoint.is_some() => {
            parts.push(ContentPart::ReasoningContent(text.to_owned()));
        }
        _ => {}
    }
}

fn genai_call(settings: &Settings, call: &ToolCall) -> GenaiCall {
    // Providers want an object; what the model sent instead stays readable.
    let fn_arguments = match &call.arguments {
        Value::Object(_) => call.arguments.clone(),
        Value::Null => Value::Object(Map::new()),
        Value::String(text) => json!({"invalid_json": text}),
        other => json!({"invalid_json": other.to_string()}),
    };
    let call_id = match settings.provider {
        Provider::Anthropic => anthropic_id(&call.id),
        _ => call.id.clone(),
    };
    GenaiCall {
        call_id,
        fn_name: call.name.clone(),
        fn_arguments,
        thought_signatures: None,
    }
}
