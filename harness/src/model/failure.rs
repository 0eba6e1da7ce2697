//! What a provider's refusal or a broken stream means for the engine.

use genai::Error;
use jiff::Timestamp;
use mooring_durable::model::{ModelError, Usage};
use reqwest::header::{HeaderMap, LOCATION};
use serde_json::Value;

use super::{Settings, retry_after::retry_after};

/// Characters of a provider's text that are kept.
const TEXT: usize = 2000;

/// What each provider says when a context does not fit, in lower case.
const OVERFLOW: [&str; 15] = [
    "prompt is too long",                    // Anthropic
    "exceed context limit",                  // Anthropic, input and max_tokens together
    "request_too_large",                     // Anthropic, by bytes
    "context_length_exceeded",               // OpenAI's code
    "maximum context length",                // OpenAI, vLLM, DeepSeek, OpenRouter, Mistral
    "exceeds the context window",            // OpenAI, responses
    "request too large for",                 // OpenAI, more than a minute's allowance
    "exceeds the maximum number of tokens",  // Gemini
    "reduce the length of the messages",     // Groq
    "maximum prompt length",                 // xAI
    "exceed_context_size",                   // llama.cpp
    "exceeds the available context size",    // llama.cpp
    "input is too long for requested model", // Bedrock
    "context window exceeds limit",          // MiniMax
    "exceeded model token limit",            // Moonshot
];

/// Errors of the stream itself, and of answers with a good status, that no
/// further attempt mends.
const LASTING: [&str; 7] = [
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "billing_error",
    "insufficient_quota",
    "invalid_api_key",
];

/// A refusal, however it came.
struct Refusal<'a> {
    status: Option<u16>,
    headers: Option<&'a HeaderMap>,
    body: Body,
}

/// What a provider said.
struct Body {
    /// Its message, for people.
    text: String,
    /// Its type and code, in lower case with the message, to look for words in.
    words: String,
}

/// What `error` means. `usage` is what the attempt is known to have cost.
pub(super) fn classify(
    error: &Error,
    name: &str,
    settings: &Settings,
    usage: Option<Usage>,
) -> ModelError {
    let refusal = match error {
        Error::WebStream { error, .. } => match error.downcast_ref::<Error>() {
            Some(inner) => return classify(inner, name, settings, usage),
            None => return broken(error.as_ref(), name, usage),
        },
        Error::HttpError {
            status,
            body,
            headers,
            ..
        } => Refusal {
            status: Some(status.as_u16()),
            headers: Some(headers),
            body: read_text(body),
        },
        Error::ChatResponse { body, .. } => Refusal {
            status: None,
            headers: None,
            body: read_json(body),
        },
        Error::StreamParse { serde_error, .. } => {
            return ModelError::Retryable {
                text: format!("model `{name}` sent a frame that is no JSON: {serde_error}"),
                retry_after: None,
                usage,
            };
        }
        other => {
            return ModelError::Fatal {
                text: cut(&format!("model `{name}`: {other}")),
            };
        }
    };
    judge(&refusal, name, settings, usage)
}

fn judge(
    refusal: &Refusal<'_>,
    name: &str,
    settings: &Settings,
    usage: Option<Usage>,
) -> ModelError {
    let Body { text, words } = &refusal.body;
    let said = match refusal.status {
        Some(status) => format!("model `{name}` answered {status}: {text}"),
        None => format!("model `{name}` broke off: {text}"),
    };
    if OVERFLOW.iter().any(|phrase| words.contains(phrase)) || refusal.status == Some(413) {
        return ModelError::Overflow { text: said };
    }
    let lasting = LASTING.iter().any(|word| words.contains(word));
    let retryable = match refusal.status {
        Some(429) => !words.contains("insufficient_quota"),
        Some(408 | 409 | 425) => true,
        Some(501 | 505) => false,
        Some(status) if status >= 500 => true,
        // Some proxies pass an overload on under a status of their own.
        Some(_) => words.contains("overloaded"),
        None => !lasting,
    };
    if retryable {
        let retry_after = refusal
            .headers
            .and_then(|headers| retry_after(headers, Timestamp::now()));
        return ModelError::Retryable {
            text: said,
            retry_after,
            usage,
        };
    }
    let way_out = way_out(refusal, name, settings);
    ModelError::Fatal {
        text: if way_out.is_empty() {
            said
        } else {
            format!("{said}; {way_out}")
        },
    }
}

