//! The outside, as commands in the sandbox reach it: one TLS server on loopback that
//! answers for package registries and for hosts of the tests, by an authority of
//! its own.

#![allow(clippy::unwrap_used, missing_docs)]

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures::StreamExt;
use sha2::{Digest, Sha256};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc, watch},
};
use tokio_rustls::{TlsAcceptor, rustls, server::TlsStream};

/// Hosts that it answers for.
pub const HOSTS: &[&str] = &[
    "index.crates.io",
    "static.crates.io",
    "registry.npmjs.org",
    "pypi.org",
    "files.pythonhosted.org",
    "proxy.golang.org",
    "packages.example",
    "elsewhere.example",
];

pub struct World {
    address: SocketAddr,
    /// The authority's certificate (PEM).
    pub authority: String,
    shared: Arc<Shared>,
}

struct Shared {
    packages: HashMap<String, (&'static str, Vec<u8>)>,
    /// `host/path` of each request.
    seen: Mutex<Vec<String>>,
    /// Requests for `/meet/N` that have come.
    met: watch::Sender<usize>,
    /// Dripping answers that have begun.
    drips: AtomicUsize,
    dripping: Notify,
}

impl World {
    pub async fn start() -> World {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (authority, config) = certificates(HOSTS);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            packages: packages(),
            seen: Mutex::default(),
            met: watch::Sender::new(0),
            drips: AtomicUsize::new(0),
            dripping: Notify::new(),
        });
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let tls = Tls::new(listener, TlsAcceptor::from(Arc::new(config)));
        tokio::spawn(async move { axum::serve(tls, router).await });
        World {
            address,
            authority,
            shared,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What tells a harness where these hosts are.
    pub fn variables(&self) -> Vec<(String, String)> {
        let address = self.address;
        let hosts: Vec<String> = HOSTS
            .iter()
            .map(|host| format!("{host}:443={address}"))
            .collect();
        vec![
            ("MOORING_CONNECT_TO".into(), hosts.join(",")),
            (
                "MOORING_PRIVATE_DESTINATIONS".into(),
                format!("{}/32:{}", address.ip(), address.port()),
            ),
        ]
    }

    /// The authority as a Workspace names it, in lines of YAML below `sandbox:`.
    pub fn ca_bundle(&self) -> String {
        let lines: String = self
            .authority
            .lines()
            .map(|line| format!("    {line}\n"))
            .collect();
        format!("  caBundle: |\n{lines}")
    }

    /// `host/path` of each request so far.
    pub fn seen(&self) -> Vec<String> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Waits until so many dripping answers have begun.
    pub async fn dripping(&self, count: usize) {
        loop {
            let woken = self.shared.dripping.notified();
            if self.shared.drips.load(Ordering::Acquire) >= count {
                return;
            }
            tokio::time::timeout(crate::project::BOUND, woken)
                .await
                .expect("a dripping answer begins");
        }
    }
}

/// Connections whose handshake is done: none waits for that of another.
struct Tls {
    address: SocketAddr,
    done: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl Tls {
    fn new(listener: TcpListener, acceptor: TlsAcceptor) -> Tls {
        let address = listener.local_addr().unwrap();
        let (sender, done) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let _ = sender.send((stream, from)).await;
                    }
                });
            }
        });
        Tls { address, done }
    }
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.done.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(self.address)
    }
}

