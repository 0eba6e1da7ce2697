//! Writing and editing files, each once per execution id.
//!
//! A file is replaced as a whole: a temporary file beside it, synced, renamed
//! over it. The record that is synced before holds the hashes of before and
//! after, so that after a crash the file itself says whether it was done.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mooring_wire::sandbox::edit_request::Replacement;
use rustix::fs::{AtFlags, Mode, OFlags};
use sha2::{Digest, Sha256};

use crate::executions::{ExecutionError, Executions};
use crate::journal::FileEnd;
use crate::paths::{CanonicalPath, FileError, Paths};
use crate::read::is_text;

/// Larger files are not edited, nor replaced with a diff.
pub const MAX_FILE_BYTES: u64 = 32 << 20;
const MAX_DIFF_BYTES: usize = 20 << 10;
/// Beyond this a diff would cost more than it tells.
const MAX_DIFFED_BYTES: usize = 2 << 20;

/// What is to become of a file.
pub enum Change {
    Write(bytes::Bytes),
    Edit(Vec<Replacement>),
}

/// Why nothing was done and nothing was recorded, so that the id may be sent again.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Execution(#[from] ExecutionError),
}

/// One lock per file that is being changed.
#[derive(Default)]
pub struct FileLocks(Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>);

impl FileLocks {
    /// Runs `work` while no other change of this file runs.
    fn with<T>(&self, path: &Path, work: impl FnOnce() -> T) -> T {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(path.to_owned()).or_default())
        };
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}

