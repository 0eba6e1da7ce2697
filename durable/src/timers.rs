//! Timers: what is due is asked of the file, so that what sleeps takes no memory.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use tokio::sync::Notify;

use crate::{
    conversation::Poke, error::SessionError, id::Millis, session::Session, sql::open_work,
};

/// When the next thing is due.
#[derive(Debug)]
pub(crate) struct Timers {
    next: AtomicI64,
    sooner: Notify,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            next: AtomicI64::new(i64::MAX),
            sooner: Notify::new(),
        }
    }
}

impl Timers {
    /// Something new is due at `at`.
    pub fn note(&self, at: i64) {
        if self.next.fetch_min(at, Ordering::AcqRel) > at {
            self.sooner.notify_one();
        }
    }
}

/// Wakes conversations as time passes.
pub(crate) async fn run(session: Arc<Session>) {
    let mut seen = 0;
    loop {
        match next(&session, seen).await {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, "timers stop");
                return;
            }
        }
        let due = session.timers.next.load(Ordering::Acquire);
        tokio::select! {
            () = session.closing.cancelled() => return,
            () = session.timers.sooner.notified() => continue,
            () = session.clock.until(Millis(due)), if due < i64::MAX => {}
        }
        let now = session.now().0;
        if let Err(error) = session.sweep(open_work::DUE, &[1, now], Poke::Due).await {
            tracing::warn!(%error, "timers stop");
            return;
        }
        seen = now;
    }
}

/// Finds the next time after `seen`.
async fn next(session: &Session, seen: i64) -> Result<(), SessionError> {
    let found = session.reader.number(open_work::NEXT_WAKE, &[seen]).await?;
    session
        .timers
        .next
        .store(found.unwrap_or(i64::MAX), Ordering::Release);
    Ok(())
}
