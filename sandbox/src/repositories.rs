//! Git repositories that commands make while the daemon runs.
//!
//! Those that were there before are protected by mounts (see [`crate::guard`]).
//! A new one must stay usable, so its files are looked at whenever a command
//! has ended, before the outcome is told: configuration keeps only settings
//! that make git run nothing, hooks go, and pointers (`.git` files, symlinks,
//! `commondir`) may lead only to folders of the project that are looked at too.
//!
//! Folders are found by a walk that reads a folder again only when its change
//! time is new, which no command can set back.
//!
//! Not covered: what a command writes acts outside until that command ends,
//! and stays where the daemon is killed under it; folders beyond
//! [`MAX_FOLDERS`], which the outcome says when it comes to that; a bare
//! repository that is made by file operations alone, until the next command
//! ends. A repository that a person makes or configures in the project
//! meanwhile cannot be told from a command's, and is treated like one.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::gitconfig;
use crate::guard::{self, Guarded, is_bulk};
use crate::paths::open_by_parts;

/// Folders that are looked through: those near the top first, packages last.
pub const MAX_FOLDERS: usize = 30_000;
/// A change this shortly before a reading may not be seen by its time.
const UNSETTLED: Duration = Duration::from_millis(100);
/// So many folders are looked at before another thread could have begun.
const FOLDERS_OF_ONE_THREAD: usize = 1_000;
/// A configuration beyond this is not read, but replaced.
const MAX_CONFIG: u64 = 256 << 10;
/// Lines for the model, at most.
const MAX_NOTES: usize = 12;

/// Identity and change time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    changed: Duration,
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        let seconds = u64::try_from(stat.st_ctime).unwrap_or(0);
        let nanos = u32::try_from(stat.st_ctime_nsec).unwrap_or(0);
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            changed: Duration::new(seconds, nanos.min(999_999_999)),
        }
    }
}

/// What a folder held when it was read.
#[derive(Debug)]
struct Listing {
    stamp: Stamp,
    read_at: Duration,
    below: Vec<OsString>,
    has_git: bool,
    /// It has the parts of a git folder itself.
    is_git: bool,
}

impl Listing {
    /// Whether it still says what a folder holds that is like this now.
    fn is_of(&self, stamp: Stamp) -> bool {
        self.stamp == stamp && stamp.changed + UNSETTLED < self.read_at
    }
}

/// What git would obey in a git folder, as it was before any command.
type Print = Vec<(OsString, Stamp)>;

/// Looks after the repositories of one project.
#[derive(Debug)]
pub struct Repositories {
    project: PathBuf,
    guarded: Guarded,
    folders: HashMap<PathBuf, Listing>,
    /// What those folders led to.
    found: Vec<PathBuf>,
    before: HashMap<PathBuf, Print>,
    capped: bool,
    begun: bool,
}

impl Repositories {
    /// Remembers what is there now, and changes nothing of that.
    pub fn new(project: PathBuf, guarded: Guarded) -> Self {
        let mut this = Self {
            project,
            guarded,
            folders: HashMap::new(),
            found: Vec::new(),
            before: HashMap::new(),
            capped: false,
            begun: false,
        };
        for entry in this.find() {
            if let Some(target) = pointed(&entry) {
                let print = print_of(&target);
                this.before.insert(target, print);
            }
            let print = print_of(&entry);
            this.before.insert(entry, print);
        }
        let pinned: Vec<PathBuf> = this.guarded.pinned.iter().cloned().collect();
        for folder in pinned.iter().flat_map(|git| worktrees(git)) {
            let print = print_of(&folder);
            this.before.insert(folder, print);
        }
        this.begun = true;
        this
    }

