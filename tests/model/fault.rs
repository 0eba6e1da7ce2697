//! Faults, in each provider's own words.

use serde_json::{Value, json};

use super::Wire;

/// How an attempt fails.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A status in place of an answer, in the provider's words.
    Status {
        /// The status.
        status: u16,
        /// The `retry-after` header.
        retry_after: Option<String>,
    },
    /// A status with a body of one's own.
    Body {
        /// The status.
        status: u16,
        /// The body.
        body: String,
    },
    /// A redirect to another address.
    Redirect {
        /// Where to.
        to: String,
    },
    /// The context does not fit, in the provider's words.
    Overflow,
    /// The connection breaks after that many frames.
    Cut {
        /// Frames that come.
        after: usize,
    },
    /// The stream ends properly after that many frames, which is too early.
    End {
        /// Frames that come.
        after: usize,
    },
    /// Nothing more comes after that many frames.
    Stall {
        /// Frames that come.
        after: usize,
    },
    /// An error comes in the stream after that many frames.
    Event {
        /// Frames that come.
        after: usize,
        /// The error's type, `overloaded_error` for instance.
        kind: String,
    },
    /// A frame that is no JSON after that many frames.
    Garbage {
        /// Frames that come.
        after: usize,
    },
    /// Text without end, until this many bytes.
    Huge {
        /// Bytes.
        bytes: usize,
    },
    /// A call with arguments without end, until this many bytes.
    HugeArguments {
        /// Bytes.
        bytes: usize,
    },
}

impl Fault {
    /// A status in the provider's words.
    pub fn status(status: u16) -> Fault {
        Fault::Status {
            status,
            retry_after: None,
        }
    }

    /// Status 429 with `retry-after`: seconds or an HTTP date.
    pub fn rate_limit(retry_after: impl Into<String>) -> Fault {
        Fault::Status {
            status: 429,
            retry_after: Some(retry_after.into()),
        }
    }
}

/// The provider's body for a status.
pub(super) fn body(wire: Wire, status: u16) -> Value {
    match wire {
        Wire::Anthropic => {
            let (kind, message) = match status {
                400 => (
                    "invalid_request_error",
                    "messages: at least one message is required",
                ),
                401 => ("authentication_error", "invalid x-api-key"),
                403 => (
                    "permission_error",
                    "Your API key does not have permission to use the specified resource.",
                ),
                404 => ("not_found_error", "model: claude-missing"),
                413 => (
                    "request_too_large",
                    "Request exceeds the maximum allowed number of bytes.",
                ),
                429 => (
                    "rate_limit_error",
                    "This request would exceed your organization's rate limit.",
                ),
                529 => ("overloaded_error", "Overloaded"),
                _ => ("api_error", "Internal server error"),
            };
            json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
        }
        Wire::OpenAi => {
            let (kind, code, message) = match status {
                400 => ("invalid_request_error", None, "Invalid request."),
                401 => (
                    "invalid_request_error",
                    Some("invalid_api_key"),
                    "Incorrect API key provided. You can find your API key at https://platform.openai.com/account/api-keys.",
                ),
                403 => (
                    "invalid_request_error",
                    None,
                    "You are not allowed to use this model.",
                ),
                404 => (
                    "invalid_request_error",
                    Some("model_not_found"),
                    "The model does not exist or you do not have access to it.",
                ),
                429 => (
                    "requests",
                    Some("rate_limit_exceeded"),
                    "Rate limit reached for requests. Please try again later.",
                ),
                503 => (
                    "server_error",
                    None,
                    "The engine is currently overloaded, please try again later",
                ),
                _ => (
                    "server_error",
                    None,
                    "The server had an error while processing your request. Sorry about that!",
                ),
            };
            json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        }
    }
}

/// The provider's words for a context that does not fit; status 400.
pub(super) fn overflow(wire: Wire) -> Value {
    match wire {
        Wire::Anthropic => json!({"type": "error", "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 207791 tokens > 200000 maximum",
        }}),
        Wire::OpenAi => json!({"error": {
            "message": "This model's maximum context length is 128000 tokens. However, your messages resulted in 200482 tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }}),
    }
}
