//! Where the demonstration takes place: a folder of its own with a small repository, the
//! state of its harness, and nothing else of this machine.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mooring_wire::sandbox::{StopRequest, sandbox_client::SandboxClient};
use rustix::process::{Pid, Signal, kill_process};

use crate::connection;
use crate::error::Error;
use crate::processes::Plan;
use crate::project::{Project, StateHome};

/// Bytes of a temporary folder's path with which sockets below it still fit.
const SHORT: usize = 40;
/// How long processes may take to end before they are killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The places that are searched.
pub const PLACES: [&str; 3] = ["src", "docs", "tests"];

/// The files of the repository.
const FILES: [(&str, &str); 7] = [
    ("README.md", include_str!("README.md")),
    (
        "src/app.py",
        "from auth import legacy_login\n\n\ndef enter(request):\n    return legacy_login(request)\n",
    ),
    (
        "src/auth.py",
        "def login(request):\n    return request.user\n",
    ),
    (
        "docs/guide.md",
        "# Guide\n\nCall `legacy_login` before the first request.\n",
    ),
    (
        "tests/test_app.py",
        "from auth import legacy_login\n\n\ndef test_enter():\n    assert legacy_login\n",
    ),
    ("search.sh", include_str!("search.sh")),
    ("workspace.yaml", include_str!("workspace.yaml")),
];

/// The folder, and how its harness is started.
pub struct Stage {
    folder: PathBuf,
    /// How its harness is started.
    pub plan: Plan,
}

impl Stage {
    /// Makes the folder and the repository in it.
    pub fn set() -> Result<Stage, Error> {
        let temporary = std::env::temp_dir();
        let parent = match temporary.as_os_str().as_bytes().len() {
            ..=SHORT => temporary,
            _ => PathBuf::from("/tmp"),
        };
        let folder = parent.join(format!("mooring-demo-{:08x}", rand::random::<u32>()));
        let made = Self::fill(&folder);
        if made.is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
        made
    }

    fn fill(folder: &Path) -> Result<Stage, Error> {
        let fail = |path: &Path, error: std::io::Error| Error::Path {
            path: path.to_owned(),
            why: error.to_string(),
        };
        DirBuilder::new()
            .mode(0o700)
            .create(folder)
            .map_err(|error| fail(folder, error))?;
        let folder = fs::canonicalize(folder).map_err(|error| fail(folder, error))?;
        let root = folder.join("project");
        let script = ("script.yaml", include_str!("script.yaml"));
        for (name, text) in FILES.into_iter().chain([script]) {
            let path = root.join(name);
            let parent = path.parent().unwrap_or(&root);
            fs::create_dir_all(parent).map_err(|error| fail(parent, error))?;
            fs::write(&path, text).map_err(|error| fail(&path, error))?;
        }
        let program = root.join("search.sh");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
            .map_err(|error| fail(&program, error))?;
        let notes = root.join("searches");
        fs::create_dir(&notes).map_err(|error| fail(&notes, error))?;
        // Without git it is a plain folder, which is as good here.
        let _ = Command::new("git")
            .args(["init", "--quiet"])
            .current_dir(&root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let project = Project::find(&root, None)?;
        let states = StateHome::from_env(|name| {
            (name == "XDG_STATE_HOME").then(|| OsString::from(folder.as_os_str()))
        })?;
        let plan = Plan {
            workspace: Some(root.join("workspace.yaml")),
            state: states.open(&project)?,
            project,
            // Its own commands, which do no harm anywhere.
            allow_unisolated: true,
            sandbox: None,
            sandbox_named: false,
            cluster: None,
        };
        Ok(Stage { folder, plan })
    }

    /// The folder of the repository.
    pub fn root(&self) -> &Path {
        &self.plan.project.root
    }

    /// What a search noted.
    pub fn notes(&self, place: &str) -> String {
        fs::read_to_string(self.root().join("searches").join(place)).unwrap_or_default()
    }

    /// Lets the slow search go on.
    pub fn let_go_on(&self) -> Result<(), Error> {
        let path = self.root().join("searches/go-on");
        fs::write(&path, "").map_err(|error| Error::Path {
            path,
            why: error.to_string(),
        })
    }

    /// SIGKILL to the harness; returns when it is gone.
    pub async fn kill(&self, pid: u32) -> Result<(), Error> {
        kill(pid);
        let begun = Instant::now();
        while connection::is_alive(pid) {
            if begun.elapsed() > PATIENCE {
                return Err(Error::Broken(format!(
                    "process {pid} lives on after SIGKILL"
                )));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Processes that belong to this stage: its folder's name, which nobody else has,
    /// stands in their arguments.
    pub fn processes(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let own = std::process::id();
        let mark = self.folder.as_os_str().as_bytes();
        entries
            .flatten()
            .filter_map(|entry| {
                let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
                let line = fs::read(entry.path().join("cmdline")).ok()?;
                let is_ours = line.windows(mark.len()).any(|part| part == mark);
                (is_ours && pid != own).then_some(pid)
            })
            .collect()
    }

    /// Ends all processes.
    pub async fn end(&self) -> Result<(), Error> {
        // A command that nothing holds in a sandbox ends by itself then.
        let _ = self.let_go_on();
        let stopped = connection::stop(&self.plan).await;
        if !matches!(stopped, Ok(true))
            && let Ok(channel) = mooring_wire::uds::connect(&self.plan.state.sandbox_socket).await
        {
            let _ = SandboxClient::new(channel).stop(StopRequest {}).await;
        }
        let begun = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                left.iter().copied().for_each(kill);
            }
            if begun.elapsed() > PATIENCE * 2 {
                return Err(Error::Broken(format!(
                    "these processes do not end: {left:?}; `kill -9` ends them"
                )));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Removes the folder.
    pub fn remove(&self) -> Result<(), Error> {
        fs::remove_dir_all(&self.folder).map_err(|error| Error::Path {
            path: self.folder.clone(),
            why: format!("could not be removed: {error}"),
        })
    }

    /// How to look at what is left, where it is kept.
    pub fn way_in(&self) -> String {
        format!(
            "kept in {folder}; look around with\n  XDG_STATE_HOME={folder} mooring --project {root} entries\n\
             and remove it with\n  XDG_STATE_HOME={folder} mooring --project {root} stop; rm -r {folder}",
            folder = self.folder.display(),
            root = self.root().display(),
        )
    }
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
