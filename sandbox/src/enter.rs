//! From one ordinary process to the daemon in its sandbox.
//!
//! Under `mooring dev`: the process that was started stays outside and waits;
//! its child is process 1 of new namespaces ([`crate::init`]); that one's child
//! is the daemon. Whichever of them dies takes all others and every command
//! along. Where namespaces are refused, the first process is init itself.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::libc;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};

use crate::confine::{Confinement, Privileges, Reach, Sockets};
use crate::error::SandboxError;
use crate::folders::{
    canonical, check_project, clear, everything_but, folder, lock, open_folder, prepare_state,
};
use crate::guard::Guarded;
use crate::mounts;
use crate::options::{
    CommandEnvironment, DevOptions, Egress, Limits, Listen, PodOptions, Unisolated,
};
use crate::pairing::Pairing;
use crate::protocol;
use crate::supervisor::Surroundings;
use crate::sys::{self, Forked};

/// What holds commands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// Namespaces or a pod, and Landlock where the kernel has it.
    Isolated,
    /// Landlock and a socket filter, without namespaces.
    Confined,
    /// Nothing.
    NotIsolated,
}

impl Grade {
    /// As the contract spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Isolated => "isolated",
            Self::Confined => "confined",
            Self::NotIsolated => "not-isolated",
        }
    }
}

/// Where the daemon listens.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener),
    Tls {
        listener: std::net::TcpListener,
        credentials: std::sync::Arc<mooring_wire::tls::Credentials>,
        harness: String,
    },
    Paired {
        listener: std::net::TcpListener,
        pairing: Arc<Pairing>,
    },
}

/// The daemon's side of the sandbox, ready to serve.
#[derive(Debug)]
pub struct Entered {
    pub(crate) jobs: OwnedFd,
    pub(crate) listener: Listener,
    pub(crate) records: OwnedFd,
    pub(crate) records_path: PathBuf,
    pub(crate) output: OwnedFd,
    /// The output folder as commands see it.
    pub(crate) output_path: PathBuf,
    pub(crate) project: PathBuf,
    /// Where worktrees lie; none where there is no such folder.
    pub(crate) threads: Option<PathBuf>,
    pub(crate) home: PathBuf,
    /// Folders that file operations refuse, too.
    pub(crate) private: Vec<PathBuf>,
    pub(crate) grade: Grade,
    pub(crate) missing: Vec<String>,
    pub(crate) landlock_abi: u32,
    pub(crate) guarded: Guarded,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) limits: Limits,
    pub(crate) egress: Egress,
    pub(crate) uid: u32,
    /// Held as long as the daemon lives.
    pub(crate) lock: OwnedFd,
}

impl Entered {
    /// What holds commands back.
    pub fn grade(&self) -> Grade {
        self.grade
    }

    /// What the grade lacks, for people.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The project's folder.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// Where it listens, and the pairing, of a daemon that another machine's harness uses.
    pub fn pairing(&self) -> Option<(std::net::SocketAddr, &Pairing)> {
        match &self.listener {
            Listener::Paired { listener, pairing } => Some((listener.local_addr().ok()?, pairing)),
            Listener::Unix(_) | Listener::Tls { .. } => None,
        }
    }
}

/// Everything that is fixed before the processes part.
struct Prepared {
    listener: Listener,
    lock: OwnedFd,
    records: OwnedFd,
    output: OwnedFd,
    state: PathBuf,
    project: PathBuf,
    threads: Option<PathBuf>,
    home: PathBuf,
    environment: CommandEnvironment,
    limits: Limits,
    guarded: Guarded,
    egress: Egress,
}

