//! What happens to the world, and the dispatches that tell of it.

use serde_json::{Value, json};

use crate::clock::{Id, timestamp};
use crate::gateway::{Event, emit};
use crate::world::{
    Attachment, Channel, Guild, Member, Message, PUBLIC_THREAD, RoleRecord, TEXT, ThreadState,
    User, World,
};
use crate::{permission, show};

/// What a new message holds.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Its text.
    pub content: String,
    /// Message it replies to.
    pub reply_to: Option<Id>,
    /// Files.
    pub attachments: Vec<(String, bytes::Bytes)>,
    /// Message type; by default plain or reply.
    pub kind: Option<u8>,
    /// Embeds.
    pub embeds: Vec<Value>,
    /// Buttons.
    pub components: Vec<Value>,
    /// Message flags.
    pub flags: u64,
    /// Who is notified.
    pub pings: crate::world::Pings,
    /// The application or webhook behind it.
    pub webhook: Option<Id>,
    /// What the client called it.
    pub nonce: Option<Value>,
}

impl World {
    /// Makes a user.
    pub fn add_user(&mut self, name: &str, bot: bool) -> Id {
        let id = self.clock.id();
        self.users.insert(
            id,
            User {
                id,
                name: name.into(),
                bot,
            },
        );
        id
    }

    /// Makes a guild that `owner` owns and is in.
    pub fn add_guild(&mut self, name: &str, owner: Id) -> Id {
        let id = self.clock.id();
        let everyone = RoleRecord {
            id,
            name: "@everyone".into(),
            permissions: permission::EVERYONE,
        };
        let guild = Guild {
            id,
            name: name.into(),
            owner,
            roles: [(id, everyone)].into(),
            members: [(
                owner,
                Member {
                    roles: vec![],
                    joined_ms: self.clock.now_ms(),
                },
            )]
            .into(),
        };
        self.guilds.insert(id, guild);
        id
    }

    /// Makes a role.
    pub fn add_role(&mut self, guild: Id, name: &str, permissions: u64) -> Id {
        let id = self.clock.id();
        if let Some(guild) = self.guilds.get_mut(&guild) {
            guild.roles.insert(
                id,
                RoleRecord {
                    id,
                    name: name.into(),
                    permissions,
                },
            );
        }
        id
    }

    /// Puts a user with these roles into a guild, or gives a member these roles.
    /// The bot itself sees the whole guild then.
    pub fn add_member(&mut self, guild: Id, user: Id, roles: &[Id]) {
        let joined_ms = self.clock.now_ms();
        let Some(record) = self.guilds.get_mut(&guild) else {
            return;
        };
        let known = record.members.contains_key(&user);
        record.members.insert(
            user,
            Member {
                roles: roles.to_vec(),
                joined_ms,
            },
        );
        if known {
            return;
        }
        if self.applications.contains_key(&user) {
            let shown = show::guild_create(self, &self.guilds[&guild], user);
            emit(self, Event::new("GUILD_CREATE", 0, shown).only_to(user));
        } else if let Some(mut member) = show::full_member(self, &self.guilds[&guild], user) {
            member["guild_id"] = guild.to_string().into();
            emit(
                self,
                Event::new("GUILD_MEMBER_ADD", 1 << 1, member).in_guild(guild),
            );
        }
    }

    /// Takes a user out of a guild; a bot is told that the guild is gone.
    pub fn remove_member(&mut self, guild: Id, user: Id) {
        if self.applications.contains_key(&user) {
            let gone = json!({"id": guild.to_string()});
            emit(self, Event::new("GUILD_DELETE", 0, gone).only_to(user));
        }
        if let Some(guild) = self.guilds.get_mut(&guild) {
            guild.members.remove(&user);
        }
    }

    /// Makes a channel ([`TEXT`] or [`FORUM`](crate::world::FORUM)).
    pub fn add_channel(&mut self, guild: Id, name: &str, kind: u8) -> Id {
        let id = self.clock.id();
        let channel = Channel {
            id,
            guild,
            kind,
            name: name.into(),
            owner: None,
            overwrites: vec![],
            last_message: None,
            thread: None,
            messages: Default::default(),
        };
        self.channels.insert(id, channel);
        self.tell_channel("CHANNEL_CREATE", id);
        id
    }

