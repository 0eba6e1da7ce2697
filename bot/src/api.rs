//! The requests that the bot makes, typed.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::id::Id;
use crate::payload::{Channel, GatewayInfo, Member, Message};
use crate::rest::{Call, File, Rest, RestError};

/// Discord as the bot uses it.
#[derive(Clone)]
pub struct Api {
    rest: Arc<Rest>,
}

/// An answer that is not of the shape that was promised.
fn read<T: DeserializeOwned>(value: Value) -> Result<T, RestError> {
    serde_json::from_value(value)
        .map_err(|error| RestError::Unknown(format!("unreadable answer: {error}")))
}

/// Notifies nobody; with `users`, those users and no other.
pub fn mentions(users: &[Id]) -> Value {
    json!({"parse": [], "users": users, "roles": [], "replied_user": false})
}

impl Api {
    /// Over this client.
    pub fn new(rest: Arc<Rest>) -> Api {
        Api { rest }
    }

    /// The client, for its counters.
    pub fn rest(&self) -> &Rest {
        &self.rest
    }

    async fn get(&self, path: String, bucket: String) -> Result<Value, RestError> {
        self.rest.send(Call::new(Method::GET, path, bucket)).await
    }

    /// The gateway's address and the identifies left.
    pub async fn gateway(&self) -> Result<GatewayInfo, RestError> {
        read(self.get("/gateway/bot".into(), "gateway".into()).await?)
    }

    /// The application: its flags tell which intents are on.
    pub async fn application(&self) -> Result<Value, RestError> {
        self.get("/applications/@me".into(), "application".into())
            .await
    }

    /// A channel or thread.
    pub async fn channel(&self, channel: Id) -> Result<Channel, RestError> {
        read(
            self.get(format!("/channels/{channel}"), format!("channel {channel}"))
                .await?,
        )
    }

    /// A guild's owner.
    pub async fn guild(&self, guild: Id) -> Result<Value, RestError> {
        self.get(format!("/guilds/{guild}"), format!("guild {guild}"))
            .await
    }

    /// A guild's roles.
    pub async fn roles(&self, guild: Id) -> Result<Value, RestError> {
        self.get(format!("/guilds/{guild}/roles"), format!("roles {guild}"))
            .await
    }

    /// A member.
    pub async fn member(&self, guild: Id, user: Id) -> Result<Member, RestError> {
        let path = format!("/guilds/{guild}/members/{user}");
        read(self.get(path, format!("member {guild}")).await?)
    }

    /// The threads of a guild that are not archived.
    pub async fn active_threads(&self, guild: Id) -> Result<Vec<Channel>, RestError> {
        let path = format!("/guilds/{guild}/threads/active");
        Ok(threads(self.get(path, format!("active {guild}")).await?))
    }

    /// A page of a channel's archived threads, newest first, and whether there are more.
    pub async fn archived_threads(
        &self,
        channel: Id,
        before: Option<&str>,
    ) -> Result<(Vec<Channel>, bool), RestError> {
        let before = before.map_or(String::new(), |before| {
            format!("&before={}", before.replace('+', "%2B").replace(':', "%3A"))
        });
        let path = format!("/channels/{channel}/threads/archived/public?limit=100{before}");
        let page = self.get(path, format!("archived {channel}")).await?;
        let more = page["has_more"].as_bool().unwrap_or(false);
        Ok((threads(page), more))
    }

    /// Up to 100 messages after an id, as raw JSON, oldest first: one that cannot be
    /// parsed must not hide the others.
    pub async fn history(&self, channel: Id, after: Id) -> Result<Vec<Value>, RestError> {
        let path = format!("/channels/{channel}/messages?after={after}&limit=100");
        let page = self.get(path, format!("history {channel}")).await?;
        let mut page = page
            .as_array()
            .cloned()
            .ok_or_else(|| RestError::Unknown("history is no list".into()))?;
        page.sort_by_key(|message| raw_id(message).unwrap_or_default());
        Ok(page)
    }

    /// One message, as raw JSON.
    pub async fn raw_message(&self, channel: Id, message: Id) -> Result<Value, RestError> {
        let path = format!("/channels/{channel}/messages/{message}");
        self.get(path, format!("message {channel}")).await
    }

    /// One message.
    pub async fn message(&self, channel: Id, message: Id) -> Result<Message, RestError> {
        read(self.raw_message(channel, message).await?)
    }

