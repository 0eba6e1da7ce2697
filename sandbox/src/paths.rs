//! Paths: what they lead to, and opening them without being led elsewhere.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// As many symlinks as the kernel follows (path_resolution(7)).
const MAX_LINKS: u32 = 40;
const PROC_MAGIC: i64 = 0x9fa0;
const SYSFS_MAGIC: i64 = 0x6265_6572;

/// Why a file operation did not happen.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// No such file or folder.
    #[error("{} does not exist", .0.display())]
    NotFound(PathBuf),
    /// A symlink lies where there was none when the path was resolved.
    #[error("{} has changed since it was resolved; resolve it again", .0.display())]
    Changed(PathBuf),
    /// Not served: devices, sockets, `/proc`, the daemon's own folders.
    #[error("{path} {why}", path = .0.display(), why = .1)]
    Refused(PathBuf, &'static str),
    /// The request itself.
    #[error("{0}")]
    Invalid(String),
    /// What the system said.
    #[error("{path}: {why}", path = .0.display(), why = .1)]
    Io(PathBuf, io::Error),
}

impl FileError {
    pub(crate) fn at(path: &Path, errno: impl Into<io::Error>) -> Self {
        let error: io::Error = errno.into();
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Self::NotFound(path.to_owned()),
            Some(Errno::LOOP | Errno::XDEV) => Self::Changed(path.to_owned()),
            Some(Errno::ROFS) => Self::Refused(path.to_owned(), "is read-only in the sandbox"),
            Some(Errno::NXIO) => Self::Refused(path.to_owned(), "is no regular file"),
            _ => Self::Io(path.to_owned(), error),
        }
    }
}

/// An absolute path without `.`, `..` and empty parts; symlinks in it are refused when it is opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CanonicalPath(PathBuf);

impl CanonicalPath {
    /// Checks the form only.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let path = Path::new(text);
        let plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let rebuilt: PathBuf = path.components().collect();
        if !path.is_absolute()
            || !plain
            || rebuilt.as_os_str() != path.as_os_str()
            || text.contains('\0')
        {
            return Err(FileError::Invalid(format!(
                "`{text}` is no canonical path; resolve it first"
            )));
        }
        Ok(Self(rebuilt))
    }

    /// The path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The folder that it lies in and its name; the root has neither.
    pub fn split(&self) -> Option<(CanonicalPath, OsString)> {
        Some((
            Self(self.0.parent()?.to_owned()),
            self.0.file_name()?.to_owned(),
        ))
    }
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub canonical: PathBuf,
    pub exists: bool,
    pub in_project: bool,
    /// As the contract spells it.
    pub kind: &'static str,
    pub hard_links: u64,
}

/// The places that paths are relative to, and those that are closed.
#[derive(Clone, Debug)]
pub struct Paths {
    pub project: PathBuf,
    /// Where worktrees lie.
    pub threads: Option<PathBuf>,
    pub home: PathBuf,
    /// The daemon's own folders.
    pub private: Vec<PathBuf>,
    /// Below a private folder, but open: the output files.
    pub output: PathBuf,
}

impl Paths {
    /// The worktree that a request names in place of the project; the project itself
    /// where it names none.
    pub fn base(&self, named: &str) -> Result<PathBuf, FileError> {
        if named.is_empty() {
            return Ok(self.project.clone());
        }
        let path = CanonicalPath::parse(named)?.0;
        match path.parent().map(Path::to_owned) == self.threads && self.threads.is_some() {
            true => Ok(path),
            false => Err(FileError::Invalid(format!("{named} is no worktree"))),
        }
    }

