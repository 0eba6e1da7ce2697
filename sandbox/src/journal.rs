//! The records on disk: which execution ids have acted, and how that ended.
//!
//! One append-only file of JSON lines, the newest line of an id counts. The
//! file is grown with zero bytes ahead of its end, so that a sync writes data
//! only; requests that wait while one sync runs share the next.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::error::SandboxError;
use crate::protocol::Finished;

const NAME: &str = "journal";
const NEW_NAME: &str = "journal.new";
/// The file grows in steps of this many bytes.
const AHEAD: u64 = 256 << 10;
/// Beyond this the file is written anew with what still counts.
const COMPACT_BYTES: u64 = 16 << 20;
/// Released ids that are still known, so that a late request starts nothing.
pub const RELEASED_KEPT: usize = 4096;

/// What is known of one execution id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub id: String,
    pub hash: String,
    pub started_ms: i64,
    pub act: Act,
}

/// What an id did, and how it ended as far as that is known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Act {
    /// A command; `output` is its file's name.
    Command {
        output: String,
        end: Option<(Finished, i64)>,
    },
    /// A file to be written: from one hash to another.
    File {
        path: PathBuf,
        /// Empty where there was no file.
        before: String,
        after: String,
        end: Option<FileEnd>,
    },
}

/// How a write or an edit ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileEnd {
    Written {
        created: bool,
        bytes: u64,
        before: String,
        after: String,
        diff: String,
    },
    /// Nothing was done; a text for the model.
    Refused(String),
}

#[derive(Serialize, Deserialize)]
enum Line {
    State(String),
    Record(Record),
    Released(String),
}

/// What the journal held when it was opened.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Lives as long as the folder.
    pub state_id: String,
    pub records: HashMap<String, Record>,
    /// Oldest first.
    pub released: VecDeque<String>,
}

impl Replayed {
    fn take(&mut self, line: Line) {
        match line {
            Line::State(id) => self.state_id = id,
            Line::Record(record) => {
                self.records.insert(record.id.clone(), record);
            }
            Line::Released(id) => {
                self.records.remove(&id);
                self.released.push_back(id);
                if self.released.len() > RELEASED_KEPT {
                    self.released.pop_front();
                }
            }
        }
    }
}

/// Appends; a thread of its own does the writing.
#[derive(Clone, Debug)]
pub struct Journal {
    requests: mpsc::Sender<Request>,
}

struct Request {
    line: Line,
    /// Told once it is on disk; without one nobody waits for a sync.
    synced: Option<oneshot::Sender<io::Result<()>>>,
}

impl Journal {
    /// Reads the folder's journal and writes it anew without what was released.
    ///
    /// # Errors
    /// A line in the middle that cannot be read. A torn last line is what a
    /// crash leaves, and was never answered for.
    pub fn open(folder: OwnedFd, path: &std::path::Path) -> Result<(Self, Replayed), SandboxError> {
        let replayed = replay(&folder, path)?;
        let failed = |error| SandboxError::path(path.join(NAME), "writing")(error);
        let writer = Writer::rewrite(folder, &replayed).map_err(failed)?;
        let (requests, queue) = mpsc::channel();
        let mut live = Replayed {
            state_id: replayed.state_id.clone(),
            records: replayed.records.clone(),
            released: replayed.released.clone(),
        };
        std::thread::Builder::new()
            .name("journal".into())
            .stack_size(128 << 10)
            .spawn(move || serve(writer, &queue, &mut live))
            .map_err(failed)?;
        Ok((Self { requests }, replayed))
    }

    /// Returns when the record is on disk.
    pub async fn record_synced(&self, record: Record) -> io::Result<()> {
        let (synced, done) = oneshot::channel();
        self.send(Line::Record(record), Some(synced));
        done.await
            .unwrap_or_else(|_| Err(io::Error::other("the journal's thread has ended")))
    }

    /// Like [`Journal::record_synced`], from a thread that may block.
    pub fn record_blocking(&self, record: Record) -> io::Result<()> {
        let (synced, done) = oneshot::channel();
        self.send(Line::Record(record), Some(synced));
        done.blocking_recv()
            .unwrap_or_else(|_| Err(io::Error::other("the journal's thread has ended")))
    }

    /// Safe against the daemon's end at once, against the machine's end with the next sync.
    pub fn record(&self, record: Record) {
        self.send(Line::Record(record), None);
    }

    /// Forgets ids.
    pub fn released(&self, id: String) {
        self.send(Line::Released(id), None);
    }

    fn send(&self, line: Line, synced: Option<oneshot::Sender<io::Result<()>>>) {
        // A sender that is dropped with its request tells the waiting caller.
        let _ = self.requests.send(Request { line, synced });
    }
}

