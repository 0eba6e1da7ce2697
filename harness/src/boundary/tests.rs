//! What the boundary refuses, each on a real connection of a tunnel.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mooring_crds::EgressLimits;
use mooring_durable::{
    id::{ConversationId, Hash, SubmissionId, TaskId},
    tool::Call,
};
use mooring_wire::tunnel::{Connection, Mux, Outgoing, Side};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, rustls};
use tokio_stream::StreamExt;

use super::{Boundary, Outside, Reach, Resolver, refusal::write};
use crate::{
    default_workspace,
    git::{self, Gateway},
    metrics::Metrics,
    workspace::Source,
};

const BOUND: Duration = Duration::from_secs(60);

/// Answers with what the tests say; of several answers, with one after the other.
#[derive(Default)]
struct Names {
    known: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(host.to_owned());
        let mut known = self.known.lock().unwrap();
        let answers = known.get_mut(host).ok_or(io::ErrorKind::NotFound)?;
        Ok(match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop_front().unwrap(),
        })
    }
}

struct Stage {
    boundary: Arc<Boundary>,
    names: Arc<Names>,
    opens: Mux,
    credential: String,
}

impl Stage {
    fn new(egress: Value, private: &[String], limits: EgressLimits) -> Stage {
        let mut workspace = default_workspace("x", |_| false);
        workspace.spec.policy.egress = serde_json::from_value(egress).unwrap();
        workspace.spec.sandbox.egress_limits = limits;
        let source = Arc::new(Source::of_cluster(workspace));
        let names = Arc::new(Names::default());
        let reach = Reach {
            private: private.iter().map(|text| text.parse().unwrap()).collect(),
            closed: vec!["93.184.216.34".parse().unwrap()],
            connect_to: Vec::new(),
        };
        let outside = Outside::resolving(reach, names.clone());
        let git = Gateway::new(git::Parts {
            source: source.clone(),
            world: Arc::new(outside.clone()),
            credentials: git::Credentials::None,
            tls: None,
            patience: git::Patience::default(),
            folder: "/nonexistent".into(),
            project: None,
        });
        let boundary = Boundary::new(source, outside, git, Arc::new(Metrics::new()));
        boundary.credentials.opened([7; 32]);
        let secret = boundary.credentials.admit(&call()).unwrap();
        let (opens, from_opens) = Mux::new(Side::Opens, 20_000);
        let (takes, from_takes) = Mux::new(Side::Takes, 20_000);
        carry(from_opens, takes, Some(boundary.clone()));
        carry(from_takes, opens.clone(), None);
        Stage {
            boundary,
            names,
            opens,
            credential: format!("Basic {}", STANDARD.encode(format!("abc-1:{secret}"))),
        }
    }

    /// `host` leads there: one list of addresses for each time that it is asked for.
    fn name(&self, host: &str, answers: &[&[&str]]) {
        let answers = answers
            .iter()
            .map(|list| list.iter().map(|ip| ip.parse().unwrap()).collect())
            .collect();
        self.names
            .known
            .lock()
            .unwrap()
            .insert(host.into(), answers);
    }

    /// The whole answer to a request that is refused.
    async fn answer(&self, request: &str) -> String {
        let mut connection = self.opens.open().unwrap();
        write(&connection, request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = connection.read_to_end(&mut answer);
        tokio::time::timeout(BOUND, read).await.unwrap().unwrap();
        String::from_utf8(answer).unwrap()
    }

    fn connect(&self, target: &str) -> String {
        format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: {}\r\n\r\n",
            self.credential
        )
    }

    /// A connection to `target` that was let through.
    async fn through(&self, target: &str) -> Connection {
        let mut connection = self.opens.open().unwrap();
        write(&connection, self.connect(target).as_bytes())
            .await
            .unwrap();
        let expected = "HTTP/1.1 200 Connection established\r\n\r\n";
        let mut head = vec![0; expected.len()];
        let read = connection.read_exact(&mut head);
        tokio::time::timeout(BOUND, read).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&head), expected);
        connection
    }
}

fn carry(mut from: Outgoing, to: Mux, boundary: Option<Arc<Boundary>>) {
    tokio::spawn(async move {
        while let Some(frame) = from.next().await {
            if let Some(connection) = to.take(frame).unwrap()
                && let Some(boundary) = &boundary
            {
                tokio::spawn(boundary.clone().serve(connection));
            }
        }
    });
}

fn call() -> Call {
    Call {
        conversation: ConversationId(1),
        run: SubmissionId(1),
        task: TaskId(1),
        execution: "abc-1".into(),
        call_id: String::new(),
        tool: "bash".into(),
        arguments: Value::Null,
        arguments_hash: Hash::of(b""),
        requesters: Vec::new(),
        autonomous: true,
        binding: Value::Null,
    }
}