/// What the reader can do about a refusal.
fn way_out(refusal: &Refusal<'_>, name: &str, settings: &Settings) -> String {
    let words = &refusal.body.words;
    match refusal.status {
        Some(401 | 403) => match &settings.key {
            Some(name) => format!(
                "check the key in {}",
                name.split('@').next().unwrap_or_default()
            ),
            None => format!("no key was sent: name its variable in `apiKeyEnv` of model `{name}`"),
        },
        Some(404) => {
            let server = settings.endpoint.as_deref().unwrap_or("the provider");
            format!("check that {server} knows the model `{}`", settings.model)
        }
        Some(300..=399) => {
            let to = refusal
                .headers
                .and_then(|h| h.get(LOCATION))
                .and_then(|v| v.to_str().ok());
            format!(
                "redirects are not followed; set `endpoint` of model `{name}` to where it leads{}",
                to.map(|to| format!(" ({})", cut(to))).unwrap_or_default()
            )
        }
        _ if words.contains("insufficient_quota") || words.contains("credit balance") => {
            "check the plan and billing of the account that the key belongs to".to_owned()
        }
        _ => String::new(),
    }
}

/// A connection that could not be made, or broke.
fn broken(
    error: &(dyn std::error::Error + Send + Sync + 'static),
    name: &str,
    usage: Option<Usage>,
) -> ModelError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    let text = cut(&format!(
        "no connection to model `{name}`, or it broke: {text}"
    ));
    match error.downcast_ref::<reqwest::Error>() {
        Some(error) if error.is_builder() => ModelError::Fatal {
            text: format!(
                "{text}; check that the key and `endpoint` of model `{name}` have no stray characters"
            ),
        },
        _ => ModelError::Retryable {
            text,
            retry_after: None,
            usage,
        },
    }
}

fn read_text(body: &str) -> Body {
    if let Ok(json) = serde_json::from_str::<Value>(body) {
        return read_json(&json);
    }
    let page = body.trim_start().to_ascii_lowercase();
    let text = match body.trim() {
        "" => "(no text)".to_owned(),
        _ if page.starts_with("<!doctype") || page.starts_with("<html") => {
            "an HTML page, no answer of a model; something stands between".to_owned()
        }
        text => cut(text),
    };
    Body {
        text,
        words: cut(body).to_lowercase(),
    }
}