    /// Makes harmless what commands left; returns what was done, for the model.
    pub fn sweep(&mut self) -> Vec<String> {
        let capped = self.capped;
        let entries = self.find();
        let mut mending = Mending {
            project: &self.project,
            guarded: &self.guarded,
            before: &self.before,
            done: BTreeSet::new(),
            notes: guard::sweep(&self.guarded.forbidden)
                .iter()
                .map(|path| {
                    format!(
                        "removed {}: git would obey it outside the sandbox",
                        path.display()
                    )
                })
                .collect(),
        };
        for entry in entries {
            mending.entry(&entry);
        }
        for git in &self.guarded.pinned {
            mending.worktrees(git);
        }
        let mut notes = mending.notes;
        if notes.len() > MAX_NOTES {
            let more = notes.len() - MAX_NOTES;
            notes.truncate(MAX_NOTES);
            notes.push(format!("and {more} more of that kind"));
        }
        if self.capped && !capped {
            notes.push(format!(
                "the project has more than {MAX_FOLDERS} folders: not all are searched for repositories"
            ));
        }
        notes
    }

    /// The common case, at the price of one system call a folder; of many folders,
    /// by several threads at once, for a command's end waits for it.
    fn is_unchanged(&self) -> bool {
        if self.folders.is_empty() {
            return false;
        }
        let is_as_read = |(path, listing): &(&PathBuf, &Listing)| {
            folder_stat(path).is_some_and(|stat| listing.is_of(Stamp::of(&stat)))
        };
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4));
        if threads == 1 || self.folders.len() < FOLDERS_OF_ONE_THREAD {
            return self.folders.iter().all(|folder| is_as_read(&folder));
        }
        let folders: Vec<_> = self.folders.iter().collect();
        let changed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for part in folders.chunks(folders.len().div_ceil(threads)) {
                let changed = &changed;
                scope.spawn(move || {
                    let same = |folder| changed.load(Relaxed) || is_as_read(folder);
                    if !part.iter().all(same) {
                        changed.store(true, Relaxed);
                    }
                });
            }
        });
        !changed.into_inner()
    }

    /// All `.git` entries and folders that look like git folders.
    fn find(&mut self) -> Vec<PathBuf> {
        if self.is_unchanged() {
            return self.found.clone();
        }
        let mut old = std::mem::take(&mut self.folders);
        let mut found = Vec::new();
        let mut open: VecDeque<PathBuf> = std::iter::once(self.project.clone())
            .chain(self.guarded.threads.clone())
            .collect();
        // Package folders come last: they are many, and git of a person gets
        // there by a submodule only.
        let mut packages = VecDeque::new();
        self.capped = false;
        loop {
            let (path, in_packages) = match (open.pop_front(), packages.pop_front()) {
                (Some(path), waiting) => {
                    if let Some(waiting) = waiting {
                        packages.push_front(waiting);
                    }
                    (path, false)
                }
                (None, Some(path)) => (path, true),
                (None, None) => break,
            };
            if self.folders.len() >= MAX_FOLDERS {
                self.capped = true;
                break;
            }
            let Some(stat) = folder_stat(&path) else {
                continue;
            };
            let stamp = Stamp::of(&stat);
            let listing = match old.remove(&path) {
                Some(known) if known.is_of(stamp) => known,
                _ => self.read(&path, stamp),
            };
            if listing.has_git {
                found.push(path.join(".git"));
            }
            if listing.is_git {
                found.push(path.clone());
            }
            for name in &listing.below {
                if open.len() + packages.len() >= MAX_FOLDERS {
                    self.capped = true;
                    break;
                }
                let below = path.join(name);
                if in_packages || is_bulk(&below) {
                    packages.push_back(below);
                } else {
                    open.push_back(below);
                }
            }
            self.folders.insert(path, listing);
        }
        self.found.clone_from(&found);
        found
    }

    fn read(&self, path: &Path, stamp: Stamp) -> Listing {
        let read_at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut entries = std::fs::read_dir(path);
        if entries.is_err() && self.begun {
            // A folder that can be entered but not listed would hide a repository.
            make_open(path);
            entries = std::fs::read_dir(path);
        }
        let mut listing = Listing {
            stamp,
            read_at,
            below: Vec::new(),
            has_git: false,
            is_git: false,
        };
        let Ok(entries) = entries else {
            listing.has_git = path.join(".git").symlink_metadata().is_ok();
            listing.is_git = path.join("HEAD").symlink_metadata().is_ok();
            // To be tried again.
            listing.read_at = Duration::ZERO;
            return listing;
        };
        let (mut head, mut objects, mut refs, mut common) = (false, false, false, false);
        for entry in entries.flatten() {
            let name = entry.file_name();
            match name.as_bytes() {
                b".git" => {
                    listing.has_git = true;
                    continue;
                }
                b"HEAD" => head = true,
                b"objects" => objects = true,
                b"refs" => refs = true,
                b"commondir" => common = true,
                _ => {}
            }
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && listing.below.len() <= MAX_FOLDERS {
                listing.below.push(name);
            }
        }
        listing.is_git = head && (common || (objects && refs));
        listing
    }
}