    /// Deletes a channel or thread with all that is in it.
    pub fn remove_channel(&mut self, channel: Id) {
        let event = if self
            .channels
            .get(&channel)
            .is_some_and(|c| c.thread.is_some())
        {
            "THREAD_DELETE"
        } else {
            "CHANNEL_DELETE"
        };
        self.tell_channel(event, channel);
        self.channels.remove(&channel);
        self.channels.retain(|_, other| {
            other
                .thread
                .as_ref()
                .is_none_or(|thread| thread.parent != channel)
        });
    }

    /// Makes an application with its bot user; `privileged` are intents switched on.
    pub fn add_application(&mut self, name: &str, token: &str, privileged: u64) -> Id {
        let id = self.add_user(name, true);
        let application = crate::world::Application {
            id,
            token: token.into(),
            privileged,
            commands: Default::default(),
            identifies_left: self.settings.identify_total,
            identifies_reset_ms: self.clock.now_ms() + 24 * 3_600_000,
            identified_ms: 0,
        };
        self.applications.insert(id, application);
        id
    }

    pub(crate) fn tell_channel(&mut self, event: &'static str, id: Id) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        let (guild, home) = (channel.guild, self.parent(channel).id);
        for application in self.applications.keys().copied().collect::<Vec<_>>() {
            let Some(channel) = self.channels.get(&id) else {
                return;
            };
            if !show::sees_thread(channel, application) {
                continue;
            }
            let shown = if event == "THREAD_DELETE" {
                json!({"id": id.to_string(), "guild_id": guild.to_string(),
                       "parent_id": home.to_string(), "type": channel.kind})
            } else {
                show::channel(self, channel, application)
            };
            emit(
                self,
                Event::new(event, 1, shown)
                    .in_channel(home)
                    .only_to(application),
            );
        }
    }

    /// Writes a message. The caller has checked that `author` may.
    pub fn write(&mut self, channel: Id, author: Id, draft: Draft) -> Id {
        let id = self.clock.id();
        self.write_as(id, channel, author, draft)
    }

