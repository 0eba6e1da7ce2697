//! Files of a project by which a command could act outside the sandbox later:
//! git runs what `.git/hooks` and `.git/config` name, also for the user.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A project is searched for nested repositories down to this many folders.
const MAX_FOLDERS: usize = 20_000;
const MAX_DEPTH: usize = 8;

/// What must not change or move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guarded {
    /// Git folders: they stay writable, but cannot be moved away.
    pub pinned: BTreeSet<PathBuf>,
    /// Files and folders that become read-only; all exist.
    pub read_only: BTreeSet<PathBuf>,
    /// Files that git would obey and that are not there: they must not appear.
    pub forbidden: BTreeSet<PathBuf>,
    /// The project, where people use it outside the sandbox too.
    pub project: Option<PathBuf>,
    /// Git folders outside the project that a worktree of it uses.
    pub outside: BTreeSet<PathBuf>,
    /// The folder of conversations' worktrees.
    pub threads: Option<PathBuf>,
}

impl Guarded {
    /// Looks through the project; makes `hooks` folders where they are missing,
    /// so that there is something to protect.
    pub fn find(project: &Path, protected: &[PathBuf]) -> std::io::Result<Self> {
        let mut guarded = Self {
            project: Some(project.to_owned()),
            ..Self::default()
        };
        guarded
            .read_only
            .extend(protected.iter().filter(|file| file.exists()).cloned());
        let mut folders = vec![(project.to_owned(), 0)];
        let mut seen = 0;
        while let Some((folder, depth)) = folders.pop() {
            seen += 1;
            if seen > MAX_FOLDERS {
                break;
            }
            let Ok(entries) = std::fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = entry.path();
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                if entry.file_name() == ".git" {
                    guarded.add_git(project, &path, kind.is_dir())?;
                } else if kind.is_dir() && depth < MAX_DEPTH && !is_bulk(&path) {
                    folders.push((path, depth + 1));
                }
            }
        }
        Ok(guarded)
    }

    fn add_git(&mut self, project: &Path, git: &Path, is_folder: bool) -> std::io::Result<()> {
        if is_folder {
            return self.add_folder(git);
        }
        // A worktree or submodule: a file that names the folder.
        let Ok(text) = std::fs::read_to_string(git) else {
            return Ok(());
        };
        let Some(named) = text.trim().strip_prefix("gitdir:") else {
            return Ok(());
        };
        let parent = git.parent().unwrap_or(project);
        let Ok(folder) = parent.join(named.trim()).canonicalize() else {
            return Ok(());
        };
        self.read_only.insert(git.to_owned());
        let common = std::fs::read_to_string(folder.join("commondir"))
            .ok()
            .and_then(|text| folder.join(text.trim()).canonicalize().ok());
        if let Some(common) = &common {
            self.read_only.insert(folder.join("commondir"));
            self.add_folder(common)?;
        } else {
            self.add_folder(&folder)?;
        }
        let top = common.unwrap_or(folder);
        if !top.starts_with(project) {
            self.outside.insert(top);
        }
        Ok(())
    }

    fn add_folder(&mut self, git: &Path) -> std::io::Result<()> {
        // Not every folder of that name is a repository.
        if !git.join("HEAD").is_file() || !self.pinned.insert(git.to_owned()) {
            return Ok(());
        }
        let hooks = git.join("hooks");
        if !hooks.is_dir() {
            std::fs::create_dir(&hooks)?;
        }
        self.read_only.insert(hooks);
        for name in ["config", "config.worktree", "commondir"] {
            let file = git.join(name);
            if file.is_file() {
                self.read_only.insert(file);
            } else {
                self.forbidden.insert(file);
            }
        }
        // The repositories of submodules.
        if let Ok(modules) = std::fs::read_dir(git.join("modules")) {
            for module in modules.flatten() {
                self.add_folder(&module.path())?;
            }
        }
        Ok(())
    }
}

/// Removes files that must not appear; returns their paths.
pub fn sweep(forbidden: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    forbidden
        .iter()
        .filter(|path| path.symlink_metadata().is_ok())
        .filter(|path| std::fs::remove_file(path).is_ok())
        .cloned()
        .collect()
}

/// Large folders that hold packages, not repositories of the user.
pub fn is_bulk(path: &Path) -> bool {
    matches!(
        path.file_name().and_then(|name| name.to_str()),
        Some("node_modules" | "target" | ".venv" | "__pycache__")
    )
}
