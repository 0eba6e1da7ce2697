//! `/guilds/{guild}…`: the guild, its channels, roles, members, active threads.

use serde_json::{Value, json};

use super::answer::{Done, Refusal};
use super::{Call, id};
use crate::permission::VIEW_CHANNEL;
use crate::show;
use crate::world::World;

pub(crate) fn route(world: &mut World, call: Call<'_>) -> Result<Done, Refusal> {
    let guild_id = id(call.path.get(1).copied().unwrap_or(""))?;
    let guild = world
        .guilds
        .get(&guild_id)
        .ok_or_else(|| Refusal::unknown(10004, "Unknown Guild"))?;
    if !guild.members.contains_key(&call.application) {
        return Err(Refusal::no_access());
    }
    let channels = || {
        world
            .channels
            .values()
            .filter(|channel| channel.guild == guild_id)
    };
    let body = match (call.method, &call.path[2..]) {
        ("GET", []) => show::guild_object(guild),
        // This list does not leave out what the bot cannot see.
        ("GET", ["channels"]) => channels()
            .filter(|channel| channel.thread.is_none())
            .map(|channel| show::channel(world, channel, call.application))
            .collect(),
        ("GET", ["roles"]) => Value::Array(show::roles(guild)),
        ("GET", ["members", user]) => {
            let user = if *user == "@me" {
                call.application
            } else {
                id(user)?
            };
            show::full_member(world, guild, user)
                .ok_or_else(|| Refusal::unknown(10007, "Unknown Member"))?
        }
        ("GET", ["threads", "active"]) => {
            let threads: Vec<Value> = channels()
                .filter(|channel| {
                    channel
                        .thread
                        .as_ref()
                        .is_some_and(|thread| !thread.archived)
                })
                .filter(|channel| world.permissions(channel, call.application) & VIEW_CHANNEL != 0)
                .filter(|channel| show::sees_thread(channel, call.application))
                .map(|channel| show::channel(world, channel, call.application))
                .collect();
            json!({"threads": threads, "members": []})
        }
        _ => return Err(Refusal::no_route()),
    };
    Ok(Done::new(body))
}