/// Whether git would obey a file at this place, so that file operations must not write it.
pub fn is_obeyed(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    if name == ".git" {
        return true;
    }
    let Some(parent) = path.parent() else {
        return false;
    };
    let is_git = |folder: &Path| {
        folder.components().any(|part| part.as_os_str() == ".git") || folder.join("HEAD").exists()
    };
    if ["config", "config.worktree", "commondir"]
        .iter()
        .any(|obeyed| name == *obeyed)
    {
        return is_git(parent);
    }
    parent.file_name() == Some(OsStr::new("hooks")) && parent.parent().is_some_and(is_git)
}

struct Mending<'a> {
    project: &'a Path,
    guarded: &'a Guarded,
    before: &'a HashMap<PathBuf, Print>,
    done: BTreeSet<PathBuf>,
    notes: Vec<String>,
}

impl Mending<'_> {
    fn entry(&mut self, entry: &Path) {
        if self.guarded.read_only.contains(entry) {
            return;
        }
        let Ok(stat) = rustix::fs::lstat(entry) else {
            return;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.folder(entry),
            FileType::RegularFile | FileType::Symlink => self.pointer(entry),
            _ => {}
        }
    }

    fn is_as_before(&self, path: &Path) -> bool {
        self.before
            .get(path)
            .is_some_and(|print| !print.is_empty() && *print == print_of(path))
    }

    /// A `.git` that names the git folder.
    fn pointer(&mut self, entry: &Path) {
        let looked_at = |target: &PathBuf| {
            target.starts_with(self.project)
                || self
                    .guarded
                    .outside
                    .iter()
                    .any(|git| target.starts_with(git))
        };
        let target = pointed(entry).filter(looked_at);
        let opened = target.as_deref().map(|target| {
            open_by_parts(target, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)
        });
        match (target, opened) {
            (Some(target), Some(Ok(_))) => self.folder(&target),
            // Nothing there, so no repository either.
            (_, Some(Err(Errno::NOENT))) => {}
            // A person's own, which commands cannot follow.
            _ if self.is_as_before(entry) => {}
            _ => {
                let removed = std::fs::remove_file(entry);
                self.note(
                    entry,
                    "removed: it leads git to a folder that is not plainly in the project",
                    removed,
                );
            }
        }
    }

    fn folder(&mut self, git: &Path) {
        if self.guarded.pinned.contains(git) || !self.done.insert(git.to_owned()) {
            return;
        }
        if self.is_as_before(git) {
            return;
        }
        make_open(git);
        let opened = open_by_parts(git, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC);
        let Ok(folder) = opened else {
            self.note(
                git,
                "could not be looked at for what git would obey",
                Ok(()),
            );
            return;
        };
        if rustix::fs::statat(&folder, "HEAD", AtFlags::SYMLINK_NOFOLLOW).is_err() {
            return;
        }
        if let Some(main) = main_of_worktree(git) {
            self.worktree(git, &folder);
            if main.starts_with(self.project) {
                self.folder(&main);
            }
            return;
        }
        if exists(&folder, "commondir") {
            self.remove(&folder, git, "commondir");
        }
        for name in ["config", "config.worktree"] {
            self.config(&folder, git, name);
        }
        self.hooks(&folder, git);
        self.worktrees(git);
    }

    fn worktrees(&mut self, git: &Path) {
        for path in worktrees(git) {
            if self.done.contains(&path) || self.is_as_before(&path) {
                continue;
            }
            make_open(&path);
            let opened = open_by_parts(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC);
            if let Ok(folder) = opened {
                self.done.insert(path.clone());
                self.worktree(&path, &folder);
            }
        }
    }

    /// The folder of a linked worktree: all but `config.worktree` is its main repository's.
    fn worktree(&mut self, git: &Path, folder: &OwnedFd) {
        let common = git.join("commondir");
        if !self.guarded.read_only.contains(&common)
            && read(folder, "commondir").is_none_or(|text| text.trim_ascii() != b"../..")
        {
            let replaced = replace(folder, "commondir", b"../..\n");
            self.note(&common, "set back to ../..", replaced);
        }
        self.config(folder, git, "config.worktree");
    }

    fn config(&mut self, folder: &OwnedFd, git: &Path, name: &str) {
        if !exists(folder, name) {
            return;
        }
        let reduced = match read(folder, name) {
            Some(bytes) => gitconfig::reduce(&bytes),
            None => Some(gitconfig::Reduced {
                text: String::new(),
                dropped: vec!["everything, as it is no plain file".into()],
            }),
        };
        let Some(reduced) = reduced else { return };
        let replaced = replace(folder, name, reduced.text.as_bytes());
        let what = format!(
            "made harmless, dropped {}: git would obey it outside the sandbox",
            reduced.dropped.join(", ")
        );
        self.note(&git.join(name), &what, replaced);
    }

    fn hooks(&mut self, folder: &OwnedFd, git: &Path) {
        let path = git.join("hooks");
        let Ok(stat) = rustix::fs::statat(folder, "hooks", AtFlags::SYMLINK_NOFOLLOW) else {
            return;
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            self.remove(folder, git, "hooks");
            return;
        }
        make_open(&path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let hooks = match rustix::fs::openat(folder, "hooks", flags, Mode::empty()) {
            Ok(hooks) => hooks,
            Err(error) => return self.note(&path, "cleared", Err(error.into())),
        };
        let names: Vec<OsString> = names(hooks.as_fd());
        for name in names {
            let stat = rustix::fs::statat(&hooks, &name, AtFlags::SYMLINK_NOFOLLOW);
            // Git runs no folder.
            let is_folder =
                stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
            if !is_folder && !name.as_bytes().ends_with(b".sample") {
                self.remove(&hooks, &path, &name);
            }
        }
    }

    fn remove(&mut self, folder: &OwnedFd, path: &Path, name: impl AsRef<OsStr>) {
        let name = name.as_ref();
        let removed = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        self.note(
            &path.join(name),
            "removed: git would obey it outside the sandbox",
            removed.map_err(Into::into),
        );
    }

    fn note(&mut self, path: &Path, what: &str, done: std::io::Result<()>) {
        let path = path.display();
        self.notes.push(match done {
            Ok(()) => format!("{path}: {what}"),
            Err(error) => format!(
                "{path}: git would obey it outside the sandbox, and it could not be changed ({error}); remove it"
            ),
        });
    }
}

