//! A real daemon process per test, with a project, a home and a client.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mooring_wire::sandbox::attach_frame::Frame;
use mooring_wire::sandbox::exec_response::Start;
use mooring_wire::sandbox::sandbox_client::SandboxClient;
use mooring_wire::sandbox::{
    AttachRequest, ExecRequest, Execution, Outcome, SignalRequest, StatusRequest, StatusResponse,
    outcome, signal_request,
};
use tempfile::TempDir;
use tonic::transport::Channel;

/// Nothing in these tests takes longer, on a loaded machine either.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// An ordinary user's id, which owns nothing else on a test machine.
const USER: u32 = 54_321;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// Whoever runs the tests.
    Caller,
    /// An ordinary user, where the caller is root.
    User,
}

pub struct Sandbox {
    pub folder: TempDir,
    pub project: PathBuf,
    pub home: PathBuf,
    pub socket: PathBuf,
    pub state: PathBuf,
    pub user: As,
    pub arguments: Vec<String>,
    /// A program that runs the daemon, with its arguments.
    pub wrapper: Vec<String>,
    /// Whether the daemon finds a kernel without Landlock.
    pub without_landlock: bool,
    child: Option<Child>,
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Both kinds of users where the caller can be both.
pub fn users() -> Vec<As> {
    if is_root() {
        vec![As::Caller, As::User]
    } else {
        vec![As::Caller]
    }
}

impl Sandbox {
    /// A daemon for a new project.
    pub async fn start(user: As, arguments: &[&str]) -> Self {
        Self::prepare(user, arguments, |_| {}).await
    }

    /// Like `start`; the project can be filled before the daemon sees it.
    pub async fn prepare(user: As, arguments: &[&str], fill: impl FnOnce(&Self)) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        Self::prepare_with(user, |sandbox| {
            fill(sandbox);
            arguments
        })
        .await
    }

    /// Like `prepare`; what fills the project gives the daemon's arguments.
    pub async fn prepare_with(user: As, fill: impl FnOnce(&Self) -> Vec<String>) -> Self {
        let mut sandbox = Self::new(user, fill);
        sandbox.launch();
        sandbox.client().await;
        sandbox
    }

