//! Messages to inputs.
//!
//! A message is done when the harness's ledger has its id, whatever can be seen in
//! Discord. So a message may come here any number of times: live, by a sweep, twice
//! by a fault of the wire.

use std::sync::Arc;
use std::time::Duration;

use mooring_crds::{RespondTo, WhenBusy};
use mooring_wire::harness as wire;
use reqwest::Method;
use tokio::time::Instant;

use crate::attachment;
use crate::bot::Bot;
use crate::harness::HarnessError;
use crate::id::Id;
use crate::payload::Message;
use crate::render::one_line;
use crate::send::{Outgoing, send_once};
use crate::workspace::Place;

/// Characters from which a message may be the piece of a split paste.
const PIECE: usize = 1_900;
/// Milliseconds between two pieces.
const PIECES_WITHIN_MS: u64 = 1_000;
/// Characters of a thread's name.
const NAME: usize = 90;
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Put on a message while the harness is away.
const WAKING: &str = "⏳";
/// Put on a message that the running run takes up.
const STEERS: &str = "↪️";
/// Put on a message that waits for the running run.
const QUEUED: &str = "📥";
/// Put on a message of somebody who is no member.
const NO_MEMBER: &str = "🔒";
/// Put on a message that was refused because a run goes on.
const BUSY: &str = "✋";
/// Put on a message that could not be read.
const UNREADABLE: &str = "⚠️";

/// Whether the last message may be followed by a further piece.
pub fn may_go_on(group: &[Message]) -> bool {
    group
        .last()
        .is_some_and(|last| last.is_said() && last.content.chars().count() >= PIECE)
}

/// Whether `next` is a further piece of the group.
pub fn joins(group: &[Message], next: &Message) -> bool {
    may_go_on(group)
        && next.is_said()
        && group.last().is_some_and(|last| {
            last.author.id == next.author.id
                && next.id > last.id
                && next.id.made_ms() - last.id.made_ms() <= PIECES_WITHIN_MS
        })
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Nobody's input.
    Ignore,
    /// An input of its thread.
    Input,
    /// It opens a thread and is its first input.
    Open,
}

/// Decides what a message is.
pub fn route(
    message: &Message,
    me: Id,
    respond_to: RespondTo,
    in_thread: bool,
    talks: bool,
) -> Route {
    if !message.is_said() {
        return Route::Ignore;
    }
    let addressed = respond_to == RespondTo::All || message.mentions(me);
    match (in_thread, talks || addressed) {
        (true, true) => Route::Input,
        (false, _) if addressed => Route::Open,
        _ => Route::Ignore,
    }
}

/// A message that came live, with the further pieces of its paste.
pub async fn live(bot: &Arc<Bot>, channel: Id, group: Vec<Message>) {
    if let Some(place) = bot.place_of(channel).await {
        taken(bot, &place, channel, group).await;
    }
}

/// Takes what came live. Where it could not be, a sweep finds it once it can.
async fn taken(bot: &Arc<Bot>, place: &Arc<Place>, channel: Id, group: Vec<Message>) {
    if !take(bot, place, channel, group).await {
        bot.recheck(place);
    }
}

/// A message whose payload could not be read: it is asked for.
pub async fn unread(bot: &Arc<Bot>, channel: Id, message: Id) {
    let Some(place) = bot.place_of(channel).await else {
        return;
    };
    if let Some(message) = read_again(bot, channel, message).await {
        taken(bot, &place, channel, vec![message]).await;
    }
}

/// Asks for one message that could not be read; what cannot be read then either is
/// marked for people.
pub async fn read_again(bot: &Bot, channel: Id, message: Id) -> Option<Message> {
    bot.health.count("unreadable_payloads_total", 1);
    match bot.api.message(channel, message).await {
        Ok(message) => Some(message),
        // Deleted meanwhile.
        Err(error) if error.status() == Some(404) => None,
        Err(error) => {
            tracing::error!(%channel, %message, %error, "a message cannot be read");
            bot.health.count("unreadable_messages_total", 1);
            let _ = bot
                .api
                .react(channel, message, UNREADABLE, Method::PUT)
                .await;
            None
        }
    }
}

