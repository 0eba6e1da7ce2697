//! What was said while nobody listened, or what the gateway did not bring.
//!
//! A sweep reads the history of the channel and of each thread that is newer than
//! the harness's cursor, oldest first, and submits all of it; the ledger knows what
//! it has. The cursor moves when a page is done, so live messages never move it, and
//! an event that the gateway lost is found by the next sweep.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use mooring_wire::harness as wire;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::api::raw_id;
use crate::bot::Bot;
use crate::health::Condition;
use crate::id::Id;
use crate::intake;
use crate::lane::Job;
use crate::payload::{Channel, FORUM, Message};
use crate::rest::RestError;
use crate::send::now_ms;
use crate::workspace::Place;

/// Threads that are read at once; Discord's own limits slow them down.
const AT_ONCE: usize = 16;
/// Pages of 100 archived threads.
const ARCHIVED_PAGES: usize = 100;
/// Clocks may differ by so much.
const SKEW_MS: i64 = 60_000;
const PROGRESS: usize = 100;
/// Until then a piece of a split paste may still come.
const YOUNG_MS: u64 = 1_500;

/// Why a workspace could not be swept.
enum Failed {
    /// Set as the workspace's condition; no use before somebody acts.
    Condition(Condition),
    /// Later.
    Later(String),
}

impl From<RestError> for Failed {
    fn from(error: RestError) -> Failed {
        Failed::Later(error.to_string())
    }
}

impl From<crate::harness::HarnessError> for Failed {
    fn from(error: crate::harness::HarnessError) -> Failed {
        Failed::Later(error.to_string())
    }
}

/// What a sweep came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// All was read.
    All,
    /// Nothing can be read before somebody acts; the workspace's condition says who.
    Useless,
    /// Not all was read: to be tried again soon.
    Later,
}

/// Sweeps one workspace.
pub async fn sweep(bot: &Arc<Bot>, place: &Arc<Place>) -> Swept {
    match try_sweep(bot, place).await {
        Ok(true) => Swept::All,
        // What a missing permission holds up waits for somebody to give it.
        Ok(false) if bot.health.is_faulty(&place.wanted.name) => Swept::Useless,
        Ok(false) => Swept::Later,
        Err(Failed::Condition(condition)) => {
            bot.health.condition(&place.wanted.name, condition);
            Swept::Useless
        }
        Err(Failed::Later(why)) => {
            tracing::warn!(workspace = place.wanted.name, why, "could not be swept yet");
            Swept::Later
        }
    }
}

