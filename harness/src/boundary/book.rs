//! What is kept of connections: rows for people, sums for limits, figures for operators.
//!
//! Rows are written behind the connections' back, many in one commit; a sandbox
//! that asks for connections faster than the disk takes rows loses rows, never
//! memory.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
};

use mooring_durable::{
    Engine,
    clock::{Clock, SystemClock},
    error::SessionError,
    ledger::Statement,
};
use tokio::sync::mpsc;

use super::credential::Origin;
use crate::{
    metrics::Metrics,
    record::{
        egress::{self, Asked},
        usage,
    },
};

/// Rows that wait to be written.
const MOST_WAITING: usize = 1024;
/// Rows of one commit.
const BATCH: usize = 128;
/// Bytes after which a connection that goes on is added to its day.
const STEP: u64 = 16 << 20;

/// The book of one harness.
pub struct Book {
    metrics: Arc<Metrics>,
    rows: OnceLock<mpsc::Sender<Vec<Statement>>>,
    /// The first key of this process.
    first: AtomicI64,
    given: AtomicI64,
    open: AtomicU32,
    lost: AtomicU64,
    today: Mutex<Today>,
}

#[derive(Default)]
struct Today {
    day: String,
    bytes: u64,
}

/// A place among the connections at once.
pub struct Place(Arc<Book>);

impl Drop for Place {
    fn drop(&mut self) {
        let open = self.0.open.fetch_sub(1, Ordering::AcqRel) - 1;
        self.0.metrics.egress_open(open);
    }
}

impl Book {
    /// A book that nothing is written in yet.
    pub fn new(metrics: Arc<Metrics>) -> Arc<Book> {
        Arc::new(Book {
            metrics,
            rows: OnceLock::new(),
            first: AtomicI64::new(0),
            given: AtomicI64::new(0),
            open: AtomicU32::new(0),
            lost: AtomicU64::new(0),
            today: Mutex::default(),
        })
    }

    /// The database is open: takes up the day's sum, and writes from now on.
    pub async fn opened(&self, engine: &Engine) -> Result<(), SessionError> {
        let now = SystemClock.now();
        let day = usage::day(now);
        let bytes = egress::of_day(engine.reader(), &day)
            .await
            .map_err(|error| SessionError::Corrupt(error.to_string()))?;
        *self.today() = Today { day, bytes };
        let generation = i64::try_from(engine.generation()).unwrap_or(0);
        self.first.store(generation << 32, Ordering::Release);
        engine
            .commit(
                "egress",
                vec![egress::interrupted(now), egress::days_trimmed()],
            )
            .await?;
        let (sender, rows) = mpsc::channel(MOST_WAITING);
        let _ = self.rows.set(sender);
        tokio::spawn(write(engine.clone(), rows));
        Ok(())
    }