/// Takes a message to its harness. Returns when it is ledgered or is nobody's
/// input; while the harness is away it waits, and the message in Discord is the
/// queue. `false`: it could not be taken, and is to be found in the history again.
pub async fn take(bot: &Arc<Bot>, place: &Arc<Place>, channel: Id, group: Vec<Message>) -> bool {
    let Some(first) = group.first() else {
        return true;
    };
    let in_thread = channel != place.wanted.channel;
    if in_thread {
        bot.threads.opened(channel).await;
    }
    let talks = bot.threads.conversation(channel).is_some();
    let thread = match route(first, bot.me, place.wanted.respond_to, in_thread, talks) {
        Route::Ignore => return true,
        Route::Input => channel,
        Route::Open => first.id,
    };
    let Some(author) = author(bot, place, first).await else {
        return true;
    };
    let text = text_of(&group, bot.me);
    if text.is_empty() && group.iter().all(|message| message.attachments.is_empty()) {
        return true; // a sticker, or a bare mention
    }
    let mut opening = None;
    if thread == first.id && channel == place.wanted.channel {
        opening = Some(bot.threads.opening(thread));
        let name = Some(one_line(&text, NAME)).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| "conversation".into());
        match open(bot, place, first, &name).await {
            Opened::Yes => {}
            Opened::Never => return true,
            Opened::NotNow => return false,
        }
    }
    let (parts, left_out) = parts(bot, place, &author, &group).await;
    if !left_out.is_empty() {
        say_left_out(bot, thread, first, &left_out).await;
    }
    if parts.is_empty() {
        return true;
    }
    // Only a thread that the harness does not know gets a cursor here: it begins
    // just before its first input. Known ones move with the sweeps, which read all.
    let previous = if bot.threads.conversation(thread).is_some() {
        String::new()
    } else {
        first.id.before().to_string()
    };
    let request = wire::SubmitRequest {
        thread: Some(wire::Thread {
            thread_id: thread.to_string(),
            channel_id: place.wanted.channel.to_string(),
            message_id: first.id.to_string(),
            also_message_ids: group[1..]
                .iter()
                .map(|message| message.id.to_string())
                .collect(),
            previous_message_id: previous,
            name: one_line(&text, NAME),
            reply_to_message_id: first
                .message_reference
                .as_ref()
                .and_then(|reference| reference.message_id)
                .map(|message| message.to_string())
                .unwrap_or_default(),
        }),
        request_id: first.id.to_string(),
        content: parts,
        when_busy: when_busy(place.wanted.when_busy).into(),
        author: Some(author.clone()),
        ..wire::SubmitRequest::default()
    };
    let since = Instant::now();
    let response = submit(bot, place, channel, first.id, request).await;
    let input = Submitted {
        channel,
        thread,
        message: first,
        since,
    };
    let known = admitted(bot, place, input, response).await;
    drop(opening);
    known
}

/// The text of a message with the further pieces of its paste.
fn text_of(group: &[Message], me: Id) -> String {
    let mut text = String::new();
    for message in group {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&message.text_without(me));
    }
    text
}

/// What an input is made of, and what is left out of it.
pub async fn parts(
    bot: &Bot,
    place: &Place,
    author: &wire::Author,
    group: &[Message],
) -> (Vec<wire::Part>, Vec<String>) {
    let (mut parts, mut left_out) = (Vec::new(), Vec::new());
    let text = text_of(group, bot.me);
    if !text.is_empty() {
        parts.push(wire::Part::text(text));
    }
    for message in group {
        let files = &message.attachments;
        let fetched = attachment::fetch(&bot.api, place, author, message.id, files).await;
        parts.extend(fetched.parts);
        left_out.extend(fetched.left_out);
    }
    (parts, left_out)
}

/// An input and where it was said.
pub struct Submitted<'a> {
    /// Where its message is.
    pub channel: Id,
    /// Where its answer comes.
    pub thread: Id,
    /// The message; the first piece of a paste.
    pub message: &'a Message,
    /// When it was given to the harness.
    pub since: Instant,
}

/// What a message does while a run goes on.
pub fn when_busy(setting: WhenBusy) -> wire::WhenBusy {
    match setting {
        WhenBusy::Steer => wire::WhenBusy::Steer,
        WhenBusy::Queue => wire::WhenBusy::FollowUp,
        WhenBusy::Reject => wire::WhenBusy::Reject,
    }
}

