//! The first thing a TLS client says: whom it wants to speak to.

use std::io::Read;

use bytes::{Bytes, BytesMut};
use mooring_wire::tunnel::Connection;
use rustls::server::Acceptor;

/// Bytes that a client may say before it has named the server.
const MOST_BYTES: usize = 32 << 10;

/// Why no server was named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHello {
    /// It went away.
    #[error("the client ended the connection before it began TLS")]
    Cut,
    /// Something else than TLS, or TLS that nobody speaks.
    #[error("what the client sent is no TLS handshake")]
    NoTls,
    /// No server name.
    #[error("the TLS handshake names no server (SNI)")]
    Unnamed,
    /// Another server name.
    #[error("the TLS handshake names {0:?}, another host than the connection's")]
    Other(String),
}

/// Reads on until the server is named, which has to be `host`; returns all that was read.
pub async fn read(read: Bytes, connection: &Connection, host: &str) -> Result<Bytes, BadHello> {
    let mut acceptor = Acceptor::default();
    let mut all = BytesMut::new();
    let mut piece = read;
    loop {
        all.extend_from_slice(&piece);
        if let Some(name) = named(&mut acceptor, &piece)? {
            return match name {
                Some(name) if name == host => Ok(all.freeze()),
                Some(name) => Err(BadHello::Other(name)),
                None => Err(BadHello::Unnamed),
            };
        }
        if all.len() > MOST_BYTES {
            return Err(BadHello::NoTls);
        }
        let next = connection.piece().await.map_err(|_| BadHello::Cut)?;
        piece = next.ok_or(BadHello::Cut)?;
    }
}

/// The server's name, once all of the hello is there.
fn named(acceptor: &mut Acceptor, mut bytes: &[u8]) -> Result<Option<Option<String>>, BadHello> {
    while !bytes.is_empty() {
        let mut reader = (&mut bytes).take(4096);
        acceptor
            .read_tls(&mut reader)
            .map_err(|_| BadHello::NoTls)?;
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                return Ok(Some(hello.server_name().map(str::to_ascii_lowercase)));
            }
            Err(_) => return Err(BadHello::NoTls),
        }
    }
    Ok(None)
}
