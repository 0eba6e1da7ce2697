//! Slash commands and buttons. Each is acknowledged before anything else; what it
//! does is decided by the harness, by the same table as for messages.

use std::fmt::Write as _;
use std::sync::Arc;

use mooring_wire::harness as wire;
use serde_json::{Value, json};

use crate::api::mentions;
use crate::bot::Bot;
use crate::branch;
use crate::harness::HarnessError;
use crate::id::Id;
use crate::payload::Interaction;
use crate::render::{self, cut, one_line};
use crate::rest::{RestError, code};
use crate::workspace::Place;

/// Message flag: only the user sees it.
const EPHEMERAL: u64 = 1 << 6;
/// Choices that a completion may offer.
const CHOICES: usize = 25;
const TEXT: usize = 1_900;

/// Answers one interaction.
pub async fn handle(bot: Arc<Bot>, interaction: Interaction) {
    let result = match interaction.kind {
        2 => command(&bot, &interaction).await,
        3 => click(&bot, &interaction).await,
        4 => complete(&bot, &interaction).await,
        _ => Ok(()),
    };
    match result {
        Ok(()) => {}
        // Too late, or answered by another: nothing that the user could act on.
        Err(error)
            if matches!(
                error.code(),
                Some(code::UNKNOWN_INTERACTION | code::ACKNOWLEDGED)
            ) =>
        {
            bot.health.count("interactions_late_total", 1);
            tracing::info!(interaction = %interaction.id, %error, "answered too late");
        }
        Err(error) => {
            tracing::warn!(interaction = %interaction.id, %error, "could not be answered");
        }
    }
}

pub(crate) fn author(interaction: &Interaction) -> wire::Author {
    let member = interaction.member.as_ref();
    let user = member.and_then(|member| member.user.as_ref());
    wire::Author {
        discord_user_id: user.map(|user| user.id.to_string()).unwrap_or_default(),
        discord_role_ids: member
            .map(|member| member.roles.iter().map(Id::to_string).collect())
            .unwrap_or_default(),
        display_name: user.map(|user| user.shown().to_owned()).unwrap_or_default(),
    }
}

/// The workspace of an interaction. It carries its channel, so that this works
/// right after a restart.
async fn place_of(bot: &Bot, interaction: &Interaction) -> Option<Arc<Place>> {
    if let Some(channel) = &interaction.channel {
        bot.learn(channel);
    }
    bot.place_of(interaction.channel_id?).await
}

fn shown(text: &str) -> Value {
    json!({"content": cut(text, TEXT), "allowed_mentions": mentions(&[]), "flags": EPHEMERAL})
}

/// What is said of an error. A harness that is away has decided nothing.
fn told(error: &HarnessError) -> String {
    match error {
        HarnessError::Away(_) => {
            "Not recorded: the workspace cannot be reached now. Try again, or decide with \
             `kubectl` on the Approval."
                .into()
        }
        HarnessError::Refused { text, .. } => one_line(text, 600),
    }
}

async fn click(bot: &Arc<Bot>, interaction: &Interaction) -> Result<(), RestError> {
    bot.api
        .respond(interaction.id, &interaction.token, json!({"type": 6}))
        .await?;
    let custom_id = interaction.custom_id();
    // The longer prefix first: one begins with the other.
    let (approve, scope, id) =
        if let Some(id) = custom_id.strip_prefix(render::APPROVE_CONVERSATION) {
            (true, wire::Scope::Conversation, id)
        } else if let Some(id) = custom_id.strip_prefix(render::APPROVE) {
            (true, wire::Scope::Once, id)
        } else if let Some(id) = custom_id.strip_prefix(render::DENY) {
            (false, wire::Scope::Once, id)
        } else {
            return follow(
                bot,
                interaction,
                "This button is of an older version and does nothing.",
            )
            .await;
        };
    let Some(place) = place_of(bot, interaction).await else {
        return follow(
            bot,
            interaction,
            "This channel belongs to no workspace any more.",
        )
        .await;
    };
    let decided = decide(&place, interaction, id, approve, scope, String::new()).await;
    if let Err(error) = &decided
        && error.is_not_found()
        && let Some(message) = &interaction.message
    {
        // A card that nobody knows any more is closed, so that it is clicked once.
        let body = json!({"components": [], "content": format!("{}\n-# This card is closed: nobody waits for it any more.", cut(&message.content, 1_800)), "allowed_mentions": mentions(&[])});
        let _ = bot.api.edit(message.channel_id, message.id, body).await;
    }
    let text = decision_text(decided);
    follow(bot, interaction, &text).await
}