async fn try_sweep(bot: &Arc<Bot>, place: &Arc<Place>) -> Result<bool, Failed> {
    let began = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    let channel = crate::check::place(bot, place)
        .await
        .map_err(|error| match error {
            crate::check::Failed::Condition(condition) => Failed::Condition(condition),
            crate::check::Failed::Rest(error) => error.into(),
        })?;
    let forum = channel.kind == FORUM;
    place.forum.store(forum, Ordering::Relaxed);
    let rows = place.heard(place.harness.threads(wire::ThreadsRequest {}).await)?;
    let rows = rows.rows;
    bot.threads.learn_rows(&rows);
    let own = place.wanted.channel.to_string();
    let cursor = match rows.iter().find(|row| row.thread_id == own) {
        Some(row) => row.cursor.parse().unwrap_or_default(),
        None => {
            // A channel that is new starts at its present end.
            let end = channel
                .last_message_id
                .unwrap_or(place.wanted.channel)
                .max(place.wanted.channel);
            advance(place, place.wanted.channel, String::new(), end).await?;
            end
        }
    };
    let mut all = true;
    if !forum && channel.last_message_id.is_some_and(|last| last > cursor) {
        all &= read(bot, place, place.wanted.channel, Some(cursor), cursor).await;
    }
    let threads = threads_of(bot, place).await?;
    let newest = threads.iter().map(|thread| thread.id).max();
    // The channel's sweep may have begun conversations.
    let rows = place.harness.threads(wire::ThreadsRequest {}).await?.rows;
    bot.threads.learn_rows(&rows);
    let waiting = rows.iter().filter(|row| row.queued && !row.deleted);
    let waiting = waiting
        .filter_map(|row| row.thread_id.parse().ok())
        .collect();
    let mut behind = Vec::new();
    for thread in threads {
        bot.learn(&thread);
        let id = thread.id.to_string();
        let last = thread.last_message_id.unwrap_or_default();
        match rows.iter().find(|row| row.thread_id == id) {
            Some(row) if row.cursor.is_empty() => {
                behind.push((thread.id, None, thread.id.before()));
            }
            Some(row) => {
                let at: Id = row.cursor.parse().unwrap_or_default();
                if last > at {
                    behind.push((thread.id, Some(at), at));
                }
            }
            // Older ones that nobody ever spoke to us in start at their end.
            None if thread.id > cursor => behind.push((thread.id, None, thread.id.before())),
            None => {
                advance(place, thread.id, String::new(), last.max(thread.id)).await?;
            }
        }
    }
    let total = behind.len();
    let mut reading = futures::stream::iter(behind)
        .map(|(thread, cursor, after)| read(bot, place, thread, cursor, after))
        .buffer_unordered(AT_ONCE);
    let mut done = 0;
    while let Some(read) = reading.next().await {
        all &= read;
        done += 1;
        if done % PROGRESS == 0 || done == total {
            tracing::info!(
                workspace = place.wanted.name,
                done,
                total,
                "threads caught up"
            );
        }
    }
    drop(reading);
    all &= compare(bot, place, waiting).await;
    if forum && let Some(newest) = newest.filter(|newest| *newest > cursor) {
        advance(place, place.wanted.channel, cursor.to_string(), newest).await?;
    }
    if all {
        place.swept_ms.store(began, Ordering::Relaxed);
    }
    Ok(all)
}

/// What became of messages that wait in queues: an edit or a deletion that nobody heard
/// of leaves nothing else behind.
async fn compare(bot: &Arc<Bot>, place: &Arc<Place>, threads: Vec<Id>) -> bool {
    let mut comparing = futures::stream::iter(threads)
        .map(|thread| async move {
            let (done, compared) = oneshot::channel();
            let place = place.clone();
            let pushed = bot.lanes.push(bot, thread, Job::Compare { place, done });
            pushed && compared.await.unwrap_or(false)
        })
        .buffer_unordered(AT_ONCE);
    let mut all = true;
    while let Some(compared) = comparing.next().await {
        all &= compared;
    }
    all
}

/// The threads of the channel: the active ones, and those archived since the last
/// sweep.
async fn threads_of(bot: &Bot, place: &Place) -> Result<Vec<Channel>, RestError> {
    let active = bot.guilds.active(&bot.api, place.wanted.guild).await?;
    let ours = |thread: &&Channel| thread.parent_id == Some(place.wanted.channel);
    let mut threads: Vec<Channel> = active.iter().filter(ours).cloned().collect();
    drop(active);
    let since = place.swept_ms.load(Ordering::Relaxed) - SKEW_MS;
    let mut before: Option<String> = None;
    for _ in 0..ARCHIVED_PAGES {
        let (page, more) = bot
            .api
            .archived_threads(place.wanted.channel, before.as_deref())
            .await?;
        let oldest = page
            .last()
            .and_then(|thread| thread.thread_metadata.clone());
        threads.extend(page);
        let Some(oldest) = oldest.map(|metadata| metadata.archive_timestamp) else {
            break;
        };
        let at = oldest
            .parse::<jiff::Timestamp>()
            .map_or(i64::MAX, |at| at.as_millisecond());
        if !more || at < since {
            break;
        }
        before = Some(oldest);
    }
    Ok(threads)
}

