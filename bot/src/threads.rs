//! Which channel is whose: threads to their parents, conversations to threads.
//! Kept in memory only; what is not known is asked for.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use mooring_wire::harness::threads_response::Row;

use tokio::sync::watch;

use crate::id::Id;
use crate::payload::Channel;

/// Channels that are remembered before those of nobody are forgotten.
const REMEMBERED: usize = 50_000;

/// A channel or thread as the bot knows it.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The channel it is in; its own id for a channel that is no thread.
    parent: Id,
    /// 0: none that is known.
    conversation: i64,
    /// Whether it lies in a workspace's channel.
    ours: bool,
}

/// The table.
#[derive(Default)]
pub struct Threads {
    known: Mutex<HashMap<Id, Known>>,
    /// Threads whose first input is on its way to the harness; closed at its end.
    opening: Mutex<HashMap<Id, watch::Sender<()>>>,
}

/// A thread's first input is on its way until this is dropped.
pub struct Opening<'a> {
    threads: &'a Threads,
    thread: Id,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let opening = &self.threads.opening;
        let mut opening = opening.lock().unwrap_or_else(PoisonError::into_inner);
        opening.remove(&self.thread);
    }
}

impl Threads {
    /// The first input of a thread goes to the harness now.
    pub fn opening(&self, thread: Id) -> Opening<'_> {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        opening.insert(thread, watch::Sender::new(()));
        Opening {
            threads: self,
            thread,
        }
    }

    /// Waits while a thread's first input is on its way: until then it has no
    /// conversation, and what is said in it comes after that.
    pub async fn opened(&self, thread: Id) {
        let waiting = {
            let opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
            opening.get(&thread).map(watch::Sender::subscribe)
        };
        if let Some(mut waiting) = waiting {
            // Nothing is ever sent; it ends when the other end is gone.
            while waiting.changed().await.is_ok() {}
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Id, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what Discord says of a channel or thread.
    pub fn learn(&self, channel: &Channel, ours: bool) {
        let parent = match channel.parent_id {
            Some(parent) if channel.is_thread() => parent,
            // A channel's parent is a category, which is nothing to us.
            _ => channel.id,
        };
        let mut known = self.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, known| known.ours);
        }
        let entry = known.entry(channel.id).or_default();
        entry.parent = parent;
        entry.ours = ours;
    }

    /// Takes over the harness's rows.
    pub fn learn_rows(&self, rows: &[Row]) {
        let mut known = self.lock();
        for row in rows {
            if let (Ok(thread), Ok(parent)) = (row.thread_id.parse(), row.channel_id.parse()) {
                known.insert(
                    thread,
                    Known {
                        parent,
                        conversation: row.conversation,
                        ours: true,
                    },
                );
            }
        }
    }

    /// A thread has this conversation now.
    pub fn talks(&self, thread: Id, parent: Id, conversation: i64) {
        self.lock().insert(
            thread,
            Known {
                parent,
                conversation,
                ours: true,
            },
        );
    }

    /// The parent of a channel or thread; `None`: not known.
    pub fn parent(&self, channel: Id) -> Option<Id> {
        self.lock().get(&channel).map(|known| known.parent)
    }

    /// The thread's conversation, where it has one.
    pub fn conversation(&self, thread: Id) -> Option<i64> {
        self.lock()
            .get(&thread)
            .map(|known| known.conversation)
            .filter(|id| *id != 0)
    }

    /// It is gone.
    pub fn forget(&self, channel: Id) {
        self.lock().remove(&channel);
    }
}
