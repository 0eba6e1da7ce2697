#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio_stream::StreamExt;
use tonic::transport::server::Connected;

use super::*;

const VERSION: &str = "1.2.3";

/// A desk in memory.
struct Memory {
    own: Fingerprint,
    code: Code,
    paired: Mutex<Option<Fingerprint>>,
}

impl Desk for Memory {
    fn paired(&self) -> Option<Fingerprint> {
        *self.paired.lock().unwrap()
    }

    fn take(&self, harness: Fingerprint, proof: &Proof) -> Result<Proof, Refusal> {
        if *proof != self.code.harness_proof(harness, self.own) {
            return Err(Refusal::Wrong);
        }
        *self.paired.lock().unwrap() = Some(harness);
        Ok(self.code.sandbox_proof(harness, self.own))
    }
}

struct Sandbox {
    address: String,
    desk: Arc<Memory>,
    /// One for each connection that gets through.
    through: tokio::sync::mpsc::UnboundedReceiver<Peer>,
}

impl Sandbox {
    /// Serves until the test ends; nobody is answered.
    async fn start() -> Sandbox {
        let certificate = certificate();
        let desk = Arc::new(Memory {
            own: certificate.fingerprint(),
            code: Code::random(),
            paired: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut connections = incoming(listener, &certificate, VERSION, desk.clone()).unwrap();
        let (tell, through) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(connection) = connections.next().await {
                let mut connection = connection.unwrap();
                let _ = tell.send(connection.connect_info());
                tokio::spawn(async move {
                    tokio::io::copy(&mut connection, &mut tokio::io::sink()).await
                });
            }
        });
        Sandbox {
            address,
            desk,
            through,
        }
    }
}

fn certificate() -> Certificate {
    Certificate::from_pem(&Certificate::generate().unwrap()).unwrap()
}

#[test]
fn a_code_is_read_as_people_type_it() {
    let code = Code::random();
    let text = code.reveal();
    assert_eq!(text.len(), 24);
    for typed in [
        text.clone(),
        text.to_lowercase(),
        text.replace('-', ""),
        format!("  {}\n", text.replace('-', " ")),
        text.replace('0', "o").replace('1', "l"),
    ] {
        assert_eq!(Code::parse(&typed), Some(code.clone()), "{typed}");
    }
    for wrong in [
        "",
        "1234",
        &text[1..],
        &format!("{text}0"),
        &text.replace('-', "_"),
    ] {
        assert_eq!(Code::parse(wrong), None, "{wrong}");
    }
    assert_ne!(Code::random(), code);
    assert!(!format!("{code:?}").contains(&text[..4]));
}

#[test]
fn a_proof_is_of_one_side_one_code_and_one_pair_of_certificates() {
    let (a, b) = (certificate().fingerprint(), certificate().fingerprint());
    let (code, other) = (Code::random(), Code::random());
    let proof = code.harness_proof(a, b);
    assert_eq!(proof, code.harness_proof(a, b));
    for wrong in [
        code.sandbox_proof(a, b),
        code.harness_proof(b, a),
        code.harness_proof(a, a),
        other.harness_proof(a, b),
    ] {
        assert_ne!(proof, wrong);
    }
}

#[tokio::test]
async fn a_code_pairs_one_harness_and_another_is_told_so() {
    let sandbox = Sandbox::start().await;
    let (own, other) = (certificate(), certificate());
    let greeting = greet(&sandbox.address, &own, VERSION).await.unwrap();
    assert_eq!(greeting.paired, Standing::Nobody);
    let wrong = pair(&sandbox.address, &own, VERSION, &Code::random()).await;
    assert!(
        matches!(
            wrong,
            Err(PairingError::Refused {
                refusal: Refusal::Wrong,
                ..
            })
        ),
        "{wrong:?}"
    );
    let pin = pair(&sandbox.address, &own, VERSION, &sandbox.desk.code)
        .await
        .unwrap();
    assert_eq!(pin, greeting.fingerprint);
    assert_eq!(sandbox.desk.paired(), Some(own.fingerprint()));
    for (certificate, standing) in [(&own, Standing::You), (&other, Standing::Another)] {
        let greeting = greet(&sandbox.address, certificate, VERSION).await.unwrap();
        assert_eq!(greeting.paired, standing);
    }
    let version = greet(&sandbox.address, &own, "9.9.9").await.unwrap_err();
    let told = version.to_string();
    assert!(told.contains(VERSION) && told.contains("9.9.9"), "{told}");
}

