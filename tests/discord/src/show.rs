//! What a client sees: Discord's JSON of each record, no field more.

use serde_json::{Value, json};

use crate::clock::{Clock, Id, timestamp};
use crate::permission;
use crate::world::{
    Application, Attachment, Channel, FORUM, Guild, Interaction, Member, Message, PUBLIC_THREAD,
    Pings, RoleRecord, User, World,
};

/// A user.
pub(crate) fn user(user: &User) -> Value {
    json!({
        "id": user.id.to_string(), "username": user.name, "discriminator": "0",
        "global_name": if user.bot { Value::Null } else { user.name.clone().into() },
        "avatar": null, "bot": user.bot, "public_flags": 0,
    })
}

/// The bot as it sees itself.
pub(crate) fn own_user(record: &User) -> Value {
    let mut shown = user(record);
    shown["mfa_enabled"] = true.into();
    shown["verified"] = true.into();
    shown["email"] = Value::Null;
    shown["flags"] = 0.into();
    shown
}

/// The application, with flags that say which privileged intents are on.
pub(crate) fn application(world: &World, application: &Application) -> Value {
    let mut flags = 0u64;
    for (intent, flag) in [
        (1u64 << 8, 1u64 << 12),
        (1 << 1, 1 << 14),
        (1 << 15, 1 << 18),
    ] {
        if application.privileged & intent != 0 {
            flags |= flag << 1; // the "limited" form, of bots in few guilds
        }
    }
    let name = world
        .users
        .get(&application.id)
        .map_or("", |user| &user.name);
    json!({
        "id": application.id.to_string(), "name": name, "icon": null, "description": "",
        "bot_public": false, "bot_require_code_grant": false, "verify_key": "00".repeat(32),
        "flags": flags, "summary": "", "hook": true,
        "owner": {"id": "1", "username": "owner", "discriminator": "0", "avatar": null},
        "team": null, "tags": [],
    })
}

fn role(role: &RoleRecord) -> Value {
    json!({
        "id": role.id.to_string(), "name": role.name, "permissions": role.permissions.to_string(),
        "color": 0, "colors": {"primary_color": 0, "secondary_color": null, "tertiary_color": null},
        "hoist": false, "icon": null, "unicode_emoji": null, "position": 0,
        "managed": false, "mentionable": true, "flags": 0,
    })
}

/// All roles of a guild.
pub(crate) fn roles(guild: &Guild) -> Vec<Value> {
    guild.roles.values().map(role).collect()
}

/// A member, without the user.
pub(crate) fn member(member: &Member) -> Value {
    json!({
        "roles": member.roles.iter().map(Id::to_string).collect::<Vec<_>>(),
        "joined_at": timestamp(member.joined_ms), "premium_since": null, "nick": null,
        "avatar": null, "deaf": false, "mute": false, "pending": false, "flags": 0,
        "communication_disabled_until": null,
    })
}

/// A member with the user.
pub(crate) fn full_member(world: &World, guild: &Guild, id: Id) -> Option<Value> {
    let mut shown = member(guild.members.get(&id)?);
    shown["user"] = user(world.users.get(&id)?);
    Some(shown)
}

