//! What a database error means for a commit.

use crate::error::SessionError;

/// What became of the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No space; SQLite rolled everything back.
    Full,
    /// A statement was refused; only its request is concerned.
    Refused(String),
    /// A newer owner has the file.
    Superseded,
    /// The session cannot go on: damage, an I/O error, or a COMMIT of unknown outcome.
    Fatal(String),
}

/// Where it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In a statement.
    Statement,
    /// In COMMIT, the flush included.
    Commit,
}

/// SQLite's primary result codes (sqlite.org/rescode.html).
mod code {
    pub const ERROR: i32 = 1;
    pub const IOERR: i32 = 10;
    pub const FULL: i32 = 13;
    pub const TOOBIG: i32 = 18;
    pub const CONSTRAINT: i32 = 19;
    pub const MISMATCH: i32 = 20;
    /// The shared memory could not grow: no space.
    pub const IOERR_SHMSIZE: i32 = IOERR | (19 << 8);
}

/// Classifies by SQLite's extended result code.
pub(crate) fn classify(extended: i32, message: &str, stage: Stage) -> Fault {
    match (extended & 0xFF, stage) {
        // A full disk stops the write of the log, before anything could count as committed.
        (code::FULL, _) => Fault::Full,
        _ if extended == code::IOERR_SHMSIZE && stage == Stage::Statement => Fault::Full,
        (code::CONSTRAINT, _) if message.contains("mooring: superseded") => Fault::Superseded,
        (code::CONSTRAINT, _) | (code::ERROR | code::TOOBIG | code::MISMATCH, Stage::Statement) => {
            Fault::Refused(message.to_owned())
        }
        (_, Stage::Commit) => Fault::Fatal(format!(
            "a flush failed and its outcome is unknown: {message}"
        )),
        (_, Stage::Statement) => Fault::Fatal(message.to_owned()),
    }
}

/// Classifies an error of the driver.
pub(crate) fn of(error: &rusqlite::Error, stage: Stage) -> Fault {
    match error {
        rusqlite::Error::SqliteFailure(failure, text) => {
            let code = failure.to_string();
            let text = text.as_deref().unwrap_or(&code);
            classify(failure.extended_code, text, stage)
        }
        other => Fault::Fatal(other.to_string()),
    }
}

impl From<&Fault> for SessionError {
    fn from(fault: &Fault) -> SessionError {
        match fault {
            Fault::Full => SessionError::StorageFull,
            Fault::Refused(text) => SessionError::Constraint(text.clone()),
            Fault::Superseded => SessionError::Superseded,
            Fault::Fatal(text) => SessionError::SessionFailed(text.clone()),
        }
    }
}

/// An error of a read.
pub(crate) fn of_read(error: sqlx::Error) -> SessionError {
    match &error {
        sqlx::Error::PoolClosed => SessionError::Closed,
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => {
            SessionError::Corrupt(error.to_string())
        }
        sqlx::Error::Database(database) => {
            let code = database
                .code()
                .and_then(|code| code.parse::<i32>().ok())
                .unwrap_or(0)
                & 0xFF;
            match code {
                11 | 26 => SessionError::Corrupt(database.message().to_owned()),
                _ => SessionError::SessionFailed(format!("a read failed: {}", database.message())),
            }
        }
        _ => SessionError::SessionFailed(format!("a read failed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_by_code_and_stage() {
        use Stage::{Commit, Statement};
        for (code, stage, expected) in [
            (13, Statement, "full"),
            (13, Commit, "full"),
            (10 | 19 << 8, Statement, "full"),
            (10 | 19 << 8, Commit, "fatal"),
            (19 | 8 << 8, Statement, "refused"),
            (2067, Statement, "refused"),
            (1, Statement, "refused"),
            (18, Statement, "refused"),
            (10 | 4 << 8, Commit, "fatal"),
            (10, Statement, "fatal"),
            (11, Statement, "fatal"),
            (5, Statement, "fatal"),
            (5, Commit, "fatal"),
        ] {
            let found = match classify(code, "text", stage) {
                Fault::Full => "full",
                Fault::Refused(_) => "refused",
                Fault::Superseded => "superseded",
                Fault::Fatal(_) => "fatal",
            };
            assert_eq!(found, expected, "{code} {stage:?}");
        }
        assert_eq!(
            classify(1811, "mooring: superseded", Statement),
            Fault::Superseded
        );
    }
}
