//! A sandbox on another machine: here one on loopback, with a home of its own.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Output, Stdio},
    sync::Arc,
};

use mooring_tests::project::{Project, kill, met, told};
use mooring_wire::pairing::{self, Certificate, Desk, Fingerprint, Proof, Refusal};

const ALLOW: &str =
    "tool: {\"*\": allow}\nbash: {\"*\": allow}\npath: {\"*\": allow}\nexternalDirectory: allow";

/// `mooring sandbox serve` of a project.
pub struct Served {
    pub project: Project,
    process: Child,
    pub address: String,
    /// Empty where it is paired.
    pub code: String,
}

impl Served {
    fn start() -> Served {
        Served::at(Project::new(), "127.0.0.1:0")
    }

    pub fn at(project: Project, listen: &str) -> Served {
        let mut process = project
            .command(&["sandbox", "serve", "--listen", listen])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut address, mut code) = (String::new(), String::new());
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let (name, value) = line.split_once("  ").unwrap_or_default();
            match name.trim() {
                "listening" => address = value.trim().to_owned(),
                "code" => code = value.split_whitespace().next().unwrap().to_owned(),
                "paired" => break,
                _ if line.starts_with("on the other machine") => break,
                _ => {}
            }
        }
        Served {
            project,
            process,
            address,
            code,
        }
    }

    /// SIGKILL to the process that was started; the others end with it.
    fn kill(&mut self) {
        kill(self.process.id());
        self.process.wait().unwrap();
    }

    /// Ends it and starts it again at the same address.
    fn again(mut self) -> Served {
        self.kill();
        let address = self.address.clone();
        let project = std::mem::replace(&mut self.project, Project::new());
        Served::at(project, &address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        kill(self.process.id());
        let _ = self.process.wait();
    }
}

fn code_file(project: &Project, code: &str) -> PathBuf {
    let path = project.path("code");
    std::fs::write(&path, format!("{code}\n")).unwrap();
    path
}