    fn today(&self) -> std::sync::MutexGuard<'_, Today> {
        self.today.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, statements: Vec<Statement>) {
        let sent = self.rows.get().map(|rows| rows.try_send(statements));
        if !matches!(sent, Some(Ok(()))) && self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("connections come faster than they can be recorded; rows are lost");
        }
    }

    /// A place for one more connection, where there are fewer than `most`.
    pub fn enter(self: &Arc<Self>, most: u32) -> Option<Place> {
        let taken = self
            .open
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| {
                (open < most).then_some(open + 1)
            })
            .ok()?;
        self.metrics.egress_open(taken + 1);
        Some(Place(self.clone()))
    }

    /// Whether the day has bytes left of `most`.
    pub fn has_left(&self, most: u64) -> bool {
        let now = usage::day(SystemClock.now());
        let mut today = self.today();
        if today.day != now {
            *today = Today { day: now, bytes: 0 };
        }
        today.bytes < most
    }

    /// A connection that is asked for.
    pub fn asked(
        &self,
        origin: &Origin,
        host: &str,
        port: u16,
        verdict: &str,
        rule: &str,
    ) -> Asked {
        self.metrics.egress_asked(verdict);
        Asked {
            key: self.first.load(Ordering::Acquire) + self.given.fetch_add(1, Ordering::Relaxed),
            at: SystemClock.now(),
            conversation: origin.conversation,
            call: origin.task,
            host: host.chars().take(300).collect(),
            port,
            verdict: verdict.to_owned(),
            rule: rule.to_owned(),
        }
    }

    /// It was not made: why.
    pub fn refused(&self, row: &Asked, why: &str) {
        self.put(vec![egress::asked(row, Some(why))]);
    }

    /// It was made, and is counted from now on.
    pub fn made(self: &Arc<Self>, row: &Asked) -> Meter {
        self.put(vec![egress::asked(row, None)]);
        Meter {
            book: self.clone(),
            key: row.key,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            outcome: Mutex::new("ended".into()),
        }
    }

    fn add(&self, bytes: u64) -> Statement {
        let day = usage::day(SystemClock.now());
        let mut today = self.today();
        if today.day != day {
            *today = Today {
                day: day.clone(),
                bytes: 0,
            };
        }
        egress::moved(&day, bytes)
    }
}

/// Counts one connection; dropped, it writes what became of it.
pub struct Meter {
    book: Arc<Book>,
    key: i64,
    sent: AtomicU64,
    received: AtomicU64,
    /// Bytes that stand in their day already.
    kept: AtomicU64,
    outcome: Mutex<String>,
}

impl Meter {
    /// Bytes that went out.
    pub fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        self.count("sent", bytes as u64);
    }

    /// Bytes that came in.
    pub fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.count("received", bytes as u64);
    }

    /// All so far.
    pub fn moved(&self) -> u64 {
        self.sent.load(Ordering::Relaxed) + self.received.load(Ordering::Relaxed)
    }

    /// How it ended.
    pub fn outcome(&self, text: &str) {
        text.clone_into(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn count(&self, direction: &str, bytes: u64) {
        self.book.metrics.egress_moved(direction, bytes);
        self.book.today().bytes += bytes;
        let kept = self.kept.load(Ordering::Relaxed);
        let moved = self.moved();
        if moved - kept >= STEP {
            self.kept.store(moved, Ordering::Relaxed);
            let statement = self.book.add(moved - kept);
            self.book.put(vec![statement]);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let (sent, received) = (
            self.sent.load(Ordering::Relaxed),
            self.received.load(Ordering::Relaxed),
        );
        let outcome =
            std::mem::take(&mut *self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
        let rest = sent + received - self.kept.load(Ordering::Relaxed);
        let ended = egress::ended(self.key, SystemClock.now(), sent, received, &outcome);
        let statement = self.book.add(rest);
        self.book.put(vec![ended, statement]);
    }
}

/// Writes what comes, as much as waits in one commit.
async fn write(engine: Engine, mut rows: mpsc::Receiver<Vec<Statement>>) {
    let mut waiting = Vec::new();
    while rows.recv_many(&mut waiting, BATCH).await > 0 {
        let mut statements: Vec<Statement> = waiting.drain(..).flatten().collect();
        statements.push(egress::trimmed());
        if let Err(error) = engine.commit("egress", statements).await {
            tracing::warn!(%error, "connections could not be recorded");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn places_and_bytes_are_bounded() {
        let book = Book::new(Arc::new(Metrics::new()));
        let first = book.enter(2).unwrap();
        let _second = book.enter(2).unwrap();
        assert!(book.enter(2).is_none());
        drop(first);
        assert!(book.enter(2).is_some());
        assert!(book.has_left(1) && !book.has_left(0));
        book.today().bytes = 100;
        assert!(book.has_left(101) && !book.has_left(100));
        // Another day begins at nought.
        book.today().day = "2000-01-01".into();
        assert!(book.has_left(1));
    }
}
