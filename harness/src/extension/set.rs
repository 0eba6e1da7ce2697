//! Extensions that are a list of tools, a text of the Workspace, or its MCP servers.

use std::sync::Arc;

use async_trait::async_trait;
use mooring_durable::{extension::Extension, id::ConversationId, prompt::Section, tool::Tool};
use serde_json::Value;

use super::{own, visible};
use crate::{mcp::Servers, workspace::Source};

/// Tools that are always the same.
pub(super) struct Set(pub Vec<Arc<dyn Tool>>);

impl Extension for Set {
    fn tools(&self, _conversation: ConversationId, _settings: &Value) -> Vec<Arc<dyn Tool>> {
        self.0.clone()
    }
}

/// The instructions of the Workspace.
pub(super) struct Instructions(pub Arc<Source>);

#[async_trait]
impl Extension for Instructions {
    async fn sections(
        &self,
        _conversation: ConversationId,
        _settings: &Value,
    ) -> Result<Vec<Section>, String> {
        let text = self.0.current().spec.instructions.clone();
        Ok(match text.trim().is_empty() {
            true => Vec::new(),
            false => own(text),
        })
    }
}

/// The MCP servers of the Workspace, with their tools as they now are.
pub(super) struct Mcp {
    /// They.
    pub servers: Arc<Servers>,
    /// The Workspace in use.
    pub source: Arc<Source>,
}

#[async_trait]
impl Extension for Mcp {
    fn tools(&self, conversation: ConversationId, settings: &Value) -> Vec<Arc<dyn Tool>> {
        let workspace = self.source.current();
        let visible = |name: &str| visible(&workspace, settings, name);
        self.servers.tools(conversation, visible)
    }

    async fn sections(
        &self,
        conversation: ConversationId,
        settings: &Value,
    ) -> Result<Vec<Section>, String> {
        let workspace = self.source.current();
        let visible = |name: &str| visible(&workspace, settings, name);
        let text = self.servers.section(conversation, visible).await;
        Ok(text.map_or_else(Vec::new, own))
    }
}
