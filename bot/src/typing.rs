//! The typing sign, while a run is active.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::Api;
use crate::id::Id;

/// Discord takes the sign away after ten seconds.
const EVERY: Duration = Duration::from_secs(8);
/// Without any news of the run the sign ends.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Ends of runs that are remembered.
const REMEMBERED: usize = 10_000;

/// The threads in which the bot types.
#[derive(Clone, Default)]
pub struct Typing {
    threads: Arc<Mutex<HashMap<Id, Instant>>>,
    stopped: Arc<Mutex<HashMap<Id, Instant>>>,
}

impl Typing {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Id, Instant>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Types in the thread from now on.
    pub fn start(&self, api: &Api, thread: Id) {
        if self.lock().insert(thread, Instant::now()).is_none() {
            type_once(api, thread);
        }
    }

    /// Types in the thread, unless a run of it ended after `since`: the end of a short
    /// run may be shown before its beginning is known to be admitted.
    pub fn start_since(&self, api: &Api, thread: Id, since: Instant) {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        if stopped.get(&thread).is_none_or(|stopped| *stopped < since) {
            drop(stopped);
            self.start(api, thread);
        }
    }

    /// No longer.
    pub fn stop(&self, thread: Id) {
        self.lock().remove(&thread);
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        if stopped.len() >= REMEMBERED {
            stopped.clear();
        }
        stopped.insert(thread, Instant::now());
    }

    /// Keeps the sign up for ever.
    pub async fn run(self, api: Api) {
        let mut ticks = tokio::time::interval(EVERY);
        loop {
            ticks.tick().await;
            let threads: Vec<Id> = {
                let mut threads = self.lock();
                threads.retain(|_, news| news.elapsed() < LONGEST);
                threads.keys().copied().collect()
            };
            for thread in threads {
                type_once(&api, thread);
            }
        }
    }
}

/// A sign is no reason to wait, and its failure no reason to speak.
fn type_once(api: &Api, thread: Id) {
    let api = api.clone();
    tokio::spawn(async move {
        let _ = api.typing(thread).await;
    });
}
