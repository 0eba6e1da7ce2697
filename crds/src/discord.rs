//! `spec.discord`: the workspace's place in Discord, and how the bot behaves there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A workspace's channel and what happens in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiscordSpec {
    /// The guild's id.
    pub guild_id: String,
    /// The text or forum channel's id. A channel belongs to one Workspace.
    pub channel_id: String,
    /// What opens a conversation in the channel.
    #[serde(default)]
    pub respond_to: RespondTo,
    /// What a message does while a run goes on in its thread.
    #[serde(default)]
    pub when_busy: WhenBusy,
    /// Where the answer is shown.
    #[serde(default)]
    pub answer: Answer,
    /// Which attachments are taken.
    #[serde(default)]
    pub attachments: Attachments,
}

/// What opens a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RespondTo {
    /// A message that mentions the bot.
    #[default]
    Mentions,
    /// Every message in the channel.
    All,
}

/// What a message does while a run goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum WhenBusy {
    /// The run takes it up at its next step.
    #[default]
    Steer,
    /// It waits until the run has ended.
    Queue,
    /// It is refused.
    Reject,
}

/// Where the answer is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Answer {
    /// In the run's one message, which is edited.
    #[default]
    Edit,
    /// In a message of its own.
    Post,
}

/// Which attachments are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Attachments {
    /// Bytes of one, as a number with or without `Ki` or `Mi` (`10Mi`).
    pub max_bytes: String,
    /// How many of one message.
    pub max_count: u32,
}

impl Default for Attachments {
    fn default() -> Self {
        Attachments {
            max_bytes: "10Mi".into(),
            max_count: 10,
        }
    }
}

impl Attachments {
    /// `max_bytes` as a number; `None` where it is none.
    pub fn bytes(&self) -> Option<u64> {
        let digits = self
            .max_bytes
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(self.max_bytes.len());
        let (number, unit) = self.max_bytes.split_at(digits);
        let unit = match unit {
            "" => 1,
            "Ki" => 1 << 10,
            "Mi" => 1 << 20,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_with_a_binary_unit() {
        for (text, bytes) in [
            ("10Mi", Some(10 << 20)),
            ("64Ki", Some(64 << 10)),
            ("5", Some(5)),
            ("", None),
            ("Mi", None),
            ("1Gi", None),
            ("-1", None),
            ("99999999999999999999", None),
        ] {
            let attachments = Attachments {
                max_bytes: text.into(),
                ..Attachments::default()
            };
            assert_eq!(attachments.bytes(), bytes, "{text:?}");
        }
    }
}