    pub(crate) fn write_as(&mut self, id: Id, channel: Id, author: Id, draft: Draft) -> Id {
        let attachments = draft
            .attachments
            .into_iter()
            .map(|(name, data)| Attachment {
                id: self.clock.id(),
                media_type: media_type(&name).into(),
                name,
                data,
            })
            .collect();
        let kind = draft
            .kind
            .unwrap_or(if draft.reply_to.is_some() { 19 } else { 0 });
        let message = Message {
            id,
            channel,
            author,
            kind,
            content: draft.content,
            edited_ms: None,
            reply_to: draft.reply_to,
            embeds: draft.embeds,
            components: draft.components,
            attachments,
            flags: draft.flags,
            reactions: Default::default(),
            pings: draft.pings,
            webhook: draft.webhook,
            old_edits: 0,
            edits: 0,
        };
        self.unarchive(channel);
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.last_message = Some(channel.last_message.unwrap_or(0).max(id));
            channel.messages.insert(id, message);
            if let Some(thread) = &mut channel.thread
                && !thread.members.contains(&author)
            {
                thread.members.push(author);
            }
        }
        self.tell_message("MESSAGE_CREATE", channel, id, draft.nonce);
        id
    }

    pub(crate) fn tell_message(
        &mut self,
        event: &'static str,
        channel: Id,
        id: Id,
        nonce: Option<Value>,
    ) {
        let Some(at) = self.channels.get(&channel) else {
            return;
        };
        let home = self.parent(at).id;
        for application in self.applications.keys().copied().collect::<Vec<_>>() {
            let Some(message) = self.message(channel, id) else {
                return;
            };
            if !show::sees_thread(&self.channels[&channel], application) {
                continue;
            }
            let mut open = show::dispatched_message(self, message, application, false);
            let mut blank = show::dispatched_message(self, message, application, true);
            if let Some(nonce) = &nonce {
                open["nonce"] = nonce.clone();
                blank["nonce"] = nonce.clone();
            }
            let event = Event::new(event, 1 << 9, open)
                .without_content(blank)
                .in_channel(home)
                .only_to(application);
            emit(self, event);
        }
    }

    /// Changes the text of a message, as its author does.
    pub fn edit(&mut self, channel: Id, id: Id, content: &str) {
        let now = self.clock.now_ms();
        if let Some(message) = self
            .channels
            .get_mut(&channel)
            .and_then(|channel| channel.messages.get_mut(&id))
        {
            message.content = content.into();
            message.edited_ms = Some(now);
            message.edits += 1;
        }
        self.tell_message("MESSAGE_UPDATE", channel, id, None);
    }

    /// An update that changes nothing that people wrote: a link got its preview.
    pub fn unfurl(&mut self, channel: Id, id: Id) {
        if let Some(message) = self
            .channels
            .get_mut(&channel)
            .and_then(|channel| channel.messages.get_mut(&id))
        {
            message.embeds =
                vec![json!({"type": "link", "url": "https://example.com/", "title": "Example"})];
        }
        self.tell_message("MESSAGE_UPDATE", channel, id, None);
    }

    /// Deletes a message.
    pub fn remove_message(&mut self, channel: Id, id: Id) {
        let Some(at) = self.channels.get_mut(&channel) else {
            return;
        };
        at.messages.remove(&id);
        let guild = at.guild;
        let home = self.parent(&self.channels[&channel]).id;
        let gone = json!({"id": id.to_string(), "channel_id": channel.to_string(), "guild_id": guild.to_string()});
        emit(
            self,
            Event::new("MESSAGE_DELETE", 1 << 9, gone).in_channel(home),
        );
    }

    /// Opens a thread in a channel; on a message it takes the message's id.
    pub fn open_thread(
        &mut self,
        parent: Id,
        on: Option<Id>,
        owner: Id,
        name: &str,
        kind: u8,
        auto_archive_min: u64,
    ) -> Id {
        let id = on.unwrap_or_else(|| self.clock.id());
        let now = self.clock.now_ms();
        let guild = self
            .channels
            .get(&parent)
            .map_or(0, |channel| channel.guild);
        let thread = ThreadState {
            parent,
            archived: false,
            locked: false,
            archived_ms: now,
            auto_archive_min,
            members: vec![owner],
        };
        let channel = Channel {
            id,
            guild,
            kind,
            name: name.into(),
            owner: Some(owner),
            overwrites: vec![],
            last_message: None,
            thread: Some(thread),
            messages: Default::default(),
        };
        self.channels.insert(id, channel);
        self.tell_channel("THREAD_CREATE", id);
        if let Some(on) = on {
            if let Some(message) = self
                .channels
                .get_mut(&parent)
                .and_then(|parent| parent.messages.get_mut(&on))
            {
                message.flags |= 1 << 5;
            }
            self.tell_message("MESSAGE_UPDATE", parent, on, None);
            if self
                .channels
                .get(&parent)
                .is_some_and(|parent| parent.kind == TEXT)
            {
                let author = self
                    .message(parent, on)
                    .map_or(owner, |message| message.author);
                let draft = Draft {
                    reply_to: Some(on),
                    kind: Some(21),
                    ..Draft::default()
                };
                self.write(id, author, draft);
            }
        }
        id
    }

    /// A forum post by a user: a thread whose first message has the thread's id.
    pub fn post_in_forum(&mut self, forum: Id, author: Id, name: &str, draft: Draft) -> Id {
        let id = self.open_thread(forum, None, author, name, PUBLIC_THREAD, 4320);
        self.write_as(id, id, author, draft)
    }

    /// Archives or reopens a thread.
    pub fn set_archived(&mut self, thread: Id, archived: bool, locked: bool) {
        let now = self.clock.now_ms();
        if let Some(state) = self
            .channels
            .get_mut(&thread)
            .and_then(|channel| channel.thread.as_mut())
        {
            state.archived = archived;
            state.locked = locked;
            state.archived_ms = now;
        }
        self.tell_channel("THREAD_UPDATE", thread);
    }

    fn unarchive(&mut self, channel: Id) {
        if self
            .channels
            .get(&channel)
            .and_then(|channel| channel.thread.as_ref())
            .is_some_and(|thread| thread.archived)
        {
            self.set_archived(channel, false, false);
        }
    }

    /// Moves time forward and archives threads that were quiet for long.
    pub fn advance(&mut self, ms: u64) {
        self.clock.advance(ms);
        let now = self.clock.now_ms();
        let quiet: Vec<Id> = self
            .channels
            .values()
            .filter(|channel| {
                channel.thread.as_ref().is_some_and(|thread| {
                    let last =
                        crate::clock::Clock::made_ms(channel.last_message.unwrap_or(channel.id));
                    !thread.archived
                        && last.max(thread.archived_ms) + thread.auto_archive_min * 60_000 < now
                })
            })
            .map(|channel| channel.id)
            .collect();
        for thread in quiet {
            self.set_archived(thread, true, false);
        }
    }

    /// Adds or removes a reaction.
    pub fn react(&mut self, channel: Id, message: Id, emoji: &str, user: Id, add: bool) {
        if let Some(message) = self
            .channels
            .get_mut(&channel)
            .and_then(|channel| channel.messages.get_mut(&message))
        {
            let users = message.reactions.entry(emoji.into()).or_default();
            users.retain(|other| *other != user);
            if add {
                users.push(user);
            }
            if users.is_empty() {
                message.reactions.remove(emoji);
            }
        }
        let Some(at) = self.channels.get(&channel) else {
            return;
        };
        let (guild, home) = (at.guild, self.parent(at).id);
        let told = json!({
            "user_id": user.to_string(), "channel_id": channel.to_string(),
            "message_id": message.to_string(), "guild_id": guild.to_string(),
            "emoji": {"id": null, "name": emoji}, "burst": false, "type": 0,
        });
        let event = if add {
            "MESSAGE_REACTION_ADD"
        } else {
            "MESSAGE_REACTION_REMOVE"
        };
        emit(self, Event::new(event, 1 << 10, told).in_channel(home));
    }

    /// Tells that a user types.
    pub fn typing(&mut self, channel: Id, user: Id) {
        let Some(at) = self.channels.get(&channel) else {
            return;
        };
        let (guild, home) = (at.guild, self.parent(at).id);
        let told = json!({
            "channel_id": channel.to_string(), "guild_id": guild.to_string(),
            "user_id": user.to_string(), "timestamp": self.clock.now_ms() / 1_000,
        });
        emit(
            self,
            Event::new("TYPING_START", 1 << 11, told).in_channel(home),
        );
    }

    /// A user runs a slash command (`options` as Discord sends them), or clicks a
    /// button (`message` and `custom_id`). The id of the interaction.
    pub fn interact(&mut self, application: Id, channel: Id, user: Id, what: Act) -> Id {
        let id = self.clock.id();
        let (kind, message, data) = match what {
            Act::Command { name, options } => {
                let registered = self.applications.get(&application).and_then(|application| {
                    application
                        .commands
                        .values()
                        .flatten()
                        .find(|command| command["name"] == name)
                });
                let command = registered.map_or("0".into(), |command| command["id"].clone());
                (
                    2,
                    None,
                    json!({"id": command, "name": name, "type": 1, "options": options}),
                )
            }
            Act::Complete { name, options } => (
                4,
                None,
                json!({"id": "0", "name": name, "type": 1, "options": options}),
            ),
            Act::Click { message, custom_id } => (
                3,
                Some(message),
                json!({"component_type": 2, "custom_id": custom_id, "id": 1}),
            ),
        };
        let record = crate::world::Interaction {
            id,
            token: format!("interaction-{id:x}"),
            application,
            channel,
            user,
            message,
            made_ms: self.clock.now_ms(),
            callback: None,
            answered_after_ms: None,
            shown: None,
            followups: vec![],
        };
        let shown = show::interaction(self, &record, kind, data);
        self.interactions.insert(id, record);
        emit(
            self,
            Event::new("INTERACTION_CREATE", 0, shown).only_to(application),
        );
        id
    }

    pub(crate) fn now(&self) -> String {
        timestamp(self.clock.now_ms())
    }
}

/// What a user does with an application.
#[derive(Clone, Debug)]
pub enum Act {
    /// Runs a slash command.
    Command {
        /// Its name.
        name: String,
        /// `[{"name": …, "type": 3, "value": …}]`.
        options: Value,
    },
    /// Types in a command's field.
    Complete {
        /// The command.
        name: String,
        /// With `"focused": true` at one.
        options: Value,
    },
    /// Clicks a button.
    Click {
        /// Where the button is.
        message: Id,
        /// Which button.
        custom_id: String,
    },
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or("") {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "md" => "text/markdown; charset=utf-8",
        "txt" => "text/plain; charset=utf-8",
        "pdf" => "application/pdf",
        _ => "application/octet-stream",
    }
}