fn decision_text(decided: Result<wire::DecideResponse, HarnessError>) -> String {
    match decided {
        Ok(response) => {
            let approval = response.approval.unwrap_or_default();
            if response.first {
                return match approval.state.as_str() {
                    "approved" => format!("Approved: {}", one_line(&approval.summary, 200)),
                    _ => format!("Denied: {}", one_line(&approval.summary, 200)),
                };
            }
            render::decided(
                &approval.state,
                &approval.decided_by,
                &approval.decided_via,
                approval.decided_ms,
            )
        }
        Err(error) => told(&error),
    }
}

async fn decide(
    place: &Place,
    interaction: &Interaction,
    id: &str,
    approve: bool,
    scope: wire::Scope,
    reason: String,
) -> Result<wire::DecideResponse, HarnessError> {
    let request = wire::DecideRequest {
        id: id.to_owned(),
        approve,
        scope: scope.into(),
        reason,
        author: Some(author(interaction)),
        via: "discord".into(),
        until_ms: 0,
    };
    place.harness.decide(request).await
}

async fn follow(bot: &Bot, interaction: &Interaction, text: &str) -> Result<(), RestError> {
    bot.api
        .follow(bot.application, &interaction.token, shown(text))
        .await
}

async fn command(bot: &Arc<Bot>, interaction: &Interaction) -> Result<(), RestError> {
    let deferred = json!({"type": 5, "data": {"flags": EPHEMERAL}});
    bot.api
        .respond(interaction.id, &interaction.token, deferred)
        .await?;
    let text = run_command(bot, interaction).await;
    bot.api
        .finish(bot.application, &interaction.token, shown(&text))
        .await
}

async fn run_command(bot: &Arc<Bot>, interaction: &Interaction) -> String {
    if interaction.command() == "help" {
        return help();
    }
    let Some(place) = place_of(bot, interaction).await else {
        return "This channel belongs to no workspace. Use it in a workspace's channel or thread."
            .into();
    };
    let result = match interaction.command() {
        "new" => branch::start(bot, &place, interaction).await,
        "fork" => branch::fork(bot, &place, interaction).await,
        "btw" => branch::aside(bot, &place, interaction).await,
        "resume" => branch::resume(bot, &place, interaction).await,
        "reset" => reset(bot, &place, interaction).await,
        "status" => status(bot, &place, interaction).await,
        "stop" => stop(bot, &place, interaction).await,
        "queue" => queue(bot, &place, interaction).await,
        "usage" => usage(bot, &place, interaction).await,
        "pending" => pending(bot, &place, interaction).await,
        "approve" | "deny" => {
            let approve = interaction.command() == "approve";
            let scope = match interaction.option("scope").as_deref() {
                Some("conversation") => wire::Scope::Conversation,
                _ => wire::Scope::Once,
            };
            let id = interaction.option("id").unwrap_or_default();
            let reason = interaction.option("reason").unwrap_or_default();
            Ok(decision_text(
                decide(&place, interaction, id.trim(), approve, scope, reason).await,
            ))
        }
        other => Ok(format!("There is no command `{}`.", one_line(other, 40))),
    };
    result.unwrap_or_else(|error| told(&error))
}

fn help() -> String {
    let mut text = String::from(
        "Mention the bot in this workspace's channel: it opens a thread and answers there. \
         In the thread every message of a member is read; a reaction says whether it steers \
         the run or waits. Risky steps come as cards with buttons.\n",
    );
    for (name, description) in crate::command::COMMANDS {
        let _ = write!(text, "\n`/{name}` – {description}");
    }
    text
}