fn replay(folder: &OwnedFd, path: &std::path::Path) -> Result<Replayed, SandboxError> {
    let mut replayed = Replayed::default();
    let file = match rustix::fs::openat(
        folder,
        NAME,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(file) => std::fs::File::from(file),
        Err(rustix::io::Errno::NOENT) => {
            replayed.state_id = hex::encode(rand::random::<[u8; 16]>());
            return Ok(replayed);
        }
        Err(error) => return Err(SandboxError::path(path.join(NAME), "opening")(error.into())),
    };
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        reader
            .read_until(b'\n', &mut text)
            .map_err(SandboxError::path(path.join(NAME), "reading"))?;
        // The end, zero bytes that were written ahead, or a line that a crash tore.
        if text.last() != Some(&b'\n') {
            break;
        }
        let line = serde_json::from_slice(&text).map_err(|error| SandboxError::Records {
            path: path.join(NAME),
            line: number,
            why: error.to_string(),
        })?;
        replayed.take(line);
    }
    if replayed.state_id.is_empty() {
        replayed.state_id = hex::encode(rand::random::<[u8; 16]>());
    }
    Ok(replayed)
}

struct Writer {
    folder: OwnedFd,
    file: std::fs::File,
    end: u64,
    grown: u64,
}

impl Writer {
    fn rewrite(folder: OwnedFd, live: &Replayed) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, NEW_NAME, flags, Mode::from_raw_mode(0o600))?;
        let mut writer = Self {
            folder,
            file: file.into(),
            end: 0,
            grown: 0,
        };
        writer.append(&Line::State(live.state_id.clone()))?;
        for id in &live.released {
            writer.append(&Line::Released(id.clone()))?;
        }
        for record in live.records.values() {
            writer.append(&Line::Record(record.clone()))?;
        }
        writer.file.sync_all()?;
        rustix::fs::renameat(&writer.folder, NEW_NAME, &writer.folder, NAME)?;
        rustix::fs::fsync(writer.folder.as_fd())?;
        Ok(writer)
    }

    fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let end = self.end + bytes.len() as u64;
        if end > self.grown {
            let zeros = vec![0; usize::try_from(AHEAD).unwrap_or(0)];
            let grown = end.next_multiple_of(AHEAD);
            let mut at = self.grown;
            while at < grown {
                self.file.write_all_at(&zeros, at)?;
                at += AHEAD;
            }
            self.grown = grown;
        }
        self.file.write_all_at(&bytes, self.end)?;
        self.end = end;
        Ok(())
    }
}

fn serve(mut writer: Writer, queue: &mpsc::Receiver<Request>, live: &mut Replayed) {
    while let Ok(first) = queue.recv() {
        let group: Vec<Request> = std::iter::once(first)
            .chain(queue.try_iter().take(256))
            .collect();
        let mut waiting = Vec::new();
        for request in group {
            let written = writer.append(&request.line);
            live.take(request.line);
            match (written, request.synced) {
                (Ok(()), Some(synced)) => waiting.push(synced),
                (Err(error), Some(synced)) => drop(synced.send(Err(error))),
                (Ok(()), None) => {}
                (Err(error), None) => tracing::warn!(%error, "a record could not be written"),
            }
        }
        if !waiting.is_empty() {
            let synced = writer.file.sync_data();
            for sender in waiting {
                let copy = synced
                    .as_ref()
                    .map_err(|error| io::Error::new(error.kind(), error.to_string()));
                let _ = sender.send(copy.copied());
            }
        }
        if writer.end > COMPACT_BYTES && writer.end > 4 * size(live) {
            let folder = writer.folder.try_clone();
            match folder.and_then(|folder| Writer::rewrite(folder, live)) {
                Ok(new) => writer = new,
                Err(error) => tracing::warn!(%error, "the journal could not be written anew"),
            }
        }
    }
}

fn size(live: &Replayed) -> u64 {
    live.records.len() as u64 * 1024
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn open(folder: &std::path::Path) -> Result<(Journal, Replayed), SandboxError> {
        Journal::open(std::fs::File::open(folder).unwrap().into(), folder)
    }

    fn record(id: &str) -> Record {
        Record {
            id: id.into(),
            hash: "h".into(),
            started_ms: 1,
            act: Act::Command {
                output: "o".into(),
                end: None,
            },
        }
    }

    #[tokio::test]
    async fn records_survive_and_released_ones_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, first) = open(folder.path()).unwrap();
        for id in ["a", "b", "c"] {
            journal.record_synced(record(id)).await.unwrap();
        }
        journal.released("b".into());
        journal.record_synced(record("d")).await.unwrap();
        drop(journal);
        let (_, second) = open(folder.path()).unwrap();
        assert_eq!(second.state_id, first.state_id);
        let mut ids: Vec<_> = second.records.keys().cloned().collect();
        ids.sort();
        assert_eq!(ids, ["a", "c", "d"]);
        assert_eq!(second.released, ["b"]);
    }

    #[tokio::test]
    async fn a_torn_last_line_is_dropped_and_a_broken_one_in_the_middle_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = open(folder.path()).unwrap();
        journal.record_synced(record("a")).await.unwrap();
        drop(journal);
        let path = folder.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        let end = whole.iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        let mut torn = whole[..end].to_vec();
        torn.extend_from_slice(b"{\"Record\":{\"id\":\"x");
        std::fs::write(&path, &torn).unwrap();
        let (_, replayed) = open(folder.path()).unwrap();
        assert_eq!(replayed.records.len(), 1);

        let mut broken = b"{\"Unheard\":1}\n".to_vec();
        broken.extend_from_slice(&whole[..end]);
        std::fs::write(&path, &broken).unwrap();
        let error = open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
