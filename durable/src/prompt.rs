//! The prompt port: sections that the model is told.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// The sections as they should now be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// In order.
    pub sections: Vec<Section>,
    /// Sets that could not be rendered: the sections `NAME` and `NAME/…` stay as they were.
    pub kept: Vec<String>,
}

impl From<Vec<Section>> for Rendered {
    fn from(sections: Vec<Section>) -> Rendered {
        Rendered {
            sections,
            kept: Vec::new(),
        }
    }
}

impl Rendered {
    /// All sections, after `before` was told.
    pub(crate) fn after(self, before: &[Section]) -> Vec<Section> {
        let of_set = |section: &&Section| {
            self.kept.iter().any(|set| {
                let rest = section.name.strip_prefix(set);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let kept: Vec<_> = before.iter().filter(of_set).cloned().collect();
        self.sections.into_iter().chain(kept).collect()
    }
}

/// Renders sections before each request.
#[async_trait]
pub trait Prompt: Send + Sync {
    /// The sections as they should now be; `settings` are the conversation's. An error is
    /// reported and the request is sent with the sections as they were.
    async fn sections(
        &self,
        conversation: ConversationId,
        settings: &Value,
    ) -> Result<Rendered, String>;
}