fn folder_stat(path: &Path) -> Option<Stat> {
    rustix::fs::lstat(path)
        .ok()
        .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Lets the owner into a folder.
fn make_open(path: &Path) {
    if let Some(stat) = folder_stat(path)
        && stat.st_mode & 0o700 != 0o700
    {
        // Where that fails, the next step says so.
        let _ = rustix::fs::chmod(path, Mode::from_raw_mode(stat.st_mode & 0o7777 | 0o700));
    }
}

fn exists(folder: &OwnedFd, name: &str) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

fn names(folder: BorrowedFd<'_>) -> Vec<OsString> {
    let Ok(entries) = Dir::read_from(folder) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned())
        .filter(|name| name != "." && name != "..")
        .collect()
}

/// The folders of a repository's linked worktrees.
fn worktrees(git: &Path) -> Vec<PathBuf> {
    let folder = git.join("worktrees");
    if folder_stat(&folder).is_none() {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir(&folder) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| folder_stat(path).is_some())
        .collect()
}

fn main_of_worktree(git: &Path) -> Option<PathBuf> {
    let worktrees = git.parent()?;
    let main = worktrees.parent()?;
    (worktrees.file_name() == Some(OsStr::new("worktrees")) && main.join("HEAD").exists())
        .then(|| main.to_owned())
}

