//! What can go wrong before the daemon serves.

use std::path::PathBuf;

/// Why the daemon did not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A folder or file that the daemon needs.
    #[error("{}: {what}: {source}", path.display())]
    Path {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The folder cannot be a project.
    #[error("{} cannot be the project: {why}", path.display())]
    Project {
        /// The folder.
        path: PathBuf,
        /// What stands against it.
        why: &'static str,
    },
    /// A private folder lies where commands may write.
    #[error("{} lies below a folder that commands may write; move it elsewhere", path.display())]
    Private {
        /// The folder.
        path: PathBuf,
    },
    /// Another daemon has the state folder.
    #[error("{} is in use by another sandbox daemon (process {holder}); end it first", state.display())]
    Owned {
        /// The state folder.
        state: PathBuf,
        /// The holder's process id as it wrote it.
        holder: String,
    },
    /// The machine permits neither namespaces nor Landlock.
    #[error(
        "commands cannot be isolated on this machine: {reasons}. \
         Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, \
         or kernel.apparmor_restrict_unprivileged_userns=0), or pass --allow-unisolated"
    )]
    NotIsolated {
        /// What was tried and how it failed.
        reasons: String,
    },
    /// A step of the set-up.
    #[error("{step}: {source}")]
    Setup {
        /// The step.
        step: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The records on disk cannot be read.
    #[error("{}: line {line} is no record of this version: {why}; move the file away to start without records", path.display())]
    Records {
        /// The journal.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What the parser said.
        why: String,
    },
    /// The socket or the certificates.
    #[error(transparent)]
    Wire(#[from] mooring_wire::WireError),
    /// The server ended with an error.
    #[error("serving: {0}")]
    Serve(#[from] tonic::transport::Error),
}

impl SandboxError {
    pub(crate) fn path(
        path: impl Into<PathBuf>,
        what: &'static str,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Path { path, what, source }
    }

    pub(crate) fn setup(step: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let step = step.into();
        move |source| Self::Setup { step, source }
    }
}
