//! The loopback listener of commands, and the stream that carries its connections
//! to the harness. A plain carrier: it reads nothing of what it carries.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mooring_wire::sandbox::TunnelFrame;
use mooring_wire::tunnel::{Mux, Outgoing, Side, carry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tonic::Streaming;

/// Connections at once; more are refused.
const MOST: usize = 1024;
/// How long a connection waits for a harness.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take to read why it is refused.
const FAREWELL: Duration = Duration::from_secs(2);
const NOBODY: &str =
    "mooring: the harness, which lets connections out, is not there; try again in a moment";
const BROKE: &str = "mooring: the harness ended or was restarted under this connection; try again";
const FULL: &str = "mooring: the sandbox has too many connections open; close some and try again";

/// The tunnel of one daemon.
pub struct Tunnel {
    address: Option<SocketAddr>,
    current: watch::Sender<Option<Mux>>,
}

impl Tunnel {
    /// Where commands have no sockets.
    pub fn none() -> Arc<Tunnel> {
        Arc::new(Tunnel {
            address: None,
            current: watch::Sender::new(None),
        })
    }

    /// Listens on the loopback interface, and serves until the process ends.
    pub async fn listen() -> io::Result<Arc<Tunnel>> {
        raise_open_files();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let tunnel = Arc::new(Tunnel {
            address: Some(listener.local_addr()?),
            current: watch::Sender::new(None),
        });
        tokio::spawn(Arc::clone(&tunnel).accept(listener));
        Ok(tunnel)
    }

    /// `ip:port`, or nothing.
    pub fn address(&self) -> String {
        self.address
            .map(|address| address.to_string())
            .unwrap_or_default()
    }

    /// A harness opened the stream: it takes over from an earlier one.
    pub fn take_over(&self, mut incoming: Streaming<TunnelFrame>) -> Outgoing {
        let (mux, outgoing) = Mux::new(Side::Opens, MOST);
        if let Some(earlier) = self.current.send_replace(Some(mux.clone())) {
            earlier.end("another harness took over");
        }
        tokio::spawn(async move {
            let reason = loop {
                let frame = tokio::select! {
                    frame = incoming.message() => frame,
                    () = mux.ended() => return,
                };
                match frame.map(|frame| frame.map(|frame| mux.take(frame))) {
                    Ok(Some(Ok(_))) => {}
                    Ok(Some(Err(violation))) => break violation.to_string(),
                    Ok(None) => break "the harness ended the tunnel".to_owned(),
                    Err(status) => break status.message().to_owned(),
                }
            };
            tracing::info!(reason, "a tunnel ends");
            mux.end(&reason);
        });
        outgoing
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(MOST));
        loop {
            let client = match listener.accept().await {
                Ok((client, _)) => client,
                Err(error) => {
                    // No descriptor is free, or the client has gone.
                    tracing::warn!(%error, "a connection was not taken");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => {
                    let tunnel = Arc::clone(&self);
                    tokio::spawn(async move {
                        tunnel.serve(client).await;
                        drop(place);
                    });
                }
                Err(_) => say(&client, FULL),
            }
        }
    }

    async fn serve(&self, mut client: TcpStream) {
        let _ = client.set_nodelay(true);
        let mut current = self.current.subscribe();
        let there = current.wait_for(|mux| mux.as_ref().is_some_and(|mux| !mux.is_ended()));
        let mux = match tokio::time::timeout(PATIENCE, there).await {
            Ok(Ok(mux)) => mux.clone(),
            _ => None,
        };
        let Some(mux) = mux else {
            return refuse(client, NOBODY).await;
        };
        let Some(connection) = mux.open() else {
            return refuse(client, FULL).await;
        };
        let answered = AtomicBool::new(false);
        let carried = carry(&mut client, &connection, |direction, _| {
            if direction == mooring_wire::tunnel::Direction::Out {
                answered.store(true, Ordering::Relaxed);
            }
            Ok(())
        })
        .await;
        if carried.is_err() {
            let answered = answered.load(Ordering::Relaxed);
            match answered || !mux.is_ended() {
                // Seen as a broken connection, never as the end of what was sent.
                true => drop(client.set_zero_linger()),
                false => refuse(client, BROKE).await,
            }
        }
    }
}

/// Tells the client, and takes what it is still sending: a close with bytes unread
/// would take the answer back.
async fn refuse(mut client: TcpStream, text: &str) {
    say(&client, text);
    let _ = client.shutdown().await;
    let drain = async {
        while client
            .read(&mut [0; 1024])
            .await
            .is_ok_and(|count| count > 0)
        {}
    };
    let _ = tokio::time::timeout(FAREWELL, drain).await;
}

/// The one answer that the daemon gives itself. What cannot be written at once is
/// left out.
fn say(client: &TcpStream, text: &str) {
    let answer = format!(
        "HTTP/1.1 503 {text}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\nRetry-After: 2\r\n\r\n{text}\n",
        text.len() + 1
    );
    let _ = client.try_write(answer.as_bytes());
}

/// Each connection takes a descriptor; the commands' own limit is set elsewhere.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let enough = limit.maximum.map_or(65_536, |most| most.min(65_536));
    if limit.current.is_some_and(|current| current < enough) {
        let raised = Rlimit {
            current: Some(enough),
            maximum: limit.maximum,
        };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}
