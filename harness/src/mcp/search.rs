//! `tool_search`: finds tools of servers, and loads them for the conversation.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use mooring_durable::{
    Engine,
    document::{DocumentChange, DocumentError, DocumentKind, ForkPolicy, History, Op, Scope},
    id::ConversationId,
    message::{Part, ToolSchema},
    tool::{
        Call, OutputSink, Replay, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure, ToolResult,
    },
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{servers::Servers, tool::ServerTool};

/// Its name.
pub const NAME: &str = "tool_search";
/// Tools that one search loads.
const FOUND: usize = 8;

/// The tools that a conversation has loaded: `{name: true}`.
static LOADED: DocumentKind = DocumentKind::new(
    "mooring.tools",
    1,
    History::Rewindable,
    ForkPolicy::AsOf,
    |_, value| Ok(value),
);

/// Names of the tools that a conversation has loaded.
pub async fn loaded(
    engine: &Engine,
    conversation: ConversationId,
) -> Result<BTreeSet<String>, DocumentError> {
    let scope = Scope::Conversation(conversation);
    let document = engine.document(scope, &LOADED, None).await?;
    let names = document.map(|document| document.value);
    Ok(names
        .as_ref()
        .and_then(Value::as_object)
        .map(|names| names.keys().cloned().collect())
        .unwrap_or_default())
}

/// The tool.
pub struct ToolSearch(pub Arc<Servers>);

#[async_trait]
impl Tool for ToolSearch {
    fn declaration(&self) -> ToolDeclaration {
        ToolDeclaration {
            schema: ToolSchema {
                name: NAME.into(),
                description: "Finds tools of servers that are not listed, by words of what they do or of \
                              their names, and loads the best of them: from the next step on you can call \
                              them like the others."
                    .into(),
                parameters: json!({
                    "type": "object",
                    "properties": {
                        "query": { "type": "string", "minLength": 1, "maxLength": 500, "description": "Words." },
                    },
                    "required": ["query"],
                    "additionalProperties": false,
                }),
            },
            replay: Replay::Safe,
            sequential: false,
        }
    }

    fn summary(&self, arguments: &Value) -> String {
        arguments["query"].as_str().unwrap_or_default().to_owned()
    }

    async fn execute(
        &self,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let tools = self.0.visible_now();
        let found = best(&tools, call.arguments["query"].as_str().unwrap_or_default());
        let names: Map<String, Value> = found
            .iter()
            .map(|tool| (tool.offer.name.clone(), Value::Bool(true)))
            .collect();
        let lines: Vec<String> = found
            .iter()
            .map(|tool| {
                let line = tool.offer.description.lines().next().unwrap_or_default();
                format!("- {}: {line}", tool.offer.name)
            })
            .collect();
        let text = match lines.is_empty() {
            true => "No tool has any of these words; try others.".to_owned(),
            false => format!("Loaded:\n{}", lines.join("\n")),
        };
        let documents = match names.is_empty() {
            true => Vec::new(),
            false => vec![DocumentChange {
                scope: Scope::Conversation(call.conversation),
                kind: &LOADED,
                op: Op::Merge(Value::Object(names)),
            }],
        };
        Ok(ToolEnd::Completed(ToolResult {
            content: vec![Part::text(text)],
            is_error: lines.is_empty(),
            terminate: false,
            data: Value::Null,
            documents,
        }))
    }
}

/// The tools with most of the words, those whose names have them first.
fn best(tools: &[Arc<ServerTool>], query: &str) -> Vec<Arc<ServerTool>> {
    let words: Vec<String> = query
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let mut scored: Vec<(usize, &Arc<ServerTool>)> = tools
        .iter()
        .map(|tool| {
            (
                score(&words, &tool.offer.name, &tool.offer.description),
                tool,
            )
        })
        .filter(|(score, _)| *score > 0)
        .collect();
    scored.sort_by(|(a, left), (b, right)| b.cmp(a).then(left.offer.name.cmp(&right.offer.name)));
    scored
        .into_iter()
        .take(FOUND)
        .map(|(_, tool)| tool.clone())
        .collect()
}

fn score(words: &[String], name: &str, description: &str) -> usize {
    let (name, description) = (name.to_lowercase(), description.to_lowercase());
    let of = |word: &String| {
        3 * usize::from(name.contains(word.as_str()))
            + usize::from(description.contains(word.as_str()))
    };
    words.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        mcp::{
            limits::Limits,
            server::{Offer, Server},
        },
        sandbox::{Daemon, Link, Place},
    };

    #[test]
    fn the_best_tools_have_most_of_the_words() {
        let server = Server::new(Default::default(), Vec::new(), Limits::default());
        let place = Place::Here {
            socket: "/nowhere".into(),
            daemon: Daemon {
                program: "/nowhere".into(),
                arguments: Vec::new(),
                log: "/nowhere".into(),
            },
        };
        let link = Link::new(place, false);
        let tool = |name: &str, description: &str| {
            Arc::new(ServerTool {
                server: server.clone(),
                link: link.clone(),
                offer: Offer {
                    own: name.into(),
                    name: name.into(),
                    description: description.into(),
                    parameters: Value::Null,
                },
            })
        };
        let mut tools = vec![
            tool("mcp__t__issue_create", "Makes an issue."),
            tool("mcp__t__issue_list", "Lists issues of a project."),
            tool("mcp__t__page_create", "Makes a page."),
        ];
        let names = |query: &str, tools: &[Arc<ServerTool>]| -> Vec<String> {
            best(tools, query)
                .iter()
                .map(|tool| tool.offer.name.clone())
                .collect()
        };
        assert_eq!(
            names("create issue", &tools),
            [
                "mcp__t__issue_create",
                "mcp__t__issue_list",
                "mcp__t__page_create"
            ]
        );
        assert_eq!(names("Page", &tools), ["mcp__t__page_create"]);
        assert_eq!(names("project lists!", &tools), ["mcp__t__issue_list"]);
        assert!(names("weather", &tools).is_empty() && names("?", &tools).is_empty());
        for at in 0..100 {
            tools.push(tool(&format!("mcp__t__issue_{at}"), ""));
        }
        assert_eq!(names("issue", &tools).len(), FOUND);
    }
}
