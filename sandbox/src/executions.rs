//! Which execution ids are known, and the commands that run.
//!
//! An id is recorded and synced before anything is started for it, so that it
//! never acts twice, whoever dies.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::net::{RecvFlags, SendFlags};
use sha2::{Digest, Sha256};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::guard::Guarded;
use crate::journal::{Act, FileEnd, Journal, Record, Replayed};
use crate::protocol::{self, End, Finished, Job, Order, Report, Run};
use crate::repositories::{self, Repositories};
use crate::retention::trim;
use crate::sys;

/// Input that a command has not taken yet, at most.
pub const MAX_STDIN: u64 = 1 << 20;

/// A killed command has ended after this time, or does not end.
const END_PATIENCE: std::time::Duration = std::time::Duration::from_secs(4);

/// Why a request about an execution was refused.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionError {
    /// The id is known with another hash.
    #[error("execution {0} is known with other arguments")]
    OtherArguments(String),
    /// The id was released; it cannot act again.
    #[error("execution {0} was released")]
    Released(String),
    /// The id is of the other kind.
    #[error("execution {0} is {1}")]
    OtherKind(String, &'static str),
    /// The record could not be written: nothing was started.
    #[error("the record of execution {0} could not be written, so nothing was started: {1}")]
    Record(String, io::Error),
    /// The command takes less input than it is sent.
    #[error("execution {0} has {MAX_STDIN} bytes of input that it has not read")]
    InputFull(String),
    /// What the system said.
    #[error("execution {0}: {1}")]
    Io(String, io::Error),
}

/// How far a command is.
#[derive(Clone, Debug)]
pub struct Progress {
    pub output: u64,
    pub end: Option<(Finished, i64)>,
}

/// What is known of a command.
#[derive(Clone, Debug)]
pub enum Known {
    Running {
        started_ms: i64,
        output: String,
        progress: watch::Receiver<Progress>,
    },
    Finished {
        started_ms: i64,
        output: String,
        finished: Finished,
        finished_ms: i64,
    },
    /// The daemon died under it.
    Gone { output: String },
}

/// Whether a request started something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    New,
    Known,
}

struct Live {
    control: AsyncFd<OwnedFd>,
    /// Bytes of input on their way.
    stdin: Mutex<u64>,
    progress: watch::Sender<Progress>,
}

struct Entry {
    record: Record,
    live: Option<Arc<Live>>,
    released: bool,
    /// The file operation is being done now; told when it is over.
    acting: Option<watch::Sender<()>>,
}

#[derive(Default)]
struct Table {
    entries: HashMap<String, Entry>,
    released: HashSet<String>,
    released_order: VecDeque<String>,
}

impl Table {
    fn command(&self, id: &str, hash: &str) -> Result<Option<String>, ExecutionError> {
        if self.released.contains(id) {
            return Err(ExecutionError::Released(id.to_owned()));
        }
        let Some(entry) = self.entries.get(id) else {
            return Ok(None);
        };
        if entry.record.hash != hash {
            return Err(ExecutionError::OtherArguments(id.to_owned()));
        }
        match &entry.record.act {
            Act::Command { output, .. } => Ok(Some(output.clone())),
            Act::File { .. } => Err(ExecutionError::OtherKind(id.to_owned(), "a file operation")),
        }
    }
}

/// A file operation's turn.
pub enum FileTurn {
    /// It is this caller's to do.
    Yours,
    /// A crash may have interrupted it: from which hash to which.
    Interrupted { before: String, after: String },
    /// It was done.
    Done(FileEnd),
}

/// All executions of this daemon.
pub struct Executions {
    table: Mutex<Table>,
    journal: Journal,
    jobs: OwnedFd,
    output: OwnedFd,
    output_total: u64,
    /// What commands must not leave behind.
    guarded: Guarded,
    /// What commands make themselves; none where nobody uses it outside.
    repositories: Option<Mutex<Repositories>>,
}

