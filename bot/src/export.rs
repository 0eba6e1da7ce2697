//! `/export`: a conversation as a file, for the one who asks.
//!
//! Only they see the answer: an export holds more than its thread shows, as what was
//! decided by whom, and not everybody in the thread may have it.

use mooring_wire::harness as wire;

use crate::bot::Bot;
use crate::harness::HarnessError;
use crate::interact::{NO_CONVERSATION, Said, author, conversation};
use crate::payload::Interaction;
use crate::rest::File;
use crate::workspace::Place;

/// Exports that may be in memory at once, in all workspaces.
pub const AT_ONCE: usize = 2;
/// Bytes of a file where Discord does not say, and at most: the bot is small.
/// <https://discord.com/developers/docs/reference#uploading-files>
const FILE: u64 = 10 << 20;

/// `/export`.
pub(crate) async fn export(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
) -> Result<Said, HarnessError> {
    let Some(conversation) = conversation(bot, place, interaction).await? else {
        return Ok(NO_CONVERSATION.to_owned().into());
    };
    let limit = match interaction.attachment_size_limit {
        0 => FILE,
        given => given.min(FILE),
    };
    let request = wire::ExportRequest {
        conversation,
        author: Some(author(interaction)),
    };
    let _turn = bot.exports.acquire().await;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let name = format!("conversation-{conversation}.jsonl");
    let lines = match place.harness.export(request, limit).await {
        Ok(Some(lines)) => lines,
        Ok(None) => return Ok(too_large(conversation, &name, limit).into()),
        Err(HarnessError::Refused { code, .. }) if code == "busy" => {
            let text = format!(
                "Conversation {conversation} is at work: `/stop` ends that, or wait for its end."
            );
            return Ok(text.into());
        }
        Err(error) => return Err(error),
    };
    Ok(Said {
        text: format!(
            "Conversation {conversation} is in the file, as JSON Lines; `mooring import {name}` restores it."
        ),
        file: Some(File {
            name,
            data: lines.into(),
        }),
    })
}

fn too_large(conversation: i64, name: &str, limit: usize) -> String {
    let limit = match limit >> 20 {
        0 => format!("{limit} bytes"),
        mib => format!("{mib} MiB"),
    };
    format!(
        "Conversation {conversation} is larger than the {limit} that a file may have here. \
         `mooring export {conversation} -o {name}`, in the project's folder on the machine of its harness, \
         writes it whatever its size."
    )
}
