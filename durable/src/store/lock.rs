//! One owner: an OS lock on a file beside the database.

use std::{
    fs::File,
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::error::OpenError;

/// Held as long as the session is open. The file stays when it is dropped: its
/// text also remembers that there was a database.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    /// What the last owner wrote.
    pub before: String,
}

/// Where the lock of the database at `path` is.
pub(crate) fn path_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

impl Lock {
    /// Takes the lock, or says who has it.
    pub fn take(path: &Path) -> Result<Lock, OpenError> {
        let lock = path_of(path);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    OpenError::ReadOnly {
                        path: path.into(),
                        reason: format!("its lock {}: {error}", lock.display()),
                    }
                }
                std::io::ErrorKind::StorageFull => OpenError::StorageFull { path: path.into() },
                _ => OpenError::Other {
                    path: lock.clone(),
                    reason: error.to_string(),
                },
            })?;
        let mut before = String::new();
        // An unreadable text only costs the name of the holder.
        let _ = file.read_to_string(&mut before);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { file, before }),
            Err(Errno::WOULDBLOCK) => Err(OpenError::Owned {
                path: path.into(),
                holder: before
                    .lines()
                    .next()
                    .filter(|line| !line.is_empty())
                    .unwrap_or("another process")
                    .to_owned(),
            }),
            Err(error) => Err(OpenError::Other {
                path: lock,
                reason: format!("it cannot be locked: {error}"),
            }),
        }
    }

    /// Whether a database of that lock existed before.
    pub fn had_database(&self) -> bool {
        self.before
            .lines()
            .any(|line| line.starts_with("incarnation "))
    }

    /// Writes who holds it, for the next one who asks.
    pub fn sign(&mut self, incarnation: &str) -> std::io::Result<()> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let text = format!(
            "process {} on {} since {}\nincarnation {incarnation}\n",
            std::process::id(),
            if host.trim().is_empty() {
                "this machine"
            } else {
                host.trim()
            },
            jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC"),
        );
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }
}