    /// Follows symlinks; opens nothing. Relative paths begin at `base`, which counts as
    /// the project.
    pub fn resolve(&self, text: &str, base: &Path) -> Result<Resolved, FileError> {
        if text.is_empty() || text.contains('\0') {
            return Err(FileError::Invalid(
                "a path is empty or holds a zero byte".into(),
            ));
        }
        let path = match text.strip_prefix('~') {
            Some("") => self.home.clone(),
            Some(rest) if rest.starts_with('/') => self.home.join(rest.trim_start_matches('/')),
            _ => base.join(text),
        };
        let resolved = |canonical: PathBuf, exists, kind, hard_links| Resolved {
            in_project: canonical.starts_with(base),
            canonical,
            exists,
            kind,
            hard_links,
        };
        let (canonical, exists) = match walk(&path)? {
            Walked::There(path) => (path, true),
            Walked::Missing(path) => (path, false),
            Walked::Loop(path) => return Ok(resolved(path, false, "symlink-loop", 0)),
        };
        if self.is_closed(&canonical) {
            return Ok(resolved(canonical, exists, "refused", 0));
        }
        if !exists {
            return Ok(resolved(canonical, false, "", 0));
        }
        let stat = rustix::fs::lstat(&canonical).map_err(|e| FileError::at(&canonical, e))?;
        let kind = kind(&stat);
        let links = if kind == "file" { stat.st_nlink } else { 1 };
        Ok(resolved(canonical, true, kind, links))
    }

    /// Opens a canonical path; fails where any part of it has become a symlink.
    ///
    /// Never blocks on a pipe and never takes a terminal.
    pub fn open(&self, path: &CanonicalPath, flags: OFlags) -> Result<OwnedFd, FileError> {
        let path = path.as_path();
        if self.is_closed(path) {
            return Err(FileError::Refused(path.to_owned(), "is not served"));
        }
        let mut flags = flags | OFlags::CLOEXEC;
        // openat2 takes neither together with O_PATH.
        if !flags.contains(OFlags::PATH) {
            flags |= OFlags::NONBLOCK | OFlags::NOCTTY;
        }
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let fd = match rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve) {
            // Linux before 5.6, and some that filter system calls.
            Err(Errno::NOSYS | Errno::PERM) => open_by_parts(path, flags),
            other => other,
        }
        .map_err(|error| FileError::at(path, error))?;
        let system = rustix::fs::fstatfs(&fd)
            .map_err(|e| FileError::at(path, e))?
            .f_type;
        if [PROC_MAGIC, SYSFS_MAGIC].contains(&system) {
            return Err(FileError::Refused(path.to_owned(), "is not served"));
        }
        Ok(fd)
    }

    /// Opens a regular file for reading.
    pub fn open_file(&self, path: &CanonicalPath) -> Result<(std::fs::File, Stat), FileError> {
        let fd = self.open(path, OFlags::RDONLY)?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| FileError::at(path.as_path(), e))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((fd.into(), stat)),
            FileType::Directory => Err(FileError::Refused(
                path.as_path().to_owned(),
                "is a directory",
            )),
            _ => Err(FileError::Refused(
                path.as_path().to_owned(),
                "is no regular file",
            )),
        }
    }

    fn is_closed(&self, path: &Path) -> bool {
        let own = self.private.iter().any(|private| path.starts_with(private));
        (own && !path.starts_with(&self.output))
            || path.starts_with("/proc")
            || path.starts_with("/sys")
    }
}

/// The contract's word for a kind of file.
pub fn kind(stat: &Stat) -> &'static str {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        _ => "refused",
    }
}

enum Walked {
    There(PathBuf),
    Missing(PathBuf),
    Loop(PathBuf),
}

fn walk(path: &Path) -> Result<Walked, FileError> {
    let mut open: VecDeque<OsString> = VecDeque::new();
    push_front(&mut open, path);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    let mut missing = false;
    while let Some(part) = open.pop_front() {
        if part == ".." {
            if missing {
                return Err(FileError::NotFound(at));
            }
            at.pop();
            continue;
        }
        at.push(&part);
        if missing || at == Path::new("/proc") {
            missing = true;
            continue;
        }
        match rustix::fs::lstat(&at) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Ok(Walked::Loop(path.to_owned()));
                }
                let target = std::fs::read_link(&at).map_err(|e| FileError::Io(at.clone(), e))?;
                at.pop();
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                push_front(&mut open, &target);
            }
            Ok(_) => {}
            Err(Errno::NOENT) => missing = true,
            Err(Errno::NOTDIR) => {
                let file = at.parent().unwrap_or(&at).to_owned();
                return Err(FileError::Refused(file, "is a file, not a directory"));
            }
            Err(error) => return Err(FileError::at(&at, error)),
        }
    }
    Ok(if missing {
        Walked::Missing(at)
    } else {
        Walked::There(at)
    })
}

