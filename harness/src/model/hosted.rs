//! One request to a provider, through `genai`.

use std::sync::Arc;

use futures::StreamExt;
use genai::{
    Client, ModelIden, ServiceTarget,
    adapter::AdapterKind,
    chat::{ChatOptions, ChatStream, ChatStreamEvent, ReasoningEffort, StopReason, StreamEnd},
    resolver::{AuthData, Endpoint},
};
use mooring_crds::{Provider, Thinking};
use mooring_durable::{
    message::Part,
    model::{ModelError, ModelRequest, ModelResponse, PartialSink, Usage},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    KeyStore, Limits, Settings,
    answer::{self, Answer, Telling},
    context, failure, keys,
    pulse::Pulse,
    transport::Transport,
};

/// The version of `genai` that turns requests into bytes; a test holds it
/// against the lock file.
pub(super) const GENAI: &str = "0.7.2";

/// Sent where a wire demands a key and the server does not.
const NO_KEY: &str = "none";

/// What all requests share.
pub(super) struct Provision<'a> {
    pub(super) keys: &'a KeyStore,
    pub(super) transport: &'a Transport,
    pub(super) limits: Limits,
}

/// Asks once. `name` is the model's name in the Workspace.
pub(super) async fn respond(
    provision: Provision<'_>,
    name: &str,
    settings: &Settings,
    request: &ModelRequest,
    sink: &dyn PartialSink,
    cancel: CancellationToken,
) -> Result<ModelResponse, ModelError> {
    let key = match &settings.key {
        Some(name) => {
            let key = provision.keys.get(name);
            key.ok_or_else(|| ModelError::NotConfigured {
                needs: keys::key_label(name),
            })?
        }
        None => NO_KEY.to_owned().into(),
    };
    let client = provision
        .transport
        .client()
        .map_err(|text| ModelError::Fatal { text })?;
    let pulse = Pulse::new();
    let broken = |error: genai::Error| failure::classify(&error, name, settings, pulse.usage());

    let target = target(client, settings, AuthData::from_single(key.as_str()))
        .await
        .map_err(broken)?;
    let chat = context::chat_request(settings, request);
    let options = options(settings, &pulse);
    let opened = client.exec_chat_stream(target, chat, Some(&options)).await;
    let mut reading = Reading {
        name,
        settings,
        limits: provision.limits,
        pulse: pulse.clone(),
        answer: Answer::new(Telling::of(&settings.provider)),
    };
    let end = reading
        .read(opened.map_err(broken)?.stream, sink, cancel)
        .await?;
    reading.conclude(end)
}

/// Where a request goes.
async fn target(
    client: &Client,
    settings: &Settings,
    auth: AuthData,
) -> Result<ServiceTarget, genai::Error> {
    let kind = match settings.provider {
        Provider::Anthropic => AdapterKind::Anthropic,
        Provider::Gemini => AdapterKind::Gemini,
        Provider::Groq => AdapterKind::Groq,
        Provider::Xai => AdapterKind::Xai,
        Provider::DeepSeek => AdapterKind::DeepSeek,
        Provider::Ollama => AdapterKind::Ollama,
        Provider::OpenAI | Provider::Rehearsal => AdapterKind::OpenAI,
    };
    let model = ModelIden::new(kind, settings.model.as_str());
    let endpoint = match &settings.endpoint {
        Some(endpoint) => Endpoint::from_owned(base_url(&settings.provider, endpoint)),
        None => client.resolve_service_target(model.clone()).await?.endpoint,
    };
    Ok(ServiceTarget {
        endpoint,
        auth,
        model,
    })
}

/// The base address as `genai` wants it: with a slash at the end, and for
/// Anthropic's wire with the version, which its own tools leave out.
fn base_url(provider: &Provider, endpoint: &str) -> String {
    let (address, query) = match endpoint.split_once('?') {
        Some((address, query)) => (address, format!("?{query}")),
        None => (endpoint, String::new()),
    };
    let mut address = address.trim_end_matches('/');
    for path in ["/chat/completions", "/messages"] {
        address = address.strip_suffix(path).unwrap_or(address);
    }
    match provider {
        Provider::Anthropic if !address.ends_with("/v1") => format!("{address}/v1/{query}"),
        _ => format!("{address}/{query}"),
    }
}

