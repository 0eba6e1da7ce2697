//! `/channels/{channel}…` without messages: the channel itself, typing, threads.

use serde_json::{Value, json};

use super::answer::{Done, Refusal};
use super::messages::{draft, need, see};
use super::{Call, id};
use crate::clock::{Id, parse_timestamp};
use crate::permission as may;
use crate::show;
use crate::world::{Channel, FORUM, PRIVATE_THREAD, PUBLIC_THREAD, World};

pub(crate) fn route(world: &mut World, mut call: Call<'_>) -> Result<Done, Refusal> {
    let channel = id(call.path.get(1).copied().unwrap_or(""))?;
    let permissions = see(world, channel, call.application)?;
    match (call.method, &call.path[2..]) {
        ("GET", []) => Ok(Done::new(show::channel(
            world,
            &world.channels[&channel],
            call.application,
        ))),
        ("PATCH", []) => change(world, &call, channel, permissions),
        ("POST", ["typing"]) => {
            world.typing(channel, call.application);
            Ok(Done::empty())
        }
        ("POST", ["threads"]) => open(world, &mut call, channel, permissions),
        ("GET", ["threads", "archived", which @ ("public" | "private")])
        | ("GET", ["users", "@me", "threads", "archived", which @ "private"]) => {
            need(permissions, may::READ_MESSAGE_HISTORY)?;
            if call.path[2] == "threads" && *which == "private" {
                need(permissions, may::MANAGE_THREADS)?;
            }
            let kind = if *which == "public" {
                PUBLIC_THREAD
            } else {
                PRIVATE_THREAD
            };
            archived(world, &call, channel, kind)
        }
        ("PUT" | "DELETE", ["thread-members", "@me"]) => {
            let application = call.application;
            let join = call.method == "PUT";
            let thread = world
                .channels
                .get_mut(&channel)
                .and_then(|channel| channel.thread.as_mut())
                .ok_or_else(Refusal::unknown_channel)?;
            thread.members.retain(|member| *member != application);
            if join {
                thread.members.push(application);
            }
            Ok(Done::empty())
        }
        _ => Err(Refusal::no_route()),
    }
}

/// The name of a new thread: 1 to 100 characters.
pub(crate) fn thread_name(body: &Value) -> Result<String, Refusal> {
    let name = body["name"].as_str().unwrap_or("").trim();
    if name.is_empty() || name.chars().count() > 100 {
        return Err(Refusal::form(
            "name",
            "BASE_TYPE_BAD_LENGTH",
            "Must be between 1 and 100 in length.",
        ));
    }
    Ok(name.to_owned())
}

fn change(
    world: &mut World,
    call: &Call<'_>,
    channel: Id,
    permissions: u64,
) -> Result<Done, Refusal> {
    let found = world
        .channels
        .get_mut(&channel)
        .ok_or_else(Refusal::unknown_channel)?;
    let owner = found.owner == Some(call.application);
    let thread = found
        .thread
        .as_ref()
        .ok_or_else(Refusal::no_permission)?
        .clone();
    let manages = permissions & may::MANAGE_THREADS != 0;
    let flag = |name: &str, old: bool| call.body[name].as_bool().unwrap_or(old);
    let (archived, locked) = (
        flag("archived", thread.archived),
        flag("locked", thread.locked),
    );
    if locked != thread.locked || thread.locked {
        need(permissions, may::MANAGE_THREADS)?;
    }
    if let Some(name) = call.body.get("name") {
        if !owner && !manages {
            return Err(Refusal::no_permission());
        }
        if thread.archived && archived {
            return Err(Refusal::archived());
        }
        let _ = name;
        found.name = thread_name(call.body)?;
    }
    if archived && !thread.archived && !owner && !manages {
        return Err(Refusal::no_permission());
    }
    world.set_archived(channel, archived, locked);
    Ok(Done::new(show::channel(
        world,
        &world.channels[&channel],
        call.application,
    )))
}

/// A thread without a message, or a post in a forum with its first message.
fn open(
    world: &mut World,
    call: &mut Call<'_>,
    channel: Id,
    permissions: u64,
) -> Result<Done, Refusal> {
    let name = thread_name(call.body)?;
    let minutes = call.body["auto_archive_duration"].as_u64().unwrap_or(4320);
    if world.channels[&channel].kind == FORUM {
        need(permissions, may::SEND_MESSAGES)?;
        let first = call.body["message"].clone();
        if !first.is_object() {
            return Err(Refusal::form(
                "message",
                "BASE_TYPE_REQUIRED",
                "This field is required",
            ));
        }
        let mut inner = Call {
            application: call.application,
            method: call.method,
            path: call.path.clone(),
            query: call.query,
            body: &first,
            files: std::mem::take(&mut call.files),
        };
        let draft = draft(world, &mut inner, channel, permissions)?;
        let pings = draft.pings.clone();
        let thread = world.open_thread(
            channel,
            None,
            call.application,
            &name,
            PUBLIC_THREAD,
            minutes,
        );
        world.write_as(thread, thread, call.application, draft);
        let mut shown = show::channel(world, &world.channels[&thread], call.application);
        if let Some(message) = world.message(thread, thread) {
            shown["message"] = show::message(world, message, call.application, false);
        }
        return Ok(Done {
            status: 201,
            ..Done::of_message(shown, thread, pings)
        });
    }
    if permissions & may::CREATE_PUBLIC_THREADS == 0 {
        return Err(Refusal::no_access());
    }
    let kind = if call.body["type"].as_u64() == Some(u64::from(PUBLIC_THREAD)) {
        PUBLIC_THREAD
    } else {
        PRIVATE_THREAD // Discord's default
    };
    let thread = world.open_thread(channel, None, call.application, &name, kind, minutes);
    Ok(Done::created(show::channel(
        world,
        &world.channels[&thread],
        call.application,
    )))
}

fn archived(world: &World, call: &Call<'_>, parent: Id, kind: u8) -> Result<Done, Refusal> {
    let limit = call
        .query
        .get("limit")
        .and_then(|text| text.parse().ok())
        .unwrap_or(50usize);
    let before = call
        .query
        .get("before")
        .and_then(|text| parse_timestamp(text))
        .unwrap_or(u64::MAX);
    let mut threads: Vec<(&Channel, u64)> = world
        .channels
        .values()
        .filter(|channel| channel.kind == kind && show::sees_thread(channel, call.application))
        .filter_map(|channel| {
            let thread = channel.thread.as_ref()?;
            (thread.parent == parent && thread.archived && thread.archived_ms < before)
                .then_some((channel, thread.archived_ms))
        })
        .collect();
    threads.sort_by_key(|(channel, archived_ms)| std::cmp::Reverse((*archived_ms, channel.id)));
    let more = threads.len() > limit;
    threads.truncate(limit);
    let shown: Vec<Value> = threads
        .iter()
        .map(|(channel, _)| show::channel(world, channel, call.application))
        .collect();
    Ok(Done::new(
        json!({"threads": shown, "members": [], "has_more": more}),
    ))
}
