//! Errors, by what the caller can do.

use std::path::PathBuf;

/// Why a file could not be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // fields are named in the messages
pub enum OpenError {
    /// Another process owns it.
    #[error("{path} is in use by {holder}; end that process, or attach to it")]
    Owned { path: PathBuf, holder: String },
    /// Its folder or file cannot be written.
    #[error("{path} cannot be written: {reason}")]
    ReadOnly { path: PathBuf, reason: String },
    /// On a network file system, where SQLite's WAL does not work.
    #[error(
        "{path} lies on {filesystem}, a network file system, where SQLite's write-ahead log does not work; use a local disk or a block volume"
    )]
    NetworkFilesystem { path: PathBuf, filesystem: String },
    /// Written by a newer program.
    #[error(
        "{path} was written by a newer version (component {component}: migration {found}, this program knows {known}); use that version or newer"
    )]
    Newer {
        path: PathBuf,
        component: String,
        found: i64,
        known: i64,
    },
    /// Not a database, or a damaged one.
    #[error("{path} is damaged: {reason}; restore it from a backup, it was left as it is")]
    Corrupt { path: PathBuf, reason: String },
    /// The disk is full.
    #[error("no space left on the disk of {path}")]
    StorageFull { path: PathBuf },
    /// Anything else.
    #[error("{path}: {reason}")]
    Other { path: PathBuf, reason: String },
}

/// Why a call to an open session failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SessionError {
    /// Nothing of the request was kept; the session goes on. Free some space and try again.
    #[error("no space left on the disk; nothing of this was kept")]
    StorageFull,
    /// A constraint was violated; nothing of the request was kept.
    #[error("refused by the database: {0}")]
    Constraint(String),
    /// The outcome of a flush is uncertain; the process must reopen the file.
    #[error("the session has failed: {0}; it continues when the file is opened again")]
    SessionFailed(String),
    /// A newer owner has the file.
    #[error("another process has taken over this file")]
    Superseded,
    /// Damaged records.
    #[error("damaged records: {0}")]
    Corrupt(String),
    /// There is no such conversation.
    #[error("there is no conversation {0}")]
    NoConversation(crate::id::ConversationId),
    /// The entry is not part of the conversation's history.
    #[error(
        "entry {entry} is not part of conversation {conversation}; `mooring entries {conversation}` lists what is"
    )]
    NotVisible {
        /// Where it was looked for.
        conversation: crate::id::ConversationId,
        /// What was looked for.
        entry: crate::id::EntryId,
    },
    /// It cannot be deleted or exported while it works.
    #[error("conversation {0} is at work; end that first (`mooring abort {0}`), or wait for it")]
    Working(crate::id::ConversationId),
    /// The session was closed.
    #[error("the session is closed")]
    Closed,
}

/// Why an input was not admitted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SubmitError {
    /// A run is going and the input asked to be refused then.
    #[error("a run is going")]
    Busy,
    /// The request id is known as a submission of the other type.
    #[error("request id {0} is already used for a write")]
    OtherType(String),
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
}
