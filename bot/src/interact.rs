//! Slash commands and buttons. Each is acknowledged before anything else; what it
//! does is decided by the harness, by the same table as for messages.

use std::fmt::Write as _;
use std::sync::Arc;

use mooring_wire::harness as wire;
use serde_json::{Value, json};

use crate::api::mentions;
use crate::bot::Bot;
use crate::branch;
use crate::complete;
use crate::export;
use crate::harness::HarnessError;
use crate::id::Id;
use crate::look;
use crate::payload::Interaction;
use crate::render::{self, cut, one_line};
use crate::rest::{File, RestError, code};
use crate::workspace::Place;

/// Message flag: only the user sees it.
const EPHEMERAL: u64 = 1 << 6;
const TEXT: usize = 1_900;

/// Answers one interaction.
pub async fn handle(bot: Arc<Bot>, interaction: Interaction) {
    let result = match interaction.kind {
        2 => command(&bot, &interaction).await,
        3 => click(&bot, &interaction).await,
        4 => complete::complete(&bot, &interaction).await,
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
pub(crate) async fn place_of(bot: &Bot, interaction: &Interaction) -> Option<Arc<Place>> {
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

const NO_WORKSPACE: &str = "This channel belongs to no workspace any more.";

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
        } else if let Some(id) = custom_id.strip_prefix(render::ANSWER) {
            return choose(bot, interaction, id).await;
        } else {
            return follow(
                bot,
                interaction,
                "This button is of an older version and does nothing.",
            )
            .await;
        };
    let Some(place) = place_of(bot, interaction).await else {
        return follow(bot, interaction, NO_WORKSPACE).await;
    };
    let decided = decide(&place, interaction, id, approve, scope, String::new()).await;
    if let Err(error) = &decided {
        close_unknown(bot, interaction, error).await;
    }
    let text = decision_text(decided);
    follow(bot, interaction, &text).await
}

/// A card that nobody knows any more is closed, so that it is clicked once.
async fn close_unknown(bot: &Bot, interaction: &Interaction, error: &HarnessError) {
    let Some(message) = interaction
        .message
        .as_ref()
        .filter(|_| error.is_not_found())
    else {
        return;
    };
    let content = format!(
        "{}\n-# This card is closed: nobody waits for it any more.",
        cut(&message.content, 1_800)
    );
    let body = json!({"components": [], "content": content, "allowed_mentions": mentions(&[])});
    let _ = bot.api.edit(message.channel_id, message.id, body).await;
}

/// A click on one of a question's answers: the question's id and the answer's number.
async fn choose(bot: &Bot, interaction: &Interaction, named: &str) -> Result<(), RestError> {
    let Some((id, choice)) = named
        .rsplit_once(':')
        .and_then(|(id, choice)| Some((id, choice.parse().ok()?)))
    else {
        return follow(bot, interaction, "This button names no answer.").await;
    };
    let Some(place) = place_of(bot, interaction).await else {
        return follow(bot, interaction, NO_WORKSPACE).await;
    };
    let request = wire::AnswerRequest {
        id: id.to_owned(),
        choice,
        author: Some(author(interaction)),
        ..wire::AnswerRequest::default()
    };
    let text = match place.harness.answer(request).await {
        Ok(answer) => {
            let question = answer.question.unwrap_or_default();
            match answer.first {
                true => format!("Answered: {}", one_line(&question.answer, 200)),
                false => render::answered(&question.state, &question.answered_by, &question.answer),
            }
        }
        Err(error) => {
            close_unknown(bot, interaction, &error).await;
            told(&error)
        }
    };
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
    let said = run_command(bot, interaction).await;
    bot.api
        .finish(
            bot.application,
            &interaction.token,
            shown(&said.text),
            said.file,
        )
        .await
}

/// What a command is answered with.
pub(crate) struct Said {
    /// For people.
    pub text: String,
    /// What is too long for it.
    pub file: Option<File>,
}

impl From<String> for Said {
    fn from(text: String) -> Said {
        Said { text, file: None }
    }
}

async fn run_command(bot: &Arc<Bot>, interaction: &Interaction) -> Said {
    if interaction.command() == "help" {
        return help().into();
    }
    let Some(place) = place_of(bot, interaction).await else {
        return "This channel belongs to no workspace. Use it in a workspace's channel or thread."
            .to_owned()
            .into();
    };
    // Also what only looks is for members; the harness's table decides.
    let request = wire::RoleRequest {
        author: Some(author(interaction)),
    };
    if let Err(error) = place.harness.role(request).await {
        return told(&error).into();
    }
    let with_file = match interaction.command() {
        "diff" => Some(look::diff(bot, &place, interaction).await),
        "export" => Some(export::export(bot, &place, interaction).await),
        _ => None,
    };
    if let Some(said) = with_file {
        return said.unwrap_or_else(|error| told(&error).into());
    }
    let result = match interaction.command() {
        "new" => branch::start(bot, &place, interaction).await,
        "fork" => branch::fork(bot, &place, interaction).await,
        "btw" => branch::aside(bot, &place, interaction).await,
        "resume" => branch::resume(bot, &place, interaction).await,
        "reset" => reset(bot, &place, interaction).await,
        "compact" => compact(bot, &place, interaction).await,
        "stop" => stop(bot, &place, interaction).await,
        "status" => look::status(bot, &place, interaction).await,
        "queue" => look::queue(bot, &place, interaction).await,
        "usage" => look::usage(bot, &place, interaction).await,
        "pending" => look::pending(bot, &place, interaction).await,
        "model" => look::model(bot, &place, interaction).await,
        "policy" => look::policy(bot, &place, interaction).await,
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
    result.unwrap_or_else(|error| told(&error)).into()
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

async fn compact(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let Some(conversation) = conversation(bot, place, interaction).await? else {
        return Ok(NO_CONVERSATION.into());
    };
    let request = wire::CompactRequest {
        conversation,
        instructions: interaction.option("instructions").unwrap_or_default(),
        author: Some(author(interaction)),
    };
    let answer = place.harness.compact(request).await?;
    Ok(match answer.state.as_str() {
        "skipped" => "There is nothing to summarize yet.",
        _ => "A summary is being written; then it takes the place of the conversation's beginning for the model.",
    }
    .into())
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
                render::ANSWER => "render::ANSWER)",
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