/// Enters the sandbox of `mooring dev`.
///
/// Must be called before any thread is started. It returns in the daemon's
/// process only; the processes around it end with `exit`.
///
/// # Errors
/// A folder that cannot be used, a second daemon on the same state folder, or
/// a machine that permits no isolation at all ([`SandboxError::NotIsolated`]).
pub fn enter(options: DevOptions) -> Result<Entered, SandboxError> {
    let home = canonical(&options.home).unwrap_or_else(|_| options.home.clone());
    let project = canonical(&options.project)?;
    check_project(&project, &home)?;
    let state = prepare_state(&options.state)?;
    for name in ["home", "tmp", "cache"] {
        folder(&state.join(name), 0o700)?;
    }
    let threads = threads(&state)?;
    let lock = lock(&state)?;
    // Only now: until then it may be in use.
    clear(&state.join("tmp"))?;
    let protected: Vec<PathBuf> = options
        .protected
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let (listener, socket) = match &options.listen {
        Listen::Socket(path) => {
            let listener = Listener::Unix(mooring_wire::uds::bind(path)?);
            (listener, Some(canonical(path)?))
        }
        Listen::Paired(address) => {
            let listener = Listener::Paired {
                listener: listen(*address)?,
                pairing: Arc::new(Pairing::open(&state)?),
            };
            (listener, None)
        }
    };
    let prepared = Prepared {
        listener,
        lock,
        records: open_folder(&state.join("records"))?,
        output: open_folder(&state.join("output"))?,
        guarded: Guarded {
            threads: Some(threads.clone()),
            ..Guarded::find(&project, &protected)
                .map_err(SandboxError::path(&project, "looking for repositories"))?
        },
        state,
        project,
        threads: Some(threads),
        home,
        environment: options.environment,
        limits: options.limits,
        egress: Egress::Warn,
    };
    let read_only: Vec<(PathBuf, PathBuf)> = options
        .read_only
        .iter()
        .filter_map(|path| Some((path.canonicalize().ok()?, path.clone())))
        .collect();
    // One that somebody started in a terminal ends with it.
    if socket.is_some() {
        sys::ignore_hangup();
        // Refused where the process leads a group already, and then not needed.
        let _ = rustix::process::setsid();
    }

    let refused = match isolate(&prepared, &read_only, socket.as_deref())? {
        Isolation::Inside(missing) => return isolated(prepared, &read_only, missing),
        Isolation::Refused(reason) => reason,
    };
    let landlock_abi = sys::landlock_abi();
    if landlock_abi > 0 {
        return confined(prepared, &read_only, &refused, socket);
    }
    let reasons = format!("namespaces: {refused}; Landlock: not in this kernel");
    match options.unisolated {
        Unisolated::Refused => Err(SandboxError::NotIsolated { reasons }),
        Unisolated::Allowed => unisolated(prepared, reasons),
    }
}

/// Enters the sandbox of a pod: the pod isolates, Landlock narrows the commands.
///
/// As with [`enter`], before any thread, and it returns in the daemon only.
///
/// # Errors
/// A folder that cannot be used, or an address that cannot be listened on.
pub fn enter_pod(options: PodOptions) -> Result<Entered, SandboxError> {
    let project = canonical(&options.project)?;
    let state = prepare_state(&options.state)?;
    folder(&options.home, 0o700)?;
    let home = canonical(&options.home)?;
    let certificates = canonical(&options.certificates)?;
    let listener = listen(options.listen)?;
    let lock = lock(&state)?;
    let prepared = Prepared {
        listener: Listener::Tls {
            listener,
            // Read here, so that a fault in them is the first thing said.
            credentials: mooring_wire::tls::Credentials::load(&certificates)?,
            harness: options.harness,
        },
        lock,
        records: open_folder(&state.join("records"))?,
        output: open_folder(&state.join("output"))?,
        guarded: Guarded::default(),
        // Without a volume for it there are no worktrees.
        threads: threads(&state).ok(),
        state,
        project,
        home,
        environment: options.environment,
        limits: options.limits,
        egress: options.egress,
    };
    let private = vec![prepared.state.clone(), certificates];
    let open = [
        Path::new("/tmp"),
        Path::new("/dev"),
        &prepared.project,
        &prepared.home,
    ];
    if let Some(path) = private
        .iter()
        .find(|path| open.iter().any(|open| path.starts_with(open)))
    {
        return Err(SandboxError::Private { path: path.clone() });
    }
    let output_path = prepared.state.join("output");
    let mut read = everything_but(Path::new("/"), &private);
    read.push(output_path.clone());
    let reach = Reach {
        read,
        write: [
            prepared.project.clone(),
            prepared.home.clone(),
            "/tmp".into(),
            "/dev".into(),
        ]
        .into_iter()
        .chain(prepared.threads.clone())
        .collect(),
    };
    let abi = sys::landlock_abi();
    let grade = if abi > 0 {
        Grade::Isolated
    } else {
        Grade::NotIsolated
    };
    let place = Place {
        grade,
        missing: lacking(abi),
        reach: (abi > 0).then_some(reach),
        own_reach: None,
        sockets: Sockets::Free,
        privileges: Privileges::Dropped,
        output_path,
        home: prepared.home.clone(),
        temporary: "/tmp".into(),
        private,
    };
    split(prepared, place)
}

