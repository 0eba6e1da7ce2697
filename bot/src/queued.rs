//! Inputs that wait in a queue, and the messages that they were: an edited message
//! changes its input, a deleted one withdraws it.
//!
//! The harness says what waits and which messages it was, Discord says what became of
//! these. Nothing is remembered here, so an edit or a deletion that nobody heard of is
//! found by the next sweep.

use std::sync::Arc;

use mooring_wire::harness as wire;
use tokio::time::Instant;

use crate::bot::Bot;
use crate::id::Id;
use crate::intake::{self, Submitted};
use crate::payload::Message;
use crate::rest::{RestError, code};
use crate::workspace::Place;

/// What an event told.
pub enum News {
    /// Nothing: Discord is asked for every message.
    Unheard,
    /// This is a message's text now.
    Edited(Box<Message>),
    /// These are gone.
    Deleted(Vec<Id>),
}

impl News {
    /// Those that it tells of.
    fn messages(&self) -> &[Id] {
        match self {
            News::Unheard => &[],
            News::Edited(message) => std::slice::from_ref(&message.id),
            News::Deleted(gone) => gone,
        }
    }

    /// Whether it is about one of the messages.
    fn concerns(&self, messages: &[Id]) -> bool {
        matches!(self, News::Unheard) || self.messages().iter().any(|id| messages.contains(id))
    }

    fn is_gone(&self, message: Id) -> bool {
        matches!(self, News::Deleted(gone) if gone.contains(&message))
    }
}

/// An event told something.
pub async fn heard(bot: &Arc<Bot>, channel: Id, news: &News) {
    let Some(place) = bot.place_of(channel).await else {
        return;
    };
    // A message of the channel has the thread that was opened on it.
    let threads = match channel == place.wanted.channel {
        true => news.messages(),
        false => &[channel],
    };
    for thread in threads {
        if !compare(bot, &place, *thread, news).await {
            bot.recheck(&place);
        }
    }
}

/// Compares what waits in a thread's queue with its messages. `false`: not all could be;
/// later.
pub async fn compare(bot: &Arc<Bot>, place: &Arc<Place>, thread: Id, news: &News) -> bool {
    // One that is not known yet is looked at by the sweep that learns of it.
    let Some(conversation) = bot.threads.conversation(thread) else {
        return true;
    };
    let request = wire::ViewRequest {
        conversation,
        entries: 1,
        ..wire::ViewRequest::default()
    };
    let view = match place.heard(place.harness.view(request).await) {
        Ok(view) => view,
        Err(error) if error.is_not_found() => return true,
        Err(error) => {
            tracing::warn!(%thread, %error, "what waits in the queue is not known yet");
            return false;
        }
    };
    let mut all = true;
    for submission in &view.inbox {
        if let Some(input) = Input::of(submission)
            && news.concerns(&input.messages)
        {
            all &= input.follow(bot, place, thread, news).await;
        }
    }
    all
}

/// What became of a message.
enum Piece {
    Is(Box<Message>),
    Gone,
    Unreadable,
}

/// An input that waits, and was said in messages.
struct Input<'a> {
    submission: i64,
    request_id: &'a str,
    thread: &'a wire::Thread,
    /// The first one, which names it, and the further pieces of its paste.
    messages: Vec<Id>,
}

