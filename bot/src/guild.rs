//! What many workspaces of one guild ask for at the same time is asked for once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::api::Api;
use crate::id::Id;
use crate::payload::Channel;
use crate::rest::RestError;

/// A list, and when it was asked for.
struct Listed {
    asked: Instant,
    threads: Arc<Vec<Channel>>,
}

/// Lists of guilds' active threads, shared by those who wait for one at the same time.
#[derive(Default)]
pub struct Guilds {
    listed: Mutex<HashMap<Id, Arc<tokio::sync::Mutex<Option<Listed>>>>>,
}

impl Guilds {
    /// The active threads of a guild, asked for after this was called: one list serves
    /// all that wait for it meanwhile. It is large, and let go when nobody waits.
    pub async fn active(&self, api: &Api, guild: Id) -> Result<Arc<Vec<Channel>>, RestError> {
        let called = Instant::now();
        let turn = {
            let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
            listed.entry(guild).or_default().clone()
        };
        let mut last = turn.lock().await;
        let known = last.take().filter(|known| known.asked >= called);
        let listed = match known {
            Some(known) => known,
            None => Listed {
                asked: Instant::now(),
                threads: Arc::new(api.active_threads(guild).await?),
            },
        };
        let threads = listed.threads.clone();
        // The map and this call hold it; whoever else does waits for a list.
        if Arc::strong_count(&turn) > 2 {
            *last = Some(listed);
        }
        Ok(threads)
    }
}
