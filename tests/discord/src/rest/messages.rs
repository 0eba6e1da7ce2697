//! `/channels/{channel}/messages…`: history, send, edit, delete, reactions, and
//! threads opened on a message.

use std::ops::Bound;

use serde_json::Value;

use super::answer::{Done, Refusal};
use super::{Call, id};
use crate::act::Draft;
use crate::clock::{Clock, Id};
use crate::permission as may;
use crate::show;
use crate::world::{FORUM, PUBLIC_THREAD, Pings, World};

const HOUR_MS: u64 = 3_600_000;

pub(crate) fn route(world: &mut World, mut call: Call<'_>) -> Result<Done, Refusal> {
    let channel = id(call.path[1])?;
    let permissions = see(world, channel, call.application)?;
    match (call.method, &call.path[3..]) {
        ("GET", []) => history(world, &call, channel, permissions),
        ("POST", []) => send(world, &mut call, channel, permissions),
        ("GET", [message]) => {
            need(permissions, may::READ_MESSAGE_HISTORY)?;
            let message = world
                .message(channel, id(message)?)
                .ok_or_else(Refusal::unknown_message)?;
            Ok(Done::new(show::message(
                world,
                message,
                call.application,
                blank(world, &call),
            )))
        }
        ("PATCH", [message]) => edit(world, &call, channel, id(message)?),
        ("DELETE", [message]) => {
            let message = id(message)?;
            let author = world
                .message(channel, message)
                .ok_or_else(Refusal::unknown_message)?
                .author;
            if author != call.application {
                return Err(Refusal::no_permission());
            }
            if is_archived(world, channel) {
                return Err(Refusal::archived());
            }
            world.remove_message(channel, message);
            Ok(Done::empty())
        }
        (method @ ("PUT" | "DELETE"), [message, "reactions", emoji, "@me"]) => {
            need(permissions, may::READ_MESSAGE_HISTORY | may::ADD_REACTIONS)?;
            let message = id(message)?;
            world
                .message(channel, message)
                .ok_or_else(Refusal::unknown_message)?;
            if is_archived(world, channel) {
                return Err(Refusal::archived());
            }
            world.react(channel, message, emoji, call.application, method == "PUT");
            Ok(Done::empty())
        }
        ("POST", [message, "threads"]) => {
            let message = id(message)?;
            world
                .message(channel, message)
                .ok_or_else(Refusal::unknown_message)?;
            if world.channels.contains_key(&message) {
                return Err(Refusal::new(
                    400,
                    160004,
                    "A thread has already been created for this message",
                ));
            }
            if permissions & may::CREATE_PUBLIC_THREADS == 0 {
                return Err(Refusal::no_access());
            }
            let name = super::channels::thread_name(call.body)?;
            let minutes = call.body["auto_archive_duration"].as_u64().unwrap_or(1440);
            let thread = world.open_thread(
                channel,
                Some(message),
                call.application,
                &name,
                PUBLIC_THREAD,
                minutes,
            );
            Ok(Done::created(show::channel(
                world,
                &world.channels[&thread],
                call.application,
            )))
        }
        _ => Err(Refusal::no_route()),
    }
}

/// What the application may do in a channel that it can see.
pub(crate) fn see(world: &World, channel: Id, application: Id) -> Result<u64, Refusal> {
    let found = world
        .channels
        .get(&channel)
        .ok_or_else(Refusal::unknown_channel)?;
    let permissions = world.permissions(found, application);
    if permissions & may::VIEW_CHANNEL == 0 || !show::sees_thread(found, application) {
        return Err(Refusal::no_access());
    }
    Ok(permissions)
}

pub(crate) fn need(permissions: u64, bits: u64) -> Result<(), Refusal> {
    if permissions & bits == bits {
        Ok(())
    } else {
        Err(Refusal::no_permission())
    }
}

pub(crate) fn is_archived(world: &World, channel: Id) -> bool {
    world
        .channels
        .get(&channel)
        .and_then(|channel| channel.thread.as_ref())
        .is_some_and(|thread| thread.archived)
}

/// Whether text is hidden from the application.
fn blank(world: &World, call: &Call<'_>) -> bool {
    world
        .applications
        .get(&call.application)
        .is_none_or(|application| application.privileged & (1 << 15) == 0)
}

