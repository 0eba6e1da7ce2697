//! What a conversation has: the harness's tools, prompt sections and hooks, as extensions
//! of one registry.

mod agents;
mod place;
mod set;

use std::sync::Arc;

use mooring_durable::{
    extension::{Extension, Extensions},
    hook::Hook,
    id::ConversationId,
    prompt::Section,
    tool::{Tool, Toolbox},
};
use serde_json::Value;

use crate::{
    gate::PolicyGate,
    git::Gateway,
    mcp::Servers,
    tools::{self, Hands},
    workspace::{Loaded, Source},
};
use agents::Agents;
use place::Place;
use set::{Instructions, Mcp, Set};

/// What the extensions work with.
pub struct Parts {
    /// The sandbox, the Workspace, and which files a conversation works on.
    pub hands: Arc<Hands>,
    /// Decides what the model may read.
    pub gate: Arc<PolicyGate>,
    /// The repository, where commands reach one.
    pub git: Arc<Gateway>,
    /// Servers whose tools are offered.
    pub servers: Arc<Servers>,
}

/// The harness's own extensions, in the order in which the model is told of them.
pub fn built_in(parts: &Parts) -> Arc<Extensions> {
    let Parts {
        hands,
        gate,
        git,
        servers,
    } = parts;
    let source = &hands.source;
    let place = Place {
        hands: hands.clone(),
        git: git.clone(),
    };
    let all: [(&str, Arc<dyn Extension>); 9] = [
        ("mooring.place", Arc::new(place)),
        (
            "mooring.instructions",
            Arc::new(Instructions(source.clone())),
        ),
        ("mooring.agents", Agents::extension(hands, gate)),
        ("mooring.files", Arc::new(Set(tools::files(hands)))),
        ("mooring.commands", Arc::new(Set(tools::commands(hands)))),
        ("mooring.plan", Arc::new(Set(tools::plan()))),
        ("mooring.waiting", Arc::new(Set(tools::waiting()))),
        ("mooring.subagents", Arc::new(Set(tools::subagents(source)))),
        (
            "mooring.mcp",
            Arc::new(Mcp {
                servers: servers.clone(),
                source: source.clone(),
            }),
        ),
    ];
    let extensions = Extensions::default();
    for (name, extension) in all {
        extensions.put(name, extension);
    }
    Arc::new(extensions)
}

/// A set's only section.
fn own(text: String) -> Vec<Section> {
    vec![Section {
        name: String::new(),
        text,
    }]
}

/// The tools of the extensions, less those that the policy hides or a conversation is not
/// offered.
pub struct Tools {
    /// The Workspace in use.
    pub source: Arc<Source>,
    /// What there is.
    pub extensions: Arc<Extensions>,
}

impl Toolbox for Tools {
    fn tools(&self, conversation: ConversationId, settings: &Value) -> Vec<Arc<dyn Tool>> {
        let workspace = self.source.current();
        let mut tools = self.extensions.tools(conversation, settings);
        tools.retain(|tool| {
            let name = tool.declaration().schema.name;
            visible(&workspace, settings, &name)
        });
        tools
    }

    fn hooks(&self, conversation: ConversationId, settings: &Value) -> Vec<Arc<dyn Hook>> {
        self.extensions.hooks(conversation, settings)
    }
}

/// Whether the policy shows a tool, and a conversation with these settings is offered it.
fn visible(workspace: &Loaded, settings: &Value, name: &str) -> bool {
    workspace.rules.tool_visible(name) && offered(name, settings)
}

/// Whether a conversation with these settings is offered a tool.
fn offered(name: &str, settings: &Value) -> bool {
    let listed = settings.get("tools").and_then(Value::as_array);
    let apart = match name {
        // A subagent does its work itself.
        "subagent" => settings.get("subagent").is_some(),
        _ => false,
    };
    !apart && listed.is_none_or(|listed| listed.iter().any(|it| it == name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_is_offered_what_it_can_use() {
        for (name, settings, wanted) in [
            ("bash", json!({}), true),
            ("ask_user", json!({}), true),
            ("subagent", json!({}), true),
            ("bash", json!({"thread": "7"}), true),
            ("ask_user", json!({"thread": "7"}), true),
            ("subagent", json!({"thread": "7"}), true),
            ("ask_user", json!({"subagent": true}), true),
            ("subagent", json!({"subagent": true}), false),
            ("read", json!({"subagent": true, "tools": ["read"]}), true),
            ("bash", json!({"subagent": true, "tools": ["read"]}), false),
        ] {
            assert_eq!(offered(name, &settings), wanted, "{name} {settings}");
        }
    }
}
