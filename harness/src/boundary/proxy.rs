//! The HTTPS allow-list: `CONNECT` to a host that the policy's `egress` table
//! permits, and to no other.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use mooring_crds::Verdict;
use mooring_policy::{Action, Decision, NoEnvironment};
use mooring_wire::tunnel::{Connection, Direction, carry};
use tokio::io::AsyncWriteExt;

use super::{
    Boundary,
    credential::Origin,
    hello,
    outside::{Refusal, host_name},
    refusal::{Answer, write},
};

/// How long a client may take from the answer to its server name.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// A connection on which nothing moves for so long ends.
const IDLE: Duration = Duration::from_secs(300);
/// A TLS alert (RFC 8446, 6): fatal, unrecognized_name.
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

/// Serves one `CONNECT`; `rest` is what the client sent after its head.
pub async fn serve(
    boundary: &Arc<Boundary>,
    origin: Origin,
    (host, port): (&str, u16),
    rest: Bytes,
    connection: Connection,
) {
    let refused = match open(boundary, &origin, host, port).await {
        Ok(outside) => {
            forward(&origin, host, port, rest, connection, outside).await;
            return;
        }
        Err(answer) => answer,
    };
    boundary.credentials.note(&origin, refused.text.clone());
    tracing::info!(
        conversation = origin.conversation.0,
        task = origin.task.0,
        host,
        port,
        why = refused.text,
        "a connection was refused"
    );
    refused.send(&connection).await;
}

async fn open(
    boundary: &Arc<Boundary>,
    _origin: &Origin,
    host: &str,
    port: u16,
) -> Result<tokio::net::TcpStream, Answer> {
    let host = host_name(host).map_err(|error| answer(&error))?;
    let decision = decide(boundary, host, port);
    match decision.verdict {
        Verdict::Allow => {}
        Verdict::Deny => return Err(Answer::new(403, denied(&decision, host, port))),
        Verdict::Ask => {
            return Err(Answer::new(
                403,
                format!(
                    "{host}:{port} has to be asked for by {}, and a connection cannot be asked for yet",
                    decision.rule
                ),
            ));
        }
    }
    boundary
        .outside
        .connect(host, port)
        .await
        .map_err(|error| answer(&error))
}

fn decide(boundary: &Boundary, host: &str, port: u16) -> Decision {
    let call = mooring_policy::Call {
        tool: "egress",
        action: Action::Connect { host, port },
    };
    let rules = &boundary.source.current().rules;
    mooring_policy::decide(
        rules,
        &mooring_policy::read(&call),
        &NoEnvironment::default(),
    )
}

/// What whoever was refused has to know.
fn denied(decision: &Decision, host: &str, port: u16) -> String {
    let by = match decision.rule.pattern.as_str() {
        "" => "no rule of the Workspace's egress table allows it".to_owned(),
        _ => format!("it is denied by {}", decision.rule),
    };
    format!(
        "{host}:{port} cannot be reached from the sandbox: {by}. The rule that would allow \
         it, in the Workspace's policy: egress: {{\"{host}:{port}\": allow}}"
    )
}

fn answer(refusal: &Refusal) -> Answer {
    let status = match refusal {
        Refusal::Host { .. } | Refusal::Inside { .. } => 403,
        Refusal::Unknown { .. } | Refusal::Unreachable { .. } => 502,
    };
    Answer::new(status, refusal.to_string())
}

async fn forward(
    origin: &Origin,
    host: &str,
    port: u16,
    rest: Bytes,
    connection: Connection,
    mut outside: tokio::net::TcpStream,
) {
    let begun = async {
        write(&connection, b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await
            .ok()?;
        Some(hello::read(rest, &connection, host).await)
    };
    let said = match tokio::time::timeout(HELLO_PATIENCE, begun).await {
        Ok(Some(Ok(said))) => said,
        Ok(Some(Err(error))) => {
            tracing::info!(conversation = origin.conversation.0, host, port, %error, "a connection was ended");
            let _ = write(&connection, &UNRECOGNIZED_NAME).await;
            let _ = connection.finish().await;
            return connection.reset(error.to_string());
        }
        Ok(None) | Err(_) => return connection.reset("the client began no TLS"),
    };
    if outside.write_all(&said).await.is_err() {
        return connection.reset("the other side is gone");
    }
    let moved = AtomicU64::new(said.len() as u64);
    let count = |_: Direction, bytes: usize| -> io::Result<()> {
        moved.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    };
    let idle = async {
        let mut before = moved.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(IDLE).await;
            let now = moved.load(Ordering::Relaxed);
            if now == before {
                return;
            }
            before = now;
        }
    };
    let carried = tokio::select! {
        carried = carry(&mut outside, &connection, count) => carried,
        () = idle => Err(io::ErrorKind::TimedOut.into()),
    };
    if let Err(error) = carried {
        connection.reset(error.to_string());
    }
}