/// An authority (PEM), and a server's side for these names by it.
pub fn certificates(names: &[&str]) -> (String, rustls::ServerConfig) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters
        .distinguished_name
        .push(rcgen::DnType::CommonName, "Authority of the tests");
    parameters.key_usages = vec![
        rcgen::KeyUsagePurpose::KeyCertSign,
        rcgen::KeyUsagePurpose::CrlSign,
    ];
    let authority = parameters.self_signed(&authority_key).unwrap();
    let pem = authority.pem();
    let issuer = rcgen::Issuer::new(parameters, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|host| (*host).to_owned()).collect();
    let mut leaf = rcgen::CertificateParams::new(names).unwrap();
    leaf.use_authority_key_identifier_extension = true;
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    (pem, config)
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let path = request.uri().path().to_owned();
    let name = format!("{host}{path}");
    shared.seen.lock().unwrap().push(name.clone());
    if let Some((kind, bytes)) = shared.packages.get(&name) {
        return ([(header::CONTENT_TYPE, *kind)], bytes.clone()).into_response();
    }
    let mut words = path.trim_matches('/').splitn(2, '/');
    match (host.as_str(), words.next(), words.next()) {
        ("packages.example", Some("file"), None) => "hello from outside\n".into_response(),
        ("packages.example", Some("away"), None) => {
            Redirect::temporary("https://unlisted.example/file").into_response()
        }
        ("packages.example", Some("bytes"), Some(count)) => zeros(count.parse().unwrap()),
        ("packages.example", Some("meet"), Some(count)) => {
            let (number, _) = count.split_once('/').unwrap_or((count, ""));
            let wanted = number.parse::<usize>().unwrap();
            shared.met.send_modify(|met| *met += 1);
            let mut met = shared.met.subscribe();
            let all = met.wait_for(|met| *met >= wanted);
            match tokio::time::timeout(crate::project::BOUND, all).await {
                Ok(_) => "met\n".into_response(),
                Err(_) => StatusCode::GATEWAY_TIMEOUT.into_response(),
            }
        }
        ("packages.example", Some("drip"), None) => {
            shared.drips.fetch_add(1, Ordering::AcqRel);
            shared.dripping.notify_waiters();
            let drops = futures::stream::repeat(()).then(|()| async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok::<_, std::io::Error>(Bytes::from_static(b"drop\n"))
            });
            Body::from_stream(drops).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn zeros(count: usize) -> Response {
    const PIECE: usize = 64 << 10;
    let pieces = (0..count.div_ceil(PIECE)).map(move |at| {
        let size = PIECE.min(count - at * PIECE);
        Ok::<_, std::io::Error>(Bytes::from(vec![0; size]))
    });
    let body = Body::from_stream(futures::stream::iter(pieces));
    ([(header::CONTENT_LENGTH, count.to_string())], body).into_response()
}

/// One package of each registry, with the pages that lead to it.
fn packages() -> HashMap<String, (&'static str, Vec<u8>)> {
    const JSON: &str = "application/json";
    const BINARY: &str = "application/octet-stream";
    let folder = tempfile::tempdir().unwrap();
    let mut all = HashMap::new();
    let mut put = |name: &str, kind, bytes: Vec<u8>| all.insert(name.to_owned(), (kind, bytes));
    let sha256 = |bytes: &[u8]| hex::encode(Sha256::digest(bytes));

    let krate = tar(
        folder.path(),
        "tiny-crate.crate",
        &[
            (
                "tiny-crate-1.0.0/Cargo.toml",
                "[package]\nname = \"tiny-crate\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
            ),
            ("tiny-crate-1.0.0/src/lib.rs", "pub fn tiny() -> u8 { 7 }\n"),
        ],
    );
    put(
        "index.crates.io/config.json",
        JSON,
        br#"{"dl":"https://static.crates.io/crates","api":"https://crates.io"}"#.to_vec(),
    );
    let line = format!(
        "{{\"name\":\"tiny-crate\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"{}\",\"features\":{{}},\"yanked\":false}}\n",
        sha256(&krate)
    );
    put("index.crates.io/ti/ny/tiny-crate", JSON, line.into_bytes());
    put(
        "static.crates.io/crates/tiny-crate/1.0.0/download",
        BINARY,
        krate,
    );

    let tgz = tar(
        folder.path(),
        "tiny-package.tgz",
        &[
            (
                "package/package.json",
                r#"{"name":"tiny-package","version":"1.0.0","main":"index.js"}"#,
            ),
            ("package/index.js", "module.exports = 7;\n"),
        ],
    );
    let integrity = format!("sha512-{}", STANDARD.encode(sha2::Sha512::digest(&tgz)));
    let tarball = "registry.npmjs.org/tiny-package/-/tiny-package-1.0.0.tgz";
    let document = serde_json::json!({
        "name": "tiny-package",
        "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {
            "name": "tiny-package", "version": "1.0.0",
            "dist": {"tarball": format!("https://{tarball}"), "integrity": integrity},
        }},
    });
    put(
        "registry.npmjs.org/tiny-package",
        JSON,
        document.to_string().into_bytes(),
    );
    put(tarball, BINARY, tgz);

    let wheel = zip(
        folder.path(),
        "wheel.zip",
        &[
            ("tiny_wheel.py", "tiny = 7\n"),
            (
                "tiny_wheel-1.0.dist-info/METADATA",
                "Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1.0\n",
            ),
            (
                "tiny_wheel-1.0.dist-info/WHEEL",
                "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            ),
            (
                "tiny_wheel-1.0.dist-info/RECORD",
                "tiny_wheel.py,,\ntiny_wheel-1.0.dist-info/METADATA,,\ntiny_wheel-1.0.dist-info/WHEEL,,\ntiny_wheel-1.0.dist-info/RECORD,,\n",
            ),
        ],
    );
    let file = "files.pythonhosted.org/packages/tiny_wheel-1.0-py3-none-any.whl";
    let page = format!(
        "<!DOCTYPE html><html><body><a href=\"https://{file}#sha256={}\">tiny_wheel-1.0-py3-none-any.whl</a></body></html>",
        sha256(&wheel)
    );
    put(
        "pypi.org/simple/tiny-wheel/",
        "text/html",
        page.into_bytes(),
    );
    put(file, BINARY, wheel);

    let module = "example.com/tiny";
    let source = zip(
        folder.path(),
        "module.zip",
        &[
            (
                "example.com/tiny@v1.0.0/go.mod",
                "module example.com/tiny\n",
            ),
            (
                "example.com/tiny@v1.0.0/tiny.go",
                "package tiny\n\nconst Tiny = 7\n",
            ),
        ],
    );
    let at = format!("proxy.golang.org/{module}/@v");
    put(&format!("{at}/list"), "text/plain", b"v1.0.0\n".to_vec());
    put(
        &format!("{at}/v1.0.0.info"),
        JSON,
        br#"{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}"#.to_vec(),
    );
    put(
        &format!("{at}/v1.0.0.mod"),
        "text/plain",
        b"module example.com/tiny\n".to_vec(),
    );
    put(&format!("{at}/v1.0.0.zip"), BINARY, source);
    all
}

fn fill(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn tar(folder: &Path, name: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let content = folder.join(format!("{name}.d"));
    fill(&content, files);
    let made = Command::new("tar")
        .args(["--owner=0", "--group=0", "-czf", name, "-C"])
        .arg(&content)
        .args(files.iter().map(|(name, _)| name))
        .current_dir(folder)
        .status();
    assert!(made.unwrap().success());
    std::fs::read(folder.join(name)).unwrap()
}

fn zip(folder: &Path, name: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let content = folder.join(format!("{name}.d"));
    fill(&content, files);
    let script = "import sys, zipfile\nwith zipfile.ZipFile(sys.argv[1], 'w') as z:\n for n in sys.argv[2:]: z.write(n)";
    let made = Command::new("python3")
        .args(["-c", script])
        .arg(folder.join(name))
        .args(files.iter().map(|(name, _)| name))
        .current_dir(&content)
        .status();
    assert!(made.unwrap().success());
    std::fs::read(folder.join(name)).unwrap()
}
