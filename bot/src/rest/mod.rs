//! Requests to Discord, with its limits and with a clear outcome: done, refused
//! with a code, or unknown (sent, and no answer came).
//!
//! The limits are kept here, before the wire, whichever base address is configured.

mod limit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Method, StatusCode};
use serde_json::Value;

pub use limit::GLOBAL;
use limit::Limits;

/// Attempts at a request that may be repeated.
const ATTEMPTS: u32 = 6;
/// 429s after which a request is given up.
const LIMITED: u32 = 12;
/// Time for one answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of one answer that are read.
const ANSWER: usize = 32 << 20;

/// Codes of Discord that the bot tells apart.
pub mod code {
    /// Unknown channel.
    pub const UNKNOWN_CHANNEL: u64 = 10003;
    /// Unknown message.
    pub const UNKNOWN_MESSAGE: u64 = 10008;
    /// Unknown interaction: too late.
    pub const UNKNOWN_INTERACTION: u64 = 10062;
    /// Too many edits of a message of more than an hour.
    pub const OLD_EDITS: u64 = 30046;
    /// The upload is too large.
    pub const TOO_LARGE: u64 = 40005;
    /// The interaction was answered before.
    pub const ACKNOWLEDGED: u64 = 40060;
    /// Missing access.
    pub const NO_ACCESS: u64 = 50001;
    /// Missing permissions.
    pub const NO_PERMISSION: u64 = 50013;
    /// The thread is archived.
    pub const ARCHIVED: u64 = 50083;
    /// The message has a thread already.
    pub const HAS_THREAD: u64 = 160_004;
}

/// Why a request was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RestError {
    /// Discord said no.
    #[error("Discord refused ({status}, code {code}): {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Discord's code; 0 for none.
        code: u64,
        /// Its words.
        message: String,
    },
    /// It was sent, and what became of it is not known.
    #[error("no answer came: {0}")]
    Unknown(String),
    /// It was not sent.
    #[error("Discord cannot be reached: {0}")]
    Unreachable(String),
}