fn history(world: &World, call: &Call<'_>, channel: Id, permissions: u64) -> Result<Done, Refusal> {
    if permissions & may::READ_MESSAGE_HISTORY == 0 {
        return Ok(Done::new(Value::Array(vec![])));
    }
    let limit = match call.query.get("limit") {
        None => 50,
        Some(text) => match text.parse::<usize>() {
            Ok(limit) if (1..=100).contains(&limit) => limit,
            _ => {
                return Err(Refusal::form(
                    "limit",
                    "NUMBER_TYPE_MAX",
                    "int value should be less than or equal to 100.",
                ));
            }
        },
    };
    let at = |name: &str| {
        call.query
            .get(name)
            .and_then(|value| value.parse::<Id>().ok())
    };
    let messages = &world.channels[&channel].messages;
    let mut found: Vec<_> = if let Some(after) = at("after") {
        messages
            .range((Bound::Excluded(after), Bound::Unbounded))
            .map(|(_, m)| m)
            .take(limit)
            .collect()
    } else if let Some(around) = at("around") {
        let half = limit / 2;
        let mut near: Vec<_> = messages
            .range(..around)
            .rev()
            .map(|(_, m)| m)
            .take(half)
            .collect();
        near.reverse();
        near.extend(messages.range(around..).map(|(_, m)| m).take(limit - half));
        near
    } else {
        let before = at("before").unwrap_or(Id::MAX);
        let mut last: Vec<_> = messages
            .range(..before)
            .rev()
            .map(|(_, m)| m)
            .take(limit)
            .collect();
        last.reverse();
        last
    };
    found.reverse(); // newest first, whichever way it was asked
    let blank = blank(world, call);
    let shown = found
        .into_iter()
        .map(|message| show::message(world, message, call.application, blank))
        .collect();
    Ok(Done::new(Value::Array(shown)))
}

fn send(
    world: &mut World,
    call: &mut Call<'_>,
    channel: Id,
    permissions: u64,
) -> Result<Done, Refusal> {
    let at = &world.channels[&channel];
    if at.kind == FORUM {
        return Err(Refusal::new(
            400,
            50008,
            "Cannot send messages in a non-text channel",
        ));
    }
    let in_thread = at.thread.is_some();
    need(
        permissions,
        if in_thread {
            may::SEND_MESSAGES_IN_THREADS
        } else {
            may::SEND_MESSAGES
        },
    )?;
    if at
        .thread
        .as_ref()
        .is_some_and(|thread| thread.archived && thread.locked)
        && permissions & may::MANAGE_THREADS == 0
    {
        return Err(Refusal::archived());
    }
    if !call.files.is_empty() {
        need(permissions, may::ATTACH_FILES)?;
    }
    let nonce = check_nonce(call.body)?;
    let now = world.clock.now_ms();
    let window = world.settings.nonce_window_ms;
    while world
        .nonces
        .front()
        .is_some_and(|(.., at)| at + window < now)
    {
        world.nonces.pop_front();
    }
    if let Some(nonce) = nonce.as_ref().map(nonce_text)
        && call.body["enforce_nonce"].as_bool() == Some(true)
        && let Some((.., message, _, _)) = world.nonces.iter().find(|(author, known, _, at, _)| {
            *author == call.application && *known == nonce && *at == channel
        })
    {
        let message = *message;
        if let Some(known) = world.message(channel, message) {
            let mut shown = show::message(world, known, call.application, false);
            shown["nonce"] = nonce.into();
            return Ok(Done {
                repeated_nonce: true,
                ..Done::of_message(shown, message, Pings::default())
            });
        }
    }
    let draft = draft(world, call, channel, permissions)?;
    let (pings, nonce) = (draft.pings.clone(), draft.nonce.clone());
    let message = world.write(channel, call.application, draft);
    let Some(made) = world.message(channel, message) else {
        return Err(Refusal::unknown_channel());
    };
    let mut shown = show::message(world, made, call.application, false);
    if let Some(nonce) = nonce {
        world
            .nonces
            .push_back((call.application, nonce_text(&nonce), message, channel, now));
        shown["nonce"] = nonce;
    }
    Ok(Done::of_message(shown, message, pings))
}

