//! What a route answers: something done, or a refusal with Discord's code.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::clock::Id;
use crate::limit::Scope;
use crate::world::Pings;

/// Something done.
pub(crate) struct Done {
    pub status: u16,
    pub body: Value,
    pub message: Option<Id>,
    pub pings: Pings,
    pub repeated_nonce: bool,
}

impl Done {
    pub fn new(body: Value) -> Done {
        Done {
            status: 200,
            body,
            message: None,
            pings: Pings::default(),
            repeated_nonce: false,
        }
    }

    pub fn created(body: Value) -> Done {
        Done {
            status: 201,
            ..Done::new(body)
        }
    }

    pub fn empty() -> Done {
        Done {
            status: 204,
            ..Done::new(Value::Null)
        }
    }

    pub fn of_message(body: Value, message: Id, pings: Pings) -> Done {
        Done {
            message: Some(message),
            pings,
            ..Done::new(body)
        }
    }
}

/// A refusal.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub status: u16,
    pub code: u64,
    message: String,
    more: Option<Box<(&'static str, Value)>>,
    global: bool,
}

impl Refusal {
    pub fn new(status: u16, code: u64, message: &str) -> Refusal {
        Refusal {
            status,
            code,
            message: message.into(),
            more: None,
            global: false,
        }
    }

    pub fn unknown(code: u64, message: &str) -> Refusal {
        Refusal::new(404, code, message)
    }

    pub fn no_route() -> Refusal {
        Refusal::new(404, 0, "404: Not Found")
    }

    pub fn unauthorized() -> Refusal {
        Refusal::new(401, 0, "401: Unauthorized")
    }

    pub fn unavailable() -> Refusal {
        Refusal::new(503, 0, "upstream connect error")
    }

    pub fn no_access() -> Refusal {
        Refusal::new(403, 50001, "Missing Access")
    }

    pub fn no_permission() -> Refusal {
        Refusal::new(403, 50013, "Missing Permissions")
    }

    pub fn unknown_channel() -> Refusal {
        Refusal::unknown(10003, "Unknown Channel")
    }

    pub fn unknown_message() -> Refusal {
        Refusal::unknown(10008, "Unknown Message")
    }

    pub fn archived() -> Refusal {
        Refusal::new(400, 50083, "Thread is archived")
    }

    pub fn too_large() -> Refusal {
        Refusal::new(413, 40005, "Request entity too large")
    }

    pub fn not_json() -> Refusal {
        Refusal::new(400, 50109, "The request body contains invalid JSON.")
    }

    /// 50035, with the field that is wrong.
    pub fn form(field: &str, code: &str, message: &str) -> Refusal {
        let errors = json!({field: {"_errors": [{"code": code, "message": message}]}});
        Refusal {
            more: Some(Box::new(("errors", errors))),
            ..Refusal::new(400, 50035, "Invalid Form Body")
        }
    }

    pub fn limited(scope: Scope, after_ms: u64) -> Refusal {
        Refusal {
            more: Some(Box::new((
                "retry_after",
                json!(after_ms.max(1) as f64 / 1_000.0),
            ))),
            global: scope == Scope::Global,
            ..Refusal::new(429, 0, "You are being rate limited.")
        }
    }

    /// 429 with a code of its own, for edits of old messages.
    pub fn old_edits(after_ms: u64) -> Refusal {
        Refusal {
            more: Some(Box::new(("retry_after", json!(after_ms as f64 / 1_000.0)))),
            ..Refusal::new(
                429,
                30046,
                "Maximum number of edits to messages older than 1 hour reached. Try again later.",
            )
        }
    }

    pub fn respond(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut body = json!({"message": self.message, "code": self.code});
        if let Some(more) = self.more {
            let (name, more) = *more;
            body[name] = more;
        }
        if self.status == 429 {
            body["global"] = self.global.into();
            if self.code == 0
                && let Some(body) = body.as_object_mut()
            {
                body.remove("code");
            }
        }
        (status, axum::Json(body)).into_response()
    }
}