#[tokio::test]
async fn hosts_that_are_no_plain_names_are_refused() {
    let stage = Stage::new(json!({"*": "allow"}), &[], EgressLimits::default());
    for (target, status, text) in [
        ("127.0.0.1:443", 403, "is an address"),
        ("8.8.8.8:443", 403, "is an address"),
        ("127.1:443", 403, "is an address"),
        ("2130706433:443", 403, "is an address"),
        ("0x7f000001:443", 403, "is an address"),
        ("0x7f.0.0.1:443", 403, "is an address"),
        ("0177.0.0.1:443", 403, "is an address"),
        ("017700000001:443", 403, "is an address"),
        ("127.0.0.0x1:443", 403, "is an address"),
        ("[::1]:443", 403, "is an address"),
        ("[::ffff:127.0.0.1]:443", 403, "is an address"),
        ("::1:443", 403, "is an address"),
        ("127.0.0.1.:443", 403, "ends in a dot"),
        ("crates.io.:443", 403, "ends in a dot"),
        ("CRATES.io:443", 403, "upper case"),
        ("user@crates.io:443", 403, "user information"),
        ("user:secret@crates.io:443", 403, "user information"),
        ("crates.io@127.0.0.1:443", 403, "user information"),
        ("a..example:443", 403, "no name of a host"),
        (".example:443", 403, "no name of a host"),
        ("a%2eexample:443", 403, "no name of a host"),
        ("a/b:443", 403, "no name of a host"),
        ("-a.example:443", 403, "no name of a host"),
        (":443", 403, "no name of a host"),
        ("crates.io", 400, "CONNECT needs host:port"),
        ("crates.io:0", 400, "CONNECT needs host:port"),
        ("crates.io:99999", 400, "CONNECT needs host:port"),
        ("crates.io:443 x", 400, "request line"),
        ("cr\u{e4}tes.io:443", 400, "ASCII"),
        ("\u{2460}27.0.0.1:443", 400, "ASCII"),
    ] {
        let answer = stage.answer(&stage.connect(target)).await;
        let begins = format!("HTTP/1.1 {status} ");
        assert!(
            answer.starts_with(&begins) && answer.contains(text),
            "{target}: {answer}"
        );
    }
    // None of them was even looked up.
    assert!(stage.names.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn connections_end_with_the_execution_that_made_them_whoever_holds_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stage = Stage::new(
        json!({format!("a.example:{port}"): "allow"}),
        &[format!("127.0.0.1/32:{port}")],
        EgressLimits::default(),
    );
    stage.name("a.example", &[&["127.0.0.1"]]);
    let mut tunnelled = stage.through(&format!("a.example:{port}")).await;
    let mut git = stage.opens.open().unwrap();
    let request = format!(
        "GET /git/0/nothing HTTP/1.1\r\nHost: x\r\nAuthorization: {}\r\n\r\n",
        stage.credential
    );
    write(&git, request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    let read = git.read_exact(&mut answer);
    tokio::time::timeout(BOUND, read).await.unwrap().unwrap();
    stage.boundary.credentials.end("abc-1");
    for connection in [&mut tunnelled, &mut git] {
        let mut rest = Vec::new();
        let read = connection.read_to_end(&mut rest);
        let ended = tokio::time::timeout(BOUND, read).await.unwrap();
        assert!(ended.is_err(), "it is reset: {ended:?}");
    }
}

#[tokio::test]
async fn names_that_lead_inside_are_refused() {
    let stage = Stage::new(json!({"*": "allow"}), &[], EgressLimits::default());
    for (addresses, text) in [
        (&["127.0.0.1"][..], "loopback"),
        (&["10.1.2.3"], "private"),
        (&["192.168.0.1"], "private"),
        (&["100.100.100.200"], "private"),
        (&["169.254.169.254"], "metadata"),
        (&["168.63.129.16"], "metadata"),
        (&["169.254.1.1"], "link-local"),
        (&["224.0.0.1"], "multicast"),
        (&["0.0.0.0"], "unspecified"),
        (&["::1"], "loopback"),
        (&["fd00:ec2::254"], "private"),
        (&["fe80::1"], "link-local"),
        (&["::ffff:10.0.0.1"], "disguise"),
        (&["::ffff:1.1.1.1"], "disguise"),
        (&["64:ff9b::a00:1"], "NAT64"),
        (&["2002:a00:1::"], "6to4"),
        (&["93.184.216.34"], "the cluster's own"),
        // One that lies inside is enough.
        (&["1.1.1.1", "10.0.0.1"], "private"),
        (&["2606:4700::1", "::1"], "loopback"),
    ] {
        stage.name("a.example", &[addresses]);
        let answer = stage.answer(&stage.connect("a.example:443")).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains(text),
            "{addresses:?}: {answer}"
        );
    }
    let unknown = stage.answer(&stage.connect("nobody.example:443")).await;
    assert!(unknown.starts_with("HTTP/1.1 502 "), "{unknown}");
}

#[tokio::test]
async fn only_hosts_and_ports_that_the_table_names_are_reached() {
    let table = json!({"*.example:443": "allow", "bad.example:443": "deny", "ask.example:443": "ask", "*": "allow"});
    let stage = Stage::new(table, &[], EgressLimits::default());
    let none = Stage::new(json!({}), &[], EgressLimits::default());
    for (stage, target, text) in [
        (&stage, "a.example:22", "egress: {\"a.example:22\": allow}"),
        (&stage, "a.example:80", "egress: {\"a.example:80\": allow}"),
        (
            &stage,
            "a.example:8443",
            "egress: {\"a.example:8443\": allow}",
        ),
        (
            &stage,
            "bad.example:443",
            "denied by egress rule \"bad.example:443\"",
        ),
        (&stage, "ask.example:443", "nobody can be asked in this run"),
        (&none, "a.example:443", "egress: {\"a.example:443\": allow}"),
    ] {
        let answer = stage.answer(&stage.connect(target)).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains(text),
            "{target}: {answer}"
        );
    }
    let notes = stage.boundary.credentials.notes("abc-1");
    assert!(
        notes
            .iter()
            .any(|note| note.contains("{\"a.example:22\": allow}")),
        "{notes:?}"
    );
}