/// A channel or thread.
pub(crate) fn channel(world: &World, channel: &Channel, seen_by: Id) -> Value {
    let last = channel.last_message.map(|id| id.to_string());
    if let Some(thread) = &channel.thread {
        let mut shown = json!({
            "id": channel.id.to_string(), "type": channel.kind,
            "guild_id": channel.guild.to_string(), "parent_id": thread.parent.to_string(),
            "name": channel.name, "owner_id": channel.owner.unwrap_or_default().to_string(),
            "last_message_id": last, "rate_limit_per_user": 0, "flags": 0,
            "message_count": channel.messages.len(), "total_message_sent": channel.messages.len(),
            "member_count": thread.members.len().min(50),
            "thread_metadata": {
                "archived": thread.archived, "locked": thread.locked,
                "auto_archive_duration": thread.auto_archive_min,
                "archive_timestamp": timestamp(thread.archived_ms),
                "create_timestamp": timestamp(Clock::made_ms(channel.id)),
            },
        });
        if channel.kind != PUBLIC_THREAD {
            shown["thread_metadata"]["invitable"] = true.into();
        }
        if thread.members.contains(&seen_by) {
            shown["member"] = json!({
                "id": channel.id.to_string(), "user_id": seen_by.to_string(),
                "join_timestamp": timestamp(Clock::made_ms(channel.id)), "flags": 0,
            });
        }
        return shown;
    }
    let _ = world;
    let mut shown = json!({
        "id": channel.id.to_string(), "type": channel.kind,
        "guild_id": channel.guild.to_string(), "name": channel.name, "position": 0,
        "parent_id": null, "topic": null, "nsfw": false, "rate_limit_per_user": 0, "flags": 0,
        "last_message_id": last,
        "permission_overwrites": channel.overwrites.iter().map(|over| json!({
            "id": over.id.to_string(), "type": u8::from(over.member),
            "allow": over.allow.to_string(), "deny": over.deny.to_string(),
        })).collect::<Vec<_>>(),
    });
    if channel.kind == FORUM {
        shown["available_tags"] = json!([]);
        shown["default_reaction_emoji"] = Value::Null;
        shown["default_sort_order"] = Value::Null;
        shown["default_forum_layout"] = 0.into();
    }
    shown
}

/// A guild as GUILD_CREATE brings it: with the channels and active threads that
/// the bot can see.
pub(crate) fn guild_create(world: &World, guild: &Guild, bot: Id) -> Value {
    let visible = |channel: &&Channel| {
        channel.guild == guild.id && world.permissions(channel, bot) & permission::VIEW_CHANNEL != 0
    };
    let mut shown = guild_object(guild);
    let members: Vec<Value> = guild
        .members
        .keys()
        .filter_map(|id| full_member(world, guild, *id))
        .collect();
    let bot_only = guild
        .members
        .get(&bot)
        .map(|_| full_member(world, guild, bot));
    shown["joined_at"] = timestamp(guild.members.get(&bot).map_or(0, |m| m.joined_ms)).into();
    shown["large"] = (members.len() > 250).into();
    shown["unavailable"] = false.into();
    shown["member_count"] = members.len().into();
    shown["members"] = if members.len() > 250 {
        bot_only.into_iter().flatten().collect()
    } else {
        members.into()
    };
    shown["channels"] = world
        .channels
        .values()
        .filter(|channel| channel.thread.is_none())
        .filter(visible)
        .map(|shown| channel(world, shown, bot))
        .collect();
    shown["threads"] = world
        .channels
        .values()
        .filter(|channel| {
            channel
                .thread
                .as_ref()
                .is_some_and(|thread| !thread.archived)
        })
        .filter(visible)
        .filter(|channel| sees_thread(channel, bot))
        .map(|shown| channel(world, shown, bot))
        .collect();
    for list in [
        "voice_states",
        "presences",
        "stage_instances",
        "guild_scheduled_events",
        "soundboard_sounds",
    ] {
        shown[list] = json!([]);
    }
    shown
}

/// Private threads are seen by those in them.
pub(crate) fn sees_thread(channel: &Channel, user: Id) -> bool {
    channel.kind != crate::world::PRIVATE_THREAD
        || channel
            .thread
            .as_ref()
            .is_some_and(|thread| thread.members.contains(&user))
}

/// A guild as REST gives it.
pub(crate) fn guild_object(guild: &Guild) -> Value {
    json!({
        "id": guild.id.to_string(), "name": guild.name, "owner_id": guild.owner.to_string(),
        "icon": null, "splash": null, "discovery_splash": null, "banner": null,
        "description": null, "region": "deprecated", "afk_channel_id": null, "afk_timeout": 300,
        "widget_enabled": false, "widget_channel_id": null, "verification_level": 0,
        "default_message_notifications": 1, "explicit_content_filter": 0,
        "roles": roles(guild), "emojis": [], "stickers": [], "features": [], "mfa_level": 0,
        "application_id": null, "system_channel_id": null, "system_channel_flags": 0,
        "rules_channel_id": null, "public_updates_channel_id": null, "vanity_url_code": null,
        "premium_tier": 0, "premium_subscription_count": 0, "preferred_locale": "en-US",
        "nsfw_level": 0, "premium_progress_bar_enabled": false, "max_members": 500_000,
        "max_video_channel_users": 25, "safety_alerts_channel_id": null, "nsfw": false,
        "incidents_data": null, "hub_type": null,
    })
}

