//! Commands that open a conversation in a thread of its own, or move one there.

use std::sync::Arc;

use mooring_wire::harness as wire;
use serde_json::Value;

use crate::bot::Bot;
use crate::harness::HarnessError;
use crate::id::Id;
use crate::interact::{NO_CONVERSATION, author, conversation};
use crate::payload::Interaction;
use crate::render::{cut, one_line};
use crate::workspace::Place;

/// Characters of a thread's name.
const NAME: usize = 90;

/// Opens a thread in the channel, on a message that says what it is for. The error
/// is for people.
async fn open(
    bot: &Bot,
    place: &Place,
    interaction: &Interaction,
    text: &str,
    name: &str,
) -> Result<wire::Thread, String> {
    if place.forum.load(std::sync::atomic::Ordering::Relaxed) {
        return Err("In a forum, make a post and use this there, or write in it.".into());
    }
    let by = author(interaction).display_name;
    let opening = crate::send::Outgoing {
        channel: place.wanted.channel,
        text: cut(
            &format!("**{}**: {text}", one_line(&by, 60)),
            crate::split::LIMIT,
        ),
        reply_to: None,
        components: Value::Null,
        notify: vec![],
        file: None,
        key: format!("{}-{}", interaction.command(), interaction.id),
        sent_since_ms: None,
        not: vec![],
    };
    let thread = crate::send::send_once(&bot.api, bot.me, opening)
        .await
        .map_err(|error| format!("The thread could not be opened: {error}"))?;
    let name = Some(one_line(name, NAME)).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "conversation".into());
    bot.api
        .open_thread(place.wanted.channel, thread, &name)
        .await
        .map_err(|error| format!("The thread could not be opened: {error}"))?;
    Ok(in_thread(place, thread, name))
}

fn in_thread(place: &Place, thread: Id, name: String) -> wire::Thread {
    wire::Thread {
        thread_id: thread.to_string(),
        channel_id: place.wanted.channel.to_string(),
        message_id: thread.to_string(),
        previous_message_id: thread.before().to_string(),
        name,
        ..wire::Thread::default()
    }
}

/// The first input of a conversation in a thread that was just opened; the
/// interaction's id is the request id.
async fn say(
    bot: &Arc<Bot>,
    place: &Place,
    interaction: &Interaction,
    thread: wire::Thread,
    text: String,
) -> Result<(), HarnessError> {
    let request = wire::SubmitRequest {
        thread: Some(thread.clone()),
        request_id: interaction.id.to_string(),
        content: vec![wire::Part::text(text)],
        author: Some(author(interaction)),
        ..wire::SubmitRequest::default()
    };
    let since = tokio::time::Instant::now();
    let done = place.harness.submit(request).await?;
    if let Ok(thread) = thread.thread_id.parse() {
        bot.threads
            .talks(thread, place.wanted.channel, done.conversation);
        bot.typing.start_since(&bot.api, thread, since);
    }
    Ok(())
}

/// `/new`: a conversation in a thread of its own.
pub async fn start(
    bot: &Arc<Bot>,
    place: &Arc<Place>,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let text = interaction.option("text").unwrap_or_default();
    let thread = match open(bot, place, interaction, &text, &text).await {
        Ok(thread) => thread,
        Err(why) => return Ok(why),
    };
    let id = thread.thread_id.clone();
    say(bot, place, interaction, thread, text).await?;
    Ok(format!("Started in <#{id}>."))
}

/// `/fork`: the same history, from here on apart.
pub async fn fork(
    bot: &Arc<Bot>,
    place: &Arc<Place>,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let Some(parent) = conversation(bot, place, interaction).await? else {
        return Ok(NO_CONVERSATION.into());
    };
    let title = interaction.option("title").unwrap_or_default();
    let text = match title.as_str() {
        "" => format!("a fork of conversation {parent}"),
        title => format!("a fork of conversation {parent}: {title}"),
    };
    branch(bot, place, interaction, parent, &text, &title, false).await
}

/// `/btw`: a question beside the conversation, which does not see it.
pub async fn aside(
    bot: &Arc<Bot>,
    place: &Arc<Place>,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let Some(parent) = conversation(bot, place, interaction).await? else {
        return Ok(NO_CONVERSATION.into());
    };
    let text = interaction.option("text").unwrap_or_default();
    branch(bot, place, interaction, parent, &text, &text, true).await
}

async fn branch(
    bot: &Arc<Bot>,
    place: &Arc<Place>,
    interaction: &Interaction,
    parent: i64,
    text: &str,
    title: &str,
    side_chat: bool,
) -> Result<String, HarnessError> {
    let name = if title.is_empty() { text } else { title };
    let thread = match open(bot, place, interaction, text, name).await {
        Ok(thread) => thread,
        Err(why) => return Ok(why),
    };
    let request = wire::ForkRequest {
        conversation: parent,
        side_chat,
        title: one_line(title, NAME),
        author: Some(author(interaction)),
        thread: Some(thread.clone()),
        ..wire::ForkRequest::default()
    };
    let made = place.harness.fork(request).await?;
    if let Ok(id) = thread.thread_id.parse() {
        bot.threads
            .talks(id, place.wanted.channel, made.conversation);
    }
    let id = thread.thread_id.clone();
    if side_chat {
        say(bot, place, interaction, thread, text.to_owned()).await?;
    }
    Ok(format!("Conversation {} is in <#{id}>.", made.conversation))
}

/// `/resume`: a conversation goes on in this thread, or in a new one.
pub async fn resume(
    bot: &Arc<Bot>,
    place: &Arc<Place>,
    interaction: &Interaction,
) -> Result<String, HarnessError> {
    let wanted = interaction.option("id").unwrap_or_default();
    let Ok(wanted) = wanted.trim().parse::<i64>() else {
        return Ok("Choose one of the conversations that are offered.".into());
    };
    let here = interaction
        .channel_id
        .filter(|channel| *channel != place.wanted.channel);
    if let Some(here) = here
        && let Some(taken) = conversation(bot, place, interaction).await?
    {
        return Ok(match taken == wanted {
            true => format!("Conversation {wanted} is in <#{here}> already."),
            false => format!(
                "This thread has conversation {taken}. Use this in the channel: it opens a thread."
            ),
        });
    }
    let thread = match here {
        // What was said in it before is not the conversation's.
        Some(here) => wire::Thread {
            previous_message_id: interaction.id.to_string(),
            ..in_thread(place, here, String::new())
        },
        None => {
            let text = format!("conversation {wanted} goes on here");
            match open(bot, place, interaction, &text, &text).await {
                Ok(thread) => thread,
                Err(why) => return Ok(why),
            }
        }
    };
    let id = thread.thread_id.clone();
    let request = wire::ResumeRequest {
        conversation: wanted,
        thread: Some(thread),
        author: Some(author(interaction)),
    };
    let left = place.harness.resume(request).await?.left_thread_id;
    if let Ok(id) = id.parse() {
        bot.threads.talks(id, place.wanted.channel, wanted);
    }
    if let Ok(left) = left.parse() {
        bot.threads.talks(left, place.wanted.channel, 0);
    }
    Ok(format!("Conversation {wanted} goes on in <#{id}>."))
}