fn push_front(open: &mut VecDeque<OsString>, path: &Path) {
    for part in path.components().rev() {
        match part {
            Component::Normal(name) => open.push_front(name.to_owned()),
            Component::ParentDir => open.push_front("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

/// What `openat2` does, one part after the other.
pub(crate) fn open_by_parts(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::open("/", folder, Mode::empty())?;
    let parts: Vec<_> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let Some((last, parents)) = parts.split_last() else {
        return rustix::fs::open("/", flags | OFlags::NOFOLLOW, Mode::empty());
    };
    for part in parents {
        at = rustix::fs::openat(at.as_fd(), *part, folder, Mode::empty()).map_err(|error| {
            let link = rustix::fs::statat(at.as_fd(), *part, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
            if link { Errno::LOOP } else { error }
        })?;
    }
    rustix::fs::openat(at.as_fd(), *last, flags | OFlags::NOFOLLOW, Mode::empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    fn paths(project: &Path) -> Paths {
        Paths {
            project: project.to_owned(),
            threads: None,
            home: project.join("home"),
            private: vec![project.join("private")],
            output: project.join("private/output"),
        }
    }

    #[test]
    fn a_path_is_followed_to_what_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["a", "home", "private/output"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join("a/file"), "x").unwrap();
        std::fs::hard_link(root.join("a/file"), root.join("a/second")).unwrap();
        symlink("a", root.join("link")).unwrap();
        symlink("/etc", root.join("out")).unwrap();
        symlink("nowhere/x", root.join("dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("/proc/self/environ", root.join("environ")).unwrap();
        let paths = paths(&root);
        let table: &[(&str, &str, &str, bool, u64)] = &[
            ("a/file", "a/file", "file", true, 2),
            ("./link/../a/./file", "a/file", "file", true, 2),
            ("link/file", "a/file", "file", true, 2),
            ("link", "a", "directory", true, 1),
            ("~", "home", "directory", true, 1),
            ("~/new", "home/new", "", true, 0),
            ("link/new/deep", "a/new/deep", "", true, 0),
            ("dangling", "nowhere/x", "", true, 0),
            ("loop", "loop", "symlink-loop", true, 0),
            ("out/passwd", "/etc/passwd", "file", false, 1),
            ("environ", "/proc/self/environ", "refused", false, 0),
            ("/dev/null", "/dev/null", "refused", false, 1),
            ("private/key", "private/key", "refused", true, 0),
            ("private/output/1", "private/output/1", "", true, 0),
        ];
        for (given, canonical, kind, in_project, links) in table {
            let found = paths.resolve(given, &root).unwrap();
            let canonical = if *given == "loop" {
                root.join("loop")
            } else {
                root.join(canonical)
            };
            assert_eq!(found.canonical, canonical, "{given}");
            assert_eq!(
                (found.kind, found.in_project, found.hard_links),
                (*kind, *in_project, *links),
                "{given}"
            );
        }
        for given in ["missing/../a", "a/file/x", ""] {
            assert!(paths.resolve(given, &root).is_err(), "{given}");
        }
    }

    #[test]
    fn a_path_that_became_a_symlink_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::fs::write(root.join("real/file"), "x").unwrap();
        symlink("real", root.join("link")).unwrap();
        symlink("real/file", root.join("file")).unwrap();
        let paths = paths(&root);
        for (path, open) in [("real/file", true), ("link/file", false), ("file", false)] {
            let path = root.join(path);
            let canonical = CanonicalPath::parse(path.to_str().unwrap()).unwrap();
            let found = paths.open_file(&canonical);
            assert_eq!(found.is_ok(), open, "{}", path.display());
            if let Err(error) = found {
                assert!(matches!(error, FileError::Changed(_)), "{error}");
            }
            let by_parts = open_by_parts(&path, OFlags::RDONLY);
            assert_eq!(by_parts.is_ok(), open, "{}", path.display());
            if let Err(error) = by_parts {
                assert_eq!(error, Errno::LOOP);
            }
        }
    }

    #[test]
    fn only_the_plain_form_is_canonical() {
        for text in ["", "a", "./a", "/a/../b", "/a/./b", "/a//b", "/a/", "/a\0"] {
            assert!(CanonicalPath::parse(text).is_err(), "{text:?}");
        }
        for text in ["/", "/a", "/a/b c"] {
            assert!(CanonicalPath::parse(text).is_ok(), "{text:?}");
        }
    }
}
