//! The folders that a sandbox is made of: found, checked, made, held.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::error::SandboxError;

/// How long a dying predecessor may hold the state folder.
const LOCK_PATIENCE: Duration = Duration::from_secs(15);

pub fn check_project(project: &Path, home: &Path) -> Result<(), SandboxError> {
    let system = [
        "/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/dev", "/proc", "/sys", "/run", "/tmp",
        "/var", "/home",
    ];
    let why = if !project.is_dir() {
        "it is no folder"
    } else if home.starts_with(project) {
        "it holds your home; choose a folder below"
    } else if system.iter().any(|folder| project == Path::new(folder)) {
        "it belongs to the system; choose a folder below"
    } else {
        return Ok(());
    };
    Err(SandboxError::Project {
        path: project.to_owned(),
        why,
    })
}

pub fn prepare_state(path: &Path) -> Result<PathBuf, SandboxError> {
    folder(path, 0o700)?;
    let state = canonical(path)?;
    folder(&state.join("records"), 0o700)?;
    folder(&state.join("output"), 0o755)?;
    Ok(state)
}

pub fn lock(state: &Path) -> Result<OwnedFd, SandboxError> {
    let path = state.join("lock");
    let fd = rustix::fs::open(
        &path,
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o600),
    )
    .map_err(|e| SandboxError::path(&path, "opening")(e.into()))?;
    let since = Instant::now();
    while rustix::fs::flock(fd.as_fd(), FlockOperation::NonBlockingLockExclusive).is_err() {
        if since.elapsed() > LOCK_PATIENCE {
            let holder = std::fs::read_to_string(&path).unwrap_or_default();
            return Err(SandboxError::Owned {
                state: state.to_owned(),
                holder: holder.trim().to_owned(),
            });
        }
        // The kernel tells nobody when a lock becomes free but a blocked caller,
        // which could not give up.
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::write(&path, std::process::id().to_string())
        .map_err(SandboxError::path(&path, "writing"))?;
    Ok(fd)
}

pub fn folder(path: &Path, mode: u32) -> Result<(), SandboxError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(SandboxError::path(path, "making the folder"))
}

pub fn clear(path: &Path) -> Result<(), SandboxError> {
    let failed = |error| SandboxError::path(path, "emptying")(error);
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let gone = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir_all(entry.path())
        } else {
            std::fs::remove_file(entry.path())
        };
        // What a command made unremovable stays; it is its own temporary file.
        let _ = gone;
    }
    Ok(())
}

pub fn canonical(path: &Path) -> Result<PathBuf, SandboxError> {
    path.canonicalize()
        .map_err(SandboxError::path(path, "resolving"))
}

pub fn open_folder(path: &Path) -> Result<OwnedFd, SandboxError> {
    rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|e| SandboxError::path(path, "opening")(e.into()))
}

/// Every entry of a folder, split further where a private path lies below.
pub fn everything_but(folder: &Path, private: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if private.contains(&path) {
            continue;
        }
        if private.iter().any(|hidden| hidden.starts_with(&path)) {
            all.extend(everything_but(&path, private));
        } else {
            all.push(path);
        }
    }
    all
}
