//! Objects that wait on the harness's volume for the push that names them.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use axum::body::Body;
use futures::StreamExt;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use super::Pointer;
use crate::git::address::Address;

/// Bytes of all objects that wait.
pub const MOST_BYTES: u64 = 4 << 30;
/// How long one waits that no push in progress names.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// Bytes that stay free on the volume, which has the database too.
const RESERVE: u64 = 256 << 20;
/// Ends the name of a file that is not whole.
const PART: &str = ".part";

/// Why an object is not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// It is not what its name says.
    #[error("its content is not that of {0}: send it again")]
    Other(String),
    /// There is no room.
    #[error(
        "large files of {} GiB wait for pushes already, which is the most: have the pushes that wait decided on, and push again",
        MOST_BYTES >> 30
    )]
    Full,
    /// The harness's volume has other uses.
    #[error("the harness's volume has no room for it: enlarge that, or push smaller files")]
    NoRoom,
    /// It broke off, or the disk is full.
    #[error("it broke off: {0}")]
    Io(#[from] std::io::Error),
}

/// The objects that wait, below one folder for each repository.
pub struct Waiting {
    folder: PathBuf,
    held: Arc<Mutex<HashMap<PathBuf, usize>>>,
    /// Bytes that are being written.
    coming: AtomicU64,
}

/// Objects that stay while this is there.
pub struct Held {
    held: Arc<Mutex<HashMap<PathBuf, usize>>>,
    paths: Vec<PathBuf>,
}

fn lock(held: &Mutex<HashMap<PathBuf, usize>>) -> MutexGuard<'_, HashMap<PathBuf, usize>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        for path in &self.paths {
            if let Some(count) = held.get_mut(path) {
                *count -= 1;
                if *count == 0 {
                    held.remove(path);
                }
            }
        }
    }
}

/// Bytes that are promised to one object.
struct Promised<'a> {
    coming: &'a AtomicU64,
    bytes: u64,
}

impl Drop for Promised<'_> {
    fn drop(&mut self) {
        self.coming.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Waiting {
    /// Objects below `folder`. What an earlier process left half is removed.
    pub fn new(folder: PathBuf) -> Waiting {
        let waiting = Waiting {
            folder,
            held: Arc::default(),
            coming: AtomicU64::new(0),
        };
        for (path, _, _) in waiting.files() {
            if path.to_string_lossy().ends_with(PART) {
                let _ = std::fs::remove_file(path);
            }
        }
        waiting
    }

    fn place(&self, repository: &Address) -> PathBuf {
        let name = mooring_durable::id::Hash::of(repository.to_string().as_bytes()).0;
        self.folder.join(&name[..32])
    }

    fn path(&self, repository: &Address, object: &Pointer) -> PathBuf {
        self.place(repository).join(&object.oid)
    }

    /// Remembers that commands use large files of this repository.
    pub fn mark(&self, repository: &Address) {
        if let Err(error) = std::fs::create_dir_all(self.place(repository)) {
            tracing::warn!(%error, "that a repository has large files is not kept");
        }
    }

    /// Whether commands have used large files of this repository.
    pub fn is_marked(&self, repository: &Address) -> bool {
        self.place(repository).is_dir()
    }

    /// The object, where it waits.
    pub fn find(&self, repository: &Address, object: &Pointer) -> Option<PathBuf> {
        let path = self.path(repository, object);
        let found = std::fs::metadata(&path).ok()?;
        (found.len() == object.size).then_some(path)
    }

    /// Keeps these objects as long as what is returned is there.
    pub fn hold(&self, repository: &Address, objects: &[Pointer]) -> Held {
        let paths: Vec<_> = objects.iter().map(|it| self.path(repository, it)).collect();
        let mut held = lock(&self.held);
        for path in &paths {
            *held.entry(path.clone()).or_default() += 1;
        }
        drop(held);
        Held {
            held: self.held.clone(),
            paths,
        }
    }

    /// The host has it.
    pub fn remove(&self, repository: &Address, object: &Pointer) {
        let _ = std::fs::remove_file(self.path(repository, object));
    }

    /// All files: path, bytes, when written.
    fn files(&self) -> Vec<(PathBuf, u64, SystemTime)> {
        let folders = std::fs::read_dir(&self.folder).into_iter().flatten();
        let files = folders
            .flatten()
            .flat_map(|it| std::fs::read_dir(it.path()).into_iter().flatten());
        files
            .flatten()
            .filter_map(|entry| {
                let found = entry.metadata().ok()?;
                let written = found.modified().ok()?;
                found
                    .is_file()
                    .then(|| (entry.path(), found.len(), written))
            })
            .collect()
    }

    /// Makes room for so many bytes: of what no push needs now, the oldest goes.
    fn room(&self, bytes: u64) -> Result<Promised<'_>, NotTaken> {
        self.coming.fetch_add(bytes, Ordering::Relaxed);
        let promised = Promised {
            coming: &self.coming,
            bytes,
        };
        let mut files = self.files();
        // What is being written counts as promised.
        files.retain(|(path, _, _)| !path.to_string_lossy().ends_with(PART));
        files.sort_by_key(|(_, _, written)| *written);
        let coming = self.coming.load(Ordering::Relaxed);
        let mut used = files.iter().map(|(_, bytes, _)| bytes).sum::<u64>() + coming;
        let held = lock(&self.held);
        for (path, bytes, written) in files {
            let old = written.elapsed().is_ok_and(|age| age > LONGEST);
            if (used > MOST_BYTES || old)
                && !held.contains_key(&path)
                && std::fs::remove_file(&path).is_ok()
            {
                used -= bytes;
            }
        }
        match used > MOST_BYTES {
            true => Err(NotTaken::Full),
            false => Ok(promised),
        }
    }

    /// Takes an object in, once its content is what its name says.
    pub async fn take(
        &self,
        repository: &Address,
        object: &Pointer,
        body: Body,
    ) -> Result<(), NotTaken> {
        let _promised = self.room(object.size)?;
        let path = self.path(repository, object);
        let folder = self.place(repository);
        std::fs::create_dir_all(&folder)?;
        let volume = nix::sys::statvfs::statvfs(&folder).map_err(std::io::Error::from)?;
        let free = volume
            .blocks_available()
            .saturating_mul(volume.fragment_size());
        if free < object.size.saturating_add(RESERVE) {
            return Err(NotTaken::NoRoom);
        }
        let part = Part::new(&folder);
        let mut file = tokio::fs::File::create_new(&part.0).await?;
        let mut pieces = body.into_data_stream();
        let mut hash = Sha256::new();
        let mut bytes = 0;
        let other = || NotTaken::Other(object.oid.clone());
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(std::io::Error::other)?;
            bytes += piece.len() as u64;
            if bytes > object.size {
                return Err(other());
            }
            hash.update(&piece);
            file.write_all(&piece).await?;
        }
        if bytes != object.size || hex::encode(hash.finalize()) != object.oid {
            return Err(other());
        }
        file.sync_all().await?;
        std::fs::rename(&part.0, &path)?;
        Ok(())
    }
}