/// Changes one file. `interrupted` holds the recorded hashes of an attempt that a crash cut off.
pub fn change(
    paths: &Paths,
    executions: &Executions,
    locks: &FileLocks,
    id: &str,
    path: &CanonicalPath,
    change: &Change,
    interrupted: Option<(String, String)>,
) -> Result<FileEnd, WriteError> {
    locks.with(path.as_path(), || {
        if executions.is_forbidden(path.as_path()) {
            return Ok(FileEnd::Refused(format!(
                "{} cannot be made: git would obey it outside the sandbox",
                path.as_path().display()
            )));
        }
        let before = read_before(paths, path)?;
        let hash_before = before
            .as_ref()
            .map(|(bytes, _)| digest(bytes))
            .unwrap_or_default();
        if let Some((from, to)) = &interrupted {
            forget_temporary(paths, path, id);
            if let (true, Some((bytes, _))) = (hash_before == *to && !to.is_empty(), &before) {
                return Ok(FileEnd::Written {
                    created: from.is_empty(),
                    bytes: bytes.len() as u64,
                    before: from.clone(),
                    after: to.clone(),
                    diff: String::new(),
                });
            }
            if !to.is_empty() && hash_before != *from {
                return Ok(FileEnd::Refused(format!(
                    "{} was changed by something else while the sandbox restarted; read it again",
                    path.as_path().display()
                )));
            }
        }
        let old: &[u8] = before.as_ref().map_or(&[], |(bytes, _)| bytes);
        let new = match change {
            Change::Write(content) => content.clone(),
            Change::Edit(replacements) => {
                if before.is_none() {
                    return Ok(FileEnd::Refused(format!(
                        "{} does not exist",
                        path.as_path().display()
                    )));
                }
                match edit(old, replacements) {
                    Ok(new) => new.into(),
                    Err(refused) => {
                        return Ok(FileEnd::Refused(format!(
                            "{}: {refused}",
                            path.as_path().display()
                        )));
                    }
                }
            }
        };
        let hash_after = digest(&new);
        executions.file_intent(id, &hash_before, &hash_after)?;
        let mode = before.as_ref().map(|(_, mode)| *mode);
        match replace(paths, path, &new, mode, &temporary_name(id)) {
            Ok(()) => {}
            Err(error @ (FileError::Refused(..) | FileError::NotFound(_))) => {
                return Ok(FileEnd::Refused(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(FileEnd::Written {
            created: before.is_none(),
            bytes: new.len() as u64,
            before: hash_before,
            after: hash_after,
            diff: diff(path.as_path(), old, &new),
        })
    })
}

/// The same at each attempt, so that what a crash has left is found.
fn temporary_name(id: &str) -> String {
    format!(".mooring-{}.tmp", &digest(id.as_bytes())[..16])
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Removes what an attempt that a crash cut off has left beside the file.
fn forget_temporary(paths: &Paths, path: &CanonicalPath, id: &str) {
    if let Some((folder, _)) = path.split()
        && let Ok(folder) = paths.open(&folder, OFlags::RDONLY | OFlags::DIRECTORY)
    {
        let _ = rustix::fs::unlinkat(&folder, temporary_name(id), AtFlags::empty());
    }
}

/// Content and mode, `None` where there is no file yet.
fn read_before(paths: &Paths, path: &CanonicalPath) -> Result<Option<(Vec<u8>, u32)>, FileError> {
    let (file, stat) = match paths.open_file(path) {
        Ok(found) => found,
        Err(FileError::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(FileError::Refused(
            path.as_path().to_owned(),
            "is larger than 32 MiB; change it by a command",
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| FileError::at(path.as_path(), error))?;
    Ok(Some((bytes, stat.st_mode & 0o7777)))
}

fn replace(
    paths: &Paths,
    path: &CanonicalPath,
    bytes: &[u8],
    mode: Option<u32>,
    temporary: &str,
) -> Result<(), FileError> {
    let Some((folder, name)) = path.split() else {
        return Err(FileError::Refused(
            path.as_path().to_owned(),
            "is a directory",
        ));
    };
    let folder = open_folder(paths, &folder)?;
    let failed = |error: io::Error| FileError::at(path.as_path(), error);
    // A file that its owner may not write stays as it is, though its folder could be changed.
    if mode.is_some() {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::openat(&folder, &name, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
    }
    // One that a crash left is of this same change.
    let _ = rustix::fs::unlinkat(&folder, temporary, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let created = rustix::fs::openat(&folder, temporary, flags, Mode::from_raw_mode(0o666))
        .map_err(|e| failed(e.into()))?;
    let written = (|| {
        let mut file = std::fs::File::from(created);
        file.write_all(bytes)?;
        if let Some(mode) = mode {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        file.sync_data()?;
        rustix::fs::renameat(&folder, temporary, &folder, &name)?;
        Ok(())
    })();
    written.map_err(|error| {
        let _ = rustix::fs::unlinkat(&folder, temporary, AtFlags::empty());
        failed(error)
    })
}

/// Opens a folder, making those that are missing; follows no symlink.
fn open_folder(paths: &Paths, folder: &CanonicalPath) -> Result<OwnedFd, FileError> {
    match paths.open(folder, OFlags::RDONLY | OFlags::DIRECTORY) {
        Err(FileError::NotFound(_)) => {}
        other => return other,
    }
    let Some((parent, name)) = folder.split() else {
        return Err(FileError::NotFound(folder.as_path().to_owned()));
    };
    let parent = open_folder(paths, &parent)?;
    match rustix::fs::mkdirat(parent.as_fd(), &name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(FileError::at(folder.as_path(), error)),
    }
    paths.open(folder, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Applies the replacements in turn; the error is a text for the model.
fn edit(old: &[u8], replacements: &[Replacement]) -> Result<Vec<u8>, String> {
    if replacements.is_empty() {
        return Err("no replacement was given".into());
    }
    let mut text = old.to_vec();
    for (number, replacement) in (1..).zip(replacements) {
        let which = if replacements.len() == 1 {
            String::new()
        } else {
            format!("replacement {number}: ")
        };
        if replacement.old.is_empty() {
            return Err(format!("{which}`old` is empty; use write for a new file"));
        }
        if replacement.old == replacement.new {
            return Err(format!("{which}`old` and `new` are equal"));
        }
        let found = occurrences(&text, replacement.old.as_bytes());
        match found.as_slice() {
            [] => {
                return Err(format!(
                    "{which}`old` was not found{}",
                    why_not(&text, &replacement.old)
                ));
            }
            [_] => {}
            _ if replacement.all => {}
            several => {
                let lines: Vec<String> = several
                    .iter()
                    .take(10)
                    .map(|at| {
                        (text[..*at].iter().filter(|byte| **byte == b'\n').count() + 1).to_string()
                    })
                    .collect();
                return Err(format!(
                    "{which}`old` was found {} times (lines {}{}); give more of the text around the one you mean, or replace all",
                    several.len(),
                    lines.join(", "),
                    if several.len() > 10 { ", …" } else { "" },
                ));
            }
        }
        let mut new = Vec::with_capacity(text.len());
        let mut from = 0;
        for at in found {
            new.extend_from_slice(&text[from..at]);
            new.extend_from_slice(replacement.new.as_bytes());
            from = at + replacement.old.len();
        }
        new.extend_from_slice(&text[from..]);
        if new.len() as u64 > MAX_FILE_BYTES {
            return Err(format!("{which}the file would become larger than 32 MiB"));
        }
        text = new;
    }
    Ok(text)
}

/// Where `needle` begins, without overlaps.
fn occurrences(text: &[u8], needle: &[u8]) -> Vec<usize> {
    memchr::memmem::find_iter(text, needle).collect()
}

/// A hint where only whitespace stands between the model and its match.
fn why_not(text: &[u8], old: &str) -> &'static str {
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = String::from_utf8_lossy(text);
    if text.contains("\r\n") && !old.contains('\r') && text.replace("\r\n", "\n").contains(old) {
        "; the file's lines end with CR LF"
    } else if squeeze(&text).contains(&squeeze(old)) {
        "; it is there with other spaces or line breaks: copy it exactly as it stands"
    } else {
        "; read the file again"
    }
}

/// Unified, with the file's name, bounded; empty where nothing can be shown.
fn diff(path: &Path, old: &[u8], new: &[u8]) -> String {
    if old == new || old.len() + new.len() > MAX_DIFFED_BYTES || !is_text(old) || !is_text(new) {
        return String::new();
    }
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut text = similar::TextDiff::configure()
        .timeout(Duration::from_millis(200))
        .diff_lines(old.as_ref(), new.as_ref())
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{name}"), &format!("b/{name}"))
        .to_string();
    if text.len() > MAX_DIFF_BYTES {
        const CUT: &str = "\n[diff cut]\n";
        text.truncate(text.floor_char_boundary(MAX_DIFF_BYTES - CUT.len()));
        text.push_str(CUT);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn replacement(old: &str, new: &str, all: bool) -> Replacement {
        Replacement {
            old: old.into(),
            new: new.into(),
            all,
        }
    }

    #[test]
    fn an_edit_demands_exactly_one_match_or_all() {
        let table: &[(&str, Vec<Replacement>, Result<&str, &str>)] = &[
            ("a b c", vec![replacement("b", "x", false)], Ok("a x c")),
            ("a b a", vec![replacement("a", "x", true)], Ok("x b x")),
            (
                "a",
                vec![replacement("a", "b", false), replacement("b", "c", false)],
                Ok("c"),
            ),
            (
                "a\nb\na\n",
                vec![replacement("a", "x", false)],
                Err("found 2 times (lines 1, 3)"),
            ),
            (
                "a",
                vec![replacement("z", "x", false)],
                Err("not found; read the file again"),
            ),
            (
                "a  b",
                vec![replacement("a b", "x", false)],
                Err("other spaces"),
            ),
            (
                "a\r\nb",
                vec![replacement("a\nb", "x", false)],
                Err("CR LF"),
            ),
            ("a", vec![replacement("", "x", false)], Err("empty")),
            ("a", vec![replacement("a", "a", false)], Err("equal")),
            (
                "a",
                vec![replacement("a", "b", false), replacement("a", "c", false)],
                Err("replacement 2"),
            ),
            ("a", vec![], Err("no replacement")),
        ];
        for (old, replacements, expected) in table {
            match (edit(old.as_bytes(), replacements), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected.as_bytes()),
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, _) => panic!("{old:?}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn an_edit_keeps_bytes_that_are_no_utf8() {
        let found = edit(b"\xff a \xfe", &[replacement("a", "b", false)]).unwrap();
        assert_eq!(found, b"\xff b \xfe");
    }

    #[test]
    fn a_diff_is_bounded() {
        let new: String = (0..10_000).map(|line| format!("line {line}\n")).collect();
        let text = diff(Path::new("/p/file"), b"", new.as_bytes());
        assert!(
            text.starts_with("--- a/file\n+++ b/file\n"),
            "{}",
            &text[..60]
        );
        assert!(text.len() <= MAX_DIFF_BYTES && text.ends_with("[diff cut]\n"));
        assert_eq!(diff(Path::new("/f"), b"a\0", b"b\0"), "");
    }
}