/// The folder of worktrees, beside the state.
fn threads(state: &Path) -> Result<PathBuf, SandboxError> {
    let path = state.with_file_name("threads");
    folder(&path, 0o700)?;
    canonical(&path)
}

fn listen(address: std::net::SocketAddr) -> Result<std::net::TcpListener, SandboxError> {
    std::net::TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(SandboxError::setup(format!("listening on {address}")))
}

enum Isolation {
    /// In the child, as process 1, with what is missing.
    Inside(Vec<String>),
    /// In the first process: why not.
    Refused(String),
}

fn isolate(
    prepared: &Prepared,
    read_only: &[(PathBuf, PathBuf)],
    socket: Option<&Path>,
) -> Result<Isolation, SandboxError> {
    let (read, write) = sys::pipe().map_err(SandboxError::setup("pipe"))?;
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    match sys::fork_into(namespaces) {
        Err(error) => Ok(Isolation::Refused(error.to_string())),
        Ok(Forked::Child) => {
            drop(read);
            let mut answer = std::fs::File::from(write);
            match set_up(prepared, read_only, socket, uid, gid) {
                Ok(missing) => {
                    let _ = answer.write_all(b"ok");
                    Ok(Isolation::Inside(missing))
                }
                Err(error) => {
                    let _ = answer.write_all(error.to_string().as_bytes());
                    std::process::exit(1)
                }
            }
        }
        Ok(Forked::Parent(child)) => {
            drop(write);
            let mut answer = String::new();
            // An answer that breaks off is a refusal.
            let _ = std::fs::File::from(read).read_to_string(&mut answer);
            if answer == "ok" {
                std::process::exit(wait_for(child));
            }
            wait_for(child);
            if answer.is_empty() {
                answer = "the first process inside died".into();
            }
            Ok(Isolation::Refused(answer))
        }
    }
}

fn set_up(
    prepared: &Prepared,
    read_only: &[(PathBuf, PathBuf)],
    socket: Option<&Path>,
    uid: u32,
    gid: u32,
) -> Result<Vec<String>, SandboxError> {
    let setup = SandboxError::setup;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| setup("death signal")(e.into()))?;
    let _ = rustix::process::setsid();
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{uid} {uid} 1")),
        ("gid_map", format!("{gid} {gid} 1")),
    ] {
        std::fs::write(format!("/proc/self/{file}"), text).map_err(setup(file))?;
    }
    sys::new_session_keyring();
    sys::loopback_up().map_err(setup("loopback"))?;
    sys::name_host();
    mounts::enter(&mounts::Plan {
        project: &prepared.project,
        home: &prepared.home,
        read_only,
        guarded: &prepared.guarded,
        state: &prepared.state,
        socket,
    })
}

fn wait_for(child: Pid) -> i32 {
    loop {
        match rustix::process::waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                return status.exit_status().or(signal).unwrap_or(1);
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 1,
        }
    }
}

/// What differs between the grades.
struct Place {
    grade: Grade,
    missing: Vec<String>,
    reach: Option<Reach>,
    /// What the daemon itself may reach; free where its namespace holds it.
    own_reach: Option<Reach>,
    sockets: Sockets,
    privileges: Privileges,
    output_path: PathBuf,
    home: PathBuf,
    temporary: PathBuf,
    private: Vec<PathBuf>,
}

