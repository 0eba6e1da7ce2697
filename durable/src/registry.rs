//! Which conversations are in memory.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::mpsc;

use crate::{
    conversation::{Command, actor},
    id::ConversationId,
    session::Session,
};

/// Most conversations that stay in memory with nothing to do, and about their bytes.
const RESTING: usize = 64;
const RESTING_BYTES: usize = 6 * 1024 * 1024;

/// What a conversation does, as far as others care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Idle,
    /// Waits for a person, a key or a timer.
    Waiting,
    Running,
}

#[derive(Default)]
struct Actors {
    mailboxes: HashMap<ConversationId, mpsc::UnboundedSender<Command>>,
    /// Longest at rest first.
    resting: VecDeque<(ConversationId, usize)>,
    resting_bytes: usize,
    closed: bool,
}

/// The actors of a session.
#[derive(Default)]
pub(crate) struct Registry {
    actors: Mutex<Actors>,
    running: AtomicUsize,
    waiting: AtomicUsize,
}

impl Registry {
    /// A registry of a file with that many open runs, none of them in memory.
    pub fn new(open: usize) -> Registry {
        Registry {
            waiting: AtomicUsize::new(open),
            ..Registry::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Actors> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command to a conversation, which is loaded for it if need be.
    pub fn send(&self, session: &Arc<Session>, id: ConversationId, command: Command) {
        let mut actors = self.lock();
        if actors.closed {
            drop(actors);
            command.fail(
                session
                    .line
                    .failure()
                    .unwrap_or(crate::error::SessionError::Closed),
            );
            return;
        }
        if let Some(at) = actors
            .resting
            .iter()
            .position(|(resting, _)| *resting == id)
            && !matches!(command, Command::Rest)
            && let Some((_, bytes)) = actors.resting.remove(at)
        {
            actors.resting_bytes -= bytes;
        }
        let mailbox = actors.mailboxes.entry(id).or_insert_with(|| {
            let (mailbox, commands) = mpsc::unbounded_channel();
            tokio::spawn(actor::run(session.clone(), id, commands));
            mailbox
        });
        // An actor leaves only under this lock, with an empty mailbox.
        let _ = mailbox.send(command);
    }

    /// Sends to those in memory.
    pub fn poke_loaded(&self, poke: crate::conversation::Poke) {
        for mailbox in self.lock().mailboxes.values() {
            let _ = mailbox.send(Command::Poke(poke));
        }
    }

    /// A conversation has nothing to do; who rests longest may have to leave.
    pub fn rest(&self, id: ConversationId, bytes: usize) {
        let mut actors = self.lock();
        actors.resting.push_back((id, bytes));
        actors.resting_bytes += bytes;
        while actors.resting.len() > RESTING || actors.resting_bytes > RESTING_BYTES {
            let Some((oldest, bytes)) = actors.resting.pop_front() else {
                break;
            };
            actors.resting_bytes -= bytes;
            if let Some(mailbox) = actors.mailboxes.get(&oldest) {
                let _ = mailbox.send(Command::Rest);
            }
        }
    }

    /// A conversation wants to leave the memory; not while something waits for it.
    pub fn leave(&self, id: ConversationId, mailbox: &mpsc::UnboundedReceiver<Command>) -> bool {
        let mut actors = self.lock();
        if !mailbox.is_empty() {
            return false;
        }
        actors.mailboxes.remove(&id);
        true
    }

    /// A conversation's mode changed.
    pub fn changed(&self, from: Mode, to: Mode) {
        let count = |mode| match mode {
            Mode::Idle => None,
            Mode::Waiting => Some(&self.waiting),
            Mode::Running => Some(&self.running),
        };
        if let Some(to) = count(to) {
            to.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(from) = count(from) {
            from.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// How many are in memory.
    pub fn loaded(&self) -> usize {
        self.lock().mailboxes.len()
    }

    /// Takes nothing more.
    pub fn close(&self) {
        let mut actors = self.lock();
        actors.closed = true;
        actors.mailboxes.clear();
    }
}
