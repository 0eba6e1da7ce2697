//! An open session: what conversations share.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    conversation::{Command, Poke},
    engine::Ports,
    error::SessionError,
    hub::Hub,
    id::{ConversationId, Hash, Incarnation, Millis},
    read::Reader,
    registry::Registry,
    schema::Schemas,
    sql::open_work,
    store::line::{Counters, Line},
    streams::Streams,
    timers::Timers,
};

/// Conversations that a sweep loads before it lets others have a turn.
const PAGE: i64 = 64;

/// Whether the disk has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Yes,
    No,
}

/// Whether a conversation is being imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arriving {
    Yes,
    No,
}

/// Everything that an open file is.
pub(crate) struct Session {
    pub incarnation: Incarnation,
    pub generation: u64,
    pub ports: Ports,
    pub clock: Arc<dyn Clock>,
    pub counters: Arc<Counters>,
    pub line: Line,
    pub streams: Arc<Streams>,
    pub hub: Arc<Hub>,
    pub reader: Reader,
    pub registry: Registry,
    pub schemas: Schemas,
    pub timers: Timers,
    /// A release or kill is owed.
    pub owed: tokio::sync::Notify,
    /// A conversation was deleted.
    pub deleted: tokio::sync::Notify,
    /// Conversations that are being imported; deleted as long as they are.
    arriving: Mutex<HashSet<ConversationId>>,
    /// Parts that this process has stored, which are not stored again with each request.
    stored_parts: Mutex<HashSet<Hash>>,
    /// Held by imports, whose rows name parts that came before them.
    pub parts_stay: Arc<tokio::sync::RwLock<()>>,
    /// Cancelled when the session ends; stops actors, timers and debts.
    pub closing: CancellationToken,
    started: AtomicBool,
    /// Since when commits that have to stand wait for room on the disk, in
    /// milliseconds; 0 where none does.
    full_since: AtomicI64,
}

impl Session {
    #[allow(clippy::too_many_arguments)] // made in one place
    pub fn new(
        incarnation: Incarnation,
        generation: u64,
        ports: Ports,
        clock: Arc<dyn Clock>,
        counters: Arc<Counters>,
        line: Line,
        streams: Arc<Streams>,
        hub: Arc<Hub>,
        reader: Reader,
        open_runs: usize,
    ) -> Session {
        Session {
            incarnation,
            generation,
            ports,
            clock,
            counters,
            line,
            streams,
            hub,
            reader,
            registry: Registry::new(open_runs),
            schemas: Schemas::default(),
            timers: Timers::default(),
            owed: tokio::sync::Notify::new(),
            deleted: tokio::sync::Notify::new(),
            arriving: Mutex::default(),
            stored_parts: Mutex::default(),
            parts_stay: Arc::default(),
            closing: CancellationToken::new(),
            started: AtomicBool::new(false),
            full_since: AtomicI64::new(0),
        }
    }

    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    /// A commit that has to stand found the disk full, or room again.
    pub fn note_full(&self, full: Full) {
        match full {
            Full::Yes => {
                let _ = self.full_since.compare_exchange(
                    0,
                    self.now().0,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            }
            Full::No => self.full_since.store(0, Ordering::Relaxed),
        }
    }

    /// Since when the disk is full.
    pub fn full_since(&self) -> Option<Millis> {
        Some(Millis(self.full_since.load(Ordering::Relaxed))).filter(|since| since.0 != 0)
    }

    /// Whether a conversation is being imported.
    pub fn is_arriving(&self, id: ConversationId) -> bool {
        let arriving = self.arriving.lock().unwrap_or_else(PoisonError::into_inner);
        arriving.contains(&id)
    }

    /// A conversation is being imported, or is there.
    pub fn note_arriving(&self, id: ConversationId, arriving: Arriving) {
        let mut all = self.arriving.lock().unwrap_or_else(PoisonError::into_inner);
        match arriving {
            Arriving::Yes => drop(all.insert(id)),
            Arriving::No => drop(all.remove(&id)),
        }
    }

    /// A commit that stores these parts, or finds them stored, stands. Not before: others
    /// would name what a commit that fails, or a crash, leaves out.
    pub fn parts_stand(&self, hashes: [&Hash; 2]) {
        let mut stored = self
            .stored_parts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        stored.extend(hashes.into_iter().cloned());
    }

    /// Whether this process has stored a part, and may name it without storing it again.
    pub fn has_part(&self, hash: &Hash) -> bool {
        let stored = self
            .stored_parts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        stored.contains(hash)
    }

    /// Work may run.
    pub fn started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Lets work run; false if it already may.
    pub fn set_started(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    /// Pokes the conversations that a query of [`open_work`] lists, page by page.
    pub async fn sweep(
        self: &Arc<Self>,
        sql: &'static str,
        first: &[i64],
        poke: Poke,
    ) -> Result<(), SessionError> {
        let mut after = -1;
        loop {
            let binds: Vec<_> = first.iter().copied().chain([after, PAGE]).collect();
            let page = self.reader.column::<i64>(sql, &binds).await?;
            for id in &page {
                self.registry
                    .send(self, ConversationId(*id), Command::Poke(poke));
            }
            match page.last() {
                Some(last) => after = *last,
                None => return Ok(()),
            }
            // So that a sweep over many does not hold them all in memory.
            while self.registry.loaded() > 4 * PAGE as usize && !self.closing.is_cancelled() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Pokes everyone with runnable work.
    pub async fn sweep_runnable(self: &Arc<Self>) -> Result<(), SessionError> {
        let now = self.now().0;
        self.sweep(open_work::DUE, &[0, now], Poke::Due).await
    }
}
