//! The gateway to the git host, met by real git on both sides.

use std::{
    path::{Path, PathBuf},
    process::Output,
    sync::{Arc, Mutex},
    time::Duration,
};

use mooring_durable::id::{ConversationId, TaskId};
use mooring_harness::{
    boundary::Origin,
    git::{Credentials, Gateway, Parts, Patience, World},
    model::KeyStore,
    workspace::{Source, default_workspace},
};
use mooring_tests::git::{Account, Fault, Host, PATH, command, commit, git};
use tokio::net::TcpStream;

/// The world, in which a git host lies on loopback.
struct Loopback;

#[async_trait::async_trait]
impl World for Loopback {
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let known = ["127.0.0.1", mooring_tests::git::large::STORE];
        assert!(
            known.contains(&host),
            "nothing else is connected to: {host}"
        );
        let connected = TcpStream::connect(("127.0.0.1", port)).await;
        connected.map_err(|error| error.to_string())
    }
}

/// A gateway on a loopback port.
pub struct Met {
    pub variables: Vec<(String, String)>,
    pub folder: PathBuf,
    pub url: String,
    /// Where it listens.
    pub address: String,
    /// All that passed between the commands and the gateway.
    pub passed: Arc<Mutex<Vec<u8>>>,
    _served: tokio::task::JoinHandle<()>,
}

impl Met {
    pub async fn new(host: &Host, credentials: Credentials, policy: &str) -> Met {
        Met::patient(host, credentials, policy, Duration::from_secs(60)).await
    }

    /// With a host that may take so long to answer.
    async fn patient(host: &Host, credentials: Credentials, policy: &str, answer: Duration) -> Met {
        let folder = host.folder("work");
        let url = format!("http://127.0.0.1:{}{PATH}", host.port);
        let file = folder.join("workspace.yaml");
        let other = url.replace("project", "other");
        let text = format!(
            "apiVersion: mooring.dev/v1alpha1\nkind: Workspace\nmetadata: {{name: test}}\nspec:\n  \
             repo: {{url: \"{url}\", alsoFetch: [\"{other}\"]}}\n  \
             models: [{{name: r, provider: rehearsal}}]\n  policy: {{{policy}}}\n"
        );
        std::fs::write(&file, text).unwrap();
        let source = Source::open(Some(file), default_workspace("x", |_| false), None).unwrap();
        let gateway = Gateway::new(Parts {
            source: Arc::new(source),
            world: Arc::new(Loopback),
            credentials,
            tls: None,
            patience: Patience {
                answer,
                piece: Duration::from_secs(60),
                push: Duration::from_secs(120),
            },
            folder: folder.join("gateway"),
            project: None,
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let variables = gateway.environment(&format!("http://1-7:word@127.0.0.1:{port}"));
        let passed = Arc::<Mutex<Vec<u8>>>::default();
        let recorded = passed.clone();
        let served = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = record(stream, recorded.clone());
                let origin = Origin {
                    conversation: ConversationId(1),
                    task: TaskId(7),
                    execution: "1-7".into(),
                    autonomous: false,
                };
                tokio::spawn(gateway.clone().serve(origin, stream));
            }
        });
        Met {
            variables,
            folder,
            url,
            address: format!("127.0.0.1:{port}"),
            passed,
            _served: served,
        }
    }

    /// Runs git as a command in the sandbox does.
    pub async fn git(&self, folder: &Path, arguments: &[&str]) -> Output {
        let mut command = command(folder, arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    }

    pub async fn clone(&self, name: &str, options: &[&str]) -> PathBuf {
        let folder = self.folder.join(name);
        let mut arguments = vec!["clone", "-q"];
        arguments.extend(options);
        arguments.extend([self.url.as_str(), name]);
        let output = self.git(&self.folder, &arguments).await;
        assert!(output.status.success(), "{}", errors(&output));
        folder
    }
}

/// What is read and written here passes to `outer`, and is kept up to a megabyte.
fn record(outer: TcpStream, kept: Arc<Mutex<Vec<u8>>>) -> tokio::io::DuplexStream {
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    async fn carry(
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        kept: Arc<Mutex<Vec<u8>>>,
    ) {
        let mut piece = vec![0; 32 << 10];
        while let Ok(count) = from.read(&mut piece).await {
            if count == 0 || to.write_all(&piece[..count]).await.is_err() {
                break;
            }
            let mut kept = kept.lock().unwrap();
            if kept.len() < 1 << 20 {
                kept.extend_from_slice(&piece[..count]);
            }
        }
        let _ = to.shutdown().await;
    }
    let (near, far) = tokio::io::duplex(64 << 10);
    let (near_read, near_write) = tokio::io::split(near);
    let (outer_read, outer_write) = outer.into_split();
    tokio::spawn(carry(outer_read, near_write, kept.clone()));
    tokio::spawn(carry(near_read, outer_write, kept));
    far
}

