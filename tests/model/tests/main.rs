//! Models as users have them: through the catalog, `genai` and HTTP, against
//! the stand-in, on both wires.
#![allow(clippy::unwrap_used)]

mod catalog;
mod faults;
mod rehearsal;
mod requests;
mod wires;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mooring_crds::ModelSpec;
use mooring_durable::{
    id::{ConversationId, TaskId},
    message::{Message, Part, ToolCall, ToolSchema},
    model::{ModelError, ModelRequest, ModelResponse, Models, PartialSink, RequestContext, Usage},
};
use mooring_harness::model::{Catalog, KeyStore, Limits, key_name};
use mooring_tests::model::ModelServer;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Names of the models that stand for the two wires.
const WIRES: [&str; 2] = ["openai", "anthropic"];

/// A catalog of one model for each wire, and what else a test wants.
fn catalog_with(server: &ModelServer, limits: Limits, more: &str) -> Catalog {
    let keys = Arc::new(KeyStore::new());
    let (openai, anthropic) = (server.openai_url(), server.anthropic_url());
    for url in [&openai, &anthropic] {
        keys.set(&key_name("TEST_KEY", Some(url)), "sk-test");
    }
    let catalog = Catalog::new(keys, "/nowhere", limits);
    let specs: Vec<ModelSpec> = serde_saphyr::from_str(&format!(
        r#"
- {{ name: openai, provider: openai, model: gpt-4o, endpoint: "{openai}", apiKeyEnv: TEST_KEY }}
- {{ name: anthropic, provider: anthropic, model: claude-sonnet-4-5, endpoint: "{anthropic}", apiKeyEnv: TEST_KEY }}
{more}"#
    ))
    .unwrap();
    catalog.replace(&specs).unwrap();
    catalog
}

fn catalog(server: &ModelServer) -> Catalog {
    catalog_with(server, Limits::default(), "")
}

/// What streamed in.
#[derive(Default)]
struct Heard {
    text: Mutex<Vec<String>>,
    thinking: Mutex<Vec<String>>,
}

impl Heard {
    fn text(&self) -> String {
        self.text.lock().unwrap().concat()
    }

    fn thinking(&self) -> String {
        self.thinking.lock().unwrap().concat()
    }

    fn pieces(&self) -> usize {
        self.text.lock().unwrap().len()
    }
}

impl PartialSink for Heard {
    fn text(&self, delta: &str) {
        self.text.lock().unwrap().push(delta.to_owned());
    }

    fn thinking(&self, delta: &str) {
        self.thinking.lock().unwrap().push(delta.to_owned());
    }
}

/// A request with the model's present options pinned.
fn request(catalog: &Catalog, model: &str, messages: Vec<Message>) -> ModelRequest {
    let options = catalog.resolve(model).unwrap().options();
    ModelRequest {
        model: model.into(),
        options,
        tools: vec![bash()],
        messages,
    }
}

fn bash() -> ToolSchema {
    ToolSchema {
        name: "bash".into(),
        description: "Runs a command".into(),
        parameters: json!({
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout_ms": {"type": "integer"}},
            "required": ["command"],
        }),
    }
}

/// Asks with what streams in kept in `heard`.
async fn ask_hearing(
    catalog: &Catalog,
    request: &ModelRequest,
    attempt: u32,
    heard: &Heard,
) -> Result<ModelResponse, ModelError> {
    let context = RequestContext {
        conversation: ConversationId(1),
        task: TaskId(1),
        attempt,
        purpose: mooring_durable::model::Purpose::Turn,
    };
    let model = catalog.resolve(&request.model).unwrap();
    let asked = model.respond(request, &context, heard, CancellationToken::new());
    tokio::time::timeout(Duration::from_secs(60), asked)
        .await
        .expect("an answer within a minute")
}

async fn ask(
    catalog: &Catalog,
    model: &str,
    messages: Vec<Message>,
) -> Result<ModelResponse, ModelError> {
    ask_hearing(
        catalog,
        &request(catalog, model, messages),
        1,
        &Heard::default(),
    )
    .await
}

fn system(text: &str) -> Message {
    Message::System { text: text.into() }
}

fn user(text: &str) -> Message {
    Message::User {
        content: vec![Part::text(text)],
    }
}

fn assistant(content: Vec<Part>) -> Message {
    Message::Assistant { content }
}

fn result(call: &ToolCall, content: Vec<Part>, is_error: bool) -> Message {
    Message::ToolResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content,
        is_error,
    }
}

fn calls(content: &[Part]) -> Vec<ToolCall> {
    content
        .iter()
        .filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.clone()),
            _ => None,
        })
        .collect()
}

fn said(content: &[Part]) -> String {
    content
        .iter()
        .filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn pixel() -> Part {
    Part::Image {
        media_type: "image/png".into(),
        data: PIXEL.into(),
    }
}