/// An id as clients send it: text, or a number.
fn snowflake(value: &Value) -> Option<Id> {
    value
        .as_str()
        .map_or(value.as_u64(), |text| text.parse().ok())
}

fn nonce_text(nonce: &Value) -> String {
    nonce
        .as_str()
        .map_or_else(|| nonce.to_string(), str::to_owned)
}

fn check_nonce(body: &Value) -> Result<Option<Value>, Refusal> {
    match &body["nonce"] {
        Value::Null => Ok(None),
        Value::String(text) if text.chars().count() > 25 => Err(Refusal::form(
            "nonce",
            "NONCE_TYPE_TOO_LONG",
            "Must be 25 or fewer in length.",
        )),
        nonce @ (Value::String(_) | Value::Number(_)) => Ok(Some(nonce.clone())),
        _ => Err(Refusal::form(
            "nonce",
            "NONCE_TYPE_INVALID",
            "Nonce must be an integer or a string.",
        )),
    }
}

/// Checks the body of a create and makes a draft of it.
pub(crate) fn draft(
    world: &World,
    call: &mut Call<'_>,
    channel: Id,
    permissions: u64,
) -> Result<Draft, Refusal> {
    let body = call.body;
    let content = check_content(body)?;
    let components = check_components(&body["components"])?;
    let embeds = check_embeds(&body["embeds"])?;
    if content.is_empty() && embeds.is_empty() && call.files.is_empty() && components.is_empty() {
        return Err(Refusal::new(400, 50006, "Cannot send an empty message"));
    }
    if call.files.len() > 10 {
        return Err(Refusal::form(
            "attachments",
            "BASE_TYPE_MAX_LENGTH",
            "Must be 10 or fewer in length.",
        ));
    }
    let reply = &body["message_reference"];
    let reply_to = match snowflake(&reply["message_id"]) {
        Some(reply_to) if world.message(channel, reply_to).is_some() => Some(reply_to),
        // A missing target is refused unless the client says otherwise.
        Some(_) if reply["fail_if_not_exists"].as_bool() == Some(false) => None,
        Some(_) => {
            return Err(Refusal::form(
                "message_reference",
                "REPLIES_UNKNOWN_MESSAGE",
                "Unknown message",
            ));
        }
        None => None,
    };
    let replied = reply_to
        .and_then(|id| world.message(channel, id))
        .map(|message| message.author);
    Ok(Draft {
        pings: pings(&content, &body["allowed_mentions"], replied, permissions)?,
        content,
        reply_to,
        attachments: std::mem::take(&mut call.files),
        kind: None,
        embeds,
        components,
        flags: body["flags"].as_u64().unwrap_or(0),
        webhook: None,
        nonce: check_nonce(body)?,
    })
}

pub(crate) fn check_content(body: &Value) -> Result<String, Refusal> {
    let content = body["content"].as_str().unwrap_or("");
    if content.chars().count() > 2_000 {
        return Err(Refusal::form(
            "content",
            "BASE_TYPE_MAX_LENGTH",
            "Must be 2000 or fewer in length.",
        ));
    }
    Ok(content.trim().to_owned())
}

fn check_embeds(embeds: &Value) -> Result<Vec<Value>, Refusal> {
    let embeds = embeds.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map_or(0, |text| text.chars().count());
    let all: usize = embeds
        .iter()
        .map(|embed| {
            text(&embed["title"]) + text(&embed["description"]) + text(&embed["footer"]["text"])
        })
        .sum();
    if embeds.len() > 10
        || all > 6_000
        || embeds
            .iter()
            .any(|embed| text(&embed["description"]) > 4_096)
    {
        return Err(Refusal::form(
            "embeds",
            "MAX_EMBED_SIZE_EXCEEDED",
            "Embed size exceeds maximum size of 6000",
        ));
    }
    Ok(embeds)
}

