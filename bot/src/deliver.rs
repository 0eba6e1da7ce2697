//! Outbox rows to messages, each once.
//!
//! The harness offers the oldest open row of each thread; what is shown is acked
//! with the message that shows it. What cannot be shown now is given back, and is
//! offered again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mooring_crds::Answer;
use mooring_wire::harness as wire;
use mooring_wire::shown::{Anchor, Card, Note, Question};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};
use tokio_stream::StreamExt;

use crate::api::mentions;
use crate::bot::Bot;
use crate::harness::HarnessError;
use crate::id::Id;
use crate::render;
use crate::rest::{File, RestError, code};
use crate::send::{Outgoing, send_once};
use crate::split::split;
use crate::workspace::Place;

/// Rows that are under way at once.
const AT_ONCE: usize = 64;
/// A run longer than this ends with a message that notifies.
const LONG_MS: i64 = 60_000;
/// Characters of a mention on a line of its own.
const MENTION: usize = 30;
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Why a row was not shown.
enum Unshown {
    /// It never can be.
    Never(String),
    /// Later.
    Later(String),
}

impl From<RestError> for Unshown {
    fn from(error: RestError) -> Unshown {
        match error.code() {
            Some(code::UNKNOWN_CHANNEL) => Unshown::Never("the thread is gone".into()),
            _ if error.status() == Some(400) && error.code() != Some(code::ARCHIVED) => {
                Unshown::Never(error.to_string())
            }
            _ => Unshown::Later(error.to_string()),
        }
    }
}

/// Whose turn it is in each thread: rows of one thread are shown one after the
/// other. The harness replaces an edit by a newer one while the bot may still be at
/// the older; that must not land last.
#[derive(Default)]
struct Turns {
    last: Mutex<HashMap<String, (u64, oneshot::Receiver<()>)>>,
}

impl Turns {
    /// Takes the place behind the row before: its end, and the sender that is dropped
    /// at this one's end.
    fn take(
        &self,
        thread: &str,
        number: u64,
    ) -> (Option<oneshot::Receiver<()>>, oneshot::Sender<()>) {
        let (ended, end) = oneshot::channel();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.insert(thread.to_owned(), (number, end));
        (before.map(|(_, end)| end), ended)
    }

    /// Forgets the thread where nobody stands behind.
    fn leave(&self, thread: &str, number: u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last
            .get(thread)
            .is_some_and(|(newest, _)| *newest == number)
        {
            last.remove(thread);
        }
    }
}