fn isolated(
    prepared: Prepared,
    read_only: &[(PathBuf, PathBuf)],
    mut missing: Vec<String>,
) -> Result<Entered, SandboxError> {
    let abi = sys::landlock_abi();
    missing.extend(lacking(abi));
    let mut write: Vec<PathBuf> = ["/tmp", "/var/tmp", "/dev"]
        .iter()
        .map(PathBuf::from)
        .collect();
    write.extend([prepared.project.clone(), prepared.home.clone()]);
    write.extend(read_only.iter().map(|(_, target)| target.clone()));
    write.extend(prepared.guarded.outside.iter().cloned());
    write.extend(prepared.threads.clone());
    let place = Place {
        grade: Grade::Isolated,
        missing,
        reach: (abi > 0).then(|| Reach {
            read: vec!["/".into()],
            write,
        }),
        own_reach: None,
        sockets: Sockets::Free,
        privileges: Privileges::Dropped,
        output_path: mounts::OUTPUT.into(),
        home: prepared.home.clone(),
        temporary: "/tmp".into(),
        private: Vec::new(),
    };
    split(prepared, place)
}

fn confined(
    prepared: Prepared,
    read_only: &[(PathBuf, PathBuf)],
    refused: &str,
    socket: Option<PathBuf>,
) -> Result<Entered, SandboxError> {
    let state = &prepared.state;
    let (home, temporary) = (state.join("home"), state.join("tmp"));
    let mut read: Vec<PathBuf> = [
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/etc",
        "/opt",
        "/nix",
        "/gnu",
        "/proc",
        "/dev/random",
        "/dev/urandom",
    ]
    .iter()
    .map(PathBuf::from)
    .collect();
    read.extend(read_only.iter().map(|(source, _)| source.clone()));
    read.push(state.join("output"));
    let mut write: Vec<PathBuf> = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/tty",
        "/dev/ptmx",
        "/dev/pts",
    ]
    .iter()
    .map(PathBuf::from)
    .collect();
    write.extend([prepared.project.clone(), home.clone(), temporary.clone()]);
    write.extend(prepared.guarded.outside.iter().cloned());
    write.extend(prepared.threads.clone());
    let reach = Reach { read, write };
    let mut own_reach = reach.clone();
    own_reach.write.push(state.clone());
    let mut missing = vec![
        format!("namespaces: {refused}"),
        "a network of its own: commands make no sockets, so no local servers".into(),
        "`.git/hooks` and `.git/config` stay writable".into(),
    ];
    missing.extend(lacking(sys::landlock_abi()));
    let place = Place {
        grade: Grade::Confined,
        missing,
        reach: Some(reach),
        own_reach: Some(own_reach),
        sockets: Sockets::PairsOnly,
        privileges: Privileges::Dropped,
        output_path: state.join("output"),
        home,
        temporary,
        private: [state.join("records"), state.join("pairing")]
            .into_iter()
            .chain(socket)
            .collect(),
    };
    split(prepared, place)
}

fn unisolated(prepared: Prepared, reasons: String) -> Result<Entered, SandboxError> {
    let place = Place {
        grade: Grade::NotIsolated,
        missing: vec![reasons],
        reach: None,
        own_reach: None,
        sockets: Sockets::Free,
        privileges: Privileges::Kept,
        output_path: prepared.state.join("output"),
        home: prepared.home.clone(),
        temporary: prepared.state.join("tmp"),
        private: vec![
            prepared.state.join("records"),
            prepared.state.join("pairing"),
        ],
    };
    split(prepared, place)
}

/// What an older Landlock does not do.
fn lacking(abi: u32) -> Vec<String> {
    let text = match abi {
        0 => "Landlock: not in this kernel, or switched off (boot with lsm=landlock,…)",
        1..6 => "Landlock before version 6: commands can send signals to each other's processes",
        _ => return Vec::new(),
    };
    vec![text.to_owned()]
}