#[tokio::test]
async fn requests_that_are_no_connect_or_have_no_credential_are_refused() {
    let stage = Stage::new(json!({"*": "allow"}), &[], EgressLimits::default());
    let own = format!("Proxy-Authorization: {}\r\n", stage.credential);
    let other = format!("Basic {}", STANDARD.encode("abc-2:00"));
    let large = format!("X: {}\r\n", "x".repeat(20_000));
    let many = "X: y\r\n".repeat(200);
    for (request, status) in [
        ("CONNECT a.example:443 HTTP/1.1\r\n\r\n".to_owned(), 407),
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\nProxy-Authorization: {other}\r\n\r\n"),
            407,
        ),
        (
            format!(
                "CONNECT a.example:443 HTTP/1.1\r\nAuthorization: {}\r\n\r\n",
                stage.credential
            ),
            407,
        ),
        (
            "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(),
            407,
        ),
        (
            format!("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{own}\r\n"),
            403,
        ),
        ("GET /git/a HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 401),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 404),
        // Two readers could take these for different requests.
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\nHost: b.example:443\r\n{own}\r\n"),
            400,
        ),
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\n{own}{own}\r\n"),
            400,
        ),
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\n{own}Content-Length: 9\r\n\r\n"),
            400,
        ),
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\n{own}Transfer-Encoding: chunked\r\n\r\n"),
            400,
        ),
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\n{own}X : y\r\n\r\n"),
            400,
        ),
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\n{own} folded\r\n\r\n"),
            400,
        ),
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\n{own}X: a\nY: b\r\n\r\n"),
            400,
        ),
        (format!("CONNECT a.example:443 HTTP/9\r\n{own}\r\n"), 400),
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\n{own}{large}\r\n"),
            400,
        ),
        (
            format!("CONNECT a.example:443 HTTP/1.1\r\n{own}{many}\r\n"),
            400,
        ),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}".to_owned(), 400),
    ] {
        let answer = stage.answer(&request).await;
        let shown: String = request.chars().take(120).collect();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{shown:?}: {answer}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_too_slowly_is_given_up() {
    let stage = Stage::new(json!({"*": "allow"}), &[], EgressLimits::default());
    let answer = stage.answer("CONNECT a.example:443 HTTP/1.1\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[tokio::test]
async fn ten_thousand_slow_connections_are_bounded_and_keep_nobody_out() {
    let stage = Stage::new(json!({}), &[], EgressLimits::default());
    let mut slow = Vec::new();
    for _ in 0..10_000 {
        let connection = stage.opens.open().unwrap();
        write(&connection, b"CONNECT a").await.unwrap();
        slow.push(connection);
    }
    let answer = stage.answer(&stage.connect("a.example:443")).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let waiting = stage.boundary.heads.lock().places.len();
    assert!(waiting <= super::MOST_HEADS, "{waiting}");
    // The oldest gave way.
    let error = tokio::time::timeout(BOUND, slow[0].piece()).await.unwrap();
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("too many connections")
    );
}

/// A TLS server for `a.example`, which answers with what it is sent; its address, a
/// client that trusts it, and how much plain text has come.
async fn server() -> (SocketAddr, TlsConnector, TlsConnector) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["a.example".into(), "b.example".into()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut text = [0; 64];
                while let Ok(count) = stream.read(&mut text).await
                    && count > 0
                {
                    stream.write_all(&text[..count]).await.unwrap();
                }
                let _ = stream.shutdown().await;
            });
        }
    });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut nameless = client.clone();
    nameless.enable_sni = false;
    (
        address,
        TlsConnector::from(Arc::new(client)),
        TlsConnector::from(Arc::new(nameless)),
    )
}

