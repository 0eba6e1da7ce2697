//! A sandbox on another machine, and the one harness that may call it.
//!
//! Each side has a certificate that it made itself, and knows the other's by its
//! SHA-256 ([`Fingerprint`]); there is no authority and no name to be checked. A
//! one-time code ([`Code`]) that a person carries from one side to the other makes
//! them known to each other.
//!
//! Both speak TLS 1.3 with certificates of both sides, at one port. By its ALPN a
//! connection says what it is for: `h2` is the contract, which only the paired
//! harness gets; [`ALPN`] is the exchange below, a JSON object a line:
//!
//! | from | line |
//! |---|---|
//! | sandbox | its version, and whether it is paired with this harness, with another one or with none |
//! | harness | nothing, or its proof |
//! | sandbox | its own proof, or why it refuses |
//!
//! A proof is the HMAC-SHA256, keyed with the code, of who proves and of the two
//! fingerprints as that side sees them. A man in the middle has to show each side
//! a certificate of his own, so the proofs that pass through him are about other
//! fingerprints than the other side sees; to make one that fits he needs the code,
//! which has 100 bits and is worth nothing after a few minutes.

mod certificate;
mod client;
mod error;
mod secret;
mod server;
#[cfg(test)]
mod tests;

pub use certificate::{Certificate, Fingerprint};
pub use client::{Greeting, connect_lazy, greet, pair};
pub use error::{PairingError, Refusal};
pub use secret::{Code, Proof};
pub use server::{Connection, Desk, Peer, incoming};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What a connection for the exchange says that it is for.
pub const ALPN: &[u8] = b"mooring-pair/1";
/// No line of the exchange is longer.
const MAX_LINE: usize = 1024;

/// With whom a sandbox is paired, as it tells whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// With whoever asks.
    You,
    /// With another harness.
    Another,
    /// With none.
    Nobody,
}

/// The sandbox's first line.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: String,
    paired: Standing,
}

/// The harness's line.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    proof: Proof,
}

/// The sandbox's last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Proof(Proof),
    Refused(Refusal),
}

async fn write_line<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &T,
) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

/// The next line; nothing where the other side has closed.
async fn read_line<T: for<'de> Deserialize<'de>>(
    stream: &mut (impl AsyncRead + Unpin),
) -> std::io::Result<Option<T>> {
    let mut line = Vec::new();
    loop {
        let byte = match stream.read_u8().await {
            Ok(byte) => byte,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof && line.is_empty() => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if byte == b'\n' {
            return Ok(Some(serde_json::from_slice(&line)?));
        }
        line.push(byte);
        if line.len() > MAX_LINE {
            return Err(std::io::Error::other("the line is too long"));
        }
    }
}