    /// Sends a message once. The caller puts a nonce into the body.
    pub async fn create(
        &self,
        channel: Id,
        body: Value,
        file: Option<File>,
    ) -> Result<Message, RestError> {
        let path = format!("/channels/{channel}/messages");
        let call = Call::new(Method::POST, path, format!("create {channel}"))
            .body(body)
            .file(file);
        read(self.rest.send(call).await?)
    }

    /// Edits a message.
    pub async fn edit(&self, channel: Id, message: Id, body: Value) -> Result<Message, RestError> {
        let path = format!("/channels/{channel}/messages/{message}");
        let call = Call::new(Method::PATCH, path, format!("edit {channel}")).body(body);
        read(self.rest.send(call).await?)
    }

    /// Adds a reaction, or takes it away.
    pub async fn react(
        &self,
        channel: Id,
        message: Id,
        emoji: &str,
        method: Method,
    ) -> Result<(), RestError> {
        let emoji: String = emoji.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/channels/{channel}/messages/{message}/reactions/{emoji}/@me");
        self.rest
            .send(Call::new(method, path, format!("react {channel}")))
            .await
            .map(drop)
    }

    /// Shows that the bot works.
    pub async fn typing(&self, channel: Id) -> Result<(), RestError> {
        let path = format!("/channels/{channel}/typing");
        self.rest
            .send(Call::new(Method::POST, path, format!("typing {channel}")))
            .await
            .map(drop)
    }

    /// Opens a thread on a message; an existing one is success.
    pub async fn open_thread(&self, channel: Id, message: Id, name: &str) -> Result<Id, RestError> {
        let path = format!("/channels/{channel}/messages/{message}/threads");
        let call = Call::new(Method::POST, path, format!("thread {channel}"))
            .body(json!({"name": name, "auto_archive_duration": 10080}))
            .repeatable();
        match self.rest.send(call).await {
            // The thread has the message's id, whoever opened it.
            Ok(_) => Ok(message),
            Err(error) if error.code() == Some(crate::rest::code::HAS_THREAD) => Ok(message),
            Err(error) => Err(error),
        }
    }

    /// Opens an archived thread again.
    pub async fn reopen(&self, thread: Id) -> Result<(), RestError> {
        let call = Call::new(
            Method::PATCH,
            format!("/channels/{thread}"),
            format!("channel {thread}"),
        )
        .body(json!({"archived": false}));
        self.rest.send(call).await.map(drop)
    }

    /// The first answer to an interaction.
    pub async fn respond(
        &self,
        interaction: Id,
        token: &str,
        body: Value,
    ) -> Result<(), RestError> {
        let path = format!("/interactions/{interaction}/{token}/callback");
        let call = Call::new(Method::POST, path, String::new())
            .body(body)
            .unlimited();
        self.rest.send(call).await.map(drop)
    }

    /// What a deferred answer shows in the end.
    pub async fn finish(
        &self,
        application: Id,
        token: &str,
        body: Value,
        file: Option<File>,
    ) -> Result<(), RestError> {
        let path = format!("/webhooks/{application}/{token}/messages/@original");
        let call = Call::new(Method::PATCH, path, String::new())
            .body(body)
            .file(file)
            .unlimited();
        self.rest.send(call).await.map(drop)
    }

    /// A further message that only the user sees.
    pub async fn follow(&self, application: Id, token: &str, body: Value) -> Result<(), RestError> {
        let path = format!("/webhooks/{application}/{token}");
        let call = Call::new(Method::POST, path, String::new())
            .body(body)
            .unlimited();
        self.rest.send(call).await.map(drop)
    }

    /// The registered commands.
    pub async fn commands(&self, application: Id) -> Result<Value, RestError> {
        self.get(
            format!("/applications/{application}/commands"),
            "commands".into(),
        )
        .await
    }

    /// Replaces the registered commands.
    pub async fn set_commands(&self, application: Id, list: Value) -> Result<(), RestError> {
        let path = format!("/applications/{application}/commands");
        self.rest
            .send(Call::new(Method::PUT, path, "set commands").body(list))
            .await
            .map(drop)
    }

    /// An attachment's content.
    pub async fn download(&self, url: &str, limit: u64) -> Result<Bytes, String> {
        self.rest.download(url, limit).await
    }
}

/// The id of a message that may not parse.
pub fn raw_id(message: &Value) -> Option<Id> {
    message["id"].as_str()?.parse().ok()
}

fn threads(mut page: Value) -> Vec<Channel> {
    let Value::Array(threads) = page["threads"].take() else {
        return Vec::new();
    };
    // A guild can have thousands: each is let go as it is read.
    let threads = threads.into_iter();
    threads
        .filter_map(|thread| serde_json::from_value(thread).ok())
        .collect()
}