fn server_name(name: &str) -> rustls::pki_types::ServerName<'static> {
    rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap()
}

#[tokio::test]
async fn the_server_that_tls_names_has_to_be_the_host() {
    let (address, client, nameless) = server().await;
    let port = address.port();
    let private = [format!("127.0.0.1/32:{port}")];
    let table = json!({format!("a.example:{port}"): "allow"});
    let stage = Stage::new(table, &private, EgressLimits::default());
    stage.name("a.example", &[&["127.0.0.1"]]);
    let target = format!("a.example:{port}");

    let connection = stage.through(&target).await;
    let mut tls = client
        .connect(server_name("a.example"), connection)
        .await
        .unwrap();
    tls.write_all(b"hello").await.unwrap();
    let mut text = [0; 5];
    tls.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"hello");

    for (what, client, name) in [
        ("another name", &client, "b.example"),
        ("no name", &nameless, "a.example"),
    ] {
        let connection = stage.through(&target).await;
        let ended = client.connect(server_name(name), connection);
        let error = tokio::time::timeout(BOUND, ended)
            .await
            .unwrap()
            .unwrap_err();
        assert!(
            error.to_string().contains("UnrecognisedName"),
            "{what}: {error}"
        );
    }
    let mut connection = stage.through(&target).await;
    write(&connection, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let read = connection.read_to_end(&mut rest);
    let _ = tokio::time::timeout(BOUND, read).await.unwrap();
    assert_eq!(rest, [0x15, 3, 3, 0, 2, 2, 112]);
    let notes = stage.boundary.credentials.notes("abc-1").join("\n");
    for text in ["names \"b.example\"", "names no server", "no TLS handshake"] {
        assert!(notes.contains(text), "{text}: {notes}");
    }
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_the_second_time_is_refused_then() {
    let (address, client, _) = server().await;
    let port = address.port();
    let private = [format!("127.0.0.1/32:{port}")];
    let table = json!({format!("a.example:{port}"): "allow"});
    let stage = Stage::new(table, &private, EgressLimits::default());
    stage.name("a.example", &[&["127.0.0.1"], &["10.0.0.1"]]);
    let target = format!("a.example:{port}");
    let connection = stage.through(&target).await;
    client
        .connect(server_name("a.example"), connection)
        .await
        .unwrap();
    // What was checked is what was connected to: the name was asked for once.
    assert_eq!(stage.names.asked.lock().unwrap().len(), 1);
    let answer = stage.answer(&stage.connect(&target)).await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("10.0.0.1"),
        "{answer}"
    );
    // Another port of the same private address is no destination.
    let other = Stage::new(json!({"*": "allow"}), &private, EgressLimits::default());
    other.name("a.example", &[&["127.0.0.1"]]);
    let answer = other.answer(&other.connect("a.example:443")).await;
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("loopback"),
        "{answer}"
    );
}

#[tokio::test]
async fn limits_of_the_workspace_hold() {
    let (address, client, _) = server().await;
    let port = address.port();
    let private = [format!("127.0.0.1/32:{port}")];
    let table = json!({format!("a.example:{port}"): "allow"});
    let target = format!("a.example:{port}");
    let limits = EgressLimits {
        connections: 1,
        ..EgressLimits::default()
    };
    let stage = Stage::new(table.clone(), &private, limits);
    stage.name("a.example", &[&["127.0.0.1"]]);
    let first = stage.through(&target).await;
    let answer = stage.answer(&stage.connect(&target)).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    drop(first);
    let none = EgressLimits {
        bytes_daily: "0".into(),
        ..EgressLimits::default()
    };
    let stage = Stage::new(table.clone(), &private, none);
    stage.name("a.example", &[&["127.0.0.1"]]);
    let answer = stage.answer(&stage.connect(&target)).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    let short = EgressLimits {
        time: "1s".into(),
        ..EgressLimits::default()
    };
    let stage = Stage::new(table, &private, short);
    stage.name("a.example", &[&["127.0.0.1"]]);
    let connection = stage.through(&target).await;
    let mut tls = client
        .connect(server_name("a.example"), connection)
        .await
        .unwrap();
    let mut none = [0; 8];
    let ended = tls.read(&mut none);
    let error = tokio::time::timeout(BOUND, ended)
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("egressLimits.time"), "{error}");
}
