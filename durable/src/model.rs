//! The model port: how the engine asks a language model.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    id::{ConversationId, TaskId},
    message::{Message, Part, ToolSchema},
};

/// Everything that decides what a model is sent. Its JSON is the canonical
/// request, whose hash is stored with each attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// The conversation's model, by the name that [`Models::resolve`] takes.
    pub model: String,
    /// Pinned settings of the model (provider, provider's name, thinking,
    /// limits), as [`Model::options`] gave them.
    pub options: Value,
    /// Tools on offer.
    pub tools: Vec<ToolSchema>,
    /// The context, oldest first.
    pub messages: Vec<Message>,
}

/// Who asks; for logs, for scripts by conversation and for idempotency keys.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The conversation.
    pub conversation: ConversationId,
    /// The generation task.
    pub task: TaskId,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// What the answer is for.
    pub purpose: Purpose,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The next turn of a run.
    #[default]
    Turn,
    /// A summary, for a compaction.
    Summary,
}

/// Takes what streams in. Calls are cheap and never block.
pub trait PartialSink: Send + Sync {
    /// More of the answer.
    fn text(&self, delta: &str);
    /// More of the thinking.
    fn thinking(&self, delta: &str);
}

/// Tokens of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Input tokens that the provider read from its cache.
    pub cached: u64,
    /// Output tokens, thinking included.
    pub output: u64,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct ModelResponse {
    /// Text, thinking and tool calls in order.
    pub content: Vec<Part>,
    /// What it cost, where the provider said so.
    pub usage: Option<Usage>,
    /// The provider's word for why it stopped.
    pub stop_reason: Option<String>,
}

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ModelError {
    /// Worth another attempt: overload, a rate limit, a cut or stalled stream.
    #[error("{text}")]
    Retryable {
        /// The provider's text.
        text: String,
        /// How long the provider asks to wait.
        retry_after: Option<Duration>,
        /// What was used all the same.
        usage: Option<Usage>,
    },
    /// The context does not fit.
    #[error("{text}")]
    Overflow {
        /// The provider's text.
        text: String,
    },
    /// Another attempt would not help: wrong key, unknown model, refused request.
    #[error("{text}")]
    Fatal {
        /// The provider's text.
        text: String,
    },
    /// A key is missing; the run waits until [`crate::Engine::models_changed`].
    #[error("no key: {needs}")]
    NotConfigured {
        /// What is needed, for people (`ANTHROPIC_API_KEY`).
        needs: String,
    },
    /// Given up because `cancel` fired.
    #[error("cancelled")]
    Cancelled,
}

/// One model.
#[async_trait]
pub trait Model: Send + Sync {
    /// Name and version of the code that turns a canonical request into the
    /// provider's wire; a rebuild with another one says so.
    fn adapter(&self) -> String;
    /// Settings that are pinned with a request.
    fn options(&self) -> Value;
    /// Estimated tokens of `request`, for reservations and thresholds.
    fn estimate(&self, request: &ModelRequest) -> u64;
    /// Tokens of input that fit, where that is known.
    fn window(&self) -> Option<u64> {
        None
    }
    /// Asks once. Ends soon after `cancel` fires.
    async fn respond(
        &self,
        request: &ModelRequest,
        context: &RequestContext,
        sink: &dyn PartialSink,
        cancel: CancellationToken,
    ) -> Result<ModelResponse, ModelError>;
}

/// Finds models by name.
pub trait Models: Send + Sync {
    /// The model of that name; an empty name is the default. `None` ends the run
    /// `unanswered: no_model`.
    fn resolve(&self, name: &str) -> Option<Arc<dyn Model>>;
}
