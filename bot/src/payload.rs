//! What of Discord's JSON the bot reads: only the fields that it needs, so that a
//! payload of a newer server still parses.

use serde::Deserialize;
use serde_json::Value;

use crate::id::Id;

/// Channel kind: posts only.
pub const FORUM: u8 = 15;

/// A user.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// Its id.
    pub id: Id,
    /// Its name.
    #[serde(default)]
    pub username: String,
    /// The name shown.
    #[serde(default)]
    pub global_name: Option<String>,
    /// Whether it is a bot.
    #[serde(default)]
    pub bot: bool,
}

impl User {
    /// The name people see.
    pub fn shown(&self) -> &str {
        self.global_name.as_deref().unwrap_or(&self.username)
    }
}

/// A member, in a live message without its user.
#[derive(Clone, Debug, Deserialize)]
pub struct Member {
    /// Role ids.
    #[serde(default)]
    pub roles: Vec<Id>,
    /// Absent in a live message, where the author stands beside it.
    #[serde(default)]
    pub user: Option<User>,
}

/// A file of a message.
#[derive(Clone, Debug, Deserialize)]
pub struct Attachment {
    /// Its name.
    #[serde(default)]
    pub filename: String,
    /// Its size in bytes.
    #[serde(default)]
    pub size: u64,
    /// Signed address that expires.
    pub url: String,
    /// Media type.
    #[serde(default)]
    pub content_type: Option<String>,
}

/// The message that a message replies to.
#[derive(Clone, Debug, Deserialize)]
pub struct Reference {
    /// Its id.
    #[serde(default)]
    pub message_id: Option<Id>,
}

/// A message.
#[derive(Clone, Debug, Deserialize)]
pub struct Message {
    /// Its id.
    pub id: Id,
    /// Where it is.
    pub channel_id: Id,
    /// Only in events.
    #[serde(default)]
    pub guild_id: Option<Id>,
    /// Who wrote it.
    pub author: User,
    /// Only in events.
    #[serde(default)]
    pub member: Option<Member>,
    /// Its text.
    pub content: String,
    /// Last edit by its author.
    #[serde(default)]
    pub edited_timestamp: Option<String>,
    /// 0 plain, 19 reply; others are not said by people.
    #[serde(rename = "type", default)]
    pub kind: u8,
    /// Set for webhooks and answers to interactions.
    #[serde(default)]
    pub webhook_id: Option<Id>,
    /// Files.
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// What it replies to.
    #[serde(default)]
    pub message_reference: Option<Reference>,
    /// The message it replies to, when Discord gives it.
    #[serde(default)]
    pub referenced_message: Option<Box<Message>>,
    /// Buttons.
    #[serde(default)]
    pub components: Vec<Value>,
}

impl Message {
    /// Whether a person said it.
    pub fn is_said(&self) -> bool {
        !self.author.bot && self.webhook_id.is_none() && matches!(self.kind, 0 | 19)
    }

    /// Whether its text mentions the user; a ping by a reply is no mention.
    pub fn mentions(&self, user: Id) -> bool {
        self.content.contains(&format!("<@{user}>"))
            || self.content.contains(&format!("<@!{user}>"))
    }

    /// Its text without the mention of the user.
    pub fn text_without(&self, user: Id) -> String {
        let text = self
            .content
            .replace(&format!("<@{user}>"), "")
            .replace(&format!("<@!{user}>"), "");
        text.trim().to_owned()
    }
}

/// A channel or thread.
#[derive(Clone, Debug, Deserialize)]
pub struct Channel {
    /// Its id.
    pub id: Id,
    /// Kind: 0 text, 11 and 12 threads, 15 forum.
    #[serde(rename = "type", default)]
    pub kind: u8,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its guild.
    #[serde(default)]
    pub guild_id: Option<Id>,
    /// The channel that a thread is in.
    #[serde(default)]
    pub parent_id: Option<Id>,
    /// The newest message ever.
    #[serde(default)]
    pub last_message_id: Option<Id>,
    /// Of threads.
    #[serde(default)]
    pub thread_metadata: Option<ThreadMetadata>,
    /// Of channels.
    #[serde(default)]
    pub permission_overwrites: Vec<Overwrite>,
}

impl Channel {
    /// Whether it is a thread.
    pub fn is_thread(&self) -> bool {
        matches!(self.kind, 10..=12)
    }
}

/// What a thread has beside a channel.
#[derive(Clone, Debug, Deserialize)]
pub struct ThreadMetadata {
    /// When it was archived or opened again.
    #[serde(default)]
    pub archive_timestamp: String,
}

/// Permissions of a role or member in a channel.
#[derive(Clone, Debug, Deserialize)]
pub struct Overwrite {
    /// Role or user.
    pub id: Id,
    /// Bits given.
    pub allow: String,
    /// Bits taken.
    pub deny: String,
}

/// Something a user did: a command, a click, typing in a command's field.
#[derive(Clone, Debug, Deserialize)]
pub struct Interaction {
    /// Its id.
    pub id: Id,
    /// 2 command, 3 button, 4 autocomplete.
    #[serde(rename = "type")]
    pub kind: u8,
    /// What answers it.
    pub token: String,
    /// Where.
    #[serde(default)]
    pub channel_id: Option<Id>,
    /// Where, with the parent.
    #[serde(default)]
    pub channel: Option<Channel>,
    /// Who, in a guild.
    #[serde(default)]
    pub member: Option<Member>,
    /// The clicked message.
    #[serde(default)]
    pub message: Option<Message>,
    /// What.
    #[serde(default)]
    pub data: Value,
    /// Bytes that a file of the answer may have; 0: Discord does not say.
    #[serde(default)]
    pub attachment_size_limit: u64,
}

impl Interaction {
    /// The command's name.
    pub fn command(&self) -> &str {
        self.data["name"].as_str().unwrap_or("")
    }

    /// The button's id.
    pub fn custom_id(&self) -> &str {
        self.data["custom_id"].as_str().unwrap_or("")
    }

    /// The option's text; numbers as text.
    pub fn option(&self, name: &str) -> Option<String> {
        let options = self.data["options"].as_array()?;
        let value = &options.iter().find(|option| option["name"] == name)?["value"];
        Some(
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
        )
    }
}

/// An application's `session_start_limit`.
#[derive(Clone, Debug, Deserialize)]
pub struct StartLimit {
    /// Of a day.
    #[serde(default)]
    pub total: u64,
    /// Left.
    pub remaining: u64,
    /// Milliseconds to all again.
    #[serde(default)]
    pub reset_after: u64,
}

/// `GET /gateway/bot`.
#[derive(Clone, Debug, Deserialize)]
pub struct GatewayInfo {
    /// Address.
    pub url: String,
    /// Shards that Discord wants.
    #[serde(default)]
    pub shards: u64,
    /// Identifies left.
    pub session_start_limit: StartLimit,
}