impl Executions {
    /// Takes over what the journal holds; commands that were running then are gone.
    pub fn new(
        journal: Journal,
        replayed: Replayed,
        jobs: OwnedFd,
        output: OwnedFd,
        output_total: u64,
        guarded: Guarded,
    ) -> Self {
        let entries = replayed
            .records
            .into_iter()
            .map(|(id, record)| {
                (
                    id,
                    Entry {
                        record,
                        live: None,
                        released: false,
                        acting: None,
                    },
                )
            })
            .collect();
        let table = Table {
            entries,
            released: replayed.released.iter().cloned().collect(),
            released_order: replayed.released,
        };
        Self {
            table: Mutex::new(table),
            journal,
            jobs,
            output,
            output_total,
            repositories: guarded
                .project
                .clone()
                .map(|project| Mutex::new(Repositories::new(project, guarded.clone()))),
            guarded,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic while it was held left whole entries only.
        self.table
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The output file of a command that is known with these arguments.
    pub fn lookup(&self, id: &str, hash: &str) -> Result<Option<String>, ExecutionError> {
        self.table().command(id, hash)
    }

    /// Records the id, then starts the command, once. `run.output` is set here.
    pub async fn exec(
        self: &Arc<Self>,
        id: &str,
        hash: &str,
        mut run: Run,
    ) -> Result<(Started, String), ExecutionError> {
        let name = output_name(id);
        run.output.clone_from(&name);
        let record = Record {
            id: id.to_owned(),
            hash: hash.to_owned(),
            started_ms: now_ms(),
            act: Act::Command {
                output: name.clone(),
                end: None,
            },
        };
        let failed = |error| ExecutionError::Io(id.to_owned(), error);
        let (control, theirs) = protocol::pair().map_err(failed)?;
        rustix::io::ioctl_fionbio(&control, true).map_err(|e| failed(e.into()))?;
        let live = Arc::new(Live {
            control: sys::watched(control).map_err(failed)?,
            stdin: Mutex::new(0),
            progress: watch::Sender::new(Progress {
                output: 0,
                end: None,
            }),
        });
        // From here on others see the id as running.
        if let Some(output) = self.insert(id, hash, &record, &live)? {
            return Ok((Started::Known, output));
        }
        // The supervisor prepares while the record is written, and waits for `Go`.
        let sent = protocol::send_job(self.jobs.as_fd(), &Job::Run(run), theirs.as_fd());
        drop(theirs);
        if let Err(error) = self.journal.record_synced(record).await {
            // The supervisor ends with its socket, and nothing has started.
            self.table().entries.remove(id);
            return Err(ExecutionError::Record(id.to_owned(), error));
        }
        let sent = sent
            .and_then(|()| protocol::send(live.control.as_fd(), &Order::Go, SendFlags::DONTWAIT));
        let this = Arc::clone(self);
        let id = id.to_owned();
        match sent {
            Ok(()) => drop(tokio::spawn(async move { this.follow(&id, &live).await })),
            Err(error) => this.finish(
                &id,
                &live,
                lost(End::Failed, 0, format!("no process for it: {error}")),
            ),
        }
        Ok((Started::New, name))
    }

    fn insert(
        &self,
        id: &str,
        hash: &str,
        record: &Record,
        live: &Arc<Live>,
    ) -> Result<Option<String>, ExecutionError> {
        let mut table = self.table();
        let known = table.command(id, hash)?;
        if known.is_none() {
            let entry = Entry {
                record: record.clone(),
                live: Some(Arc::clone(live)),
                released: false,
                acting: None,
            };
            table.entries.insert(id.to_owned(), entry);
        }
        Ok(known)
    }

    /// Hears the supervisor to the end.
    async fn follow(self: &Arc<Self>, id: &str, live: &Arc<Live>) {
        let mut buffer = Vec::new();
        let mut output = 0;
        let mut finished = loop {
            let Ok(mut ready) = live.control.readable().await else {
                break lost(End::Failed, output, "its supervisor cannot be heard".into());
            };
            let received = ready.try_io(|control| {
                protocol::receive::<Report>(
                    control.as_fd(),
                    &mut buffer,
                    protocol::MAX_REPORT,
                    RecvFlags::DONTWAIT,
                )
            });
            match received {
                Err(_would_block) => {
                    // Idle commands keep no buffer.
                    buffer = Vec::new();
                }
                Ok(Ok(Some(Report::Output(total)))) => {
                    output = total;
                    live.progress
                        .send_modify(|progress| progress.output = total);
                }
                Ok(Ok(Some(Report::StdinTaken(bytes)))) => {
                    let mut waiting = live
                        .stdin
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    *waiting = waiting.saturating_sub(bytes);
                }
                Ok(Ok(Some(Report::Finished(finished)))) => break finished,
                Ok(Ok(Some(Report::Probed(_)))) => {}
                Ok(Ok(None)) => {
                    break lost(End::Killed, output, "its supervisor was killed".into());
                }
                Ok(Err(error)) => break lost(End::Failed, output, error.to_string()),
            }
        };
        let this = Arc::clone(self);
        let swept = tokio::task::spawn_blocking(move || this.sweep()).await;
        let notes = swept.unwrap_or_else(|error| {
            vec![format!("repositories could not be looked through: {error}")]
        });
        finished.tell(notes);
        self.finish(id, live, finished);
    }

    /// Makes harmless what would act outside; returns what was done.
    fn sweep(&self) -> Vec<String> {
        let Some(repositories) = &self.repositories else {
            return Vec::new();
        };
        // Each sweep begins anew, so that one that panicked left nothing half-done.
        repositories
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .sweep()
    }

    /// Whether nobody may make this file.
    pub fn is_forbidden(&self, path: &std::path::Path) -> bool {
        self.guarded.forbidden.contains(path)
            || (self.repositories.is_some()
                && !path
                    .ancestors()
                    .any(|above| self.guarded.read_only.contains(above))
                && repositories::is_obeyed(path))
    }

    fn finish(&self, id: &str, live: &Arc<Live>, finished: Finished) {
        let finished_ms = now_ms();
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(id) else {
            return;
        };
        if let Act::Command { end, .. } = &mut entry.record.act {
            *end = Some((finished.clone(), finished_ms));
        }
        entry.live = None;
        let released = entry.released;
        if released {
            self.forget(&mut table, id);
        } else {
            self.journal.record(entry.record.clone());
        }
        drop(table);
        live.progress.send_modify(|progress| {
            progress.output = finished.output_bytes;
            progress.end = Some((finished, finished_ms));
        });
        if released {
            self.trim_output();
        }
    }

    /// What is known of a command.
    pub fn known(&self, id: &str) -> Result<Option<Known>, ExecutionError> {
        let table = self.table();
        let Some(entry) = table.entries.get(id) else {
            return Ok(None);
        };
        let started_ms = entry.record.started_ms;
        match (&entry.record.act, &entry.live) {
            (Act::Command { output, .. }, Some(live)) => Ok(Some(Known::Running {
                started_ms,
                output: output.clone(),
                progress: live.progress.subscribe(),
            })),
            (
                Act::Command {
                    output,
                    end: Some((finished, finished_ms)),
                },
                None,
            ) => Ok(Some(Known::Finished {
                started_ms,
                output: output.clone(),
                finished: finished.clone(),
                finished_ms: *finished_ms,
            })),
            (Act::Command { output, end: None }, None) => Ok(Some(Known::Gone {
                output: output.clone(),
            })),
            (Act::File { .. }, _) => {
                Err(ExecutionError::OtherKind(id.to_owned(), "a file operation"))
            }
        }
    }

    /// Id, and whether it is running, finished (else gone) and released.
    pub fn all(&self) -> Vec<(String, State, bool)> {
        let table = self.table();
        let mut all: Vec<_> = table
            .entries
            .iter()
            .map(|(id, entry)| {
                let state = match &entry.record.act {
                    _ if entry.live.is_some() || entry.acting.is_some() => State::Running,
                    Act::Command { end: Some(_), .. } | Act::File { end: Some(_), .. } => {
                        State::Finished
                    }
                    _ => State::Gone,
                };
                (id.clone(), state, entry.released)
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Sends an order; false where the id is not running.
    pub async fn order(&self, id: &str, order: Order) -> Result<bool, ExecutionError> {
        let live = self
            .table()
            .entries
            .get(id)
            .and_then(|entry| entry.live.clone());
        let Some(live) = live else { return Ok(false) };
        let orders: Vec<Order> = match order {
            Order::Stdin(bytes) => {
                let mut waiting = live
                    .stdin
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                if *waiting + bytes.len() as u64 > MAX_STDIN {
                    return Err(ExecutionError::InputFull(id.to_owned()));
                }
                *waiting += bytes.len() as u64;
                bytes
                    .chunks(protocol::STDIN_PIECE)
                    .map(|piece| Order::Stdin(piece.to_vec()))
                    .collect()
            }
            other => vec![other],
        };
        for order in orders {
            let sent = live
                .control
                .async_io(tokio::io::Interest::WRITABLE, |control| {
                    protocol::send(control.as_fd(), &order, SendFlags::DONTWAIT)
                })
                .await;
            match sent {
                Ok(()) => {}
                // It has just ended.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
                Err(error) => return Err(ExecutionError::Io(id.to_owned(), error)),
            }
        }
        Ok(true)
    }

    /// Forgets ids; those that still run are ended first.
    pub async fn release(&self, ids: &[String]) -> Result<(), ExecutionError> {
        for id in ids {
            let running = {
                let mut table = self.table();
                match table.entries.get_mut(id) {
                    Some(entry) if entry.live.is_some() || entry.acting.is_some() => {
                        entry.released = true;
                        entry.live.is_some()
                    }
                    Some(_) => {
                        self.forget(&mut table, id);
                        false
                    }
                    None => false,
                }
            };
            if running {
                self.order(id, Order::Kill).await?;
            }
        }
        self.trim_output();
        Ok(())
    }

    /// Ends everything that runs and waits for it, within the time that takes.
    pub async fn end_all(&self) {
        let running: Vec<(String, Arc<Live>)> = self
            .table()
            .entries
            .iter()
            .filter_map(|(id, entry)| Some((id.clone(), Arc::clone(entry.live.as_ref()?))))
            .collect();
        for (id, _) in &running {
            // One that cannot be told dies with the daemon.
            let _ = self.order(id, Order::Kill).await;
        }
        for (_, live) in running {
            let mut progress = live.progress.subscribe();
            let ended = progress.wait_for(|progress| progress.end.is_some());
            let _ = tokio::time::timeout(END_PATIENCE, ended).await;
        }
    }

    fn forget(&self, table: &mut Table, id: &str) {
        table.entries.remove(id);
        table.released.insert(id.to_owned());
        table.released_order.push_back(id.to_owned());
        if table.released_order.len() > crate::journal::RELEASED_KEPT
            && let Some(oldest) = table.released_order.pop_front()
        {
            table.released.remove(&oldest);
        }
        self.journal.released(id.to_owned());
    }

    /// Removes the oldest output files of released ids while all together are too large.
    fn trim_output(&self) {
        let kept: HashSet<String> = self
            .table()
            .entries
            .values()
            .filter_map(|entry| match &entry.record.act {
                Act::Command { output, .. } => Some(output.clone()),
                Act::File { .. } => None,
            })
            .collect();
        if let Err(error) = trim(&self.output, &kept, self.output_total) {
            tracing::warn!(%error, "old output could not be removed");
        }
    }

    /// Waits for the id's turn to act on a file, and takes it.
    pub async fn file_turn(
        &self,
        id: &str,
        hash: &str,
        path: &std::path::Path,
    ) -> Result<FileTurn, ExecutionError> {
        loop {
            let mut over = {
                let mut table = self.table();
                if table.released.contains(id) {
                    return Err(ExecutionError::Released(id.to_owned()));
                }
                match table.entries.get_mut(id) {
                    None => {
                        let record = Record {
                            id: id.to_owned(),
                            hash: hash.to_owned(),
                            started_ms: now_ms(),
                            act: Act::File {
                                path: path.to_owned(),
                                before: String::new(),
                                after: String::new(),
                                end: None,
                            },
                        };
                        let acting = Some(watch::Sender::new(()));
                        let entry = Entry {
                            record,
                            live: None,
                            released: false,
                            acting,
                        };
                        table.entries.insert(id.to_owned(), entry);
                        return Ok(FileTurn::Yours);
                    }
                    Some(entry) if entry.record.hash != hash => {
                        return Err(ExecutionError::OtherArguments(id.to_owned()));
                    }
                    Some(entry) => match (&entry.record.act, &entry.acting) {
                        (Act::Command { .. }, _) => {
                            return Err(ExecutionError::OtherKind(id.to_owned(), "a command"));
                        }
                        (_, Some(acting)) => acting.subscribe(),
                        (Act::File { end: Some(end), .. }, None) => {
                            return Ok(FileTurn::Done(end.clone()));
                        }
                        (Act::File { before, after, .. }, None) => {
                            let turn = FileTurn::Interrupted {
                                before: before.clone(),
                                after: after.clone(),
                            };
                            entry.acting = Some(watch::Sender::new(()));
                            return Ok(turn);
                        }
                    },
                }
            };
            // An error means that the sender went: the turn is over.
            let _ = over.changed().await;
        }
    }

    /// Records what is about to happen to the file; returns when that is on disk.
    pub fn file_intent(&self, id: &str, before: &str, after: &str) -> Result<(), ExecutionError> {
        let record = {
            let mut table = self.table();
            let Some(entry) = table.entries.get_mut(id) else {
                return Ok(());
            };
            if let Act::File {
                before: b,
                after: a,
                ..
            } = &mut entry.record.act
            {
                before.clone_into(b);
                after.clone_into(a);
            }
            entry.record.clone()
        };
        self.journal
            .record_blocking(record)
            .map_err(|error| ExecutionError::Record(id.to_owned(), error))
    }

    /// Ends the turn: with an outcome, or undone so that the id may act again.
    pub fn file_end(&self, id: &str, outcome: Option<&FileEnd>) {
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(id) else {
            return;
        };
        entry.acting = None;
        match outcome {
            Some(outcome) => {
                if let Act::File { end, .. } = &mut entry.record.act {
                    *end = Some(outcome.clone());
                }
                self.journal.record(entry.record.clone());
                if entry.released {
                    self.forget(&mut table, id);
                }
            }
            None => {
                table.entries.remove(id);
            }
        }
    }

    /// Starts a job that is no execution; its reports come from the socket.
    pub fn job(&self, job: &Job) -> io::Result<AsyncFd<OwnedFd>> {
        let (control, theirs) = protocol::pair()?;
        rustix::io::ioctl_fionbio(&control, true)?;
        protocol::send_job(self.jobs.as_fd(), job, theirs.as_fd())?;
        sys::watched(control)
    }

    /// The folder of output files.
    pub fn output_folder(&self) -> &OwnedFd {
        &self.output
    }
}

/// An execution's state, as the status tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Finished,
    Gone,
}

fn lost(end: End, output_bytes: u64, message: String) -> Finished {
    Finished {
        end,
        code: if end == End::Killed { 9 } else { 0 },
        message,
        output_bytes,
        peak_memory: 0,
    }
}

/// Ids come from outside and may hold anything; a hash is a safe file name.
fn output_name(id: &str) -> String {
    format!("{}.txt", hex::encode(&Sha256::digest(id.as_bytes())[..10]))
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
