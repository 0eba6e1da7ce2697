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
    if let Err(error) = wake(&session).await {
        tracing::warn!(%error, "timers stop");
    }
}

async fn wake(session: &Arc<Session>) -> Result<(), SessionError> {
    let next = &session.timers.next;
    let mut seen = 0;
    loop {
        let found = session.reader.number(open_work::NEXT_WAKE, &[seen]).await?;
        next.fetch_min(found.unwrap_or(i64::MAX), Ordering::AcqRel);
        loop {
            let due = next.load(Ordering::Acquire);
            tokio::select! {
                () = session.closing.cancelled() => return Ok(()),
                // Something is due sooner than what was waited for.
                () = session.timers.sooner.notified() => {}
                () = session.clock.until(Millis(due)), if due < i64::MAX => break,
            }
        }
        // What is noted from here on may be older than this sweep, and is not lost.
        next.store(i64::MAX, Ordering::Release);
        let now = session.now().0;
        session.sweep(open_work::DUE, &[1, now], Poke::Due).await?;
        seen = now;
    }
}
