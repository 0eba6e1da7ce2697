//! Start-up checks: what a workspace's channel and the application need, with the
//! name of what is missing.

use serde_json::Value;

use crate::bot::Bot;
use crate::health::Condition;
use crate::id::Id;
use crate::payload::{Channel, FORUM};
use crate::rest::{RestError, code};
use crate::workspace::Place;

/// The permissions that the bot needs, by Discord's names.
pub const NEEDED: [(u64, &str); 8] = [
    (1 << 10, "View Channels"),
    (1 << 11, "Send Messages"),
    (1 << 38, "Send Messages in Threads"),
    (1 << 35, "Create Public Threads"),
    (1 << 16, "Read Message History"),
    (1 << 6, "Add Reactions"),
    (1 << 15, "Attach Files"),
    (1 << 14, "Embed Links"),
];
/// Embeds are never sent; a missing "Embed Links" is no fault.
const OPTIONAL: u64 = 1 << 14;
const ADMINISTRATOR: u64 = 1 << 3;

/// All of [`NEEDED`] as the number of an invite link.
pub fn invite_permissions() -> u64 {
    NEEDED.iter().fold(0, |all, (bit, _)| all | bit)
}

/// The link by which the bot is invited.
pub fn invite_link(application: Id) -> String {
    format!(
        "https://discord.com/oauth2/authorize?client_id={application}\
         &scope=bot+applications.commands&permissions={}",
        invite_permissions()
    )
}

/// Why a place could not be looked at.
pub enum Failed {
    /// A fault of its settings.
    Condition(Condition),
    /// Discord could not be asked.
    Rest(RestError),
}

fn condition(reason: &str, message: String) -> Condition {
    Condition {
        ready: false,
        reason: reason.into(),
        message,
    }
}

/// Looks at a place, sets its condition, and gives its channel.
pub async fn place(bot: &Bot, place: &Place) -> Result<Channel, Failed> {
    let channel = match bot.api.channel(place.wanted.channel).await {
        Ok(channel) => channel,
        Err(error) => {
            return Err(match error.code() {
                Some(code::UNKNOWN_CHANNEL) => Failed::Condition(condition(
                    "ChannelNotFound",
                    format!(
                        "there is no channel {}; was it deleted? Change spec.discord.channelId",
                        place.wanted.channel
                    ),
                )),
                Some(code::NO_ACCESS | code::NO_PERMISSION) => Failed::Condition(condition(
                    "MissingPermission",
                    format!(
                        "the bot is not in guild {}, or lacks View Channels in channel {}: give it the permission, or invite it: {}",
                        place.wanted.guild,
                        place.wanted.channel,
                        invite_link(bot.application)
                    ),
                )),
                _ => Failed::Rest(error),
            });
        }
    };
    if channel
        .guild_id
        .is_some_and(|guild| guild != place.wanted.guild)
    {
        return Err(Failed::Condition(condition(
            "WrongGuild",
            format!(
                "channel {} is not in guild {}; change spec.discord.guildId",
                place.wanted.channel, place.wanted.guild
            ),
        )));
    }
    if !matches!(channel.kind, 0 | 5 | FORUM) {
        return Err(Failed::Condition(condition(
            "WrongChannelKind",
            format!(
                "channel {} is neither a text channel nor a forum",
                place.wanted.channel
            ),
        )));
    }
    let guild = bot
        .api
        .guild(place.wanted.guild)
        .await
        .map_err(Failed::Rest)?;
    let roles = bot
        .api
        .roles(place.wanted.guild)
        .await
        .map_err(Failed::Rest)?;
    let member = bot
        .api
        .member(place.wanted.guild, bot.me)
        .await
        .map_err(Failed::Rest)?;
    let owner = guild["owner_id"].as_str() == Some(&bot.me.to_string());
    let has = if owner {
        u64::MAX
    } else {
        permissions(place.wanted.guild, bot.me, &member.roles, &roles, &channel)
    };
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(bit, _)| bit & OPTIONAL == 0 && has & bit == 0)
        .map(|(_, name)| *name)
        .collect();
    if !missing.is_empty() {
        bot.health.condition(
            &place.wanted.name,
            condition(
                "MissingPermission",
                format!(
                    "in channel {} the bot lacks {}: give it to its role, or invite it anew: {}",
                    place.wanted.channel,
                    missing.join(", "),
                    invite_link(bot.application)
                ),
            ),
        );
        return Ok(channel);
    }
    if !bot.has_message_content {
        bot.health.condition(
            &place.wanted.name,
            condition(
                "MissingIntent",
                "switch on \"Message Content Intent\" on the application's Bot page".into(),
            ),
        );
        return Ok(channel);
    }
    bot.health.condition(
        &place.wanted.name,
        Condition {
            ready: true,
            reason: "Connected".into(),
            message: String::new(),
        },
    );
    Ok(channel)
}

/// A member's permissions in a channel, by the order of Discord's documentation,
/// "Permission Hierarchy".
fn permissions(guild: Id, user: Id, has: &[Id], roles: &Value, channel: &Channel) -> u64 {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    let mut all = 0;
    for role in roles.as_array().into_iter().flatten() {
        let id: Id = role["id"]
            .as_str()
            .and_then(|id| id.parse().ok())
            .unwrap_or_default();
        if id == guild || has.contains(&id) {
            all |= number(role["permissions"].as_str().unwrap_or(""));
        }
    }
    if all & ADMINISTRATOR != 0 {
        return u64::MAX;
    }
    let overwrites = &channel.permission_overwrites;
    if let Some(over) = overwrites.iter().find(|over| over.id == guild) {
        all = all & !number(&over.deny) | number(&over.allow);
    }
    let (mut deny, mut allow) = (0, 0);
    for over in overwrites.iter().filter(|over| has.contains(&over.id)) {
        deny |= number(&over.deny);
        allow |= number(&over.allow);
    }
    all = all & !deny | allow;
    if let Some(over) = overwrites.iter().find(|over| over.id == user) {
        all = all & !number(&over.deny) | number(&over.allow);
    }
    all
}

/// Whether the application's flags say that message content may be read.
pub fn has_message_content(application: &Value) -> bool {
    // GATEWAY_MESSAGE_CONTENT, and its form for bots in few guilds.
    application["flags"].as_u64().unwrap_or(0) & (1 << 18 | 1 << 19) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_invite_number_of_the_documentation_is_that_of_the_list() {
        let page = include_str!("../../docs/discord.md");
        assert!(page.contains(&format!("permissions={}", invite_permissions())));
        for (_, name) in NEEDED {
            assert!(page.contains(name), "{name}");
        }
    }
}
