//! For the bot: where each thread is, what is to be shown, what was shown.

use std::{collections::HashSet, time::Duration};

use mooring_durable::id::Millis;
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use tonic::Status;

use super::{Frames, Service, session, storage};
use crate::record::{outbox, thread};

/// The longest pause before a row is offered again.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// An offered row without an ack is offered again after this.
const ACK_PATIENCE: Duration = Duration::from_secs(60);

impl Service {
    pub(super) async fn threads(&self) -> Result<wire::ThreadsResponse, Status> {
        let rows = thread::list(self.engine.reader())
            .await
            .map_err(|error| storage(&error))?;
        let queued = self.engine.queued_in().await.map_err(session)?;
        let queued: HashSet<_> = queued.into_iter().collect();
        let rows = rows
            .into_iter()
            .map(|row| wire::threads_response::Row {
                queued: row.conversation.is_some_and(|id| queued.contains(&id)),
                thread_id: row.thread_id,
                channel_id: row.channel_id,
                conversation: row.conversation.map_or(0, |c| c.0),
                cursor: row.cursor,
                anchor_message_id: row.anchor.unwrap_or_default(),
                deleted: row.deleted,
            })
            .collect();
        Ok(wire::ThreadsResponse { rows })
    }

    pub(super) async fn advance(
        &self,
        request: wire::AdvanceRequest,
    ) -> Result<wire::AdvanceResponse, Status> {
        if request.thread_id.is_empty() {
            return Err(status(Code::Invalid, "thread_id is missing"));
        }
        let mut statements = Vec::new();
        if request.deleted {
            statements.push(thread::deleted(&request.thread_id));
        } else if request.from.is_empty() {
            // A thread or channel that is new here starts at its present end.
            let channel = &request.channel_id;
            statements.push(thread::made(
                &request.thread_id,
                channel,
                None,
                &request.to,
                "",
            ));
        } else {
            statements.push(thread::advanced(
                &request.thread_id,
                &request.from,
                &request.to,
            ));
        }
        self.engine
            .commit("advance", statements)
            .await
            .map_err(session)?;
        let row = thread::find(self.engine.reader(), &request.thread_id)
            .await
            .map_err(|error| storage(&error))?;
        Ok(wire::AdvanceResponse {
            cursor: row.map(|row| row.cursor).unwrap_or_default(),
        })
    }

    /// Rows as they come due, each committed as offered before it is given.
    pub(super) fn outbox(&self) -> Frames<wire::OutboxRow> {
        let engine = self.engine.clone();
        let books = self.books.clone();
        let clock = self.clock.clone();
        let stream = async_stream(move |sender| async move {
            // Given on this stream and not acked; given again on a new one.
            let mut given: HashSet<String> = HashSet::new();
            loop {
                // Armed before the look, so that nothing falls between.
                let rung = books.shown.notified();
                let now = clock.now();
                let due = match outbox::due(engine.reader(), now).await {
                    Ok(due) => due,
                    Err(error) => {
                        let _ = sender.send(Err(storage(&error))).await;
                        return;
                    }
                };
                given.retain(|key| due.iter().any(|row| row.key == *key));
                let mut offered = false;
                for row in due {
                    if given.contains(&row.key) {
                        continue;
                    }
                    let offer = outbox::offered(&row.key, now);
                    if let Err(error) = engine.commit("offer", vec![offer]).await {
                        let _ = sender.send(Err(session(error))).await;
                        return;
                    }
                    given.insert(row.key.clone());
                    offered = true;
                    let row = wire::OutboxRow {
                        key: row.key,
                        thread_id: row.thread_id,
                        kind: row.kind,
                        json: row.json,
                        first_offered_ms: row.first_offered_at.map_or(0, |at| at.0),
                        target_message_id: row.target_message_id.unwrap_or_default(),
                        reply_to_message_id: row.reply_to.unwrap_or_default(),
                        attempts: row.attempts,
                    };
                    if sender.send(Ok(row)).await.is_err() {
                        return;
                    }
                }
                if offered {
                    continue;
                }
                let next = outbox::next_due(engine.reader(), now).await.ok().flatten();
                let pause = next.map_or(Millis(now.0 + ACK_PATIENCE.as_millis() as i64), |at| at);
                tokio::select! {
                    () = rung => {}
                    () = clock.until(pause) => {}
                    () = sender.closed() => return,
                }
            }
        });
        Box::pin(stream)
    }

    pub(super) async fn ack(&self, request: wire::AckRequest) -> Result<wire::AckResponse, Status> {
        let (conversation, kind, attempts) = outbox::find(self.engine.reader(), &request.key)
            .await
            .map_err(|error| storage(&error))?
            .ok_or_else(|| status(Code::NotFound, format!("there is no row {:?}", request.key)))?;
        let now = self.clock.now();
        let mut statements = Vec::new();
        if !request.undeliverable.is_empty() {
            statements.push(outbox::undeliverable(
                &request.key,
                &request.undeliverable,
                now,
            ));
        } else if !request.retry.is_empty() {
            tracing::warn!(key = %request.key, reason = %request.retry, "not shown yet");
            let pause = Duration::from_secs(1 << attempts.min(8)).min(MAX_BACKOFF);
            statements.push(outbox::retried(
                &request.key,
                Millis(now.0 + pause.as_millis() as i64),
            ));
        } else {
            statements.push(outbox::delivered(&request.key, &request.message_id, now));
            if kind == outbox::Kind::Anchor.word() {
                statements.push(thread::anchored(conversation, &request.message_id));
            }
        }
        self.engine
            .commit("ack", statements)
            .await
            .map_err(session)?;
        self.books.shown.notify_waiters();
        Ok(wire::AckResponse {})
    }
}

/// A stream fed by a task that ends when nobody reads any more.
pub(super) fn async_stream<T, F>(
    feed: impl FnOnce(tokio::sync::mpsc::Sender<T>) -> F,
) -> tokio_stream::wrappers::ReceiverStream<T>
where
    T: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    tokio::spawn(feed(sender));
    tokio_stream::wrappers::ReceiverStream::new(receiver)
}