/// Submits until the harness has it or says no.
pub async fn submit(
    bot: &Bot,
    place: &Place,
    channel: Id,
    message: Id,
    request: wire::SubmitRequest,
) -> Result<wire::SubmitResponse, HarnessError> {
    let mut pause = Duration::from_millis(100);
    let mut marked = false;
    loop {
        match place.heard(place.harness.submit(request.clone()).await) {
            Err(HarnessError::Away(why)) if !place.is_gone() => {
                tracing::warn!(workspace = place.wanted.name, %message, why, "the message waits for its harness");
                if !marked {
                    marked = bot
                        .api
                        .react(channel, message, WAKING, Method::PUT)
                        .await
                        .is_ok();
                }
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = place.gone() => {}
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            answer => {
                if marked {
                    let _ = bot
                        .api
                        .react(channel, message, WAKING, Method::DELETE)
                        .await;
                }
                return answer;
            }
        }
    }
}

/// Shows what became of an input. `false`: nothing; it is nowhere yet.
pub async fn admitted(
    bot: &Arc<Bot>,
    place: &Arc<Place>,
    input: Submitted<'_>,
    response: Result<wire::SubmitResponse, HarnessError>,
) -> bool {
    let Submitted {
        channel,
        thread,
        message,
        since,
    } = input;
    match response {
        Ok(done) => {
            if done.conversation != 0 {
                bot.threads
                    .talks(thread, place.wanted.channel, done.conversation);
            }
            if done.state == "refused" {
                let text = format!(
                    "-# This is not taken as an answer: {}",
                    one_line(&done.note, 500)
                );
                say(bot, thread, message, "refused", text).await;
                return true;
            }
            if done.repeated || matches!(done.state.as_str(), "answered" | "unchanged") {
                return true;
            }
            bot.health.count("inputs_total", 1);
            if done.state == "queued" || done.state == "placed" {
                bot.typing.start_since(&bot.api, thread, since);
            }
            if done.state == "queued" {
                // An input is placed at once where nothing else is going.
                let sign = if place.wanted.when_busy == WhenBusy::Steer {
                    STEERS
                } else {
                    QUEUED
                };
                let _ = bot.api.react(channel, message.id, sign, Method::PUT).await;
            }
        }
        // The workspace is served by another place now, or by none: the message is
        // found in the history.
        Err(HarnessError::Away(_)) => return false,
        Err(error) if error.is_forbidden() => {
            // Told once a day, so that a stranger cannot make the bot talk.
            if bot.tells_stranger(message.author.id) {
                let _ = bot
                    .api
                    .react(channel, message.id, NO_MEMBER, Method::PUT)
                    .await;
            }
        }
        Err(HarnessError::Refused { code, .. }) if code == "busy" => {
            let _ = bot.api.react(channel, message.id, BUSY, Method::PUT).await;
        }
        Err(error) => {
            tracing::error!(workspace = place.wanted.name, message = %message.id, %error, "refused by the harness");
            let text = format!(
                "-# This could not be taken: {}",
                one_line(&error.to_string(), 500)
            );
            say(bot, thread, message, "refused", text).await;
        }
    }
    true
}

/// Whether a thread could be opened.
enum Opened {
    Yes,
    /// The message is gone, or can have none.
    Never,
    /// The bot may not; somebody has to let it.
    NotNow,
}

/// Opens the thread of a message.
async fn open(bot: &Bot, place: &Place, message: &Message, name: &str) -> Opened {
    if bot.threads.conversation(message.id).is_some() {
        return Opened::Yes;
    }
    let mut pause = Duration::from_millis(250);
    loop {
        match bot
            .api
            .open_thread(place.wanted.channel, message.id, name)
            .await
        {
            Ok(_) => return Opened::Yes,
            Err(error @ crate::rest::RestError::Refused { .. }) => {
                tracing::error!(workspace = place.wanted.name, message = %message.id, %error, "no thread could be opened");
                return match error.status() {
                    Some(401 | 403) => Opened::NotNow,
                    _ => Opened::Never,
                };
            }
            Err(error) => {
                tracing::warn!(workspace = place.wanted.name, %error, "a thread waits for Discord");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

async fn say_left_out(bot: &Bot, thread: Id, message: &Message, left_out: &[String]) {
    let list: String = left_out
        .iter()
        .map(|line| format!("\n-# • {line}"))
        .collect();
    let text = crate::render::cut(&format!("-# Not taken:{list}"), crate::split::LIMIT);
    say(bot, thread, message, "attachments", text).await;
}

/// A word of the bot's own about a message.
async fn say(bot: &Bot, thread: Id, message: &Message, about: &str, text: String) {
    let outgoing = Outgoing {
        channel: thread,
        text,
        reply_to: Some(message.id).filter(|id| *id != thread),
        components: serde_json::Value::Null,
        notify: vec![],
        file: None,
        key: format!("{about}-{}", message.id),
        // The same message may come here again by a sweep.
        sent_since_ms: Some(message.id.made_ms()),
        not: vec![],
    };
    if let Err(error) = send_once(&bot.api, bot.me, outgoing).await {
        tracing::warn!(%thread, %error, "could not be said");
    }
}

/// Who wrote a message; `None` for one who is no member of the guild.
pub async fn author(bot: &Bot, place: &Place, message: &Message) -> Option<wire::Author> {
    let roles = roles(bot, place, message).await?;
    Some(wire::Author {
        discord_user_id: message.author.id.to_string(),
        discord_role_ids: roles.iter().map(Id::to_string).collect(),
        display_name: message.author.shown().to_owned(),
    })
}

/// The author's roles; `None` for one who is no member of the guild.
async fn roles(bot: &Bot, place: &Place, message: &Message) -> Option<Vec<Id>> {
    if let Some(member) = &message.member {
        return Some(member.roles.clone());
    }
    // History has no member.
    let mut pause = Duration::from_millis(250);
    loop {
        match bot
            .members
            .roles(&bot.api, place.wanted.guild, message.author.id)
            .await
        {
            Ok(roles) => return roles,
            Err(error) => {
                tracing::warn!(workspace = place.wanted.name, %error, "the author's roles are not known yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    const ME: Id = Id(99);

    fn said(id: u64, author: u64, content: &str) -> Message {
        serde_json::from_value(json!({
            "id": id.to_string(), "channel_id": "1", "content": content,
            "author": {"id": author.to_string(), "username": "ada"},
        }))
        .unwrap()
    }

    #[test]
    fn what_a_message_is_depends_on_where_it_is_and_whom_it_addresses() {
        use RespondTo::{All, Mentions};
        for (content, respond_to, in_thread, talks, expected) in [
            ("hello", Mentions, false, false, Route::Ignore),
            ("<@99> hello", Mentions, false, false, Route::Open),
            ("<@!99> hello", Mentions, false, false, Route::Open),
            ("hello", All, false, false, Route::Open),
            ("hello", Mentions, true, true, Route::Input),
            ("hello", Mentions, true, false, Route::Ignore),
            ("<@99> hello", Mentions, true, false, Route::Input),
            ("hello", All, true, false, Route::Input),
        ] {
            let got = route(&said(5, 1, content), ME, respond_to, in_thread, talks);
            assert_eq!(
                got, expected,
                "{content} {respond_to:?} {in_thread} {talks}"
            );
        }
    }

    #[test]
    fn f53_bots_webhooks_and_reply_pings_are_no_inputs() {
        let mut bot = said(5, 1, "<@99> hi");
        bot.author.bot = true;
        let mut webhook = said(5, 1, "<@99> hi");
        webhook.webhook_id = Some(Id(7));
        let mut system = said(5, 1, "<@99> hi");
        system.kind = 21;
        for message in [bot, webhook, system] {
            assert_eq!(
                route(&message, ME, RespondTo::All, true, true),
                Route::Ignore
            );
        }
        // A reply pings its author without naming them in the text.
        let mut reply = said(5, 1, "thanks");
        reply.kind = 19;
        assert_eq!(
            route(&reply, ME, RespondTo::Mentions, false, false),
            Route::Ignore
        );
    }

    #[test]
    fn f13_a_near_full_message_is_joined_with_the_next_of_its_author_within_a_second() {
        let at = |ms: u64| ms << 22;
        let long = "x".repeat(1_950);
        let first = said(at(10_000), 1, &long);
        for (next, expected) in [
            (said(at(10_900), 1, "rest"), true),
            (said(at(11_001), 1, "rest"), false),
            (said(at(10_100), 2, "rest"), false),
            (said(at(9_000), 1, "rest"), false),
        ] {
            assert_eq!(
                joins(std::slice::from_ref(&first), &next),
                expected,
                "{}",
                next.id
            );
        }
        assert!(!joins(
            &[said(at(10_000), 1, "short")],
            &said(at(10_100), 1, "rest")
        ));
    }
}