    /// The folders, without a daemon.
    pub fn new(user: As, fill: impl FnOnce(&Self) -> Vec<String>) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("mooring-sandbox-")
            .tempdir()
            .unwrap();
        let root = folder.path().canonicalize().unwrap();
        let home = root.join("home");
        let mut sandbox = Self {
            project: home.join("project"),
            socket: root.join("run/daemon.sock"),
            state: home.join(".local/state/mooring/sandbox"),
            home,
            folder,
            user,
            arguments: Vec::new(),
            wrapper: Vec::new(),
            without_landlock: false,
            child: None,
        };
        for folder in [
            &sandbox.project,
            &sandbox.home.join(".ssh"),
            &root.join("run"),
        ] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(sandbox.home.join(".ssh/id_ed25519"), "SECRET-KEY").unwrap();
        sandbox.arguments = fill(&sandbox);
        sandbox.own(&root);
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).unwrap();
        sandbox
    }

    /// Gives the tree to the daemon's user.
    fn own(&self, root: &Path) {
        if self.user == As::User {
            let owner = format!("{USER}:{USER}");
            let done = Command::new("chown")
                .arg("-R")
                .arg("-h")
                .arg(owner)
                .arg(root)
                .status()
                .unwrap();
            assert!(done.success());
        }
    }

    pub fn launch(&mut self) {
        let mut command = self.command();
        self.child = Some(self.spawn(&mut command));
    }

    /// A filter is the thread's that sets it, and of all that it starts.
    fn spawn(&self, command: &mut Command) -> Child {
        if !self.without_landlock {
            return command.spawn().unwrap();
        }
        std::thread::scope(|scope| {
            let spawned = scope.spawn(|| {
                seccompiler::apply_filter(&no_landlock()).unwrap();
                command.spawn().unwrap()
            });
            spawned.join().unwrap()
        })
    }

    fn command(&self) -> Command {
        let mut whole = self.wrapper.clone();
        whole.push(program().display().to_string());
        let mut command = Command::new(&whole[0]);
        command
            .args(&whole[1..])
            .arg("dev")
            .arg("--project")
            .arg(&self.project)
            .arg("--state")
            .arg(&self.state)
            .arg("--socket")
            .arg(&self.socket)
            .arg("--home")
            .arg(&self.home)
            .args(&self.arguments)
            .env_clear()
            .env("SECRET_TOKEN", "SECRET-TOKEN")
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .process_group(0);
        if self.user == As::User {
            command.uid(USER).gid(USER);
        }
        command
    }

    /// The process that was started; the daemon's own lies below.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Waits until the daemon answers.
    pub async fn client(&self) -> SandboxClient<Channel> {
        let since = Instant::now();
        loop {
            if let Some(channel) = self.connect().await {
                let mut client = SandboxClient::new(channel).max_decoding_message_size(64 << 20);
                if client.status(StatusRequest {}).await.is_ok() {
                    return client;
                }
            }
            assert!(since.elapsed() < PATIENCE, "the daemon does not answer");
            tokio::task::yield_now().await;
        }
    }

    async fn connect(&self) -> Option<Channel> {
        if self.user == As::Caller {
            return mooring_wire::uds::connect(&self.socket).await.ok();
        }
        // Whose a connection is, the kernel notes when it is made: so it is made
        // by a thread that has become the user.
        let socket = self.socket.clone();
        let connected = std::thread::spawn(move || {
            let user = rustix::process::Uid::from_raw(USER);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            std::os::unix::net::UnixStream::connect(socket)
        });
        let stream = connected.join().unwrap().ok()?;
        stream.set_nonblocking(true).unwrap();
        let mut stream = Some(tokio::net::UnixStream::from_std(stream).unwrap());
        tonic::transport::Endpoint::from_static("http://sandbox.invalid")
            .connect_with_connector(tower::service_fn(move |_| {
                let stream = stream.take().map(hyper_util::rt::TokioIo::new);
                async move { stream.ok_or_else(|| std::io::Error::other("connected before")) }
            }))
            .await
            .ok()
    }

    pub async fn status(&self) -> StatusResponse {
        self.client()
            .await
            .status(StatusRequest {})
            .await
            .unwrap()
            .into_inner()
    }

    /// Kills what was started, as a crash would, and waits for its end.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
            // The processes below end with it, but a moment later.
            let since = Instant::now();
            while std::os::unix::net::UnixStream::connect(&self.socket).is_ok() {
                assert!(
                    since.elapsed() < PATIENCE,
                    "the daemon outlives its first process"
                );
                std::thread::yield_now();
            }
        }
    }

    /// Waits for the end of what was started.
    pub fn wait(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.wait().unwrap();
        }
    }

    /// Starts a daemon that does not serve, and returns what it says.
    pub fn fails_to_start(&mut self) -> String {
        let mut command = self.command();
        let child = self.spawn(command.stderr(Stdio::piped()));
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs a command to its end.
    pub async fn run(&self, command: &str) -> Ran {
        let id = unique("run");
        self.run_as(&id, request(&id, command)).await
    }

    pub async fn run_as(&self, id: &str, request: ExecRequest) -> Ran {
        let started = self
            .client()
            .await
            .exec(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(started.start(), Start::Started);
        self.attach(id, 0).await
    }

    /// Everything from an offset to the outcome.
    pub async fn attach(&self, id: &str, offset: u64) -> Ran {
        let request = AttachRequest {
            execution_id: id.into(),
            offset,
        };
        let mut frames = self
            .client()
            .await
            .attach(request)
            .await
            .unwrap()
            .into_inner();
        let mut ran = Ran::default();
        while let Some(frame) = tokio::time::timeout(PATIENCE, frames.message())
            .await
            .expect("a frame comes in time")
            .unwrap()
        {
            match frame.frame.unwrap() {
                Frame::Output(output) => {
                    assert_eq!(output.offset, ran.next.unwrap_or(offset));
                    ran.next = Some(output.offset + output.data.len() as u64);
                    ran.bytes += output.data.len() as u64;
                    if ran.output.len() < 1 << 20 {
                        ran.output.extend_from_slice(&output.data);
                    }
                }
                Frame::Gap(gap) => {
                    assert_eq!(gap.offset, ran.next.unwrap_or(offset));
                    ran.next = Some(gap.offset + gap.length);
                    ran.gaps.push((gap.offset, gap.length));
                }
                Frame::Running(_) => ran.was_running = true,
                Frame::Finished(outcome) => ran.outcome = Some(outcome),
                Frame::Gone(gone) => ran.gone = Some(gone.output_bytes),
                Frame::NeverSeen(_) => ran.never_seen = true,
            }
        }
        ran
    }

    pub async fn signal(&self, id: &str, signal: signal_request::Signal) -> bool {
        let request = SignalRequest {
            execution_id: id.into(),
            signal: Some(signal),
        };
        self.client()
            .await
            .signal(request)
            .await
            .unwrap()
            .into_inner()
            .known
    }

    /// Waits for a file that a command makes in the project.
    pub async fn appears(&self, name: &str) -> String {
        let path = self.project.join(name);
        eventually(&format!("{name} appears"), || {
            std::fs::read_to_string(&path)
                .ok()
                .filter(|text| !text.is_empty())
        })
        .await
    }
}

/// Answers the first call of Landlock as a kernel does that has never heard of it.
fn no_landlock() -> seccompiler::BpfProgram {
    const LANDLOCK_CREATE_RULESET: i64 = 444;
    const ENOSYS: u32 = 38;
    seccompiler::SeccompFilter::new(
        std::collections::BTreeMap::from([(LANDLOCK_CREATE_RULESET, Vec::new())]),
        seccompiler::SeccompAction::Allow,
        seccompiler::SeccompAction::Errno(ENOSYS),
        std::env::consts::ARCH.try_into().unwrap(),
    )
    .unwrap()
    .try_into()
    .unwrap()
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kill();
        // Commands may have left what nobody may enter.
        let _ = Command::new("chmod")
            .arg("-R")
            .arg("u+rwX")
            .arg(self.folder.path())
            .status();
    }
}