pub(crate) fn check_components(components: &Value) -> Result<Vec<Value>, Refusal> {
    let rows = components.as_array().cloned().unwrap_or_default();
    let bad = |message: &str| Err(Refusal::form("components", "BASE_TYPE_BAD_LENGTH", message));
    if rows.len() > 5 {
        return bad("Must be between 1 and 5 in length.");
    }
    let mut seen = std::collections::HashSet::new();
    for row in &rows {
        let buttons = row["components"].as_array().map_or(&[][..], Vec::as_slice);
        if buttons.is_empty() || buttons.len() > 5 {
            return bad("Must be between 1 and 5 in length.");
        }
        for button in buttons {
            let id = button["custom_id"].as_str().unwrap_or("");
            let label = button["label"].as_str().unwrap_or("");
            if id.chars().count() > 100 || label.chars().count() > 80 {
                return bad("Must be 100 or fewer in length.");
            }
            if button["style"].as_u64() != Some(5) && (id.is_empty() || !seen.insert(id.to_owned()))
            {
                return Err(Refusal::form(
                    "components",
                    "COMPONENT_CUSTOM_ID_DUPLICATED",
                    "Component custom id cannot be duplicated",
                ));
            }
        }
    }
    Ok(rows)
}

/// Whom a message notifies. Without `allowed_mentions` everyone it names is.
pub(crate) fn pings(
    content: &str,
    allowed: &Value,
    replied: Option<Id>,
    permissions: u64,
) -> Result<Pings, Refusal> {
    let mut pings = show::mentions_in(content);
    pings.everyone &= permissions & may::MENTION_EVERYONE != 0;
    if allowed.is_null() {
        pings
            .users
            .extend(replied.filter(|user| !pings.users.contains(user)));
        return Ok(pings);
    }
    let parse: Vec<&str> = allowed["parse"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let list = |name: &str| -> Vec<Id> {
        allowed[name]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(snowflake)
            .collect()
    };
    for (kind, ids) in [("users", list("users")), ("roles", list("roles"))] {
        if parse.contains(&kind) && !ids.is_empty() {
            return Err(Refusal::form(
                "allowed_mentions",
                "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE",
                "Mutually exclusive",
            ));
        }
    }
    pings.everyone &= parse.contains(&"everyone");
    if !parse.contains(&"users") {
        let users = list("users");
        pings.users.retain(|id| users.contains(id));
    }
    if !parse.contains(&"roles") {
        let roles = list("roles");
        pings.roles.retain(|id| roles.contains(id));
    }
    if allowed["replied_user"].as_bool() == Some(true) {
        pings
            .users
            .extend(replied.filter(|user| !pings.users.contains(user)));
    }
    Ok(pings)
}

fn edit(world: &mut World, call: &Call<'_>, channel: Id, message: Id) -> Result<Done, Refusal> {
    let known = world
        .message(channel, message)
        .ok_or_else(Refusal::unknown_message)?;
    if known.author != call.application {
        return Err(Refusal::new(
            403,
            50005,
            "Cannot edit a message authored by another user",
        ));
    }
    if is_archived(world, channel) {
        return Err(Refusal::archived());
    }
    let now = world.clock.now_ms();
    let old = Clock::made_ms(message) + HOUR_MS < now;
    if old && known.old_edits >= world.settings.old_edits {
        return Err(Refusal::old_edits(HOUR_MS));
    }
    let body = call.body;
    let content = body
        .get("content")
        .map(|_| check_content(body))
        .transpose()?;
    let components = body.get("components").map(check_components).transpose()?;
    let embeds = body.get("embeds").map(check_embeds).transpose()?;
    // An edit notifies nobody, yet what it would have is kept in the ledger.
    let would = match &content {
        Some(content) => pings(content, &body["allowed_mentions"], None, u64::MAX)?,
        None => Pings::default(),
    };
    let Some(known) = world
        .channels
        .get_mut(&channel)
        .and_then(|channel| channel.messages.get_mut(&message))
    else {
        return Err(Refusal::unknown_message());
    };
    if let Some(content) = content {
        known.content = content;
        known.edited_ms = Some(now);
    }
    if let Some(components) = components {
        known.components = components;
    }
    if let Some(embeds) = embeds {
        known.embeds = embeds;
    }
    known.edits += 1;
    known.old_edits += u32::from(old);
    world.tell_message("MESSAGE_UPDATE", channel, message, None);
    let known = world
        .message(channel, message)
        .ok_or_else(Refusal::unknown_message)?;
    Ok(Done::of_message(
        show::message(world, known, call.application, false),
        message,
        would,
    ))
}
