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

/// The threads in which the bot types.
#[derive(Clone, Default)]
pub struct Typing {
    threads: Arc<Mutex<HashMap<Id, Instant>>>,
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

    /// Whether it types there.
    pub fn is_on(&self, thread: Id) -> bool {
        self.lock().contains_key(&thread)
    }

    /// No longer.
    pub fn stop(&self, thread: Id) {
        self.lock().remove(&thread);
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
