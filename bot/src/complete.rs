//! What a command's field offers while the user types.

use std::sync::Arc;

use mooring_wire::harness as wire;
use serde_json::{Value, json};

use crate::bot::Bot;
use crate::interact::{author, conversation, place_of};
use crate::look::{open_approvals, view};
use crate::payload::Interaction;
use crate::render::one_line;
use crate::rest::RestError;
use crate::workspace::Place;

/// Choices that a completion may offer.
const CHOICES: usize = 25;
/// Tools whose calls can be explained by a command or a path.
const TOOLS: [&str; 7] = ["bash", "read", "write", "edit", "grep", "find", "ls"];

/// Offers what fits to what was typed; nothing to those who are no members.
pub async fn complete(bot: &Arc<Bot>, interaction: &Interaction) -> Result<(), RestError> {
    let focused = interaction.data["options"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|option| option["focused"] == true);
    let typed = focused
        .and_then(|option| option["value"].as_str())
        .unwrap_or("")
        .to_lowercase();
    let mut choices = Vec::new();
    if let Some(place) = place_of(bot, interaction).await {
        let request = wire::RoleRequest {
            author: Some(author(interaction)),
        };
        if place.harness.role(request).await.is_ok() {
            choices = offered(bot, &place, interaction).await;
        }
    }
    let choices: Vec<Value> = choices
        .into_iter()
        .filter(|(label, id)| label.to_lowercase().contains(&typed) || id.contains(&typed))
        .filter(|(label, _)| !label.is_empty())
        .take(CHOICES)
        .map(|(label, id)| json!({"name": label, "value": id}))
        .collect();
    let body = json!({"type": 8, "data": {"choices": choices}});
    bot.api
        .respond(interaction.id, &interaction.token, body)
        .await
}

/// Labels and values. A harness that is away has none.
async fn offered(bot: &Bot, place: &Place, interaction: &Interaction) -> Vec<(String, String)> {
    match interaction.command() {
        "resume" => {
            let request = wire::ConversationsRequest {
                limit: 200,
                before: 0,
            };
            let Ok(answer) = place.harness.conversations(request).await else {
                return Vec::new();
            };
            let label = |id: i64, title: &str| one_line(&format!("{id} {title}"), 90);
            let found = answer.conversations.into_iter();
            found
                .map(|one| (label(one.id, &one.title), one.id.to_string()))
                .collect()
        }
        "queue" => match view(bot, place, interaction).await {
            Ok(Some(view)) => view
                .inbox
                .into_iter()
                .map(|submission| (one_line(&submission.text, 90), submission.id.to_string()))
                .collect(),
            _ => Vec::new(),
        },
        "model" => {
            let Ok(Some(conversation)) = conversation(bot, place, interaction).await else {
                return Vec::new();
            };
            let request = wire::ModelRequest {
                conversation,
                author: Some(author(interaction)),
                ..wire::ModelRequest::default()
            };
            match place.harness.model(request).await {
                Ok(answer) => answer
                    .models
                    .into_iter()
                    .map(|name| (one_line(&name, 90), name))
                    .collect(),
                Err(_) => Vec::new(),
            }
        }
        "policy" => TOOLS
            .iter()
            .map(|tool| ((*tool).to_owned(), (*tool).to_owned()))
            .collect(),
        _ => match open_approvals(bot, place, interaction).await {
            Ok(approvals) => approvals
                .into_iter()
                .map(|approval| {
                    let label = format!("{} {}", approval.tool, approval.summary);
                    (one_line(&label, 90), approval.id)
                })
                .collect(),
            Err(_) => Vec::new(),
        },
    }
}