/// The conversation of the interaction's thread. After a start the first sweep may
/// not have been there yet: then the harness is asked.
pub(crate) async fn conversation(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<Option<i64>, HarnessError> {
    let Some(thread) = interaction
        .channel_id
        .filter(|id| *id != place.wanted.channel)
    else {
        return Ok(None);
    };
    if let Some(known) = bot.threads.conversation(thread) {
        return Ok(Some(known));
    }
    let rows = place.harness.threads(wire::ThreadsRequest {}).await?.rows;
    bot.threads.learn_rows(&rows);
    Ok(bot.threads.conversation(thread))
}

pub(crate) const NO_CONVERSATION: &str =
    "There is no conversation here. Use this in a conversation's thread.";

async fn view(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<Option<wire::ConversationView>, HarnessError> {
    let Some(conversation) = conversation(bot, place, interaction).await? else {
        return Ok(None);
    };
    let request = wire::ViewRequest {
        conversation,
        entries: 1,
        ..wire::ViewRequest::default()
    };
    place.harness.view(request).await.map(Some)
}

async fn status(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let harness = place.harness.status(wire::StatusRequest {}).await?;
    let mut text = format!("Workspace **{}**", place.wanted.name);
    if let Some(sandbox) = &harness.sandbox {
        let state = if sandbox.reachable {
            &sandbox.grade
        } else {
            "not reachable"
        };
        let _ = write!(text, " · sandbox {state}");
    }
    let _ = write!(
        text,
        " · {} running · {} waiting · {} approvals open",
        harness.running, harness.waiting, harness.pending_approvals
    );
    if let Some(view) = view(bot, place, interaction).await? {
        let run = view.run.unwrap_or_default();
        let state = if run.state.is_empty() {
            "idle"
        } else {
            &run.state
        };
        let _ = write!(text, "\nConversation {}: **{state}**", view.conversation);
        let model = if run.model.is_empty() {
            &view.model
        } else {
            &run.model
        };
        let _ = write!(text, " · model {model} · {} in the queue", view.inbox.len());
        if run.turns > 0 {
            let _ = write!(
                text,
                " · {} turns, {} tool calls",
                run.turns, run.tool_calls
            );
        }
        if !run.note.is_empty() {
            let _ = write!(text, "\n{}", one_line(&run.note, 300));
        }
        for call in view.calls.iter().filter(|call| call.ended_ms == 0).take(5) {
            let _ = write!(
                text,
                "\n• {} `{}` ({})",
                call.tool,
                code_line(&call.summary),
                call.state
            );
        }
    }
    Ok(text)
}

/// One line that can stand in single backticks.
fn code_line(text: &str) -> String {
    one_line(text, 120).replace('`', "'")
}

async fn stop(bot: &Bot, place: &Place, interaction: &Interaction) -> Result<String, HarnessError> {
    let Some(conversation) = conversation(bot, place, interaction).await? else {
        return Ok(NO_CONVERSATION.into());
    };
    let request = wire::AbortRequest {
        conversation,
        run_only: true,
        author: Some(author(interaction)),
    };
    let answer = place.harness.abort(request).await?;
    Ok(if answer.was_running {
        "Stopped."
    } else {
        "Nothing is running here."
    }
    .into())
}

async fn reset(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let Some(conversation) = conversation(bot, place, interaction).await? else {
        return Ok(NO_CONVERSATION.into());
    };
    let request = wire::ResetRequest {
        conversation,
        request_id: interaction.id.to_string(),
        brief: interaction.option("brief").unwrap_or_default(),
        author: Some(author(interaction)),
    };
    let answer = place.harness.reset(request).await?;
    Ok(match answer.state.as_str() {
        "queued" => "The run that is going ends first; then the conversation begins anew.",
        _ => "The conversation begins anew: what was said before is kept, and the model does not see it.",
    }
    .into())
}

async fn queue(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    if let Some(wanted) = interaction.option("withdraw") {
        let Ok(submission) = wanted.trim().parse() else {
            return Ok("Choose one of the messages that are offered.".into());
        };
        let author = Some(author(interaction));
        let answer = place
            .harness
            .withdraw(wire::WithdrawRequest { submission, author })
            .await?;
        let state = answer
            .submission
            .map(|submission| submission.state)
            .unwrap_or_default();
        return Ok(match state.as_str() {
            "placed" | "done" => "Too late: the run has it already.".into(),
            _ => "Withdrawn.".into(),
        });
    }
    let Some(view) = view(bot, place, interaction).await? else {
        return Ok(NO_CONVERSATION.into());
    };
    if view.inbox.is_empty() {
        return Ok("Nothing waits.".into());
    }
    let mut text = String::from("Waiting:");
    for submission in view.inbox.iter().take(20) {
        let _ = write!(
            text,
            "\n{}. {}",
            submission.id,
            one_line(&submission.text, 80)
        );
    }
    Ok(text)
}

async fn usage(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let conversation = conversation(bot, place, interaction).await?.unwrap_or(0);
    let rows = place
        .harness
        .usage(wire::UsageRequest { conversation })
        .await?
        .rows;
    if rows.is_empty() {
        return Ok("Nothing was used yet.".into());
    }
    let mut text = if conversation == 0 {
        "This workspace:"
    } else {
        "This conversation:"
    }
    .to_owned();
    for row in rows.iter().take(20) {
        let _ = write!(
            text,
            "\n{} {}: {} requests, {} tokens in ({} cached), {} out",
            row.day,
            row.model,
            row.requests,
            row.input_tokens,
            row.cached_tokens,
            row.output_tokens
        );
        if row.cost_known {
            let cost = row.cost_micros;
            let _ = write!(
                text,
                ", ${}.{:02}",
                cost / 1_000_000,
                cost % 1_000_000 / 10_000
            );
        }
    }
    Ok(text)
}

async fn open_approvals(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<Vec<wire::Approval>, HarnessError> {
    let request = wire::ApprovalsRequest {
        conversation: conversation(bot, place, interaction).await?.unwrap_or(0),
        ..wire::ApprovalsRequest::default()
    };
    let mut approvals = place.harness.approvals(request).await?.approvals;
    approvals.retain(|approval| approval.state == "pending");
    Ok(approvals)
}

async fn pending(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let approvals = open_approvals(bot, place, interaction).await?;
    if approvals.is_empty() {
        return Ok("Nothing waits for approval.".into());
    }
    let mut text = String::from("Waiting for approval:");
    for approval in approvals.iter().take(15) {
        let _ = write!(
            text,
            "\n`{}` {} `{}`",
            approval.id,
            approval.tool,
            code_line(&approval.summary)
        );
        if approval.expires_ms > 0 {
            let _ = write!(text, " expires <t:{}:R>", approval.expires_ms / 1_000);
        }
    }
    Ok(text)
}

/// Offers ids while the user types.
async fn complete(bot: &Arc<Bot>, interaction: &Interaction) -> Result<(), RestError> {
    let typed = interaction.data["options"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|option| option["focused"] == true)
        .and_then(|option| option["value"].as_str())
        .unwrap_or("")
        .to_lowercase();
    let mut choices: Vec<(String, String)> = Vec::new();
    if let Some(place) = place_of(bot, interaction).await {
        if interaction.command() == "resume" {
            let request = wire::ConversationsRequest {
                limit: 200,
                before: 0,
            };
            if let Ok(answer) = place.harness.conversations(request).await {
                choices.extend(answer.conversations.into_iter().map(|one| {
                    let label = format!("{} {}", one.id, one.title);
                    (one_line(&label, 90), one.id.to_string())
                }));
            }
        } else if interaction.command() == "queue" {
            if let Ok(Some(view)) = view(bot, &place, interaction).await {
                choices.extend(
                    view.inbox.into_iter().map(|submission| {
                        (one_line(&submission.text, 90), submission.id.to_string())
                    }),
                );
            }
        } else if let Ok(approvals) = open_approvals(bot, &place, interaction).await {
            choices.extend(approvals.into_iter().map(|approval| {
                let label = format!("{} {}", approval.tool, approval.summary);
                (one_line(&label, 90), approval.id)
            }));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f49_every_button_and_every_command_has_a_handler() {
        let source = include_str!("interact.rs");
        for prefix in render::BUTTONS {
            let name = match prefix {
                render::APPROVE => "render::APPROVE)",
                render::APPROVE_CONVERSATION => "render::APPROVE_CONVERSATION)",
                _ => "render::DENY)",
            };
            assert!(source.contains(&format!("strip_prefix({name}")), "{prefix}");
        }
        for (name, _) in crate::command::COMMANDS {
            assert!(source.contains(&format!("\"{name}\"")), "{name}");
        }
    }

    #[test]
    fn a_harness_that_is_away_has_recorded_nothing() {
        let text = told(&HarnessError::Away("connection refused".into()));
        assert!(text.starts_with("Not recorded"));
        assert!(text.contains("kubectl"));
    }
}
