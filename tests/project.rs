//! A project of a newcomer: a git repository, a state folder of its own, and the
//! real `mooring` program.

#![allow(clippy::unwrap_used, missing_docs)]

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use mooring_wire::harness::{
    self as wire, Approval, ConversationView, StatusRequest, StatusResponse, SubmitRequest,
    ViewRequest, WatchRequest, harness_client::HarnessClient,
};
use tonic::transport::Channel;

pub type Client = HarnessClient<Channel>;

/// How long anything may take before a test gives up on it.
pub const BOUND: Duration = Duration::from_secs(180);

pub struct Project {
    /// Holds everything; removed at the end.
    _home: tempfile::TempDir,
    pub folder: PathBuf,
    home: PathBuf,
    /// The `mooring` that is run.
    pub program: PathBuf,
    /// Further variables of what is started.
    pub variables: Vec<(String, String)>,
}

/// The program under test, built beside the tests.
pub fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("mooring");
    assert!(
        program.exists(),
        "build it first: cargo build -p mooring ({})",
        program.display()
    );
    program
}

impl Default for Project {
    fn default() -> Project {
        Project::new()
    }
}

impl Project {
    /// An empty git repository with the default Workspace.
    pub fn new() -> Project {
        let home = tempfile::Builder::new()
            .prefix("mooring-")
            .tempdir()
            .unwrap();
        let folder = home.path().join("project");
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["home", "state", "run", "cache"] {
            std::fs::create_dir_all(home.path().join(name)).unwrap();
        }
        use std::os::unix::fs::PermissionsExt;
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(home.path().join("run"), private).unwrap();
        let project = Project {
            folder,
            home: home.path().to_owned(),
            program: program(),
            variables: Vec::new(),
            _home: home,
        };
        let made = Command::new("git")
            .args(["init", "-q"])
            .current_dir(&project.folder)
            .status();
        assert!(made.unwrap().success());
        project
    }

    /// A repository with a Workspace whose model plays `script`, under `policy`
    /// (YAML of `spec.policy`).
    pub fn scripted(script: &str, policy: &str) -> Project {
        let project = Project::with_model("model: script.yaml", policy);
        std::fs::write(project.folder.join("script.yaml"), script).unwrap();
        project
    }

    /// A repository with a Workspace whose model does what messages say.
    pub fn with_workspace(policy: &str) -> Project {
        Project::with_model("model: \"\"", policy)
    }

    fn with_model(model: &str, policy: &str) -> Project {
        Project::with_models(
            &format!("{{name: rehearsal, provider: rehearsal, {model}}}"),
            policy,
        )
    }

    /// A repository with a Workspace with these models (YAML of the list's items).
    pub fn with_models(models: &str, policy: &str) -> Project {
        let indented: String = policy.lines().map(|line| format!("  {line}\n")).collect();
        Project::with_spec(&format!(
            "models: [{models}]\n\
             approvals: {{timeout: never, requesterMayApprove: true}}\npolicy:\n{indented}"
        ))
    }

    /// A repository with a Workspace of this `spec` (YAML).
    pub fn with_spec(spec: &str) -> Project {
        let project = Project::new();
        let indented: String = spec.lines().map(|line| format!("  {line}\n")).collect();
        let workspace = format!(
            "apiVersion: mooring.dev/v1alpha1\nkind: Workspace\nmetadata: {{name: test}}\nspec:\n{indented}"
        );
        std::fs::write(project.folder.join("workspace.yaml"), workspace).unwrap();
        project
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(&self.program, arguments)
    }

