//! Mutual TLS over real sockets: who is taken and who is not.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mooring_wire::sandbox::StatusRequest;
use mooring_wire::sandbox::sandbox_client::SandboxClient;
use mooring_wire::tls::{
    Authority, Credentials, Identity, Issued, Purpose, Role, connect_lazy, incoming, peer,
};
use tonic::Code;

const DAY: Duration = Duration::from_secs(86_400);

fn identity(role: Role, workspace: &str) -> Identity {
    Identity {
        role,
        workspace: Some(workspace.into()),
        namespace: "agents".into(),
    }
}

fn store(folder: &Path, issued: &Issued, authority: &Authority) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("tls.crt"), &issued.certificate).unwrap();
    std::fs::write(folder.join("tls.key"), &issued.key).unwrap();
    std::fs::write(folder.join("ca.crt"), &authority.pem().certificate).unwrap();
}

fn credentials(folder: &Path, issued: &Issued, authority: &Authority) -> Arc<Credentials> {
    store(folder, issued, authority);
    Credentials::load(folder).unwrap()
}

/// A server that knows no method: whoever gets through is told `Unimplemented`.
async fn serve(credentials: Arc<Credentials>, names: &[String]) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = incoming(listener, credentials, names).unwrap();
    let routes = tonic::service::Routes::default();
    tokio::spawn(async move {
        tonic::transport::Server::builder()
            .add_routes(routes)
            .serve_with_incoming(incoming)
            .await
    });
    address
}

async fn call(address: SocketAddr, name: &str, credentials: &Arc<Credentials>) -> Code {
    let channel = connect_lazy(address, name, Arc::clone(credentials)).unwrap();
    let mut client = SandboxClient::new(channel);
    let answer = client.status(StatusRequest {});
    tokio::time::timeout(Duration::from_secs(20), answer)
        .await
        .unwrap()
        .unwrap_err()
        .code()
}

#[tokio::test]
async fn only_the_named_client_of_the_same_authority_is_taken_and_only_the_named_server_is_trusted()
{
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (
        Authority::generate("ours").unwrap(),
        Authority::generate("other").unwrap(),
    );
    let sandbox = identity(Role::Sandbox, "shop");
    let harness = identity(Role::Harness, "shop");
    let issued = ours.issue(&sandbox, Purpose::Serve, &[], DAY).unwrap();
    let server = credentials(&folder.path().join("server"), &issued, &ours);
    let address = serve(server, &[harness.to_string()]).await;
    let (ok, refused) = (Code::Unimplemented, Code::Unavailable);
    let table = [
        (
            "harness",
            &ours,
            harness.clone(),
            Purpose::ServeAndCall,
            DAY,
            ok,
        ),
        (
            "of another workspace",
            &ours,
            identity(Role::Harness, "blog"),
            Purpose::ServeAndCall,
            DAY,
            refused,
        ),
        (
            "of another role",
            &ours,
            identity(Role::Bot, "shop"),
            Purpose::Call,
            DAY,
            refused,
        ),
        (
            "for serving only",
            &ours,
            harness.clone(),
            Purpose::Serve,
            DAY,
            refused,
        ),
        (
            "expired",
            &ours,
            harness.clone(),
            Purpose::Call,
            Duration::ZERO,
            refused,
        ),
        (
            "of another authority",
            &other,
            harness.clone(),
            Purpose::Call,
            DAY,
            refused,
        ),
        (
            "the sandbox itself",
            &ours,
            sandbox.clone(),
            Purpose::Serve,
            DAY,
            refused,
        ),
    ];
    for (name, authority, identity, purpose, validity, expected) in table {
        let issued = authority.issue(&identity, purpose, &[], validity).unwrap();
        // It trusts the server's authority, whoever signed its own certificate.
        let client = credentials(&folder.path().join(name), &issued, &ours);
        let mut code = call(address, &sandbox.to_string(), &client).await;
        // A certificate is valid to the end of its last second.
        let until = std::time::Instant::now() + Duration::from_secs(5);
        while validity.is_zero() && code == ok && std::time::Instant::now() < until {
            code = call(address, &sandbox.to_string(), &client).await;
        }
        let found = if code == ok { ok } else { refused };
        assert_eq!(found, expected, "{name}: {code:?}");
    }
    let issued = ours.issue(&harness, Purpose::Call, &[], DAY).unwrap();
    let client = credentials(&folder.path().join("client"), &issued, &ours);
    assert_ne!(
        call(
            address,
            &identity(Role::Sandbox, "blog").to_string(),
            &client
        )
        .await,
        ok
    );
}

#[tokio::test]
async fn renewed_files_are_taken_without_a_restart_and_broken_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::generate("ours").unwrap();
    let sandbox = identity(Role::Sandbox, "shop");
    let harness = identity(Role::Harness, "shop");
    let issued = authority.issue(&sandbox, Purpose::Serve, &[], DAY).unwrap();
    let server = credentials(&folder.path().join("server"), &issued, &authority);
    let address = serve(server, &[harness.to_string()]).await;

    let place = folder.path().join("client");
    let good = authority.issue(&harness, Purpose::Call, &[], DAY).unwrap();
    let expired = authority
        .issue(&harness, Purpose::Call, &[], Duration::ZERO)
        .unwrap();
    let client = credentials(&place, &expired, &authority);
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while call(address, &sandbox.to_string(), &client).await == Code::Unimplemented {
        assert!(
            std::time::Instant::now() < until,
            "the expired certificate is taken"
        );
    }
    store(&place, &good, &authority);
    while call(address, &sandbox.to_string(), &client).await != Code::Unimplemented {
        assert!(
            std::time::Instant::now() < until,
            "the renewed certificate is not used"
        );
    }
    std::fs::write(place.join("tls.crt"), "not a certificate").unwrap();
    // Longer than the files may stay unlooked at.
    let until = std::time::Instant::now() + Duration::from_millis(1500);
    while std::time::Instant::now() < until {
        assert_eq!(
            call(address, &sandbox.to_string(), &client).await,
            Code::Unimplemented
        );
    }
}

#[test]
fn a_stored_authority_issues_what_the_first_one_trusts() {
    let authority = Authority::generate("ours").unwrap();
    let stored = Authority::from_pem(authority.pem().clone()).unwrap();
    assert_eq!(stored.pem().certificate, authority.pem().certificate);
    let broken = Issued {
        certificate: "x".into(),
        key: authority.pem().key.clone(),
    };
    assert!(Authority::from_pem(broken).is_err());
}

#[test]
fn a_peer_is_known_by_its_name() {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let authority = Authority::generate("ours").unwrap();
    let bot = Identity {
        role: Role::Bot,
        workspace: None,
        namespace: "mooring".into(),
    };
    let issued = authority
        .issue(&bot, Purpose::Call, &["bot.mooring.svc".into()], DAY)
        .unwrap();
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let known = [identity(Role::Harness, "shop"), bot.clone()];
    assert_eq!(peer(&certificate, &known), Some(&bot));
    assert_eq!(peer(&certificate, &known[..1]), None);
}

#[test]
fn a_missing_or_wrong_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Credentials::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("tls.crt"), "{error}");
}