/// What a command did.
#[derive(Debug, Default)]
pub struct Ran {
    /// The first MiB.
    pub output: Vec<u8>,
    pub bytes: u64,
    pub gaps: Vec<(u64, u64)>,
    pub outcome: Option<Outcome>,
    pub gone: Option<u64>,
    pub never_seen: bool,
    pub was_running: bool,
    next: Option<u64>,
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    pub fn end(&self) -> (outcome::End, i32) {
        let outcome = self.outcome.as_ref().expect("it finished");
        (outcome.end(), outcome.code)
    }

    /// The output of a command that succeeded.
    #[track_caller]
    pub fn ok(&self) -> String {
        assert_eq!(
            self.end(),
            (outcome::End::Exited, 0),
            "{}: {:?}",
            self.text(),
            self.outcome
        );
        self.text()
    }

    /// The output of a command that failed.
    #[track_caller]
    pub fn fails(&self) -> String {
        assert_ne!(
            self.end(),
            (outcome::End::Exited, 0),
            "it succeeded: {}",
            self.text()
        );
        self.text()
    }
}

pub fn execution(id: &str, hash: &str) -> Option<Execution> {
    Some(Execution {
        id: id.into(),
        args_hash: hash.into(),
    })
}

pub fn request(id: &str, command: &str) -> ExecRequest {
    ExecRequest {
        execution: execution(id, "hash"),
        command: command.into(),
        env: HashMap::new(),
        ..ExecRequest::default()
    }
}

/// An id that no other call got.
pub fn unique(name: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Polls until there is an answer.
pub async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            since.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        tokio::task::yield_now().await;
    }
}

/// The daemon's program at a place where every user may run it.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let built = Path::new(env!("CARGO_BIN_EXE_mooring-sandbox"));
        if !is_root() {
            return built.to_owned();
        }
        let folder =
            std::env::temp_dir().join(format!("mooring-sandbox-bin-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let copy = folder.join("mooring-sandbox");
        std::fs::copy(built, &copy).unwrap();
        remove_at_end(&folder);
        copy
    })
}

/// Removes a folder once this process has ended, however it does: a static is never
/// dropped, so another process waits for the end of its standard input.
fn remove_at_end(folder: &Path) {
    let waiting = Command::new("sh")
        .args(["-c", "cat >/dev/null; rm -rf -- \"$0\""])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::mem::forget(waiting); // and with it the end that it waits for
}

/// Runs a program on the host, outside any sandbox.
pub fn host(program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