/// One message, into the sandbox at `address`.
pub fn send(project: &Project, address: &str, code: Option<&str>, text: &str) -> Output {
    let workspace = [
        "send",
        "--workspace",
        "workspace.yaml",
        "--sandbox",
        address,
    ];
    let mut command = project.command(&workspace);
    if let Some(code) = code {
        command.arg("--pairing-code").arg(code_file(project, code));
    }
    command.arg(text).output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_elsewhere_is_paired_once_and_outlives_its_harness() {
    let served = Served::start();
    assert_eq!(served.code.len(), 24);
    let project = Project::with_workspace(ALLOW);
    let answered = send(
        &project,
        &served.address,
        Some(&served.code),
        "run echo $((6*7)) > answer.txt; env > environment.txt",
    );
    assert!(answered.status.success(), "{}", told(&answered));
    assert_eq!(served.project.read("answer.txt"), "42\n");
    assert!(!project.path("answer.txt").exists());
    assert!(!served.project.read("environment.txt").contains("PAIRING"));
    let status = project.mooring(&["status"]);
    let place = format!(
        "isolated, at {} in {}",
        served.address,
        served.project.folder.canonicalize().unwrap().display()
    );
    assert!(told(&status).contains(&place), "{}", told(&status));

    // The harness is killed under a command, and the next one finds it.
    let mut client = project.client().await;
    let long = "run echo start >> ran.txt; while [ ! -e go ]; do sleep 0.05; done; echo finished";
    let conversation = project.submit(&mut client, 0, long).await;
    met(|| served.project.read("ran.txt").contains("start")).await;
    project.kill_harness().await;
    // Nobody says again where the sandbox is, and nobody is asked for a code.
    let mut client = project.client().await;
    std::fs::write(served.project.path("go"), "").unwrap();
    let view = project.idle(&mut client, conversation).await;
    let result = view.entries.iter().find(|e| e.kind == "pi.tool-result");
    assert!(result.unwrap().text.contains("finished"), "{view:#?}");
    assert_eq!(served.project.read("ran.txt"), "start\n");

    // The daemon is killed: a call waits for it and says so.
    let mut served = served;
    served.kill();
    while !told(&project.mooring(&["status"])).contains("not reachable") {}
    let conversation = project
        .submit(&mut client, 0, "run echo again > again.txt")
        .await;
    project
        .until(
            &mut client,
            conversation,
            "a sandbox that is missed",
            |view| {
                let note = view.run.as_ref().map(|run| run.note.as_str());
                (view.calls.iter().any(|call| call.state == "unreachable")
                    || note.is_some_and(|note| note.contains("not reachable")))
                .then_some(())
            },
        )
        .await;
    let served = served.again();
    assert_eq!(served.code, "", "it is paired still");
    project.idle(&mut client, conversation).await;
    assert_eq!(served.project.read("again.txt"), "again\n");

    // A stop here ends nothing there.
    let stopped = project.mooring(&["stop"]);
    assert!(told(&stopped).contains("goes on"), "{}", told(&stopped));
    let answered = project.mooring(&["send", "--new", "run echo third > third.txt"]);
    assert!(answered.status.success(), "{}", told(&answered));
    assert_eq!(served.project.read("third.txt"), "third\n");
}

#[test]
fn a_code_that_is_wrong_used_or_of_another_harness_is_told_and_pairs_nobody() {
    let served = Served::start();
    let address = &served.address;
    let (ann, bob) = (
        Project::with_workspace(ALLOW),
        Project::with_workspace(ALLOW),
    );
    let refused = |project: &Project, code: Option<&str>, expected: &str| {
        let output = send(project, address, code, "run echo no > no.txt");
        assert!(!output.status.success(), "{}", told(&output));
        assert!(told(&output).contains(expected), "{}", told(&output));
    };
    refused(&ann, None, "is not paired with this project");
    refused(&ann, Some("0000-0000-0000-0000-0000"), "the code is wrong");
    refused(&ann, Some("0000"), "has 20 letters and digits");
    let answered = send(&ann, address, Some(&served.code), "run echo yes > yes.txt");
    assert!(answered.status.success(), "{}", told(&answered));
    refused(&bob, Some(&served.code), "was used already");
    refused(&bob, None, "is paired with another harness");
    assert!(!served.project.path("no.txt").exists());

    // Whoever serves it hands it over, and the first one is told.
    let made = served.project.mooring(&["sandbox", "pair", "--new"]);
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    let code = text.lines().find_map(|line| line.strip_prefix("code"));
    let code = code.unwrap().split_whitespace().next().unwrap();
    let answered = send(&bob, address, Some(code), "run echo bob > bob.txt");
    assert!(answered.status.success(), "{}", told(&answered));
    refused(&ann, None, "is paired with another harness");
    let forgotten = served.project.mooring(&["sandbox", "forget"]);
    assert!(told(&forgotten).contains("may call no more"));
    refused(&bob, None, "is not paired with this project");
}

#[test]
fn a_sandbox_with_another_certificate_is_refused_until_it_is_forgotten() {
    let mut served = Served::start();
    let project = Project::with_workspace(ALLOW);
    let first = send(
        &project,
        &served.address,
        Some(&served.code),
        "run echo 1 > a.txt",
    );
    assert!(first.status.success(), "{}", told(&first));
    served.kill();
    let other = Served::at(Project::new(), &served.address);
    let refused = send(
        &project,
        &other.address,
        Some(&other.code),
        "run echo 2 > a.txt",
    );
    assert!(!refused.status.success(), "{}", told(&refused));
    assert!(
        told(&refused).contains("another certificate"),
        "{}",
        told(&refused)
    );
    assert!(!other.project.path("a.txt").exists());
    let forgotten = project.mooring(&["sandbox", "forget", &other.address]);
    assert!(
        told(&forgotten).contains("is forgotten"),
        "{}",
        told(&forgotten)
    );
    let again = send(
        &project,
        &other.address,
        Some(&other.code),
        "run echo 2 > a.txt",
    );
    assert!(again.status.success(), "{}", told(&again));
    assert_eq!(other.project.read("a.txt"), "2\n", "{}", told(&again));
}

#[tokio::test]
async fn what_was_meant_for_a_sandbox_that_was_forgotten_does_not_begin_here() {
    let served = Served::start();
    let project = Project::with_workspace(ALLOW);
    let first = send(&project, &served.address, Some(&served.code), "run true");
    assert!(first.status.success(), "{}", told(&first));
    let forgotten = project.mooring(&["sandbox", "forget", &served.address]);
    assert!(
        told(&forgotten).contains("--sandbox local"),
        "{}",
        told(&forgotten)
    );
    project.mooring(&["stop"]);
    let later = ["send", "--workspace", "workspace.yaml", "run touch here"];
    let mut waits = project.spawn(&later);
    met(|| told(&project.mooring(&["status"])).contains("is not paired with this project")).await;
    waits.kill().unwrap();
    waits.wait().unwrap();
    project.mooring(&["stop"]);
    assert!(!project.path("here").exists());
    let local = [&later[..3], &["--sandbox", "local", later[3]]].concat();
    let local = project.mooring(&local);
    assert!(local.status.success(), "{}", told(&local));
    assert!(project.path("here").exists());
}

#[test]
fn a_command_in_a_served_sandbox_finds_neither_its_key_nor_its_port() {
    let served = Served::start();
    let project = Project::with_workspace(ALLOW);
    let port = served.address.rsplit(':').next().unwrap();
    let look = format!(
        "import os, socket\n\
         found = [f for top in ['/home', '/root', '/run', '/tmp', '/var'] \
         for _, _, files in os.walk(top) for f in files if f == 'identity.pem']\n\
         try:\n    socket.create_connection(('127.0.0.1', {port}))\n    found.append('port')\n\
         except ConnectionRefusedError:\n    pass\n\
         print('looked', found)\n"
    );
    std::fs::write(served.project.path("look.py"), look).unwrap();
    let run = "run python3 look.py > found.txt";
    let looked = send(&project, &served.address, Some(&served.code), run);
    assert!(looked.status.success(), "{}", told(&looked));
    assert_eq!(served.project.read("found.txt"), "looked []\n");
}

/// Takes nobody.
struct Closed;

impl Desk for Closed {
    fn paired(&self) -> Option<Fingerprint> {
        None
    }

    fn take(&self, _: Fingerprint, _: &Proof) -> Result<Proof, Refusal> {
        Err(Refusal::Closed)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_told_at_once_with_both() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let certificate = Certificate::from_pem(&Certificate::generate().unwrap()).unwrap();
    let _connections =
        pairing::incoming(listener, &certificate, "0.0.7", Arc::new(Closed)).unwrap();
    let project = Project::with_workspace(ALLOW);
    let refused = tokio::task::block_in_place(|| send(&project, &address, None, "hi"));
    let text = told(&refused);
    let own = env!("CARGO_PKG_VERSION");
    assert!(
        text.contains("version 0.0.7") && text.contains(own),
        "{text}"
    );
    assert!(project.harnesses().is_empty(), "nothing was started");
}