pub fn machine(keys: Arc<KeyStore>) -> Credentials {
    let since = std::time::Instant::now();
    Credentials::Machine { keys, since }
}

pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub const ALLOW: &str = "git: {\"*\": allow}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_and_fetches_of_all_kinds_come_through() {
    let host = Host::start().await;
    let met = Met::new(&host, Credentials::None, "").await;
    let whole = met.clone("whole", &[]).await;
    assert_eq!(
        std::fs::read_to_string(whole.join("README")).unwrap(),
        "one\n"
    );
    assert_eq!(git(&whole, &["rev-list", "--count", "HEAD"]), "2");
    let shallow = met.clone("shallow", &["--depth", "1"]).await;
    assert_eq!(git(&shallow, &["rev-list", "--count", "HEAD"]), "1");
    let partial = met
        .clone("partial", &["--filter=blob:none", "--no-checkout"])
        .await;
    let missing = git(
        &partial,
        &["rev-list", "--objects", "--missing=print", "HEAD"],
    );
    assert!(missing.contains('?'), "{missing}");
    let out = met.git(&partial, &["checkout", "-q", "main"]).await;
    assert!(out.status.success(), "{}", errors(&out));
    // What is new there is fetched.
    let seed = host.folder("seed");
    let new = commit(&seed, "three", "3\n");
    git(
        &seed,
        &["push", "-q", &host.bare().display().to_string(), "main"],
    );
    for folder in [&whole, &shallow, &partial] {
        let out = met.git(folder, &["fetch", "-q"]).await;
        assert!(out.status.success(), "{}", errors(&out));
        assert_eq!(git(folder, &["rev-parse", "origin/main"]), new);
    }
    let out = met.git(&shallow, &["fetch", "-q", "--unshallow"]).await;
    assert!(out.status.success(), "{}", errors(&out));
    // Protocol v0, and an address without `.git`.
    let bare = met.url.trim_end_matches(".git").to_owned();
    let out = met
        .git(
            &met.folder,
            &["-c", "protocol.version=0", "ls-remote", &bare],
        )
        .await;
    assert!(
        String::from_utf8_lossy(&out.stdout).contains("refs/heads/main"),
        "{}",
        errors(&out)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_named_repositories_are_served_and_only_the_own_one_is_pushed_to() {
    let host = Host::start().await;
    let met = Met::new(&host, Credentials::None, ALLOW).await;
    let work = met.clone("work", &[]).await;
    commit(&work, "new", "new\n");
    // A longer address begins with the same text.
    let longer = format!("{}-other", met.url.trim_end_matches(".git"));
    let out = met.git(&work, &["ls-remote", &longer]).await;
    assert!(errors(&out).contains("not found"), "{}", errors(&out));
    let other = met.url.replace("project", "other");
    git(
        host.bare().parent().unwrap(),
        &["clone", "-q", "--bare", "project.git", "other.git"],
    );
    let out = met.git(&work, &["ls-remote", &other]).await;
    assert!(out.status.success(), "{}", errors(&out));
    let out = met
        .git(&work, &["push", "-q", &other, "HEAD:refs/heads/x"])
        .await;
    assert!(
        errors(&out).contains("may only be fetched from"),
        "{}",
        errors(&out)
    );
    assert_eq!(host.pushes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_credential_is_the_harnesses_alone() {
    let keys = || {
        let keys = Arc::new(KeyStore::new());
        keys.set("MOORING_GIT_TOKEN", "t0k3n");
        keys
    };
    for account in [
        Account::Bearer("t0k3n"),
        Account::Basic("x-access-token", "t0k3n"),
    ] {
        let host = Host::start().await;
        host.admit(account.clone());
        let keys = keys();
        keys.set("MOORING_GIT_HOST", &format!("127.0.0.1:{}", host.port));
        let met = Met::new(&host, machine(keys), ALLOW).await;
        let work = met.clone("work", &[]).await;
        let id = commit(&work, "new", "new\n");
        let out = met
            .git(
                &work,
                &["push", "-q", "origin", "HEAD:refs/heads/mooring/x"],
            )
            .await;
        assert!(out.status.success(), "{account:?}: {}", errors(&out));
        assert_eq!(host.has("refs/heads/mooring/x"), id);
        // Neither the configuration nor what was fetched has it.
        for text in [
            std::fs::read_to_string(work.join(".git/config")).unwrap(),
            format!("{:?}", met.variables),
        ] {
            assert!(!text.contains("t0k3n"), "{text}");
        }
        let passed = met.passed.lock().unwrap().clone();
        let text = String::from_utf8_lossy(&passed);
        assert!(text.contains("git-receive-pack") && !text.contains("t0k3n"));
        assert!(
            !text.contains("eC1hY2Nlc3MtdG9rZW46"),
            "nor is it there in base64"
        );
        assert!(!text.contains("session=secret"), "nor what the host sets");
        // Of what the command sent nothing identifies it.
        for fields in host.fields() {
            let sent = format!("{fields:?}");
            assert!(!sent.contains("word") && !sent.contains("1-7"), "{sent}");
        }
    }
    let host = Host::start().await;
    host.admit(Account::Basic("ada", "other"));
    let met = Met::new(&host, machine(keys()), ALLOW).await;
    let out = met.git(&met.folder, &["ls-remote", &met.url]).await;
    assert!(
        errors(&out).contains("the harness has none: sign in once"),
        "{}",
        errors(&out)
    );
    let keys = keys();
    keys.set("MOORING_GIT_HOST", &format!("127.0.0.1:{}", host.port));
    let met = Met::new(&host, machine(keys), ALLOW).await;
    let out = met.git(&met.folder, &["ls-remote", &met.url]).await;
    assert!(
        errors(&out).contains("does not take the harness's credential"),
        "{}",
        errors(&out)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_fails_is_told_of_in_words_that_name_what_to_do() {
    let host = Host::start().await;
    let met = Met::new(&host, Credentials::None, ALLOW).await;
    let work = met.clone("work", &[]).await;
    commit(&work, "new", "new\n");
    let patient = met;
    let answer = Duration::from_secs(2);
    let met = Met::patient(&host, Credentials::None, ALLOW, answer).await;
    let elsewhere = "https://elsewhere.example.com".to_owned();
    for (fault, expected) in [
        (Fault::Status(403), "give it the right there"),
        (Fault::Status(404), "check repo.url"),
        (Fault::Status(500), "answered 500"),
        (Fault::Redirect(elsewhere), "elsewhere.example.com"),
        (Fault::Hang, "did not answer within 2 s"),
    ] {
        host.fail(fault.clone());
        for arguments in [
            &["fetch", "-q"][..],
            &["push", "-q", "origin", "HEAD:refs/heads/mooring/x"],
        ] {
            let out = met.git(&work, arguments).await;
            let told = errors(&out);
            assert!(!out.status.success());
            assert!(
                told.contains("remote error:") && told.contains(expected),
                "{fault:?} {told}"
            );
        }
    }
    assert_eq!(host.pushes(), 0);
    // The host's own redirect is followed, also by what is sent after it.
    host.fail(Fault::Redirect(format!(
        "http://127.0.0.1:{}/moved",
        host.port
    )));
    let out = patient
        .git(
            &work,
            &["push", "-q", "origin", "HEAD:refs/heads/mooring/x"],
        )
        .await;
    assert!(out.status.success(), "{}", errors(&out));
    assert_eq!(host.pushes(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_of_every_kind_are_decided_ref_by_ref_and_all_or_none_go() {
    let host = Host::start().await;
    let policy = "git: {\"push refs/heads/*\": allow, \"push --force *\": deny, \
                  \"push --delete refs/heads/mooring/*\": allow, \"push refs/tags/*\": allow, \
                  \"push refs/heads/main\": deny, \"*\": deny}";
    let met = Met::new(&host, Credentials::None, policy).await;
    let work = met.clone("work", &[]).await;
    let first = commit(&work, "a", "a\n");
    let push = async |arguments: &[&str]| {
        let out = met
            .git(&work, &[&["push", "origin"][..], arguments].concat())
            .await;
        (out.status.success(), errors(&out))
    };
    let (done, told) = push(&["HEAD:refs/heads/mooring/a"]).await;
    assert!(done, "{told}");
    assert_eq!(host.has("refs/heads/mooring/a"), first);
    // Fast-forward: known from the mirror.
    let second = commit(&work, "b", "b\n");
    let (done, told) = push(&["HEAD:refs/heads/mooring/a"]).await;
    assert!(done, "{told}");
    assert_eq!(host.has("refs/heads/mooring/a"), second);
    // Nothing new.
    let before = host.pushes();
    assert!(push(&["HEAD:refs/heads/mooring/a"]).await.0);
    assert_eq!(host.pushes(), before);
    // Not a fast-forward.
    git(&work, &["reset", "-q", "--hard", &first]);
    let third = commit(&work, "c", "c\n");
    let (done, told) = push(&["+HEAD:refs/heads/mooring/a"]).await;
    assert!(!done && told.contains("[remote rejected]"), "{told}");
    assert!(told.contains("push --force refs/heads/mooring/a"), "{told}");
    assert!(told.contains("git rule \"push --force *\""), "{told}");
    // Many refs, of which one is denied: none goes.
    let (done, told) = push(&["HEAD:refs/heads/mooring/many", "HEAD:refs/heads/main"]).await;
    assert!(
        !done && told.matches("[remote rejected]").count() == 2,
        "{told}"
    );
    assert_eq!(
        (host.has("refs/heads/mooring/many"), host.pushes()),
        (String::new(), before)
    );
    // Many at once, with a tag, and one removed.
    git(&work, &["tag", "-am", "one", "v1"]);
    let (done, told) = push(&[
        "HEAD:refs/heads/mooring/many",
        "v1",
        "--atomic",
        "-o",
        "why=because",
    ])
    .await;
    assert!(done, "{told}");
    assert_eq!(host.has("refs/heads/mooring/many"), third);
    assert_ne!(host.has("refs/tags/v1"), "");
    let (done, told) = push(&[":refs/heads/mooring/many"]).await;
    assert!(done, "{told}");
    assert_eq!(host.has("refs/heads/mooring/many"), "");
    // A moved tag is a forced update.
    git(&work, &["tag", "-fam", "two", "v1", &first]);
    let (done, told) = push(&["--force", "v1"]).await;
    assert!(
        !done && told.contains("push --force refs/tags/v1"),
        "{told}"
    );
    // A shallow clone pushes too.
    let shallow = met.clone("shallow", &["--depth", "1"]).await;
    let id = commit(&shallow, "d", "d\n");
    let out = met
        .git(
            &shallow,
            &["push", "-q", "origin", "HEAD:refs/heads/mooring/s"],
        )
        .await;
    assert!(out.status.success(), "{}", errors(&out));
    assert_eq!(host.has("refs/heads/mooring/s"), id);
    // An ask, where nobody can be asked.
    let met = Met::new(&host, Credentials::None, "git: {\"*\": ask}").await;
    let out = met
        .git(&work, &["push", "origin", "HEAD:refs/heads/y"])
        .await;
    assert!(
        errors(&out).contains("Nobody can be asked"),
        "{}",
        errors(&out)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_push_goes_through_and_one_that_is_cut_leaves_nothing() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let host = Host::start().await;
    let met = Met::new(&host, Credentials::None, ALLOW).await;
    let work = met.clone("work", &[]).await;
    // Not compressible, and quickly made.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for file in 0..6 {
        let mut bytes = Vec::with_capacity(18 << 20);
        while bytes.len() < 18 << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        std::fs::write(work.join(format!("large-{file}")), bytes).unwrap();
    }
    git(&work, &["add", "-A"]);
    git(
        &work,
        &["-c", "core.compression=0", "commit", "-qm", "Large"],
    );
    let out = met
        .git(
            &work,
            &[
                "-c",
                "core.compression=0",
                "-c",
                "pack.window=0",
                "push",
                "-q",
                "origin",
                "HEAD:refs/heads/main",
            ],
        )
        .await;
    assert!(out.status.success(), "{}", errors(&out));
    assert_eq!(
        host.has("refs/heads/main"),
        git(&work, &["rev-parse", "HEAD"])
    );

    // Cut in the middle: the head of a push, and half of what it announced.
    let before = host.pushes();
    let mut stream = TcpStream::connect(&met.address).await.unwrap();
    let (old, new) = (host.has("refs/heads/main"), "a".repeat(40));
    let line = format!("{old} {new} refs/heads/main\0 report-status side-band-64k");
    let body = format!("{:04x}{line}0000PACK", line.len() + 4);
    let head = format!(
        "POST /git/0/git-receive-pack HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        body.len() + 1000
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let told = String::from_utf8_lossy(&answer);
    assert!(!told.contains("unpack ok"), "{told}");
    assert_eq!((host.has("refs/heads/main"), host.pushes()), (old, before));
    let left = std::fs::read_dir(met.folder.join("gateway/pushes"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "nothing stays on disk");
}
