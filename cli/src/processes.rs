//! The other processes of `mooring dev`: the harness, which a client starts, and
//! the sandbox daemon, which the harness starts. Both are this program run again.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mooring_durable::error::OpenError;
use mooring_harness::Remote;
use mooring_sandbox::{CommandEnvironment, DevOptions, Limits, Listen, Unisolated};

use crate::args::{CommandArgs, HarnessArgs, SandboxArgs};
use crate::cluster::Target;
use crate::error::Error;
use crate::project::{Project, State};

/// How long a harness stays when nobody is there and only waiting rows are left.
const IDLE_EXIT: Duration = Duration::from_secs(30 * 60);
/// A log that is longer than this at a start becomes `harness.log.1`.
const LOG_BYTES: u64 = 8 << 20;
/// Environment variable of the code that pairs a sandbox on another machine.
pub const PAIRING_CODE: &str = "MOORING_PAIRING_CODE";
/// Exit status of a harness that found the database owned by another one.
pub const OWNED: u8 = 75;
/// What is shown of the log of a harness that did not start.
const LOG_TAIL_BYTES: u64 = 4096;

/// The C library's allocator raises its limit for memory that goes back to the
/// system at once with each large text that is freed; then a few long inputs stay
/// in its arenas for good (450 MB after three of 10 MB, 50 MB with these).
const MALLOC: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
    ("MALLOC_ARENA_MAX", "2"),
];

/// What a client wants of the harness that it starts.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The project.
    pub project: Project,
    /// Its state.
    pub state: State,
    /// The Workspace file, canonical; the default Workspace without one.
    pub workspace: Option<PathBuf>,
    /// Whether commands may run where the sandbox cannot hold them.
    pub allow_unisolated: bool,
    /// The sandbox on another machine; one on this machine without it.
    pub sandbox: Option<Remote>,
    /// Whether the command line names the sandbox.
    pub sandbox_named: bool,
    /// The workspace in a cluster that is meant; its harness is not started here.
    pub cluster: Option<Arc<Target>>,
}

/// A harness that was just started.
pub struct Started {
    /// The process; it lives on when this is dropped.
    pub child: Child,
    log: PathBuf,
    log_start: u64,
}

impl Started {
    /// What it wrote to its log so far, the last few lines at most.
    pub fn log_tail(&self) -> String {
        tail(&self.log, self.log_start).unwrap_or_else(|error| error.to_string())
    }
}

/// Starts the harness in the background, its output in its log.
pub fn start_harness(plan: &Plan) -> Result<Started, Error> {
    let log = plan.state.log();
    let _ = fs::remove_file(plan.state.stopped());
    let workspace = match &plan.workspace {
        Some(file) => Some(file.clone()),
        None => plan.state.workspace_in_use(),
    };
    if let Some(file) = workspace.as_ref().filter(|file| !file.exists()) {
        return Err(Error::Path {
            path: file.clone(),
            why: "the Workspace file in use is not there any more; give another one to \
                  `mooring dev`, or go back to the default with `mooring stop`"
                .into(),
        });
    }
    plan.state.use_workspace(workspace.as_deref())?;
    let sandbox = plan.sandbox.as_ref().map(Remote::address);
    plan.state.use_sandbox(sandbox)?;
    let path_error = |path: &Path, error: std::io::Error| Error::Path {
        path: path.to_owned(),
        why: error.to_string(),
    };
    if fs::metadata(&log).is_ok_and(|meta| meta.len() > LOG_BYTES) {
        fs::rename(&log, log.with_extension("log.1")).map_err(|error| path_error(&log, error))?;
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&log)
        .map_err(|error| path_error(&log, error))?;
    let log_start = file.metadata()?.len();
    let program = std::env::current_exe()?;
    // This very program, also where its file was replaced or removed since.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(&program)
        .arg("harness")
        .arg("--project")
        .arg(&plan.project.root)
        .arg("--state")
        .arg(&plan.state.folder)
        .arg("--socket")
        .arg(&plan.state.socket)
        .arg("--sandbox-socket")
        .arg(&plan.state.sandbox_socket);
    match &workspace {
        Some(file) => command.arg("--workspace").arg(file),
        None => command.arg("--default-workspace"),
    };
    if plan.allow_unisolated {
        command.arg("--allow-unisolated");
    }
    if let Some(address) = sandbox {
        command.arg("--sandbox").arg(address);
    }
    let child = command
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed_on)))
        .envs(MALLOC)
        .current_dir(&plan.state.folder)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .map_err(|error| path_error(&program, error))?;
    Ok(Started {
        child,
        log,
        log_start,
    })
}

/// Whether the harness gets this variable of the client's environment. Keys do
/// not go this way: a process's environment can be read in `/proc` as long as it
/// lives, and `Configure` hands them over in memory.
fn is_passed_on(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "TZ",
        "TMPDIR",
        "RUST_LOG",
        "RUST_BACKTRACE",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "GOPATH",
        "GOROOT",
        "JAVA_HOME",
        "NVM_DIR",
        "PYENV_ROOT",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ];
    const PREFIXES: &[&str] = &["LC_", "XDG_", "MOORING_", "GIT_AUTHOR_", "GIT_COMMITTER_"];
    const PROXIES: &[&str] = &["http_proxy", "https_proxy", "all_proxy", "no_proxy"];
    let known = NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || PROXIES.iter().any(|proxy| name.eq_ignore_ascii_case(proxy));
    // A key like those of models.
    known && name != PAIRING_CODE && name != "MOORING_GIT_TOKEN"
}