impl RestError {
    /// Discord's code of a refusal.
    pub fn code(&self) -> Option<u64> {
        match self {
            RestError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            RestError::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// A file to send along.
#[derive(Clone, Debug)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its content.
    pub data: Bytes,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    path: String,
    /// Route and major id: what Discord's buckets go by.
    bucket: String,
    body: Option<Value>,
    file: Option<File>,
    repeatable: bool,
    unlimited: bool,
}

impl Call {
    /// A request; `path` begins behind `/api/v10`, `bucket` names route and channel.
    pub fn new(method: Method, path: impl Into<String>, bucket: impl Into<String>) -> Call {
        // A POST may make something twice; whatever else may be repeated.
        let repeatable = method != Method::POST;
        Call {
            method,
            path: path.into(),
            bucket: bucket.into(),
            body: None,
            file: None,
            repeatable,
            unlimited: false,
        }
    }

    /// With this body.
    pub fn body(mut self, body: Value) -> Call {
        self.body = Some(body);
        self
    }

    /// With a file.
    pub fn file(mut self, file: Option<File>) -> Call {
        self.file = file;
        self
    }

    /// Repeating it does no harm.
    pub fn repeatable(mut self) -> Call {
        self.repeatable = true;
        self
    }

    /// Answers to interactions do not count for the global limit, and cannot wait.
    pub fn unlimited(mut self) -> Call {
        self.unlimited = true;
        self
    }
}

/// The client.
pub struct Rest {
    client: reqwest::Client,
    base: String,
    token: String,
    limits: Limits,
    limited: AtomicU64,
    requests: AtomicU64,
}

impl Rest {
    /// A client for `base`, in front of `/api/v10`, that sends so many requests a second over all.
    pub fn new(base: &str, token: &str, per_second: u32) -> Result<Arc<Rest>, crate::BotError> {
        let client = reqwest::Client::builder()
            .user_agent(concat!(
                "DiscordBot (mooring, ",
                env!("CARGO_PKG_VERSION"),
                ")"
            ))
            .connect_timeout(Duration::from_secs(10))
            .timeout(TIMEOUT)
            .build()
            .map_err(|error| {
                let why = std::error::Error::source(&error).map(ToString::to_string);
                crate::BotError::Argument(format!(
                    "no HTTPS client can be made (are there certificates of authorities, as in \
                     Debian's package ca-certificates?): {}",
                    why.unwrap_or_else(|| error.to_string())
                ))
            })?;
        Ok(Arc::new(Rest {
            client,
            base: base.trim_end_matches('/').to_owned(),
            token: token.trim_start_matches("Bot ").to_owned(),
            limits: Limits::new(per_second),
            limited: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        }))
    }

    /// Requests sent, and answers of 429 among them.
    pub fn counted(&self) -> (u64, u64) {
        (
            self.requests.load(Ordering::Relaxed),
            self.limited.load(Ordering::Relaxed),
        )
    }

    /// Sends a request, waits for limits, repeats what may be repeated.
    pub async fn send(&self, call: Call) -> Result<Value, RestError> {
        let (mut attempt, mut limited) = (0, 0);
        loop {
            let permit = if call.unlimited {
                None
            } else {
                Some(self.limits.wait(&call.bucket).await)
            };
            self.requests.fetch_add(1, Ordering::Relaxed);
            let error = match self.once(&call).await {
                Ok((status, headers, body)) => {
                    if let Some(permit) = permit {
                        self.limits.learn(permit, &headers);
                    }
                    let code = body["code"].as_u64().unwrap_or(0);
                    if status.is_success() {
                        return Ok(body);
                    }
                    if status == StatusCode::TOO_MANY_REQUESTS && code != code::OLD_EDITS {
                        self.limited.fetch_add(1, Ordering::Relaxed);
                        limited += 1;
                        let after = body["retry_after"]
                            .as_f64()
                            .unwrap_or(1.0)
                            .clamp(0.0, 3_600.0);
                        let pause = Duration::from_secs_f64(after);
                        if body["global"].as_bool() == Some(true) {
                            self.limits.stop_all(pause);
                        }
                        if limited < LIMITED && !call.unlimited {
                            tokio::time::sleep(pause).await;
                            continue;
                        }
                    }
                    if !status.is_server_error() {
                        return Err(RestError::Refused {
                            status: status.as_u16(),
                            code,
                            message: refusal_text(&body),
                        });
                    }
                    RestError::Unknown(format!("status {status}"))
                }
                // The connection was never there: nothing was sent.
                Err(error) if error.is_connect() => RestError::Unreachable(error.to_string()),
                Err(error) => RestError::Unknown(error.to_string()),
            };
            attempt += 1;
            let again = call.repeatable || matches!(error, RestError::Unreachable(_));
            if !again || attempt >= ATTEMPTS || call.unlimited && attempt >= 2 {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
        }
    }

    async fn once(
        &self,
        call: &Call,
    ) -> Result<(StatusCode, reqwest::header::HeaderMap, Value), reqwest::Error> {
        let mut request = self
            .client
            .request(
                call.method.clone(),
                format!("{}/api/v10{}", self.base, call.path),
            )
            .header(AUTHORIZATION, format!("Bot {}", self.token));
        if let Some(file) = &call.file {
            let (kind, body) = multipart(call.body.as_ref(), file);
            request = request.header(CONTENT_TYPE, kind).body(body);
        } else if let Some(body) = &call.body {
            request = request.json(body);
        }
        let mut response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > ANSWER {
                break;
            }
        }
        Ok((
            status,
            headers,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        ))
    }

    /// Downloads an attachment, at most `limit` bytes.
    pub async fn download(&self, url: &str, limit: u64) -> Result<Bytes, String> {
        let mut response = self
            .client
            .get(url)
            .send()
            .await
            .map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("status {}", response.status()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > limit {
                return Err(format!("it is larger than {limit} bytes"));
            }
        }
        Ok(bytes.into())
    }
}

/// What a refusal says, with the field that was wrong.
fn refusal_text(body: &Value) -> String {
    let message = body["message"].as_str().unwrap_or("no reason given");
    match body.get("errors") {
        Some(errors) => format!("{message} {errors}"),
        None => message.to_owned(),
    }
}

/// A form of the JSON and the file, by RFC 7578.
fn multipart(body: Option<&Value>, file: &File) -> (String, Vec<u8>) {
    let mut boundary = String::from("mooring-boundary");
    while file
        .data
        .windows(boundary.len())
        .any(|window| window == boundary.as_bytes())
    {
        boundary.push('x');
    }
    let name: String = file
        .name
        .chars()
        .map(|c| {
            if matches!(c, '"' | '\r' | '\n') {
                '_'
            } else {
                c
            }
        })
        .collect();
    let json = body.map(Value::to_string).unwrap_or_default();
    let mut form = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"payload_json\"\r\n\
         Content-Type: application/json\r\n\r\n{json}\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"files[0]\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    )
    .into_bytes();
    form.extend_from_slice(&file.data);
    form.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), form)
}
