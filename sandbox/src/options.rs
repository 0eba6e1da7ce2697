//! What the daemon is told when it starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The daemon of `mooring dev` or of `mooring sandbox serve`: on this machine, for
/// one project and one user.
#[derive(Clone, Debug)]
pub struct DevOptions {
    /// The project's folder on this machine; it has the same path inside.
    pub project: PathBuf,
    /// Private folder for records, output files, the sandbox's home and caches.
    pub state: PathBuf,
    /// Where the harness connects.
    pub listen: Listen,
    /// The user's home; inside it is empty but for `read_only`.
    pub home: PathBuf,
    /// Folders that commands may read (toolchains), with a writable cache over them.
    pub read_only: Vec<PathBuf>,
    /// Files of the project that commands may not change (the Workspace file).
    pub protected: Vec<PathBuf>,
    /// What commands find in their environment.
    pub environment: CommandEnvironment,
    /// Bounds of executions.
    pub limits: Limits,
    /// Whether to serve where nothing can hold commands back.
    pub unisolated: Unisolated,
}

/// Where the harness connects to a daemon outside a cluster.
#[derive(Clone, Debug)]
pub enum Listen {
    /// On this machine: a socket, made with mode 0600 in a folder of mode 0700.
    Socket(PathBuf),
    /// From another machine, once it is paired.
    Paired(SocketAddr),
}

/// The daemon in a pod, which is isolated by the pod.
#[derive(Clone, Debug)]
pub struct PodOptions {
    /// The project's folder.
    pub project: PathBuf,
    /// Folder of records and output on the project's volume; commands see only the output.
    pub state: PathBuf,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Folder with `tls.crt`, `tls.key` and `ca.crt`; commands cannot see it.
    pub certificates: PathBuf,
    /// The DNS name that the harness's certificate must carry.
    pub harness: String,
    /// Commands' home.
    pub home: PathBuf,
    /// What commands find in their environment.
    pub environment: CommandEnvironment,
    /// Bounds of executions.
    pub limits: Limits,
    /// Whether anything may start before a probe found the network closed.
    pub egress: Egress,
}

/// Whether commands may run where neither namespaces nor Landlock hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unisolated {
    /// Refuse to start.
    Refused,
    /// Serve, and say so in the status.
    Allowed,
}

/// What a missing or failed egress probe means for executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// Nothing starts before a probe found every target closed.
    Enforce,
    /// The probe's result is only reported.
    Warn,
}

/// The environment of commands, built from nothing.
#[derive(Clone, Debug)]
pub struct CommandEnvironment {
    /// `PATH`.
    pub path: String,
    /// The Workspace's `env`; wins over everything but the daemon's own names.
    pub variables: BTreeMap<String, String>,
    /// Author and committer of commits.
    pub git_name: String,
    /// Their address.
    pub git_email: String,
}

impl Default for CommandEnvironment {
    fn default() -> Self {
        Self {
            path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
            variables: BTreeMap::new(),
            git_name: "Mooring".into(),
            git_email: "mooring@localhost".into(),
        }
    }
}

/// Bounds of one execution, and of all output files together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Output that is kept whole, in bytes; of more, the first and the last half.
    pub output_bytes: u64,
    /// All output files together, in bytes; the oldest released go first.
    pub output_total_bytes: u64,
    /// Processes of the sandbox's user (`RLIMIT_NPROC`; the kernel does not hold root to it).
    pub processes: u64,
    /// Open files of one process (`RLIMIT_NOFILE`).
    pub open_files: u64,
    /// Size of one file, in bytes (`RLIMIT_FSIZE`).
    pub file_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            output_bytes: 64 << 20,
            output_total_bytes: 1 << 30,
            processes: 8192,
            open_files: 65_536,
            file_bytes: 16 << 30,
        }
    }
}