/// An attachment with an address that expires.
pub(crate) fn attachment(world: &World, channel: Id, file: &Attachment) -> Value {
    let until = world.clock.now_ms() + world.settings.link_ms;
    let url = format!(
        "{}/attachments/{channel}/{}/{}?ex={until:x}&is={:x}&hm=00",
        world.address,
        file.id,
        file.name,
        until - world.settings.link_ms
    );
    json!({
        "id": file.id.to_string(), "filename": file.name, "size": file.data.len(),
        "url": url, "proxy_url": url, "content_type": file.media_type,
    })
}

/// A message as history and other reads give it: without `nonce`, `member` and
/// `guild_id`. `content_hidden` is set for a reader without the message content
/// intent.
pub(crate) fn message(
    world: &World,
    message: &Message,
    seen_by: Id,
    content_hidden: bool,
) -> Value {
    shown_message(world, message, seen_by, content_hidden, 0)
}

fn shown_message(
    world: &World,
    message: &Message,
    seen_by: Id,
    content_hidden: bool,
    depth: u8,
) -> Value {
    let hidden = content_hidden
        && message.author != seen_by
        && !message.pings.users.contains(&seen_by)
        && !mentions_in(&message.content).users.contains(&seen_by);
    let author = world.users.get(&message.author).map_or(
        json!({"id": message.author.to_string(), "username": "gone", "discriminator": "0", "avatar": null}),
        user,
    );
    let mentioned = mentions_in(&message.content);
    let mentions: Vec<Value> = mentioned
        .users
        .iter()
        .chain(
            message
                .pings
                .users
                .iter()
                .filter(|id| !mentioned.users.contains(id)),
        )
        .filter_map(|id| world.users.get(id))
        .map(user)
        .collect();
    let mut shown = json!({
        "id": message.id.to_string(), "type": message.kind,
        "channel_id": message.channel.to_string(), "author": author,
        "content": if hidden { "" } else { &message.content },
        "timestamp": timestamp(Clock::made_ms(message.id)),
        "edited_timestamp": message.edited_ms.map(timestamp),
        "tts": false, "pinned": false, "flags": message.flags,
        "mention_everyone": message.pings.everyone,
        "mentions": mentions,
        "mention_roles": message.pings.roles.iter().map(Id::to_string).collect::<Vec<_>>(),
        "attachments": if hidden { vec![] } else {
            message.attachments.iter().map(|file| attachment(world, message.channel, file)).collect::<Vec<_>>()
        },
        "embeds": if hidden { &[][..] } else { &message.embeds[..] },
        "components": if hidden { &[][..] } else { &message.components[..] },
    });
    if !message.reactions.is_empty() {
        shown["reactions"] = message
            .reactions
            .iter()
            .map(|(emoji, users)| {
                json!({
                    "emoji": {"id": null, "name": emoji}, "count": users.len(),
                    "count_details": {"burst": 0, "normal": users.len()},
                    "burst_colors": [], "me_burst": false, "burst_me": false, "burst_count": 0,
                    "me": users.contains(&seen_by),
                })
            })
            .collect();
    }
    if let Some(webhook) = message.webhook {
        shown["webhook_id"] = webhook.to_string().into();
        if world.applications.contains_key(&webhook) {
            shown["application_id"] = webhook.to_string().into();
        }
    }
    if let Some(reply) = message.reply_to {
        let channel = if message.kind == 21 {
            world
                .channels
                .get(&message.channel)
                .and_then(|c| c.thread.as_ref())
                .map_or(0, |t| t.parent)
        } else {
            message.channel
        };
        shown["message_reference"] =
            json!({"type": 0, "channel_id": channel.to_string(), "message_id": reply.to_string()});
        if let Some(guild) = world.channels.get(&channel).map(|channel| channel.guild) {
            shown["message_reference"]["guild_id"] = guild.to_string().into();
        }
        if depth == 0 {
            shown["referenced_message"] =
                world.message(channel, reply).map_or(Value::Null, |reply| {
                    shown_message(world, reply, seen_by, content_hidden, 1)
                });
        }
    }
    if let Some(thread) = world
        .channels
        .get(&message.id)
        .filter(|channel| channel.thread.is_some())
        && message.channel != message.id
    {
        shown["thread"] = channel(world, thread, seen_by);
    }
    shown
}