#[tokio::test]
async fn only_the_paired_harness_gets_a_connection_and_only_to_the_pinned_sandbox() {
    let mut sandbox = Sandbox::start().await;
    let (own, other) = (certificate(), certificate());
    let pin = pair(&sandbox.address, &own, VERSION, &sandbox.desk.code)
        .await
        .unwrap();
    for (certificate, pin, reached) in [
        (&own, pin, true),
        (&other, pin, false),
        (&own, other.fingerprint(), false),
    ] {
        let channel = connect_lazy(&sandbox.address, certificate, pin).unwrap();
        let mut client = crate::sandbox::sandbox_client::SandboxClient::new(channel);
        // Whoever gets through is never answered; others are closed at once.
        let peer = tokio::select! {
            peer = sandbox.through.recv() => peer,
            refused = client.status(crate::sandbox::StatusRequest {}) => {
                assert!(refused.is_err());
                None
            }
        };
        let expected = reached.then(|| Peer(own.fingerprint()));
        assert_eq!(peer, expected);
    }
}

/// Ends TLS at both sides and hands on what is said.
async fn man_in_the_middle(sandbox: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let own = certificate();
    let acceptor = super::server::acceptor(&own).unwrap();
    let connector = super::client::connector(&own, None, ALPN).unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let mut towards_harness = acceptor.accept(socket).await.unwrap();
            let socket = TcpStream::connect(&sandbox).await.unwrap();
            let mut towards_sandbox = connector
                .connect(super::client::name(), socket)
                .await
                .unwrap();
            let _ = tokio::io::copy_bidirectional(&mut towards_harness, &mut towards_sandbox).await;
        }
    });
    address
}

#[tokio::test]
async fn a_man_in_the_middle_who_hands_everything_on_pairs_nobody() {
    let sandbox = Sandbox::start().await;
    let middle = man_in_the_middle(sandbox.address.clone()).await;
    let own = certificate();
    let refused = pair(&middle, &own, VERSION, &sandbox.desk.code).await;
    assert!(
        matches!(
            refused,
            Err(PairingError::Refused {
                refusal: Refusal::Wrong,
                ..
            })
        ),
        "{refused:?}"
    );
    assert_eq!(sandbox.desk.paired(), None);
}

#[tokio::test]
async fn whoever_takes_every_proof_but_does_not_know_the_code_is_not_pinned() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let acceptor = super::server::acceptor(&certificate()).unwrap();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(socket).await.unwrap();
        let hello = Hello {
            version: VERSION.into(),
            paired: Standing::Nobody,
        };
        write_line(&mut stream, &hello).await.unwrap();
        // The harness's own proof is sent back to it.
        let asked: Asked = read_line(&mut stream).await.unwrap().unwrap();
        write_line(&mut stream, &Answer::Proof(asked.proof))
            .await
            .unwrap();
    });
    let pinned = pair(&address, &certificate(), VERSION, &Code::random()).await;
    assert!(
        matches!(pinned, Err(PairingError::Unproved { .. })),
        "{pinned:?}"
    );
}

#[tokio::test]
async fn a_line_without_an_end_is_given_up() {
    let mut endless = tokio::io::repeat(b'a');
    let read = read_line::<Hello>(&mut endless).await;
    assert!(read.is_err());
}