fn options(settings: &Settings, pulse: &Arc<Pulse>) -> ChatOptions {
    let telling = Telling::of(&settings.provider);
    let at_the_end = telling == Telling::AtTheEnd;
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        .with_capture_content(at_the_end)
        .with_capture_tool_calls(at_the_end)
        .with_capture_reasoning_content(at_the_end || settings.provider == Provider::Anthropic)
        .with_raw_frame_sink_arc(pulse.clone());
    if let Some(tokens) = settings.max_output {
        options = options.with_max_tokens(u32::try_from(tokens).unwrap_or(u32::MAX));
    }
    if telling != Telling::AtTheEnd {
        // `genai` reads a thinking level out of names like `qwen-max` and cuts
        // it off; the name is sent as the Workspace has it.
        options = options.with_extra_body(json!({"model": settings.model}));
    }
    match effort(settings) {
        Some(effort) => options.with_reasoning_effort(effort),
        None => options,
    }
}

/// The thinking level on the wire; `None` sends nothing.
fn effort(settings: &Settings) -> Option<ReasoningEffort> {
    let openai = matches!(
        settings.provider,
        Provider::OpenAI | Provider::Groq | Provider::Xai
    );
    let unsaid = || {
        let read_from_name = ReasoningEffort::from_model_name(&settings.model)
            .0
            .is_some();
        match settings.provider {
            // On this wire a budget is not sent, and keeps the name from being read.
            _ if openai => Some(ReasoningEffort::Budget(0)),
            Provider::Anthropic if read_from_name => Some(ReasoningEffort::Zero),
            _ => None,
        }
    };
    match settings.thinking {
        None => unsaid(),
        Some(Thinking::Low) => Some(ReasoningEffort::Low),
        Some(Thinking::Medium) => Some(ReasoningEffort::Medium),
        Some(Thinking::High) => Some(ReasoningEffort::High),
        // Only some of OpenAI's models know a word for "not at all"; the others
        // either refuse it or do not think anyway.
        Some(Thinking::Off) if openai => {
            let model = settings.model.as_str();
            if model.starts_with("gpt-5.") || model.starts_with("gpt-6") {
                Some(ReasoningEffort::Zero)
            } else if model == "gpt-5" || model.starts_with("gpt-5-") {
                Some(ReasoningEffort::Minimal)
            } else {
                unsaid()
            }
        }
        Some(Thinking::Off) => Some(ReasoningEffort::Zero),
    }
}

/// A stream being read.
struct Reading<'a> {
    name: &'a str,
    settings: &'a Settings,
    limits: Limits,
    pulse: Arc<Pulse>,
    answer: Answer,
}