/// A message as MESSAGE_CREATE and MESSAGE_UPDATE bring it: with `guild_id` and
/// `member`.
pub(crate) fn dispatched_message(
    world: &World,
    record: &Message,
    seen_by: Id,
    content_hidden: bool,
) -> Value {
    let mut shown = message(world, record, seen_by, content_hidden);
    let Some(guild) = world
        .channels
        .get(&record.channel)
        .and_then(|channel| world.guilds.get(&channel.guild))
    else {
        return shown;
    };
    shown["guild_id"] = guild.id.to_string().into();
    if let Some(author) = guild.members.get(&record.author)
        && record.webhook.is_none()
    {
        shown["member"] = member(author);
    }
    if let Some(mentions) = shown["mentions"].as_array_mut() {
        for mention in mentions {
            let id = mention["id"]
                .as_str()
                .and_then(|id| id.parse::<Id>().ok())
                .unwrap_or(0);
            if let Some(mentioned) = guild.members.get(&id) {
                mention["member"] = member(mentioned);
            }
        }
    }
    shown
}

/// An interaction as INTERACTION_CREATE brings it, around its `data`.
pub(crate) fn interaction(world: &World, record: &Interaction, kind: u8, data: Value) -> Value {
    let at = world.channels.get(&record.channel);
    let guild = at.and_then(|channel| world.guilds.get(&channel.guild));
    let permissions = at.map_or(0, |channel| world.permissions(channel, record.user));
    let own = at.map_or(0, |channel| world.permissions(channel, record.application));
    let mut shown = json!({
        "id": record.id.to_string(), "application_id": record.application.to_string(),
        "type": kind, "token": record.token, "version": 1, "data": data, "locale": "en-US",
        "guild_locale": "en-US", "entitlements": [], "authorizing_integration_owners": {},
        "context": 0, "attachment_size_limit": world.settings.upload_bytes,
        "app_permissions": own.to_string(), "channel_id": record.channel.to_string(),
    });
    if let Some(at) = at {
        shown["channel"] = channel(world, at, record.application);
        shown["channel"]["permissions"] = permissions.to_string().into();
    }
    if let Some(guild) = guild {
        shown["guild_id"] = guild.id.to_string().into();
        shown["guild"] = json!({"id": guild.id.to_string(), "locale": "en-US", "features": []});
        if let Some(mut member) = full_member(world, guild, record.user) {
            member["permissions"] = permissions.to_string().into();
            shown["member"] = member;
        }
    }
    if let Some(message) = record
        .message
        .and_then(|id| world.message(record.channel, id))
    {
        shown["message"] = self::message(world, message, record.application, false);
    }
    shown
}

/// Who is mentioned by the syntax of a text.
pub(crate) fn mentions_in(text: &str) -> Pings {
    let mut pings = Pings {
        everyone: text.contains("@everyone") || text.contains("@here"),
        ..Pings::default()
    };
    for piece in text.split('<').skip(1) {
        let Some((inside, _)) = piece.split_once('>') else {
            continue;
        };
        if let Some(role) = inside.strip_prefix("@&") {
            pings.roles.extend(role.parse::<Id>());
        } else if let Some(user) = inside.strip_prefix('@') {
            pings
                .users
                .extend(user.trim_start_matches('!').parse::<Id>());
        }
    }
    pings.users.dedup();
    pings.roles.dedup();
    pings
}