    /// Another program, as a person of this project runs it.
    pub fn command_of(&self, program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.home.join("home"))
            .env("XDG_STATE_HOME", self.home.join("state"))
            .env("XDG_RUNTIME_DIR", self.home.join("run"))
            .env("XDG_CACHE_HOME", self.home.join("cache"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs `mooring` to its end.
    pub fn mooring(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Starts what is not running, with a terminal that is left at once.
    pub async fn start(&self) -> Client {
        let mut arguments = vec!["dev"];
        if self.folder.join("workspace.yaml").exists() {
            arguments.push("workspace.yaml");
        }
        // Only the first harness of a project is made to crash.
        let first = find(&self.home.join("state"), "mooring.db").is_none();
        let open = |again: bool| {
            let mut command = self.command(&arguments);
            if again || !first {
                command.env_remove("MOORING_CRASH_AT");
            }
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut terminal = open(false);
        let begun = std::time::Instant::now();
        loop {
            if let Some(client) = self.try_client().await {
                terminal.kill().unwrap();
                terminal.wait().unwrap();
                return client;
            }
            if terminal.try_wait().unwrap().is_some() {
                let output = terminal.wait_with_output().unwrap();
                // A harness that is just ending may have taken this client along, and one
                // that a test ends may have been on its way.
                let said = told(&output);
                let broke = said.contains("connection to the harness broke")
                    || said.contains("the harness did not start (signal");
                assert!(broke && begun.elapsed() < BOUND, "{}", told(&output));
                terminal = open(true);
            } else if begun.elapsed() > BOUND {
                let _ = terminal.kill();
                panic!("{}", told(&terminal.wait_with_output().unwrap()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The harness's socket, once it was started.
    pub fn socket(&self) -> Option<PathBuf> {
        ["state", "run"]
            .iter()
            .find_map(|folder| find(&self.home.join(folder), "harness.sock"))
    }

    pub fn state(&self) -> PathBuf {
        find(&self.home.join("state"), "mooring.db")
            .unwrap()
            .parent()
            .unwrap()
            .to_owned()
    }

    /// A client of the running harness, started where none runs.
    pub async fn client(&self) -> Client {
        if let Some(client) = self.try_client().await {
            return client;
        }
        self.start().await
    }

    /// A client of the harness where one runs.
    pub async fn running(&self) -> Option<Client> {
        self.try_client().await
    }

    async fn try_client(&self) -> Option<Client> {
        let channel = mooring_wire::uds::connect(&self.socket()?).await.ok()?;
        let mut client = HarnessClient::new(channel)
            .max_decoding_message_size(64 << 20)
            .max_encoding_message_size(64 << 20);
        client.status(StatusRequest {}).await.ok()?;
        Some(client)
    }

    pub async fn status(&self) -> StatusResponse {
        self.client()
            .await
            .status(StatusRequest {})
            .await
            .unwrap()
            .into_inner()
    }

    /// SIGKILL to the harness; returns when it is gone.
    pub async fn kill_harness(&self) {
        let pid = self.status().await.pid;
        kill(pid);
    }

    /// SIGKILL to the sandbox daemon's processes; returns when they are gone.
    pub fn kill_daemon(&self) -> usize {
        let pids = self.daemons();
        for pid in &pids {
            kill(*pid);
        }
        pids.len()
    }

    /// Processes of this project's sandbox daemon.
    pub fn daemons(&self) -> Vec<u32> {
        self.processes("sandbox-daemon")
    }

    /// Processes of this project's harness.
    pub fn harnesses(&self) -> Vec<u32> {
        self.processes("mooring harness ")
    }

    fn processes(&self, word: &str) -> Vec<u32> {
        let home = self.home.display().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(word) && line.contains(&home) {
                found.push(pid);
            }
        }
        found
    }

    pub async fn submit(&self, client: &mut Client, conversation: i64, text: &str) -> i64 {
        self.submit_as(client, conversation, text, wire::WhenBusy::FollowUp)
            .await
            .0
    }

    /// Returns conversation and submission.
    pub async fn submit_as(
        &self,
        client: &mut Client,
        conversation: i64,
        text: &str,
        when_busy: wire::WhenBusy,
    ) -> (i64, i64) {
        let request = SubmitRequest {
            conversation,
            content: vec![wire::Part::text(text)],
            when_busy: when_busy.into(),
            ..SubmitRequest::default()
        };
        let response = client.submit(request).await.unwrap().into_inner();
        (response.conversation, response.submission)
    }

    pub async fn view(&self, client: &mut Client, conversation: i64) -> ConversationView {
        let request = ViewRequest {
            conversation,
            entries: 1000,
            entries_before: 0,
        };
        client.view(request).await.unwrap().into_inner()
    }

    /// Waits until `seen` finds what it looks for in the conversation.
    pub async fn until<T>(
        &self,
        client: &mut Client,
        conversation: i64,
        what: &str,
        mut seen: impl FnMut(&ConversationView) -> Option<T>,
    ) -> T {
        let request = WatchRequest {
            conversation,
            ..WatchRequest::default()
        };
        let mut frames = client.watch(request).await.unwrap().into_inner();
        let waited = tokio::time::timeout(BOUND, async {
            loop {
                let view = self.view(client, conversation).await;
                if let Some(found) = seen(&view) {
                    return found;
                }
                frames.message().await.unwrap().expect("the watch goes on");
            }
        })
        .await;
        match waited {
            Ok(found) => found,
            Err(_) => {
                let view = self.view(client, conversation).await;
                panic!("waited for {what} in vain: {view:#?}")
            }
        }
    }

    /// Waits for the end of all runs; the texts of the assistant's entries.
    pub async fn idle(&self, client: &mut Client, conversation: i64) -> ConversationView {
        self.until(client, conversation, "the end of the run", |view| {
            let busy = view.run.as_ref().is_some_and(|run| run.state != "idle");
            (!busy && view.inbox.is_empty()).then(|| view.clone())
        })
        .await
    }

    pub async fn approval(&self, client: &mut Client, conversation: i64) -> Approval {
        self.until(client, conversation, "an approval", |view| {
            view.approvals
                .iter()
                .find(|a| a.state == "pending")
                .cloned()
        })
        .await
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = self.mooring(&["stop"]);
        for word in ["harness", "sandbox-daemon"] {
            for pid in self.processes(word) {
                kill(pid);
            }
        }
        if std::thread::panicking() {
            for log in ["harness.log", "sandbox.log"] {
                if let Some(path) = find(&self.home.join("state"), log) {
                    let text = std::fs::read_to_string(path).unwrap_or_default();
                    let tail: Vec<&str> = text.lines().rev().take(30).collect();
                    eprintln!("{log}:");
                    tail.iter().rev().for_each(|line| eprintln!("  {line}"));
                }
            }
        }
    }
}

/// Waits until a command in the sandbox has come so far; it tells by its files.
pub async fn met(condition: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed() < BOUND * 2, "waited in vain for a command");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// SIGKILL; returns when the process is gone.
pub fn kill(pid: u32) {
    let target = nix::unistd::Pid::from_raw(pid as i32);
    let _ = nix::sys::signal::kill(target, nix::sys::signal::Signal::SIGKILL);
    let begun = std::time::Instant::now();
    while begun.elapsed() < BOUND {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Gone, or dead and not reaped yet by whoever started it.
        if stat.is_empty()
            || stat
                .rsplit(')')
                .next()
                .is_some_and(|s| s.trim_start().starts_with('Z'))
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("process {pid} does not end");
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if entry.file_name() == name {
            return Some(path);
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Some(found) = find(&path, name)
        {
            return Some(found);
        }
    }
    None
}

/// Both streams of a finished program, for messages of assertions.
pub fn told(output: &Output) -> String {
    format!(
        "{}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
