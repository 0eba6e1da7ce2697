//! The project that a command is about, and where its state lies.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mooring_harness::Remote;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;

/// Bytes of a Unix socket's path, its closing zero included, on Linux.
const SOCKET_PATH_MAX: usize = 108;

/// The project that a command is about: the repository around the current
/// folder, else that folder itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its canonical path.
    pub root: PathBuf,
    /// Whether it is a git repository.
    pub git: bool,
    id: Identity,
}

/// What stays the same when a folder is moved within its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Nanoseconds since 1970, 0 where the file system does not tell. Inode
    /// numbers are used again, so that a new folder could look like a moved one.
    born_ns: u64,
}

impl Project {
    /// The project around `from`, which must be a folder.
    ///
    /// The search upwards for `.git` ends below the home folder, which is never
    /// a project: the keys and settings in it would be in the sandbox.
    pub fn find(from: &Path, home: Option<&Path>) -> Result<Self, Error> {
        let path_error = |source: std::io::Error| Error::Path {
            path: from.to_owned(),
            why: source.to_string(),
        };
        let from = fs::canonicalize(from).map_err(path_error)?;
        if !from.is_dir() {
            return Err(Error::Project {
                path: from,
                why: "is no folder".into(),
            });
        }
        let home = home.and_then(|home| fs::canonicalize(home).ok());
        let off_limits = |path: &Path| path.parent().is_none() || Some(path) == home.as_deref();
        let repository = from
            .ancestors()
            .take_while(|path| !off_limits(path))
            .find(|path| path.join(".git").exists());
        let root = repository.unwrap_or(&from).to_owned();
        if off_limits(&root) {
            return Err(Error::Project {
                path: root,
                why: "is no project folder: all that is in it would be in the sandbox; \
                      go to a project's folder, or name one with --project"
                    .into(),
            });
        }
        let meta = fs::metadata(&root).map_err(path_error)?;
        let born_ns = meta
            .created()
            .ok()
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .and_then(|since| u64::try_from(since.as_nanos()).ok())
            .unwrap_or(0);
        let id = Identity {
            path: root.clone(),
            device: meta.dev(),
            inode: meta.ino(),
            born_ns,
        };
        Ok(Project {
            git: repository.is_some(),
            root,
            id,
        })
    }

    /// Its name for people: the folder's.
    pub fn name(&self) -> String {
        self.root
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// Its key: 12 hexadecimal digits of the SHA-256 of its path.
    pub fn key(&self) -> String {
        key_of(&self.root)
    }
}

fn key_of(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    hex::encode(Sha256::digest(path.as_os_str().as_bytes()))[..12].to_owned()
}

/// Where states lie: `$XDG_STATE_HOME/mooring`, else `~/.local/state/mooring`.
#[derive(Clone, Debug)]
pub struct StateHome {
    folder: PathBuf,
    runtime: Option<PathBuf>,
}

/// What the project's own state folder says about it.
#[derive(Clone, Debug)]
pub enum Found {
    /// It is the project's, made just now if it was not there.
    State(State),
    /// There is none, but one of a project that was moved here.
    Moved(Moved),
}

/// State of the same folder under the path that it had before.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Where the project was.
    pub old: PathBuf,
    /// Its state under that path, whose harness may still be running.
    pub state: State,
}

/// The state folder of one project.
#[derive(Clone, Debug)]
pub struct State {
    /// The folder, readable by its owner only.
    pub folder: PathBuf,
    /// The harness's socket.
    pub socket: PathBuf,
    /// The sandbox daemon's socket.
    pub sandbox_socket: PathBuf,
}

impl State {
    /// The harness's log.
    pub fn log(&self) -> PathBuf {
        self.folder.join("harness.log")
    }

    /// The harness's database.
    pub fn database(&self) -> PathBuf {
        self.folder.join("mooring.db")
    }

    /// Where keys may be sent that are not for a provider's own server.
    pub fn key_servers(&self) -> PathBuf {
        self.folder.join("key-servers")
    }

    /// The process id of a harness that a person has ended.
    pub fn stopped(&self) -> PathBuf {
        self.folder.join("stopped")
    }

    /// The Workspace file of the harness that ran last; none: the default, or a person
    /// has ended it. So a harness that was killed comes back with its own policy,
    /// whoever starts it again.
    pub fn workspace_in_use(&self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let path = fs::read(self.workspace_mark()).ok()?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
    }

