//! A git host: the real `git http-backend` behind a small server with accounts,
//! faults by script, and a ledger.

#![allow(clippy::unwrap_used, missing_docs)]

pub mod large;
pub mod tls;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio_util::io::ReaderStream;

/// Who may come in.
#[derive(Clone, Debug)]
pub enum Account {
    Everybody,
    Basic(&'static str, &'static str),
    Bearer(&'static str),
}

/// What is done in place of an answer.
#[derive(Clone, Debug)]
pub enum Fault {
    Status(u16),
    Redirect(String),
    Hang,
}

/// The path of the repository on every host.
pub const PATH: &str = "/team/project.git";

struct Inner {
    root: PathBuf,
    account: Mutex<Account>,
    fault: Mutex<Option<Fault>>,
    /// Pushes that reached it, with their bytes.
    pushes: Mutex<Vec<usize>>,
    /// All fields of all requests.
    fields: Mutex<Vec<HeaderMap>>,
    store: large::Store,
}

/// A running host; its repositories are removed with it.
pub struct Host {
    inner: Arc<Inner>,
    pub port: u16,
    /// Its large files.
    pub store: large::Store,
    folder: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Runs git in a folder, with a person of its own and no configuration of others.
pub fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = command(folder, arguments).output().unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The same, not run yet.
pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .envs([
            ("GIT_AUTHOR_NAME", "Ada"),
            ("GIT_AUTHOR_EMAIL", "ada@example.com"),
            ("GIT_COMMITTER_NAME", "Ada"),
            ("GIT_COMMITTER_EMAIL", "ada@example.com"),
        ])
        .stdin(Stdio::null());
    command
}

/// Writes a file and commits it.
pub fn commit(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    git(folder, &["add", "-A"]);
    git(folder, &["commit", "-qm", &format!("Write {name}")]);
    git(folder, &["rev-parse", "HEAD"])
}

impl Host {
    /// A host with one repository with two commits on `main`.
    pub async fn start() -> Host {
        let folder = tempfile::tempdir().unwrap();
        let seed = folder.path().join("seed");
        std::fs::create_dir(&seed).unwrap();
        git(&seed, &["init", "-q", "-b", "main"]);
        commit(&seed, "README", "one\n");
        commit(&seed, "src/lib", "two\n");
        let root = folder.path().join("root");
        let bare = root.join(PATH.trim_start_matches('/'));
        std::fs::create_dir_all(bare.parent().unwrap()).unwrap();
        git(
            folder.path(),
            &["clone", "-q", "--bare", "seed", &bare.display().to_string()],
        );
        for (name, value) in [
            ("http.receivepack", "true"),
            ("uploadpack.allowFilter", "true"),
            ("receive.advertisePushOptions", "true"),
        ] {
            git(&bare, &["config", name, value]);
        }
        let store = large::Store::start(folder.path().join("store")).await;
        let inner = Arc::new(Inner {
            store: store.clone(),
            root,
            account: Mutex::new(Account::Everybody),
            fault: Mutex::default(),
            pushes: Mutex::default(),
            fields: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let routes = Router::new().fallback(answer).with_state(inner.clone());
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Host {
            inner,
            port,
            store,
            folder,
            server,
        }
    }

    /// Its bare repository.
    pub fn bare(&self) -> PathBuf {
        self.inner.root.join(PATH.trim_start_matches('/'))
    }

    /// A folder that goes with the host.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// What a ref is; empty where there is none.
    pub fn has(&self, name: &str) -> String {
        let output = command(&self.bare(), &["rev-parse", "-q", "--verify", name])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub fn admit(&self, account: Account) {
        *self.inner.account.lock().unwrap() = account;
    }

    pub fn fail(&self, fault: impl Into<Option<Fault>>) {
        *self.inner.fault.lock().unwrap() = fault.into();
    }

    /// Pushes that reached it.
    pub fn pushes(&self) -> usize {
        self.inner.pushes.lock().unwrap().len()
    }

    /// Fields of the requests so far.
    pub fn fields(&self) -> Vec<HeaderMap> {
        self.inner.fields.lock().unwrap().clone()
    }
}

fn let_in(account: &Account, fields: &HeaderMap) -> Option<&'static str> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let given = fields.get(header::AUTHORIZATION);
    let given = given.and_then(|it| it.to_str().ok()).unwrap_or_default();
    match account {
        Account::Everybody => None,
        Account::Basic(name, password) => {
            let right = BASE64_STANDARD.encode(format!("{name}:{password}"));
            (given != format!("Basic {right}")).then_some("Basic realm=\"git\"")
        }
        Account::Bearer(token) => {
            (given != format!("Bearer {token}")).then_some("Bearer realm=\"git\"")
        }
    }
}

async fn answer(State(host): State<Arc<Inner>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    host.fields.lock().unwrap().push(parts.headers.clone());
    let fault = host.fault.lock().unwrap().clone();
    match fault {
        Some(Fault::Status(status)) => {
            return StatusCode::from_u16(status).unwrap().into_response();
        }
        Some(Fault::Redirect(to)) if !parts.uri.path().starts_with("/moved/") => {
            let to = format!("{to}{}", parts.uri.path_and_query().unwrap());
            return (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, to)]).into_response();
        }
        Some(Fault::Hang) => std::future::pending::<()>().await,
        _ => {}
    }
    let account = host.account.lock().unwrap().clone();
    if let Some(challenge) = let_in(&account, &parts.headers) {
        let fields = [(header::WWW_AUTHENTICATE, challenge)];
        return (StatusCode::UNAUTHORIZED, fields).into_response();
    }
    if parts.uri.path().ends_with("/info/lfs/objects/batch") {
        let question = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let told = host
            .store
            .batch(&serde_json::from_slice(&question).unwrap());
        return axum::Json(told).into_response();
    }
    let field = |name: &str| {
        let value = parts.headers.get(name).and_then(|it| it.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let path = parts.uri.path().trim_start_matches("/moved").to_owned();
    let pushes = path.ends_with("/git-receive-pack");
    let mut command = tokio::process::Command::new("git");
    command
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("GIT_PROJECT_ROOT", &host.root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REMOTE_USER", "ada")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("CONTENT_TYPE", field("content-type"))
        .env("HTTP_GIT_PROTOCOL", field("git-protocol"))
        .env("HTTP_CONTENT_ENCODING", field("content-encoding"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let ledger = host.clone();
    tokio::spawn(async move {
        let mut body = body.into_data_stream();
        let mut bytes = 0;
        while let Some(Ok(piece)) = body.next().await {
            bytes += piece.len();
            if input.write_all(&piece).await.is_err() {
                break;
            }
        }
        if pushes {
            ledger.pushes.lock().unwrap().push(bytes);
        }
    });
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut response = Response::builder();
    loop {
        let mut line = String::new();
        output.read_line(&mut line).await.unwrap();
        match line.trim_end().split_once(": ") {
            Some(("Status", status)) => response = response.status(&status[..3]),
            Some((name, value)) => response = response.header(name, value),
            None => break,
        }
    }
    // The host says more than a command may see.
    let response = response.header("set-cookie", "session=secret");
    let rest = ReaderStream::new(output.take(u64::MAX)).map(move |piece| {
        let _alive = &child;
        piece
    });
    response.body(Body::from_stream(rest)).unwrap()
}
