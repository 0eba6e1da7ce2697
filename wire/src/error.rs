//! What can go wrong before a call is made.

use std::path::PathBuf;

/// Why a transport could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The socket's file or its folder could not be made or reached.
    #[error("socket {}: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A Unix socket's path has a hard limit in the kernel.
    #[error(
        "socket path {} has {length} bytes, the kernel takes at most {limit}; choose a shorter folder",
        path.display()
    )]
    SocketPathTooLong {
        /// The path that was asked for.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
        /// What the kernel takes.
        limit: usize,
    },
    /// The other side could not be reached or refused.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where to.
        address: String,
        /// What the transport said.
        source: tonic::transport::Error,
    },
    /// A certificate or key file could not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A certificate, a key or a name was refused.
    #[error("TLS: {0}")]
    Tls(String),
}