/// The last lines of a log after `from` bytes.
pub fn tail(path: &Path, from: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(
        from.max(end.saturating_sub(LOG_TAIL_BYTES)).min(end),
    ))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(10)..];
    Ok(match last.join("\n") {
        text if text.trim().is_empty() => "(it wrote nothing)".into(),
        text => crate::text::sanitize(&text),
    })
}

/// `mooring harness`: serves until it is stopped or idle for long.
pub fn run_harness(project: Option<PathBuf>, args: HarnessArgs) -> ExitCode {
    own_session();
    let Some(project) = project else {
        eprintln!("mooring harness: --project is missing");
        return ExitCode::from(2);
    };
    // genai's HTTP client and tonic both speak TLS by rustls, which takes no
    // provider by itself where two are linked in. A second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("mooring-harness")
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("mooring harness: no threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let remote = args
        .sandbox
        .map(|address| Remote::new(&address, &crate::project::remote_folder(&args.state)))
        .transpose();
    let remote = match remote {
        Ok(remote) => remote,
        Err(error) => {
            eprintln!("mooring harness: {error}");
            return ExitCode::from(2);
        }
    };
    let launch = mooring_harness::Launch {
        project,
        remote,
        state: args.state,
        socket: args.socket,
        sandbox_socket: args.sandbox_socket,
        workspace: args.workspace,
        allow_unisolated: args.allow_unisolated,
        reach: mooring_harness::boundary::Reach {
            private: args.private_destinations,
            closed: Vec::new(),
            connect_to: args.connect_to,
        },
        idle_exit: IDLE_EXIT,
    };
    match runtime.block_on(mooring_harness::run(launch)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mooring harness: {error}");
            match error {
                mooring_harness::Error::Open(OpenError::Owned { .. }) => ExitCode::from(OWNED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// `mooring sandbox-daemon`: serves until it is stopped. No thread may run yet:
/// it makes namespaces and goes on in a process inside them.
pub fn run_sandbox_daemon(project: Option<PathBuf>, args: SandboxArgs) -> ExitCode {
    own_session();
    mooring_sandbox::log_to_stderr();
    let served = daemon_options(project, args, |name| std::env::var_os(name))
        .and_then(|options| mooring_sandbox::run_dev(options).map_err(|error| error.to_string()));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mooring sandbox-daemon: {error}");
            ExitCode::FAILURE
        }
    }
}

fn daemon_options(
    project: Option<PathBuf>,
    args: SandboxArgs,
    var: impl Fn(&str) -> Option<OsString>,
) -> Result<DevOptions, String> {
    let project = project.ok_or("--project is missing")?;
    let listen = Listen::Socket(args.socket);
    let options = sandbox_options(project, args.state, listen, args.commands, var)?;
    Ok(DevOptions {
        protected: args.protect,
        ..options
    })
}

/// How a sandbox on this machine is made.
pub fn sandbox_options(
    project: PathBuf,
    state: PathBuf,
    listen: Listen,
    args: CommandArgs,
    var: impl Fn(&str) -> Option<OsString>,
) -> Result<DevOptions, String> {
    let home = var("HOME").map(PathBuf::from).ok_or("HOME is not set")?;
    let mut environment = CommandEnvironment::default();
    if let Some(path) = var("PATH").and_then(|path| path.into_string().ok()) {
        environment.path = path;
    }
    for text in args.env {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("--env {text}: it needs a ="))?;
        environment
            .variables
            .insert(name.to_owned(), value.to_owned());
    }
    // What people use in this project works in the sandbox as well: binaries and
    // libraries of the toolchains in PATH, and nothing else of their home.
    let mut read_only = args.read_only;
    read_only.extend(mooring_sandbox::toolchains(&environment.path, &home));
    let default = Limits::default();
    let limits = Limits {
        output_bytes: args.output_bytes.unwrap_or(default.output_bytes),
        ..default
    };
    Ok(DevOptions {
        project,
        state,
        listen,
        home,
        read_only,
        protected: Vec::new(),
        environment,
        limits,
        // The harness refuses its tools until a person has agreed, and tells why.
        unisolated: Unisolated::Allowed,
    })
}

/// Leaves the terminal's session, so that neither its Ctrl-C nor its end reaches
/// this process. It fails only where this process leads a group already.
fn own_session() {
    let _ = rustix::process::setsid();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_are_not_in_the_environment_of_the_harness() {
        for name in [
            "PATH",
            "HOME",
            "LC_ALL",
            "XDG_RUNTIME_DIR",
            "HTTPS_PROXY",
            "no_proxy",
        ] {
            assert!(is_passed_on(name), "{name}");
        }
        for name in [
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "GITHUB_TOKEN",
            "MOORING_GIT_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "GIT_ASKPASS",
            "LD_PRELOAD",
            "SSH_AUTH_SOCK",
            PAIRING_CODE,
        ] {
            assert!(!is_passed_on(name), "{name}");
        }
    }

    #[test]
    fn the_tail_of_a_log_is_its_last_lines_since_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("harness.log");
        fs::write(&log, "old\nfirst\nsecond\n").unwrap();
        for (from, expected) in [
            (0, "old\nfirst\nsecond"),
            (4, "first\nsecond"),
            (17, "(it wrote nothing)"),
        ] {
            assert_eq!(tail(&log, from).unwrap(), expected);
        }
        fs::write(&log, "x\n".repeat(100_000)).unwrap();
        assert_eq!(tail(&log, 0).unwrap().lines().count(), 10);
    }
}
