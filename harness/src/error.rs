//! Why a harness does not start, or ends.

use std::path::PathBuf;

/// Why a harness does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Workspace is wrong.
    #[error("{0}")]
    Workspace(String),
    /// The database could not be opened.
    #[error(transparent)]
    Open(#[from] mooring_durable::error::OpenError),
    /// The session has failed; a new process carries on from the last commit.
    #[error(transparent)]
    Session(#[from] mooring_durable::error::SessionError),
    /// The socket could not be made.
    #[error("{path}: {source}")]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The server ended.
    #[error("the server ended: {0}")]
    Serve(String),
}