    /// Keeps the Workspace file that a harness is started with.
    pub fn use_workspace(&self, file: Option<&Path>) -> Result<(), Error> {
        use std::os::unix::ffi::OsStrExt;
        let path = file.map(|file| file.as_os_str().as_bytes());
        keep(self.workspace_mark(), path)
    }

    /// Address of the sandbox on another machine that this project uses, whoever
    /// starts its harness, until a person names another place.
    pub fn sandbox_in_use(&self) -> Option<String> {
        fs::read_to_string(self.sandbox_mark()).ok()
    }

    /// Keeps where the commands of this project run.
    pub fn use_sandbox(&self, address: Option<&str>) -> Result<(), Error> {
        keep(self.sandbox_mark(), address.map(str::as_bytes))
    }

    /// A sandbox on another machine, with what this project keeps of it.
    pub fn remote(&self, address: &str) -> Result<Remote, Error> {
        Remote::new(address, &remote_folder(&self.folder)).map_err(Error::Usage)
    }

    fn sandbox_mark(&self) -> PathBuf {
        self.folder.join("sandbox-in-use")
    }

    fn workspace_mark(&self) -> PathBuf {
        self.folder.join("workspace-in-use")
    }

    /// Locked while a client starts the harness, so that two clients start one.
    pub fn start_lock(&self) -> PathBuf {
        self.folder.join("start.lock")
    }

    /// The terminal's history of inputs.
    pub fn history(&self) -> PathBuf {
        self.folder.join("history")
    }
}

/// In a state folder: what the harness has for sandboxes on other machines.
pub fn remote_folder(state: &Path) -> PathBuf {
    state.join("remote")
}

impl StateHome {
    /// From the environment, by `var`.
    pub fn from_env(var: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let absolute = |name: &str| {
            var(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .ok_or_else(|| {
                Error::Usage("neither XDG_STATE_HOME nor HOME names an absolute folder".into())
            })?;
        Ok(StateHome {
            folder: base.join("mooring"),
            runtime: absolute("XDG_RUNTIME_DIR"),
        })
    }

    /// The project's state, made if it is new; or the one to be adopted.
    pub fn find(&self, project: &Project) -> Result<Found, Error> {
        if !self.state_folder(&project.root).exists()
            && let Some(moved) = self.moved(project)?
        {
            return Ok(Found::Moved(moved));
        }
        self.open(project).map(Found::State)
    }

    /// The project's state, made if it is new, whatever was before.
    pub fn open(&self, project: &Project) -> Result<State, Error> {
        let folder = self.state_folder(&project.root);
        let state = State::new(folder, &project.key(), self.runtime.as_deref())?;
        write_identity(&state.folder, &project.id)?;
        Ok(state)
    }

    /// Takes the state of a moved project over. Its harness must have ended.
    pub fn adopt(&self, project: &Project, moved: &Moved) -> Result<State, Error> {
        let new = self.state_folder(&project.root);
        fs::rename(&moved.state.folder, &new).map_err(|error| Error::Path {
            path: moved.state.folder.clone(),
            why: format!("cannot be renamed to {}: {error}", new.display()),
        })?;
        self.open(project)
    }

    /// The state of a sandbox that serves this project to another machine, made if
    /// it is new.
    pub fn served(&self, project: &Project) -> Result<PathBuf, Error> {
        let folder = self.folder.join("served");
        make_private(&folder)?;
        let name = self.state_folder(&project.root);
        let folder = private_folder(folder.join(name.file_name().unwrap_or_default()))?;
        private_folder(folder.join("sandbox"))
    }

    /// A folder in place of the project's, for a workspace in a cluster.
    pub fn attached(&self, namespace: &str, workspace: &str) -> Result<PathBuf, Error> {
        let folder = self.folder.join("attached").join(namespace).join(workspace);
        make_private(&folder)?;
        Ok(folder)
    }

    fn state_folder(&self, root: &Path) -> PathBuf {
        let name: String = root
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "._-".contains(c) {
                    c
                } else {
                    '_'
                }
            })
            .take(40)
            .collect();
        self.folder.join(format!("{name}-{}", key_of(root)))
    }

