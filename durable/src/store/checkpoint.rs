//! Checkpoints of the write-ahead log, on a connection of their own and off the
//! commit path.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sqlx::{Connection, Row as _, SqliteConnection, sqlite::SqliteConnectOptions};

/// Pages of log at which a checkpoint is due: 6 MB.
const DUE: u64 = 1_500;
/// Pages at which the commit line itself finishes one, so that the log starts over: 16 MB.
const LARGE: u64 = 4_000;

/// Decides when a checkpoint is due. The log's length is known after each one only,
/// so the number of commits between two follows from what the last ones wrote.
#[derive(Debug)]
pub(crate) struct Pace {
    commits: AtomicU64,
    every: AtomicU64,
    last_length: AtomicU64,
    busy: AtomicBool,
    large: AtomicBool,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            commits: AtomicU64::new(0),
            every: AtomicU64::new(100),
            last_length: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            large: AtomicBool::new(false),
        }
    }
}

impl Pace {
    /// A commit was made; whether a checkpoint is due now. The caller then makes one.
    pub fn commit(&self) -> bool {
        let commits = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        commits >= self.every.load(Ordering::Relaxed) && !self.busy.swap(true, Ordering::AcqRel)
    }

    /// Whether the commit line should finish a checkpoint itself, once.
    pub fn take_large(&self) -> bool {
        self.large.load(Ordering::Relaxed) && self.large.swap(false, Ordering::AcqRel)
    }

    /// A checkpoint found `length` pages of log and wrote `done` of them back.
    pub fn checkpointed(&self, length: u64, done: u64) {
        let commits = self.commits.swap(0, Ordering::Relaxed).max(1);
        let before = self.last_length.swap(length, Ordering::Relaxed);
        let grown = if length >= before {
            length - before
        } else {
            length
        }
        .max(1);
        let every = commits.saturating_mul(DUE) / grown;
        self.every
            .store(every.clamp(16, 100_000), Ordering::Relaxed);
        self.large
            .store(length >= LARGE && done <= length, Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
    }

    /// It failed; tried again later.
    pub fn gave_up(&self) {
        self.commits.store(0, Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
    }
}

/// Writes back what it can without making anyone wait; pages of log, pages done.
async fn passive(connection: &mut SqliteConnection) -> Result<(u64, u64), sqlx::Error> {
    let row = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
        .fetch_one(connection)
        .await?;
    let pages = |at: usize| row.try_get::<i64, _>(at).map(|pages| pages.max(0) as u64);
    Ok((pages(1)?, pages(2)?))
}

/// The same, on the line's own connection.
pub(crate) fn on_the_line(file: &rusqlite::Connection) -> rusqlite::Result<()> {
    file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// Runs one on a connection of its own.
pub(crate) async fn background(options: SqliteConnectOptions, pace: &Pace) {
    let run = async {
        let mut connection = SqliteConnection::connect_with(&options).await?;
        let pages = passive(&mut connection).await;
        connection.close().await?;
        pages
    };
    match run.await {
        Ok((length, done)) => pace.checkpointed(length, done),
        Err(error) => {
            tracing::warn!(%error, "a checkpoint of the write-ahead log failed; it is tried again");
            pace.gave_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_follows_what_commits_write() {
        let pace = Pace::default();
        assert_eq!((0..100).filter(|_| pace.commit()).count(), 1);
        // 100 commits wrote 1,000 pages: the next after 150.
        pace.checkpointed(1_000, 1_000);
        assert_eq!((0..149).filter(|_| pace.commit()).count(), 0);
        assert!(pace.commit());
        assert!(!pace.commit(), "one at a time");
        pace.checkpointed(5_000, 4_900);
        assert!(pace.take_large());
        assert!(!pace.take_large());
    }
}