/// The plain path that a `.git` file or symlink names.
fn pointed(entry: &Path) -> Option<PathBuf> {
    let named = match std::fs::read_link(entry) {
        Ok(named) => named,
        Err(_) => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(entry, flags, Mode::empty()).ok()?);
            let mut text = String::new();
            file.take(1 << 13).read_to_string(&mut text).ok()?;
            // Git takes the rest of the file, but for line ends.
            let named = text
                .strip_prefix("gitdir: ")?
                .trim_end_matches(['\n', '\r']);
            PathBuf::from(named)
        }
    };
    let mut plain = entry.parent()?.to_owned();
    let mut descended = false;
    for part in named.components() {
        match part {
            // Behind a name, which may be a symlink's, it leads nobody knows where.
            Component::ParentDir if descended => return None,
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => {
                descended = true;
                plain.push(other);
            }
        }
    }
    Some(plain)
}

/// A regular file's bytes; nothing else is opened.
fn read(folder: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?);
    let data = file.metadata().ok()?;
    if !data.is_file() || data.len() > MAX_CONFIG {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Puts a new file in the place of whatever has the name.
fn replace(folder: &OwnedFd, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = format!("{name}.harmless");
    let _ = rustix::fs::unlinkat(folder, &temporary, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, &temporary, flags, Mode::from_raw_mode(0o644))?;
    let written = File::from(file)
        .write_all(bytes)
        .and_then(|()| Ok(rustix::fs::renameat(folder, &temporary, folder, name)?));
    if written.is_err() {
        // Without room or rights to replace it, it goes.
        let _ = rustix::fs::unlinkat(folder, &temporary, AtFlags::empty());
        rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    }
    Ok(())
}

/// Empty for a folder that git does not take for one of its own.
fn print_of(path: &Path) -> Print {
    let Ok(stat) = rustix::fs::lstat(path) else {
        return Vec::new();
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return vec![(OsString::new(), Stamp::of(&stat))];
    }
    let Ok(head) = rustix::fs::lstat(path.join("HEAD")) else {
        return Vec::new();
    };
    let mut print = vec![(
        OsString::from("HEAD"),
        // Its content is an ordinary command's to change.
        Stamp {
            device: head.st_dev,
            inode: 0,
            changed: Duration::ZERO,
        },
    )];
    let mut names: Vec<OsString> = ["config", "config.worktree", "commondir", "hooks"]
        .map(OsString::from)
        .to_vec();
    if let Ok(entries) = std::fs::read_dir(path.join("hooks")) {
        let mut hooks: Vec<OsString> = entries
            .flatten()
            .map(|entry| Path::new("hooks").join(entry.file_name()).into_os_string())
            .collect();
        hooks.sort();
        names.extend(hooks);
    }
    for name in names {
        if let Ok(stat) = rustix::fs::lstat(path.join(&name)) {
            print.push((name, Stamp::of(&stat)));
        }
    }
    print
}
