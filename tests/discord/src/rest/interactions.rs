//! `/interactions/{id}/{token}/callback` and `/webhooks/{application}/{token}…`:
//! answering what a user did. The token is the authority, not the bot's.

use serde_json::{Value, json};

use super::answer::{Done, Refusal};
use super::messages::{check_components, check_content, pings};
use super::{Call, id};
use crate::act::Draft;
use crate::clock::Id;
use crate::show;
use crate::world::World;

/// Milliseconds in which the first answer must come.
const ACKNOWLEDGE_MS: u64 = 3_000;
/// Milliseconds for which the token works.
const TOKEN_MS: u64 = 15 * 60_000;
const EPHEMERAL: u64 = 1 << 6;

pub(crate) fn route(world: &mut World, call: Call<'_>) -> Result<Done, Refusal> {
    match (call.method, &call.path[..]) {
        ("POST", ["interactions", interaction, token, "callback"]) => {
            callback(world, &call, id(interaction)?, token)
        }
        (method, ["webhooks", application, token, rest @ ..]) => {
            let application = id(application)?;
            let found = world
                .interactions
                .values()
                .find(|interaction| {
                    interaction.application == application && interaction.token == **token
                })
                .filter(|interaction| interaction.made_ms + TOKEN_MS > world.clock.now_ms())
                .map(|interaction| interaction.id)
                .ok_or_else(|| Refusal::new(401, 50027, "Invalid Webhook Token"))?;
            match (method, rest) {
                ("GET", ["messages", "@original"]) => world.interactions[&found]
                    .shown
                    .clone()
                    .map(Done::new)
                    .ok_or_else(Refusal::unknown_message),
                ("PATCH", ["messages", "@original"]) => answer(world, &call, found, call.body),
                ("POST", []) => {
                    check_content(call.body)?;
                    if let Some(interaction) = world.interactions.get_mut(&found) {
                        interaction.followups.push(call.body.clone());
                    }
                    let mut shown = call.body.clone();
                    shown["id"] = world.clock.id().to_string().into();
                    Ok(Done::new(shown))
                }
                _ => Err(Refusal::no_route()),
            }
        }
        _ => Err(Refusal::no_route()),
    }
}

fn callback(
    world: &mut World,
    call: &Call<'_>,
    interaction: Id,
    token: &str,
) -> Result<Done, Refusal> {
    let now = world.clock.now_ms();
    let found = world
        .interactions
        .get_mut(&interaction)
        .filter(|found| found.token == token)
        .ok_or_else(|| Refusal::unknown(10062, "Unknown interaction"))?;
    if found.callback.is_some() {
        return Err(Refusal::new(
            400,
            40060,
            "Interaction has already been acknowledged.",
        ));
    }
    let after = now.saturating_sub(found.made_ms);
    if after > ACKNOWLEDGE_MS {
        return Err(Refusal::unknown(10062, "Unknown interaction"));
    }
    let kind = call.body["type"].as_u64().unwrap_or(0);
    if !matches!(kind, 4..=9) || (matches!(kind, 6 | 7) && found.message.is_none()) {
        return Err(Refusal::form(
            "type",
            "BASE_TYPE_CHOICES",
            "Value is not a valid choice.",
        ));
    }
    check_content(&call.body["data"])?;
    found.callback = Some(call.body.clone());
    found.answered_after_ms = Some(after);
    match kind {
        4 => {
            answer(world, call, interaction, &call.body["data"])?;
        }
        7 => {
            let (channel, message) = (found.channel, found.message.unwrap_or_default());
            update(world, channel, message, &call.body["data"])?;
        }
        _ => {}
    }
    Ok(Done::empty())
}

/// Shows an answer: to the user alone, or as a message in the channel.
fn answer(
    world: &mut World,
    call: &Call<'_>,
    interaction: Id,
    data: &Value,
) -> Result<Done, Refusal> {
    let content = check_content(data)?;
    check_components(&data["components"])?;
    let found = world.interactions[&interaction].clone();
    let callback = found.callback.clone().unwrap_or_default();
    let hidden = (data["flags"].as_u64().unwrap_or(0)
        | callback["data"]["flags"].as_u64().unwrap_or(0))
        & EPHEMERAL
        != 0;
    // An update of the clicked message is an edit of that message.
    if matches!(callback["type"].as_u64(), Some(6 | 7)) {
        let message = found.message.unwrap_or_default();
        return update(world, found.channel, message, data);
    }
    let pings = pings(&content, &data["allowed_mentions"], None, 0)?;
    let shown = if hidden {
        json!({"id": found.id.to_string(), "content": content, "flags": EPHEMERAL,
               "components": data["components"], "embeds": data["embeds"],
               "attachments": files(call)})
    } else {
        let draft = Draft {
            content,
            kind: Some(20),
            webhook: Some(found.application),
            pings: pings.clone(),
            components: data["components"].as_array().cloned().unwrap_or_default(),
            ..Draft::default()
        };
        let message = world.write(found.channel, found.application, draft);
        world
            .message(found.channel, message)
            .map(|message| show::message(world, message, found.application, false))
            .unwrap_or_default()
    };
    if let Some(found) = world.interactions.get_mut(&interaction) {
        found.shown = Some(shown.clone());
    }
    Ok(Done {
        pings,
        ..Done::new(shown)
    })
}

/// The files of an answer that only its user sees, with what is in them.
fn files(call: &Call<'_>) -> Value {
    let shown = |(name, data): &(String, bytes::Bytes)| json!({"filename": name, "size": data.len(), "text": String::from_utf8_lossy(data)});
    call.files.iter().map(shown).collect()
}

fn update(world: &mut World, channel: Id, message: Id, data: &Value) -> Result<Done, Refusal> {
    let content = data
        .get("content")
        .map(|_| check_content(data))
        .transpose()?;
    let components = data.get("components").map(check_components).transpose()?;
    let now = world.clock.now_ms();
    let known = world
        .channels
        .get_mut(&channel)
        .and_then(|channel| channel.messages.get_mut(&message))
        .ok_or_else(Refusal::unknown_message)?;
    if let Some(content) = content {
        known.content = content;
        known.edited_ms = Some(now);
    }
    if let Some(components) = components {
        known.components = components;
    }
    known.edits += 1;
    world.tell_message("MESSAGE_UPDATE", channel, message, None);
    Ok(Done::empty())
}
