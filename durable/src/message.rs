//! What is said: to the model, by the model, and by tools.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A piece of content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Its MIME type.
        media_type: String,
        /// Its bytes, base64.
        data: String,
    },
    /// What the model thought; sent back as it came.
    Thinking {
        /// The text.
        text: String,
        /// The provider's signature over it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A call of a tool.
    ToolCall(ToolCall),
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Part {
        Part::Text { text: text.into() }
    }
}

/// A call as the model made it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of the call, unique within its response.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Arguments; a JSON string where the model sent no valid JSON.
    pub arguments: Value,
}

/// One message of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// Instructions that hold from here on.
    System {
        /// The text.
        text: String,
    },
    /// What people said.
    User {
        /// The content.
        content: Vec<Part>,
    },
    /// What the model answered.
    Assistant {
        /// The content, tool calls included.
        content: Vec<Part>,
    },
    /// What came of a call.
    ToolResult {
        /// Which call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// Text and images.
        content: Vec<Part>,
        /// The call failed, was denied or was interrupted.
        is_error: bool,
    },
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSchema {
    /// The name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}