impl Input<'_> {
    /// `None`: it was not said in a message, as that of a command.
    fn of(submission: &wire::Submission) -> Option<Input<'_>> {
        let thread = submission.thread.as_ref()?;
        let rest = submission.request_id.strip_prefix(&thread.message_id)?;
        let ids = std::iter::once(&thread.message_id).chain(&thread.also_message_ids);
        let is_messages =
            submission.state == "queued" && (rest.is_empty() || rest.starts_with('@'));
        is_messages.then_some(Input {
            submission: submission.id,
            request_id: &submission.request_id,
            thread,
            messages: ids.map(|id| id.parse()).collect::<Result<_, _>>().ok()?,
        })
    }

    /// Does to the input what was done to its messages.
    async fn follow(&self, bot: &Arc<Bot>, place: &Arc<Place>, thread: Id, news: &News) -> bool {
        let mut left = Vec::new();
        for id in &self.messages {
            match self.piece(bot, place, *id, news).await {
                Ok(Piece::Is(message)) => left.push(*message),
                Ok(Piece::Gone) => {}
                // It stays as it was said.
                Ok(Piece::Unreadable) => return true,
                Err(error) => {
                    tracing::warn!(message = %id, %error, "a message in the queue cannot be read now");
                    // What Discord refuses, it refuses again.
                    return matches!(error, RestError::Refused { .. });
                }
            }
        }
        let Some(first) = left.first() else {
            return self.withdraw(place).await;
        };
        let request_id = version(&self.messages, &left);
        // The same edit once more, as when a link got its preview, or an older one.
        if request_id == self.request_id || edited_at(&request_id) < edited_at(self.request_id) {
            return true;
        }
        // The conversation went on elsewhere since.
        if self.thread.thread_id != thread.to_string() {
            return true;
        }
        let Some(author) = intake::author(bot, place, first).await else {
            return true;
        };
        let (content, _) = intake::parts(bot, place, &author, &left).await;
        if content.is_empty() {
            return true;
        }
        let request = wire::SubmitRequest {
            thread: Some(self.thread.clone()),
            request_id,
            content,
            when_busy: intake::when_busy(place.wanted.when_busy).into(),
            author: Some(author),
            edit: true,
            ..wire::SubmitRequest::default()
        };
        let since = Instant::now();
        let channel = self.channel(place, first.id);
        let response = intake::submit(bot, place, channel, first.id, request).await;
        let input = Submitted {
            channel,
            thread,
            message: first,
            since,
        };
        intake::admitted(bot, place, input, response).await
    }

    /// Where a message of it is: the one that a thread was opened on is in the channel,
    /// that of a forum's post in the post.
    fn channel(&self, place: &Place, message: Id) -> Id {
        let forum = place.forum.load(std::sync::atomic::Ordering::Relaxed);
        match self.thread.thread_id.parse() {
            Ok(thread) if thread != message || forum => thread,
            _ => place.wanted.channel,
        }
    }

    /// One of its messages as it is now.
    async fn piece(
        &self,
        bot: &Bot,
        place: &Place,
        id: Id,
        news: &News,
    ) -> Result<Piece, RestError> {
        if news.is_gone(id) {
            return Ok(Piece::Gone);
        }
        if let News::Edited(message) = news
            && message.id == id
        {
            return Ok(Piece::Is(message.clone()));
        }
        let raw = match bot.api.raw_message(self.channel(place, id), id).await {
            Err(error) if error.code() == Some(code::UNKNOWN_MESSAGE) => return Ok(Piece::Gone),
            raw => raw?,
        };
        Ok(serde_json::from_value(raw).map_or_else(
            |error| {
                tracing::warn!(message = %id, %error, "a message in the queue has an unknown form");
                bot.health.count("unreadable_payloads_total", 1);
                Piece::Unreadable
            },
            |message| Piece::Is(Box::new(message)),
        ))
    }

    async fn withdraw(&self, place: &Place) -> bool {
        let request = wire::WithdrawRequest {
            submission: self.submission,
            deleted_message: self.thread.message_id.clone(),
            author: None,
        };
        match place.heard(place.harness.withdraw(request).await) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(message = self.thread.message_id, %error, "a deleted input could not be withdrawn");
                !matches!(error, crate::harness::HarnessError::Away(_))
            }
        }
    }
}

/// The request id of an input whose messages are those that are left of `messages`, as
/// they are now: its first message, `@` the last edit, `~` each that is gone.
fn version(messages: &[Id], left: &[Message]) -> String {
    let edited = left
        .iter()
        .filter_map(|message| message.edited_timestamp.as_deref());
    let edited = edited.max().unwrap_or_default();
    let gone: String = messages
        .iter()
        .filter(|id| left.iter().all(|message| message.id != **id))
        .map(|id| format!("~{id}"))
        .collect();
    let first = messages.first().copied().unwrap_or_default();
    match (edited, gone.as_str()) {
        ("", "") => first.to_string(),
        _ => format!("{first}@{edited}{gone}"),
    }
}

/// The last edit that a request id tells of.
fn edited_at(request_id: &str) -> &str {
    let rest = request_id.split_once('@').map_or("", |(_, rest)| rest);
    rest.split('~').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn message(id: u64, edited: Option<&str>) -> Message {
        serde_json::from_value(json!({
            "id": id.to_string(), "channel_id": "1", "content": "text", "edited_timestamp": edited,
            "author": {"id": "7", "username": "ada"},
        }))
        .unwrap()
    }

    #[test]
    fn f61_an_input_has_another_request_id_after_each_edit_and_each_deletion() {
        let (early, late) = (
            "2026-01-02T10:00:00.500000+00:00",
            "2026-01-02T10:00:01+00:00",
        );
        for (left, expected) in [
            (vec![message(5, None), message(6, None)], "5".to_owned()),
            (
                vec![message(5, Some(late)), message(6, Some(early))],
                format!("5@{late}"),
            ),
            (vec![message(5, Some(early))], format!("5@{early}~6")),
            (vec![message(6, None)], "5@~5".to_owned()),
        ] {
            assert_eq!(version(&[Id(5), Id(6)], &left), expected);
        }
    }

    #[test]
    fn f61_an_edit_that_comes_late_is_known_as_older() {
        for (request_id, expected) in [
            ("5", ""),
            ("5@2026-01-02T10:00:00+00:00", "2026-01-02T10:00:00+00:00"),
            ("5@2026-01-02T10:00:00+00:00~6", "2026-01-02T10:00:00+00:00"),
            ("5@~6", ""),
        ] {
            assert_eq!(edited_at(request_id), expected);
        }
    }

    #[test]
    fn what_a_command_began_is_no_message() {
        let thread = Some(wire::Thread {
            thread_id: "5".into(),
            message_id: "5".into(),
            ..wire::Thread::default()
        });
        for (request_id, state, expected) in [
            ("5", "queued", true),
            ("5@2026", "queued", true),
            ("5", "placed", false),
            ("51", "queued", false),
            ("77", "queued", false),
        ] {
            let submission = wire::Submission {
                request_id: request_id.into(),
                state: state.into(),
                thread: thread.clone(),
                ..wire::Submission::default()
            };
            assert_eq!(
                Input::of(&submission).is_some(),
                expected,
                "{request_id} {state}"
            );
        }
    }
}
