//! One message, once: a nonce for the minutes in which Discord knows it, and a
//! search of our own messages afterwards.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::{Api, mentions};
use crate::id::Id;
use crate::payload::Message;
use crate::rest::{File, RestError, code};

/// Characters of a nonce that Discord takes.
const NONCE: usize = 25;
/// Tries in a row before the row is given back to the outbox.
const TRIES: u32 = 4;
/// Pages of 100 messages that a search reads.
const PAGES: usize = 200;
/// Clocks of Discord and of the harness may differ by so much.
const SKEW_MS: u64 = 15_000;

/// A message to be sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The thread.
    pub channel: Id,
    /// Its text.
    pub text: String,
    /// What it replies to.
    pub reply_to: Option<Id>,
    /// Buttons.
    pub components: Value,
    /// Users who are notified.
    pub notify: Vec<Id>,
    /// A file along with it.
    pub file: Option<File>,
    /// Outbox key and part, from which the nonce comes.
    pub key: String,
    /// Whether it may have been sent before, and since when (ms since 1970).
    pub sent_since_ms: Option<u64>,
    /// Messages that are other parts of the same answer, and may say the same.
    pub not: Vec<Id>,
}

/// The nonce of a key: the first 25 characters of the base64url hash.
pub fn nonce(key: &str) -> String {
    let mut nonce = URL_SAFE_NO_PAD.encode(Sha256::digest(key.as_bytes()));
    nonce.truncate(NONCE);
    nonce
}

impl Outgoing {
    fn body(&self) -> Value {
        let mut allowed = mentions(&self.notify);
        // A reply notifies whom it replies to only where that is wanted.
        allowed["replied_user"] = Value::Bool(!self.notify.is_empty() && self.reply_to.is_some());
        let mut body = json!({
            "content": self.text, "allowed_mentions": allowed,
            "nonce": nonce(&self.key), "enforce_nonce": true,
        });
        if let Some(reply_to) = self.reply_to {
            body["message_reference"] =
                json!({"message_id": reply_to, "fail_if_not_exists": false});
        }
        if !self.components.is_null() {
            body["components"] = self.components.clone();
        }
        body
    }

    /// Whether `message` is this one, but for what it replies to.
    fn is(&self, message: &Message, me: Id) -> bool {
        if message.author.id != me || message.webhook_id.is_some() || self.not.contains(&message.id)
        {
            return false;
        }
        // A card is known by the approval's id on its buttons.
        if let Some(id) = first_button(&self.components) {
            return first_button(&Value::Array(message.components.clone())) == Some(id);
        }
        Sha256::digest(message.content.trim()) == Sha256::digest(self.text.trim())
            && self.file.is_some() != message.attachments.is_empty()
    }
}

fn replies_to(message: &Message) -> Option<Id> {
    message.message_reference.as_ref()?.message_id
}

fn first_button(rows: &Value) -> Option<String> {
    rows[0]["components"][0]["custom_id"]
        .as_str()
        .map(str::to_owned)
}

/// Now, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Sends it, or finds that it was sent.
pub async fn send_once(api: &Api, me: Id, mut outgoing: Outgoing) -> Result<Id, RestError> {
    let mut tries = 0;
    loop {
        if let Some(since) = outgoing.sent_since_ms
            && let Some(found) = find(api, me, &outgoing, since).await?
        {
            return Ok(found);
        }
        let sent = api
            .create(outgoing.channel, outgoing.body(), outgoing.file.clone())
            .await;
        match sent {
            Ok(message) => return Ok(message.id),
            // What became of it is not known: look for it, and send it again with
            // the same nonce.
            Err(error @ RestError::Unknown(_)) => {
                tries += 1;
                if tries >= TRIES {
                    return Err(error);
                }
                outgoing
                    .sent_since_ms
                    .get_or_insert_with(|| now_ms().saturating_sub(60_000));
                tokio::time::sleep(Duration::from_millis(200 << tries)).await;
            }
            Err(error)
                if outgoing.file.is_some()
                    && (error.code() == Some(code::TOO_LARGE) || error.status() == Some(413)) =>
            {
                outgoing.file = None;
                outgoing.text = format!(
                    "{}\n-# The file is too large for Discord and was left out.",
                    crate::render::cut(&outgoing.text, crate::split::LIMIT - 60)
                );
                outgoing.key.push_str("#without-file");
            }
            Err(error) => return Err(error),
        }
    }
}

/// Looks for the message among our own after that time. An error when history
/// could not be read to its end: then it must not be sent again.
async fn find(
    api: &Api,
    me: Id,
    outgoing: &Outgoing,
    since_ms: u64,
) -> Result<Option<Id>, RestError> {
    let mut after = Id::at_ms(since_ms.saturating_sub(SKEW_MS));
    let mut without_reference = None;
    for _ in 0..PAGES {
        let page = api.history(outgoing.channel, after).await?;
        let Some(last) = page.last().and_then(crate::api::raw_id) else {
            // A reply to a message that was gone when it was sent has no reference.
            let gone = match (without_reference, outgoing.reply_to) {
                (Some(_), Some(target)) => api
                    .raw_message(outgoing.channel, target)
                    .await
                    .is_err_and(|error| error.status() == Some(404)),
                _ => false,
            };
            return Ok(without_reference.filter(|_| gone));
        };
        let ours = page
            .into_iter()
            .filter_map(|raw| serde_json::from_value::<Message>(raw).ok())
            .filter(|message| outgoing.is(message, me));
        for message in ours {
            match replies_to(&message) {
                target if target == outgoing.reply_to => return Ok(Some(message.id)),
                None => without_reference = Some(message.id),
                Some(_) => {}
            }
        }
        after = last;
    }
    Err(RestError::Unknown(
        "history could not be read to its end".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_fits_and_depends_on_the_whole_key() {
        let long = "incarnation-12-anchor".repeat(9);
        assert_eq!(nonce(&long).len(), NONCE);
        assert_ne!(nonce(&long), nonce(&format!("{long}#1")));
        assert_eq!(nonce("a"), nonce("a"));
    }
}