impl Reading<'_> {
    /// Reads to the stream's own end mark.
    async fn read(
        &mut self,
        mut stream: ChatStream,
        sink: &dyn PartialSink,
        cancel: CancellationToken,
    ) -> Result<StreamEnd, ModelError> {
        loop {
            let event = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(ModelError::Cancelled),
                event = stream.next() => event,
                () = tokio::time::sleep(self.pulse.patience(&self.limits)) => {
                    // A ping may have come meanwhile, which is no event.
                    if self.pulse.patience(&self.limits).is_zero() {
                        return Err(self.retryable(self.pulse.complaint(&self.limits)));
                    }
                    continue;
                }
            };
            match event {
                Some(Ok(ChatStreamEvent::Chunk(chunk))) => self.answer.text(&chunk.content, sink),
                Some(Ok(ChatStreamEvent::ReasoningChunk(chunk))) => {
                    self.answer.thinking(&chunk.content, sink);
                }
                Some(Ok(ChatStreamEvent::ThoughtSignatureChunk(chunk))) => {
                    self.answer.signature(&chunk.content);
                }
                Some(Ok(ChatStreamEvent::ToolCallChunk(chunk))) => {
                    self.answer.call(chunk.tool_call)
                }
                Some(Ok(ChatStreamEvent::End(end))) => return Ok(end),
                Some(Ok(ChatStreamEvent::Start | ChatStreamEvent::Heartbeat)) => {}
                Some(Err(error)) => {
                    let usage = self.pulse.usage();
                    return Err(failure::classify(&error, self.name, self.settings, usage));
                }
                None => {
                    let text = "the stream ended before the answer was complete";
                    return Err(self.retryable(text.to_owned()));
                }
            }
            self.check_size()?;
        }
    }

    fn retryable(&self, text: String) -> ModelError {
        ModelError::Retryable {
            text: format!("model `{}`: {text}", self.name),
            retry_after: None,
            usage: self.pulse.usage(),
        }
    }

    /// A frame may be a hundred times larger than the word it carries.
    fn check_size(&self) -> Result<(), ModelError> {
        let most = self.limits.bytes;
        if self.answer.bytes() <= most && self.pulse.bytes() <= 100 * most as u64 {
            return Ok(());
        }
        Err(ModelError::Fatal {
            text: format!(
                "model `{}` sent an answer of more than {} bytes, which was ended; ask for less, \
                 or set `maxOutput` of the model",
                self.name, most
            ),
        })
    }

    /// What the whole stream came to.
    fn conclude(self, end: StreamEnd) -> Result<ModelResponse, ModelError> {
        let Reading {
            name,
            settings,
            pulse,
            answer,
            ..
        } = self;
        let usage: Option<Usage> = end
            .captured_usage
            .as_ref()
            .and_then(answer::usage)
            .or_else(|| pulse.usage());
        let stop = end.captured_stop_reason.clone();
        let cut_off = stop.as_ref().is_some_and(StopReason::is_max_tokens);
        let content = answer.finish(end, cut_off);
        let says = content.iter().any(|part| match part {
            Part::Text { text } => !text.trim().is_empty(),
            Part::ToolCall(_) => true,
            Part::Thinking { .. } | Part::Image { .. } => false,
        });
        if says {
            let stop_reason = stop.map(|stop| stop.raw().to_owned());
            return Ok(ModelResponse {
                content,
                usage,
                stop_reason,
            });
        }
        Err(match stop {
            Some(StopReason::MaxTokens(word)) if word == "model_context_window_exceeded" => {
                ModelError::Overflow {
                    text: format!("model `{name}` ended its answer: {word}"),
                }
            }
            Some(StopReason::MaxTokens(word)) => ModelError::Fatal {
                text: format!(
                    "model `{name}` used up the {} tokens of its answer before it said anything \
                     ({word}); raise `maxOutput` or lower `thinking` of the model",
                    settings
                        .max_output
                        .map_or("allowed".to_owned(), |n| n.to_string())
                ),
            },
            Some(StopReason::ContentFilter(word)) => ModelError::Fatal {
                text: format!("model `{name}` refused to answer ({word})"),
            },
            _ => ModelError::Retryable {
                text: format!("model `{name}` gave an empty answer"),
                retry_after: None,
                usage,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_adapters_version_is_the_one_in_the_lock_file() {
        let lock = include_str!("../../../Cargo.lock");
        let (_, rest) = lock.split_once("name = \"genai\"\nversion = \"").unwrap();
        assert_eq!(
            rest.split('"').next(),
            Some(GENAI),
            "set GENAI in hosted.rs"
        );
    }

    #[test]
    fn endpoints_are_taken_as_people_write_them() {
        let rows = [
            (Provider::OpenAI, "http://h:1/v1", "http://h:1/v1/"),
            (Provider::OpenAI, "http://h:1/v1/", "http://h:1/v1/"),
            (
                Provider::OpenAI,
                "http://h/v1/chat/completions",
                "http://h/v1/",
            ),
            (
                Provider::OpenAI,
                "https://h/openai/deployments/d?api-version=1",
                "https://h/openai/deployments/d/?api-version=1",
            ),
            (Provider::Anthropic, "http://h:1", "http://h:1/v1/"),
            (Provider::Anthropic, "http://h:1/v1/", "http://h:1/v1/"),
            (Provider::Anthropic, "http://h/v1/messages", "http://h/v1/"),
        ];
        for (provider, endpoint, expected) in rows {
            assert_eq!(base_url(&provider, endpoint), expected);
        }
    }

    #[tokio::test]
    async fn a_model_without_an_endpoint_goes_to_its_providers_own_server() {
        let rows = [
            ("anthropic", "https://api.anthropic.com/v1/"),
            ("openai", "https://api.openai.com/v1/"),
            (
                "gemini",
                "https://generativelanguage.googleapis.com/v1beta/",
            ),
            ("groq", "https://api.groq.com/openai/v1/"),
            ("xai", "https://api.x.ai/v1/"),
            ("deepseek", "https://api.deepseek.com/v1/"),
            ("ollama", "http://localhost:11434/"),
        ];
        let transport = Transport::default();
        let client = transport.client().unwrap();
        for (provider, server) in rows {
            let spec = format!("{{name: m, provider: {provider}, model: claude-gpt-low}}");
            let settings = Settings::of(&serde_saphyr::from_str(&spec).unwrap());
            let target = target(client, &settings, AuthData::from_single("k"))
                .await
                .unwrap();
            assert_eq!(target.endpoint.base_url(), server, "{provider}");
            assert_eq!(&*target.model.model_name, "claude-gpt-low");
        }
    }
}