/// Parts init and daemon.
fn split(prepared: Prepared, place: Place) -> Result<Entered, SandboxError> {
    let setup = |step: &'static str| {
        move |error: rustix::io::Errno| SandboxError::setup(step)(error.into())
    };
    let uid = rustix::process::getuid().as_raw();
    let bash = ["/bin/bash", "/usr/bin/bash"]
        .into_iter()
        .map(str::to_owned)
        .chain(
            prepared
                .environment
                .path
                .split(':')
                .map(|folder| format!("{folder}/bash")),
        )
        .find(|path| Path::new(path).is_file())
        .ok_or_else(|| {
            SandboxError::setup("looking for bash in PATH")(std::io::ErrorKind::NotFound.into())
        })?;
    let bash = std::ffi::CString::new(bash).map_err(|e| SandboxError::setup("PATH")(e.into()))?;
    let confinement = Confinement::prepare(place.reach.as_ref(), place.sockets, place.privileges)
        .map_err(SandboxError::setup("confinement"))?;
    // Nobody may trace or read the daemon or init: their memory and their open
    // folders lead out of the sandbox.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(setup("not dumpable"))?;
    let (jobs, daemon_jobs) = protocol::pair().map_err(SandboxError::setup("job socket"))?;
    match sys::fork().map_err(SandboxError::setup("fork"))? {
        Forked::Parent(daemon) => {
            let surroundings = Surroundings {
                output: prepared.output,
                limits: prepared.limits,
                confinement,
                bash,
            };
            // Init needs neither; the lock goes with the daemon.
            drop((
                daemon_jobs,
                prepared.listener,
                prepared.records,
                prepared.lock,
            ));
            let status = crate::init::run(daemon, jobs, &surroundings).unwrap_or_else(|error| {
                eprintln!("sandbox init: {error}");
                1
            });
            std::process::exit(status)
        }
        Forked::Child => {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(setup("death signal"))?;
            drop(jobs);
            if let Some(reach) = &place.own_reach {
                Confinement::prepare(Some(reach), Sockets::Free, Privileges::Kept)
                    .and_then(|own| own.apply())
                    .map_err(SandboxError::setup("confinement of the daemon"))?;
            }
            let variables = variables(&prepared.environment, &place);
            Ok(Entered {
                jobs: daemon_jobs,
                listener: prepared.listener,
                records: prepared.records,
                records_path: prepared.state.join("records"),
                output: prepared.output,
                output_path: place.output_path,
                project: prepared.project,
                threads: prepared.threads,
                home: place.home,
                private: place.private,
                grade: place.grade,
                missing: place.missing,
                landlock_abi: sys::landlock_abi(),
                guarded: prepared.guarded,
                variables,
                limits: prepared.limits,
                egress: prepared.egress,
                uid,
                lock: prepared.lock,
            })
        }
    }
}

fn variables(environment: &CommandEnvironment, place: &Place) -> Vec<(String, String)> {
    let mut all: std::collections::BTreeMap<String, String> = [
        ("PATH", environment.path.as_str()),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("GIT_AUTHOR_NAME", &environment.git_name),
        ("GIT_AUTHOR_EMAIL", &environment.git_email),
        ("GIT_COMMITTER_NAME", &environment.git_name),
        ("GIT_COMMITTER_EMAIL", &environment.git_email),
        // `git switch -c` would else write to the read-only `.git/config`.
        ("GIT_CONFIG_COUNT", "2"),
        ("GIT_CONFIG_KEY_0", "branch.autoSetupMerge"),
        ("GIT_CONFIG_VALUE_0", "false"),
        // A pod's folders belong to root, and git would obey no repository in them.
        // Whoever commands run as, everything here is theirs.
        ("GIT_CONFIG_KEY_1", "safe.directory"),
        ("GIT_CONFIG_VALUE_1", "*"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    all.extend(environment.variables.clone());
    all.insert("HOME".into(), place.home.display().to_string());
    if place.temporary != Path::new("/tmp") {
        all.insert("TMPDIR".into(), place.temporary.display().to_string());
    }
    all.into_iter().collect()
}
