//! The prompt port: sections that the model is told.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::id::ConversationId;

/// One named section. When its text changes between turns, one `pi.system`
/// entry says so at that position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Its stable name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Renders sections before each request.
#[async_trait]
pub trait Prompt: Send + Sync {
    /// The sections as they should now be, in order. An error is reported and
    /// the request is sent with the sections as they were.
    async fn sections(&self, conversation: ConversationId) -> Result<Vec<Section>, String>;
}