fn read_json(body: &Value) -> Body {
    // Some wrap the error once more, some in a list.
    let body = body.get(0).unwrap_or(body);
    let error = body
        .get("error")
        .filter(|error| !error.is_null())
        .unwrap_or(body);
    let string =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let text = string(error, "message")
        .or_else(|| string(body, "message"))
        .or_else(|| error.as_str().map(str::to_owned))
        .or_else(|| string(body, "detail"))
        .unwrap_or_else(|| error.to_string());
    let kind = string(error, "type").unwrap_or_default();
    let code = string(error, "code").unwrap_or_default();
    let text = cut(&text);
    let words = format!("{text} {kind} {code}").to_lowercase();
    let text = if kind.is_empty() || text.contains(&kind) {
        text
    } else {
        format!("{text} ({kind})")
    };
    Body { text, words }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings() -> Settings {
        Settings::of(&serde_saphyr::from_str("{name: m, provider: openai, model: g}").unwrap())
    }

    fn judged(status: Option<u16>, body: &str) -> ModelError {
        let refusal = Refusal {
            status,
            headers: None,
            body: read_text(body),
        };
        judge(&refusal, "m", &settings(), None)
    }

    fn kind(error: &ModelError) -> &'static str {
        match error {
            ModelError::Retryable { .. } => "retryable",
            ModelError::Overflow { .. } => "overflow",
            ModelError::Fatal { .. } => "fatal",
            ModelError::NotConfigured { .. } => "not configured",
            ModelError::Cancelled => "cancelled",
        }
    }

    #[test]
    fn every_refusal_has_its_class() {
        let rows = [
            (
                Some(429),
                r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#,
                "retryable",
            ),
            (
                Some(429),
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                "fatal",
            ),
            (
                Some(429),
                r#"{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 60000.","type":"tokens","code":"rate_limit_exceeded"}}"#,
                "overflow",
            ),
            (Some(500), "", "retryable"),
            (Some(502), "<html>bad gateway</html>", "retryable"),
            (Some(503), "no healthy upstream", "retryable"),
            (Some(504), "", "retryable"),
            (
                Some(529),
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                "retryable",
            ),
            (
                Some(400),
                r#"{"error":{"message":"Overloaded"}}"#,
                "retryable",
            ),
            (Some(501), "", "fatal"),
            (
                Some(400),
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 207791 tokens > 200000 maximum"}}"#,
                "overflow",
            ),
            (
                Some(400),
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or `max_tokens` and try again"}}"#,
                "overflow",
            ),
            (
                Some(413),
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
                "overflow",
            ),
            (
                Some(400),
                r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 200000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
                "overflow",
            ),
            (
                Some(400),
                r#"{"error":{"message":"Your input exceeds the context window of this model.","code":"x"}}"#,
                "overflow",
            ),
            (
                Some(400),
                r#"[{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
                "overflow",
            ),
            (
                Some(400),
                r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error"}}"#,
                "overflow",
            ),
            (
                Some(400),
                r#"{"error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
                "overflow",
            ),
            (
                Some(400),
                r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}"#,
                "overflow",
            ),
            (
                Some(400),
                r#"{"error":{"message":"Invalid schema for function 'bash'","type":"invalid_request_error"}}"#,
                "fatal",
            ),
            (
                Some(401),
                r#"{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}"#,
                "fatal",
            ),
            (Some(403), "forbidden", "fatal"),
            (Some(404), r#"{"detail":"Not Found"}"#, "fatal"),
            (Some(422), r#"{"detail":[{"msg":"extra fields"}]}"#, "fatal"),
            (Some(301), "", "fatal"),
            (
                None,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                "retryable",
            ),
            (
                None,
                r#"{"message":"Error in input stream","type":"server_error"}"#,
                "retryable",
            ),
            (
                None,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"bad"}}"#,
                "fatal",
            ),
            (
                None,
                r#"{"message":"x","code":"context_length_exceeded"}"#,
                "overflow",
            ),
        ];
        for (status, body, expected) in rows {
            let error = judged(status, body);
            assert_eq!(kind(&error), expected, "{status:?} {body}: {error}");
        }
    }

    #[test]
    fn a_refusal_names_the_model_the_providers_text_and_the_way_out() {
        let rows = [
            (
                401,
                r#"{"error":{"message":"Incorrect API key"}}"#,
                vec!["`m`", "Incorrect API key", "OPENAI_API_KEY"],
            ),
            (
                404,
                r#"{"error":{"message":"The model does not exist","type":"invalid_request_error"}}"#,
                vec!["does not exist", "`g`"],
            ),
            (301, "", vec!["endpoint"]),
            (400, "<!DOCTYPE html><p>blocked", vec!["HTML page"]),
        ];
        for (status, body, parts) in rows {
            let text = judged(Some(status), body).to_string();
            for part in parts {
                assert!(text.contains(part), "{text} lacks {part}");
            }
        }
    }

    #[test]
    fn a_long_refusal_is_cut() {
        assert!(
            judged(Some(400), &"ä".repeat(1_000_000))
                .to_string()
                .chars()
                .count()
                < TEXT + 100
        );
    }
}
