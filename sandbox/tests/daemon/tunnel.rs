//! The loopback listener of commands, and the stream that carries its connections.

use std::time::Duration;

use mooring_wire::tunnel::{Connection, Mux, Side};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;

use crate::support::{As, PATIENCE, Sandbox, users};

/// A harness's side: the connections that it is given, until it is dropped.
async fn harness(sandbox: &Sandbox) -> (Mux, mpsc::UnboundedReceiver<Connection>) {
    let (mux, outgoing) = Mux::new(Side::Takes, 1024);
    let mut incoming = sandbox
        .client()
        .await
        .tunnel(outgoing)
        .await
        .unwrap()
        .into_inner();
    let (given, taken) = mpsc::unbounded_channel();
    let taking = mux.clone();
    tokio::spawn(async move {
        while let Some(Ok(frame)) = incoming.next().await {
            if let Some(connection) = taking.take(frame).unwrap() {
                let _ = given.send(connection);
            }
        }
        taking.end("the daemon ended it");
    });
    (mux, taken)
}

async fn next(taken: &mut mpsc::UnboundedReceiver<Connection>) -> Connection {
    let next = tokio::time::timeout(PATIENCE, taken.recv());
    next.await.unwrap().unwrap()
}

async fn answer(mut connection: Connection, text: &str) {
    let request = connection.piece().await.unwrap().unwrap();
    assert!(request.starts_with(b"GET /x HTTP/1.1\r\n"), "{request:?}");
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    connection.write_all(answer.as_bytes()).await.unwrap();
    connection.shutdown().await.unwrap();
    while let Ok(Some(_)) = connection.piece().await {}
}

async fn address(sandbox: &Sandbox) -> String {
    let address = sandbox.status().await.tunnel_address;
    assert!(address.starts_with("127.0.0.1:"), "{address:?}");
    address
}

#[tokio::test]
async fn commands_reach_the_harness_by_the_tunnel_and_a_new_one_takes_over() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let curl = format!("curl -sS http://{}/x", address(&sandbox).await);
        let (_first, mut taken) = harness(&sandbox).await;
        let serve = async { answer(next(&mut taken).await, "from the harness").await };
        let (ran, ()) = tokio::join!(sandbox.run(&curl), serve);
        assert_eq!(ran.ok(), "from the harness");

        // What is open then is told, and what comes later goes to the new one.
        let script = format!("{curl}; {curl}");
        let take_over = async {
            let held = next(&mut taken).await;
            let (_second, mut taken) = harness(&sandbox).await;
            answer(next(&mut taken).await, "from the next").await;
            drop(held);
        };
        let (ran, ()) = tokio::join!(sandbox.run(&script), take_over);
        let text = ran.ok();
        assert!(
            text.contains("was restarted under this connection"),
            "{text}"
        );
        assert!(text.ends_with("from the next"), "{text}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_taken_for_its_end() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let address = address(&sandbox).await;
    let command = format!("curl -sSN http://{address}/x > half; echo exit $?");
    let (mux, mut taken) = harness(&sandbox).await;
    let serve = async {
        let mut connection = next(&mut taken).await;
        connection.piece().await.unwrap().unwrap();
        // Nothing but the end of the connection tells this answer's length.
        let half = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf";
        connection.write_all(half).await.unwrap();
        let read = || std::fs::read(sandbox.project.join("half")).unwrap_or_default();
        while read() != b"half" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        mux.end("killed");
        drop(connection);
    };
    let (ran, ()) = tokio::join!(sandbox.run(&command), serve);
    let text = ran.text();
    assert!(text.contains("exit ") && !text.contains("exit 0"), "{text}");
}

#[tokio::test]
async fn without_a_harness_a_connection_waits_and_is_then_told() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let address = address(&sandbox).await;
    let curl = format!("curl -sS http://{address}/x");
    // One that comes before the harness is served by it.
    let late = async { sandbox.run(&format!("touch begun; {curl}")).await };
    let serve = async {
        while !sandbox.project.join("begun").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (mux, mut taken) = harness(&sandbox).await;
        answer(next(&mut taken).await, "at last").await;
        mux.end("over");
    };
    let (ran, ()) = tokio::join!(late, serve);
    assert_eq!(ran.ok(), "at last");
    // One that no harness comes for is told after ten seconds.
    let text = sandbox.run(&curl).await.ok();
    assert!(
        text.contains("the harness, which lets connections out, is not there"),
        "{text}"
    );
}