/// Delivers a workspace's outbox for ever.
pub async fn run(bot: Arc<Bot>, place: Arc<Place>) {
    let under_way: Arc<Mutex<HashSet<String>>> = Arc::default();
    let turns: Arc<Turns> = Arc::default();
    let mut number = 0;
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut pause = Duration::from_millis(100);
    let mut was_away = false;
    while !place.is_gone() {
        match place.harness.outbox().await {
            Err(error) => {
                tracing::warn!(workspace = place.wanted.name, %error, "the outbox waits");
                was_away = true;
            }
            Ok(mut rows) => {
                if std::mem::take(&mut was_away) {
                    // It is back: what was said meanwhile need not wait for a sweep.
                    place.look_again.notify_one();
                }
                tracing::info!(workspace = place.wanted.name, "reading the outbox");
                while let Some(row) = tokio::select! {
                    row = rows.next() => row,
                    () = place.gone() => return,
                } {
                    let row = match row {
                        Ok(row) => row,
                        Err(error) => {
                            tracing::warn!(workspace = place.wanted.name, %error, "the outbox ended");
                            break;
                        }
                    };
                    pause = Duration::from_millis(100);
                    let key = row.key.clone();
                    let lock = || under_way.lock().unwrap_or_else(PoisonError::into_inner);
                    if !lock().insert(key.clone()) {
                        continue; // offered again while it is still being shown
                    }
                    let Ok(slot) = slots.clone().acquire_owned().await else {
                        return;
                    };
                    number += 1;
                    let (before, ended) = turns.take(&row.thread_id, number);
                    let (bot, place) = (bot.clone(), place.clone());
                    let (under_way, turns) = (under_way.clone(), turns.clone());
                    tokio::spawn(async move {
                        if let Some(before) = before {
                            // Dropped, never sent: it ended either way.
                            let _ = before.await;
                        }
                        let outcome = show(&bot, &place, &row).await;
                        drop(ended);
                        turns.leave(&row.thread_id, number);
                        acknowledge(&place, &row, outcome).await;
                        under_way
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .remove(&key);
                        drop(slot);
                    });
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = place.gone() => return,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn acknowledge(place: &Place, row: &wire::OutboxRow, outcome: Result<Id, Unshown>) {
    let mut ack = wire::AckRequest {
        key: row.key.clone(),
        ..wire::AckRequest::default()
    };
    match outcome {
        Ok(message) => ack.message_id = message.to_string(),
        Err(Unshown::Never(why)) => {
            tracing::warn!(
                workspace = place.wanted.name,
                key = row.key,
                why,
                "cannot be shown"
            );
            ack.undeliverable = why;
        }
        Err(Unshown::Later(why)) => {
            tracing::warn!(
                workspace = place.wanted.name,
                key = row.key,
                why,
                "not shown yet"
            );
            ack.retry = why;
        }
    }
    // The row counts as under way until its ack is in: a harness that was away
    // offers it once on each stream.
    let mut pause = Duration::from_millis(100);
    loop {
        match place.harness.ack(ack.clone()).await {
            Ok(_) => return,
            Err(error @ HarnessError::Away(_)) if !place.is_gone() => {
                tracing::warn!(workspace = place.wanted.name, key = row.key, %error, "not acked yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(error) => {
                tracing::error!(workspace = place.wanted.name, key = row.key, %error, "the ack was refused");
                return;
            }
        }
    }
}

async fn show(bot: &Bot, place: &Place, row: &wire::OutboxRow) -> Result<Id, Unshown> {
    let never = |error: &dyn std::fmt::Display| Unshown::Never(error.to_string());
    let thread: Id = row.thread_id.parse().map_err(|error| never(&error))?;
    bot.health.count("outbox_rows_total", 1);
    let item = Item {
        bot,
        place,
        row,
        thread,
    };
    match row.kind.as_str() {
        "anchor" => {
            let anchor: Anchor = serde_json::from_str(&row.json).map_err(|error| never(&error))?;
            item.anchor(&anchor).await
        }
        "anchor-edit" => {
            let anchor: Anchor = serde_json::from_str(&row.json).map_err(|error| never(&error))?;
            if matches!(anchor.state.as_str(), "working" | "waiting") {
                item.progress(&anchor).await
            } else {
                let shown = item.end(&anchor).await;
                if !matches!(shown, Err(Unshown::Later(_))) {
                    bot.typing.stop(thread);
                }
                shown
            }
        }
        "card" => {
            let card: Card = serde_json::from_str(&row.json).map_err(|error| never(&error))?;
            let file = render::card_file(&card).map(|text| ("call.txt", text));
            item.card(render::card(&card), file).await
        }
        "card-edit" => {
            let card: Card = serde_json::from_str(&row.json).map_err(|error| never(&error))?;
            item.settle(render::card(&card)).await
        }
        "question" => {
            let card: Question = serde_json::from_str(&row.json).map_err(|error| never(&error))?;
            let file = render::question_file(&card).map(|text| ("question.md", text));
            item.card(render::question(&card), file).await
        }
        "question-edit" => {
            let card: Question = serde_json::from_str(&row.json).map_err(|error| never(&error))?;
            item.settle(render::question(&card)).await
        }
        _ => {
            let note: Note = serde_json::from_str(&row.json).map_err(|error| never(&error))?;
            item.note(&note).await
        }
    }
}

/// A row and where it goes.
struct Item<'a> {
    bot: &'a Bot,
    place: &'a Place,
    row: &'a wire::OutboxRow,
    thread: Id,
}

/// The input that a run answers.
struct Asked {
    /// The message, where it can be replied to.
    reply_to: Option<Id>,
    /// Its author.
    author: Option<Id>,
}

impl Item<'_> {
    fn outgoing(&self, part: &str, text: String) -> Outgoing {
        Outgoing {
            channel: self.thread,
            text,
            reply_to: None,
            components: Value::Null,
            notify: vec![],
            file: None,
            key: format!("{}{part}", self.row.key),
            sent_since_ms: u64::try_from(self.row.first_offered_ms)
                .ok()
                .filter(|ms| *ms > 0),
            not: vec![],
        }
    }

    async fn send(&self, outgoing: Outgoing) -> Result<Id, Unshown> {
        match send_once(&self.bot.api, self.bot.me, outgoing.clone()).await {
            Err(error) if error.code() == Some(code::ARCHIVED) => {
                self.bot.api.reopen(self.thread).await?;
                Ok(send_once(&self.bot.api, self.bot.me, outgoing).await?)
            }
            sent => Ok(sent?),
        }
    }

    /// A message that can be replied to in this thread: the one that opened it lies
    /// in the channel above.
    fn in_thread(&self, message: Id) -> Option<Id> {
        let forum = self.place.forum.load(std::sync::atomic::Ordering::Relaxed);
        Some(message).filter(|message| forum || *message != self.thread)
    }

    fn target(&self) -> Option<Id> {
        self.row.target_message_id.parse().ok()
    }

    async fn edit(
        &self,
        message: Id,
        text: &str,
        components: Option<Value>,
    ) -> Result<(), RestError> {
        let mut body = json!({"content": text, "allowed_mentions": mentions(&[])});
        if let Some(components) = components {
            body["components"] = components;
        }
        for last in [false, true] {
            let shown = self
                .bot
                .api
                .edit(self.thread, message, body.clone())
                .await?;
            // What is visible is what was stored, or it is not done.
            if shown.content.trim() == text.trim() {
                return Ok(());
            }
            tracing::warn!(
                key = self.row.key,
                last,
                "Discord shows another text than was sent"
            );
        }
        Err(RestError::Unknown(
            "Discord shows another text than was sent".into(),
        ))
    }

    async fn anchor(&self, anchor: &Anchor) -> Result<Id, Unshown> {
        let mut outgoing = self.outgoing("", render::state_line(anchor));
        outgoing.reply_to = self
            .row
            .reply_to_message_id
            .parse()
            .ok()
            .and_then(|message| self.in_thread(message));
        let shown = self.send(outgoing).await?;
        self.bot.typing.start(&self.bot.api, self.thread);
        Ok(shown)
    }

    /// An edit in between is dropped where the anchor takes none.
    async fn progress(&self, anchor: &Anchor) -> Result<Id, Unshown> {
        let target = self
            .target()
            .ok_or_else(|| Unshown::Never("there is no anchor".into()))?;
        if anchor.state == "waiting" {
            self.bot.typing.stop(self.thread);
        } else {
            self.bot.typing.start(&self.bot.api, self.thread);
        }
        match self.edit(target, &render::progress(anchor), None).await {
            Ok(()) => Ok(target),
            Err(
                error @ RestError::Refused {
                    status: 400..=429, ..
                },
            ) => Err(Unshown::Never(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// The end of a run: the answer, or why there is none.
    async fn end(&self, anchor: &Anchor) -> Result<Id, Unshown> {
        let footer = render::state_line(anchor);
        let text = match (anchor.state.as_str(), anchor.answer.trim()) {
            ("answered", "") => "(The answer has no text.)".to_owned(),
            ("answered", answer) => answer.to_owned(),
            _ => render::unanswered(anchor),
        };
        let long = anchor.ended_ms - anchor.started_ms > LONG_MS;
        let own_message = self.place.wanted.answer == Answer::Post && anchor.state == "answered";
        // The first part has room for the state line, or for a mention.
        let reserved = (footer.chars().count() + 1).max(MENTION);
        let split = split(&text, reserved);
        let mut parts = split.parts;
        if parts.is_empty() {
            parts.push("(The answer has no text.)".into());
        }
        let first = if own_message {
            footer
        } else {
            format!("{}\n{footer}", parts[0])
        };
        let edited = match self.target() {
            Some(target) => self.edit(target, &first, None).await.map(|()| target),
            None => Err(RestError::Refused {
                status: 404,
                code: 0,
                message: "no anchor".into(),
            }),
        };
        let rest = match &edited {
            Ok(_) => usize::from(!own_message),
            Err(RestError::Refused { .. }) => 0,
            Err(error) => return Err(error.clone().into()),
        };
        if let Err(error) = &edited {
            tracing::info!(key = self.row.key, %error, "the anchor takes no edit; a new message is sent");
        }
        let last = parts.len() - 1;
        let asked = if rest <= last || long || edited.is_err() {
            self.asked().await
        } else {
            Asked {
                reply_to: None,
                author: None,
            }
        };
        let mut shown = edited.as_ref().ok().copied();
        let mut notified = false;
        let mut sent_before: Vec<Id> = shown.into_iter().collect();
        for (n, part) in parts.into_iter().enumerate().skip(rest) {
            let mut outgoing = self.outgoing(&format!("#{n}"), part);
            outgoing.reply_to = asked.reply_to;
            // One message of the answer notifies, when the run was long or the
            // anchor could not be edited.
            if !notified && (long || edited.is_err() || own_message) {
                outgoing.notify = asked.author.into_iter().collect();
                notified = true;
                if n == 0
                    && asked.reply_to.is_none()
                    && let Some(author) = asked.author
                {
                    outgoing.text.push_str(&format!("\n-# <@{author}>"));
                }
            }
            outgoing.not = sent_before.clone();
            if n == last
                && let Some(answer) = &split.file
            {
                outgoing.file = Some(File {
                    name: "answer.md".into(),
                    data: answer.clone().into(),
                });
            }
            let sent = self.send(outgoing).await?;
            sent_before.push(sent);
            shown.get_or_insert(sent);
        }
        if long
            && !notified
            && let Some(author) = asked.author
        {
            let time = render::duration(anchor.ended_ms - anchor.started_ms);
            let word = if anchor.state == "answered" {
                "The answer is above"
            } else {
                "This ended"
            };
            let mut outgoing =
                self.outgoing("#notify", format!("-# <@{author}> {word}, after {time}."));
            outgoing.reply_to = asked.reply_to;
            outgoing.notify = vec![author];
            self.send(outgoing).await?;
        }
        shown.ok_or_else(|| Unshown::Later("nothing was shown".into()))
    }

    /// The input of the run, from what the anchor replies to.
    async fn asked(&self) -> Asked {
        let anchor = match self.target() {
            Some(target) => self.bot.api.message(self.thread, target).await.ok(),
            None => None,
        };
        let replied = anchor.and_then(|anchor| {
            let message = anchor.message_reference?.message_id?;
            Some((
                message,
                anchor.referenced_message.map(|message| message.author.id),
            ))
        });
        match replied {
            Some((message, author)) => Asked {
                reply_to: Some(message),
                author,
            },
            // The first run of a thread answers the message that opened it.
            None => {
                let first = self
                    .bot
                    .api
                    .message(self.place.wanted.channel, self.thread)
                    .await
                    .ok();
                let author = first
                    .filter(|first| !first.author.bot)
                    .map(|first| first.author.id);
                Asked {
                    reply_to: None,
                    author,
                }
            }
        }
    }

    /// A card with its buttons; people are waited for.
    async fn card(
        &self,
        (text, buttons): (String, Value),
        file: Option<(&str, String)>,
    ) -> Result<Id, Unshown> {
        let mut outgoing = self.outgoing("", text);
        outgoing.components = buttons;
        outgoing.file = file.map(|(name, text)| File {
            name: name.into(),
            data: text.into(),
        });
        self.bot.typing.stop(self.thread);
        self.send(outgoing).await
    }

    /// A card that nobody needs to answer any more.
    async fn settle(&self, (text, buttons): (String, Value)) -> Result<Id, Unshown> {
        let target = self
            .target()
            .ok_or_else(|| Unshown::Never("there is no card".into()))?;
        let edited = match self.edit(target, &text, Some(buttons.clone())).await {
            Err(error) if error.code() == Some(code::ARCHIVED) => {
                self.bot.api.reopen(self.thread).await?;
                self.edit(target, &text, Some(buttons)).await
            }
            edited => edited,
        };
        match edited {
            Ok(()) => Ok(target),
            Err(
                error @ RestError::Refused {
                    status: 400 | 404, ..
                },
            ) => Err(Unshown::Never(error.to_string())),
            Err(error) if error.code() == Some(code::OLD_EDITS) => {
                // An old card that cannot be edited: its buttons are answered, and
                // what was decided is said.
                self.send(self.outgoing("", text)).await
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn note(&self, note: &Note) -> Result<Id, Unshown> {
        let split = split(&note.text, 0);
        let last = split.parts.len().saturating_sub(1);
        let mut shown = None;
        for (n, part) in split.parts.into_iter().enumerate() {
            let mut outgoing = self.outgoing(&format!("#{n}"), part);
            outgoing.reply_to = self
                .row
                .reply_to_message_id
                .parse()
                .ok()
                .and_then(|message| self.in_thread(message));
            if n == last
                && let Some(text) = &split.file
            {
                outgoing.file = Some(File {
                    name: "note.md".into(),
                    data: text.clone().into(),
                });
            }
            shown = Some(self.send(outgoing).await?);
        }
        shown.ok_or_else(|| Unshown::Never("it has no text".into()))
    }
}
