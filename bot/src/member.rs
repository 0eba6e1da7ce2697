//! Roles of authors, for messages that were read from history.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::Api;
use crate::id::Id;
use crate::rest::RestError;

/// How long roles are believed.
const FRESH: Duration = Duration::from_secs(60);
/// Members that are remembered.
const REMEMBERED: usize = 10_000;

type Known = HashMap<(Id, Id), (Instant, Option<Vec<Id>>)>;

/// The cache.
#[derive(Default)]
pub struct Members {
    known: Mutex<Known>,
}

impl Members {
    /// The user's roles in the guild; `None` for one who is not in it.
    pub async fn roles(
        &self,
        api: &Api,
        guild: Id,
        user: Id,
    ) -> Result<Option<Vec<Id>>, RestError> {
        if let Some((since, roles)) = self.lock().get(&(guild, user))
            && since.elapsed() < FRESH
        {
            return Ok(roles.clone());
        }
        let roles = match api.member(guild, user).await {
            Ok(member) => Some(member.roles),
            Err(error) if error.status() == Some(404) => None,
            Err(error) => return Err(error),
        };
        let mut known = self.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, (since, _)| since.elapsed() < FRESH);
            if known.len() >= REMEMBERED {
                known.clear();
            }
        }
        known.insert((guild, user), (Instant::now(), roles.clone()));
        Ok(roles)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