/// A file that is not whole; it goes where it does not become so.
struct Part(PathBuf);

impl Part {
    fn new(folder: &Path) -> Part {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Part(folder.join(format!("{}-{number}{PART}", std::process::id())))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn object(content: &[u8]) -> Pointer {
        let oid = hex::encode(Sha256::digest(content));
        Pointer::new(&oid, content.len() as u64).unwrap()
    }

    #[tokio::test]
    async fn only_what_its_name_says_is_taken_and_nothing_half_stays() {
        let folder = tempfile::tempdir().unwrap();
        let waiting = Waiting::new(folder.path().into());
        let repository = Address::parse("https://git.example.com/a/b").unwrap();
        assert!(!waiting.is_marked(&repository));
        let right = object(b"right");
        for wrong in ["righ", "right!", "wrong"] {
            let taken = waiting.take(&repository, &right, Body::from(wrong)).await;
            assert!(matches!(taken, Err(NotTaken::Other(_))), "{wrong}");
        }
        assert!(waiting.files().is_empty());
        assert_eq!(waiting.find(&repository, &right), None);
        waiting
            .take(&repository, &right, Body::from("right"))
            .await
            .unwrap();
        let path = waiting.find(&repository, &right).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"right");
        assert!(waiting.is_marked(&repository));
        waiting.remove(&repository, &right);
        assert_eq!(waiting.find(&repository, &right), None);
    }

    #[test]
    fn room_is_made_of_what_no_push_needs() {
        let folder = tempfile::tempdir().unwrap();
        let waiting = Waiting::new(folder.path().into());
        let repository = Address::parse("https://git.example.com/a/b").unwrap();
        let (needed, other) = (object(b"needed"), object(b"other"));
        waiting.mark(&repository);
        for it in [&needed, &other] {
            // As large as all that may wait, without a byte on the disk.
            let file = std::fs::File::create(waiting.path(&repository, it)).unwrap();
            file.set_len(MOST_BYTES / 2).unwrap();
        }
        let held = waiting.hold(&repository, std::slice::from_ref(&needed));
        let promised = waiting.room(1).unwrap();
        assert!(waiting.path(&repository, &needed).exists());
        assert!(!waiting.path(&repository, &other).exists());
        assert!(matches!(waiting.room(MOST_BYTES / 2), Err(NotTaken::Full)));
        drop((promised, held));
        assert!(waiting.room(MOST_BYTES).is_ok());
    }
}
