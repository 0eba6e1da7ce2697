//! One HTTP client for all models, and the limits of an answer.

use std::{sync::OnceLock, time::Duration};

use genai::WebConfig;

/// How long and how large an answer may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a provider may take until the first piece of an answer. Longer
    /// than `idle`, since some think in silence.
    pub first: Duration,
    /// How long a stream that has begun may be silent.
    pub idle: Duration,
    /// How long an answer may take in all.
    pub whole: Duration,
    /// Bytes that an answer may have, arguments of tool calls included.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            first: Duration::from_secs(300),
            idle: Duration::from_secs(120),
            whole: Duration::from_secs(3600),
            bytes: 10 * 1024 * 1024,
        }
    }
}

/// The client, made at the first request: reading the system's certificates
/// takes longer than a start may.
#[derive(Default)]
pub(super) struct Transport {
    client: OnceLock<Result<genai::Client, String>>,
}

impl Transport {
    pub(super) fn client(&self) -> Result<&genai::Client, String> {
        self.client
            .get_or_init(build)
            .as_ref()
            .map_err(Clone::clone)
    }
}

fn build() -> Result<genai::Client, String> {
    let web = WebConfig::default().with_connect_timeout(Duration::from_secs(20));
    let http = web
        .apply_to_builder(reqwest::Client::builder())
        // A redirect would carry `x-api-key` to wherever it points.
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| format!("no HTTP client for models can be made: {error}"))?;
    genai::Client::builder()
        .with_reqwest(http)
        .build()
        .map_err(|error| format!("no client for models can be made: {error}"))
}