    /// The state of this very folder under a path that is no longer there.
    fn moved(&self, project: &Project) -> Result<Option<Moved>, Error> {
        let Ok(folders) = fs::read_dir(&self.folder) else {
            return Ok(None);
        };
        for folder in folders.flatten() {
            let Ok(text) = fs::read(folder.path().join("project.json")) else {
                continue;
            };
            let Ok(old) = serde_json::from_slice::<Identity>(&text) else {
                continue;
            };
            let same = old.device == project.id.device
                && old.inode == project.id.inode
                && (old.born_ns == project.id.born_ns || old.born_ns == 0);
            if same && old.path != project.root && !old.path.exists() {
                let runtime = self.runtime.as_deref();
                let state = State::new(folder.path(), &key_of(&old.path), runtime)?;
                return Ok(Some(Moved {
                    old: old.path,
                    state,
                }));
            }
        }
        Ok(None)
    }
}

impl State {
    fn new(folder: PathBuf, key: &str, runtime: Option<&Path>) -> Result<Self, Error> {
        if let Some(parent) = folder.parent() {
            make_private(parent)?;
        }
        let folder = private_folder(folder)?;
        let sockets = socket_folder(&folder, key, runtime)?;
        Ok(State {
            socket: sockets.join("harness.sock"),
            sandbox_socket: sockets.join("sandbox.sock"),
            folder,
        })
    }
}

/// The state folder where its path is short enough for a socket in it; else a
/// private folder under the runtime folder or `/tmp`.
fn socket_folder(state: &Path, key: &str, runtime: Option<&Path>) -> Result<PathBuf, Error> {
    let fits = |folder: &Path| {
        folder
            .to_str()
            .is_some_and(|path| path.len() + "/sandbox.sock".len() < SOCKET_PATH_MAX)
    };
    if fits(state) {
        return Ok(state.to_owned());
    }
    let uid = rustix::process::getuid().as_raw();
    let parent = match runtime.map(|runtime| runtime.join("mooring")) {
        Some(folder) if fits(&folder.join(key)) => folder,
        _ => PathBuf::from(format!("/tmp/mooring-{uid}")),
    };
    private_folder(private_folder(parent)?.join(key))
}

/// Makes `path`, or trusts it if it is a folder of this user's that nobody else
/// can enter. A symbolic link is refused: another user could have put it there.
fn private_folder(path: PathBuf) -> Result<PathBuf, Error> {
    let fail = |why: String| Error::Path {
        path: path.clone(),
        why,
    };
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(fail(error.to_string())),
    }
    let meta = fs::symlink_metadata(&path).map_err(|error| fail(error.to_string()))?;
    if !meta.is_dir() {
        return Err(fail(
            "is no folder; it should be one of Mooring's: move it away".into(),
        ));
    }
    let uid = rustix::process::getuid().as_raw();
    if meta.uid() != uid {
        return Err(fail(format!(
            "belongs to user {}, not to user {uid}",
            meta.uid()
        )));
    }
    if meta.mode() & 0o077 != 0 {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
            .map_err(|error| fail(format!("is open to others and stays so: {error}")))?;
    }
    Ok(path)
}

fn write_identity(folder: &Path, id: &Identity) -> Result<(), Error> {
    let path = folder.join("project.json");
    let fail = |error: std::io::Error| Error::Path {
        path: path.clone(),
        why: error.to_string(),
    };
    let text = serde_json::to_vec_pretty(id).map_err(|error| fail(error.into()))?;
    if fs::read(&path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    // Another client may read it at this moment: it sees the old or the new one.
    let new = folder.join(format!("project.json.{}", std::process::id()));
    fs::write(&new, text).map_err(fail)?;
    fs::rename(&new, &path).map_err(fail)
}

/// Makes a folder with those above it, for nobody else.
fn make_private(folder: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| Error::Path {
            path: folder.to_owned(),
            why: error.to_string(),
        })
}

/// Keeps a mark in the state folder, or takes it away.
fn keep(mark: PathBuf, content: Option<&[u8]>) -> Result<(), Error> {
    let kept = match content {
        Some(content) => fs::write(&mark, content),
        None => match fs::remove_file(&mark) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        },
    };
    kept.map_err(|error| Error::Path {
        path: mark,
        why: error.to_string(),
    })
}

#[cfg(test)]
#[path = "project_tests.rs"]
mod tests;