async fn advance(
    place: &Place,
    thread: Id,
    from: String,
    to: Id,
) -> Result<String, crate::harness::HarnessError> {
    let request = wire::AdvanceRequest {
        thread_id: thread.to_string(),
        channel_id: place.wanted.channel.to_string(),
        from,
        to: to.to_string(),
        deleted: false,
    };
    Ok(place.harness.advance(request).await?.cursor)
}

/// Reads a thread or the channel in its lane, after what is under way there.
async fn read(
    bot: &Arc<Bot>,
    place: &Arc<Place>,
    channel: Id,
    cursor: Option<Id>,
    after: Id,
) -> bool {
    let (done, read) = oneshot::channel();
    let job = Job::Sweep {
        place: place.clone(),
        cursor,
        after,
        done,
    };
    bot.lanes.push(bot, channel, job) && read.await.unwrap_or(false)
}

/// Reads page by page what came after an id and takes all of it. `true`: to the end.
pub async fn read_after(
    bot: &Arc<Bot>,
    place: &Arc<Place>,
    channel: Id,
    cursor: Option<Id>,
    after: Id,
) -> bool {
    let mut from = cursor.map(|cursor| cursor.to_string()).unwrap_or_default();
    let mut after = after;
    loop {
        let page = match page(bot, channel, after).await {
            Ok(page) => page,
            Err(error) if error.status() == Some(404) => {
                // The thread is gone; its row stays.
                let request = wire::AdvanceRequest {
                    thread_id: channel.to_string(),
                    deleted: true,
                    ..wire::AdvanceRequest::default()
                };
                let _ = place.harness.advance(request).await;
                bot.threads.forget(channel);
                return true;
            }
            Err(error) => {
                tracing::warn!(%channel, %error, "history cannot be read now");
                return false;
            }
        };
        let Some(last) = page.iter().filter_map(raw_id).max() else {
            return true;
        };
        let full = page.len() >= 100;
        let mut messages = Vec::new();
        for raw in page {
            match serde_json::from_value::<Message>(raw.clone()) {
                Ok(message) => messages.push(message),
                Err(error) => {
                    // One bad item hides no other; it is asked for alone.
                    tracing::warn!(%channel, %error, "an item of history cannot be read");
                    if let Some(id) = raw_id(&raw) {
                        messages.extend(intake::read_again(bot, channel, id).await);
                    }
                }
            }
        }
        // The cursor goes over nothing that was not taken: it is what is asked for next.
        let mut untaken = None;
        for group in groups(messages) {
            let first = group.first().map(|message| message.id);
            if !intake::take(bot, place, channel, group).await {
                untaken = first;
                break;
            }
        }
        let to = untaken.map_or(last, Id::before);
        if to > after {
            match advance(place, channel, from, to).await {
                Ok(cursor) => from = cursor,
                Err(error) => {
                    tracing::warn!(%channel, %error, "the cursor could not be moved");
                    return false;
                }
            }
        }
        if untaken.is_some() {
            return false;
        }
        after = last;
        if !full {
            return true;
        }
    }
}

/// A page; while its last message may be the first piece of a paste, it is read
/// once more a little later.
async fn page(bot: &Bot, channel: Id, after: Id) -> Result<Vec<Value>, RestError> {
    let page = bot.api.history(channel, after).await?;
    let unfinished = page.len() < 100
        && page
            .last()
            .and_then(|last| serde_json::from_value::<Message>(last.clone()).ok())
            .is_some_and(|last| {
                last.id.made_ms() + YOUNG_MS > now_ms() && intake::may_go_on(&[last])
            });
    if !unfinished {
        return Ok(page);
    }
    tokio::time::sleep(Duration::from_millis(YOUNG_MS)).await;
    bot.api.history(channel, after).await
}

/// Joins the pieces of split pastes.
fn groups(messages: Vec<Message>) -> Vec<Vec<Message>> {
    let mut groups: Vec<Vec<Message>> = Vec::new();
    for message in messages {
        match groups.last_mut() {
            Some(group) if intake::joins(group, &message) => group.push(message),
            _ => groups.push(vec![message]),
        }
    }
    groups
}
