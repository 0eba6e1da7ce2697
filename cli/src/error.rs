//! Why a command did not do what it was asked, and the way out.

use std::path::{Path, PathBuf};

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder cannot be a project.
    #[error("{path}: {why}", path = path.display())]
    Project {
        /// The folder.
        path: PathBuf,
        /// Why not, and what to do.
        why: String,
    },
    /// The project was known under another path, and nobody is there to be asked.
    #[error(
        "this project was at {old} before, and its conversations are kept under that path: \
         run again with --adopt to take them along, or with --fresh to begin without them",
        old = old.display()
    )]
    Moved {
        /// Where it was.
        old: PathBuf,
    },
    /// A folder or a file could not be made, read or trusted.
    #[error("{path}: {why}", path = path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The Workspace file is wrong.
    #[error(transparent)]
    Workspace(#[from] mooring_crds::ReadError),
    /// Another Workspace file is in use.
    #[error(
        "the harness of this project runs with {running}, not with {asked}: \
         `mooring stop` ends it, then start again",
        asked = asked.display()
    )]
    OtherWorkspace {
        /// The file in use, or "the default Workspace".
        running: String,
        /// The file that was asked for.
        asked: PathBuf,
    },
    /// Another sandbox is in use.
    #[error(
        "the harness of this project runs with {running}, not with {asked}: \
         `mooring stop` ends it, then start again"
    )]
    OtherSandbox {
        /// The sandbox in use.
        running: String,
        /// The one that was asked for.
        asked: String,
    },
    /// A sandbox on another machine.
    #[error(transparent)]
    Pairing(#[from] mooring_wire::pairing::PairingError),
    /// The sandbox that this machine serves.
    #[error(transparent)]
    Serve(#[from] mooring_sandbox::SandboxError),
    /// A worktree that holds what is nowhere else.
    #[error(
        "{path} stays, with its branch {branch}: {why}. Push or merge the branch, and commit or \
         discard what is not committed; then remove it"
    )]
    Kept {
        /// The worktree.
        path: String,
        /// Its branch.
        branch: String,
        /// What is in it.
        why: String,
    },
    /// The harness ended before it answered.
    #[error("the harness did not start ({status}); the end of {log}:\n{tail}", log = log.display())]
    HarnessEnded {
        /// Its exit status.
        status: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// The harness runs and does not answer.
    #[error(
        "the harness did not answer within {seconds} s; its log is {log}; \
         `mooring stop` ends it",
        log = log.display()
    )]
    HarnessSilent {
        /// How long it was waited for.
        seconds: u64,
        /// Its log file.
        log: PathBuf,
    },
    /// No harness runs, and the command is of no use without one.
    #[error("nothing runs for {project}; `mooring dev` starts it", project = project.display())]
    NotRunning {
        /// The project's folder.
        project: PathBuf,
    },
    /// A person has ended the harness while this command listened.
    #[error(
        "the harness was ended by `mooring stop`; what ran waits, and `mooring dev` \
         carries on where it was"
    )]
    Stopped,
    /// A key would be sent to a server that nobody has agreed to.
    #[error(
        "{variable} would be sent to {endpoint}, and nobody has agreed to that in this project \
         yet: `mooring dev` asks, and --allow-key {variable}@{endpoint} says yes"
    )]
    KeyHeldBack {
        /// The environment variable.
        variable: String,
        /// The server.
        endpoint: String,
    },
    /// There are no records of this project.
    #[error("nothing was said in {project} yet; `mooring dev` begins", project = project.display())]
    NothingSaid {
        /// The project's folder.
        project: PathBuf,
    },
    /// The harness refused the request.
    #[error("{message}")]
    Refused {
        /// Its stable code; empty where it gave none.
        code: String,
        /// Its text for people.
        message: String,
    },
    /// The database is damaged, under a harness that runs.
    #[error(
        "{path} is damaged: {why}; `mooring stop`, then put a backup in its place. It was left as it is: \
         without a backup, `sqlite3 {path} .recover` reads out what can still be read",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        why: String,
    },
    /// The harness ends again and again.
    #[error(
        "the harness was started {times} times and lost each time; the end of {log}:\n{tail}",
        log = log.display()
    )]
    HarnessLost {
        /// How often.
        times: u32,
        /// Its log file.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// The connection to the harness broke.
    #[error("the connection to the harness broke: {0}")]
    Broken(String),
    /// The bot cannot go on.
    #[error(transparent)]
    Discord(#[from] mooring_bot::BotError),
    /// `kubectl` did not do it.
    #[error("{0}")]
    Kubectl(String),
    /// An argument is wrong.
    #[error("{0}")]
    Usage(String),
    /// Reading or writing the terminal, a pipe or a file failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Whether it is that the database is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, Error::Refused { code, .. } if code == "corrupt")
    }

    /// The same, naming the database where that is what is damaged.
    pub fn about(self, database: &Path) -> Error {
        match self {
            Error::Refused { code, message } if code == "corrupt" => Error::Damaged {
                path: database.to_owned(),
                why: message,
            },
            error => error,
        }
    }

    /// Whether the harness may have gone, so that starting it again may help.
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Error::Broken(_))
    }

    /// Whether the reader of the output has gone (`mooring entries | head`).
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Error::Io(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        let code = status
            .metadata()
            .get("mooring-code")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let lost = matches!(
            status.code(),
            tonic::Code::Unavailable | tonic::Code::Cancelled
        ) || (status.code() == tonic::Code::Unknown && code.is_empty());
        if (lost && code.is_empty()) || code == "restarting" {
            return Error::Broken(status.message().to_owned());
        }
        let message = match status.message() {
            "" => format!("the harness refused the request ({:?})", status.code()),
            text => text.to_owned(),
        };
        Error::Refused { code, message }
    }
}

impl From<tonic::transport::Error> for Error {
    fn from(error: tonic::transport::Error) -> Self {
        Error::Broken(error.to_string())
    }
}
