//! The database handle of the commit line, as the line's own thread has it.
//!
//! sqlx opens the file, migrates it and reads it. It runs a connection on a thread of
//! its own and sends every statement there, which costs a commit two changes of thread
//! more than the work itself. The line is a thread already, so it takes the handle out
//! of sqlx's hands ([`SqliteConnection::lock_handle`]) for as long as it lives and runs
//! its prepared statements on it through rusqlite, which shares the SQLite library with
//! sqlx. A second connection would do too, but would have to be opened.
#![allow(unsafe_code)]

use futures::executor::block_on;
use rusqlite::Connection;
use sqlx::SqliteConnection;

/// Statements that stay prepared: those of the engine, and of components.
const PREPARED: usize = 512;

/// Lends the handle of `owner` to `work`, on this thread.
///
/// # Errors
/// When sqlx's thread has ended.
pub(crate) fn lend<T>(
    owner: &mut SqliteConnection,
    work: impl FnOnce(&Connection) -> T,
) -> Result<T, sqlx::Error> {
    let mut locked = block_on(owner.lock_handle())?;
    let handle = locked.as_raw_handle().as_ptr();
    // SAFETY: the handle is open and stays so while `locked` lives, and sqlx makes no
    // call on it or on its statements meanwhile. A connection from a handle does not
    // close it, and finalizes its own statements only.
    let connection = unsafe { Connection::from_handle(handle) }
        .map_err(|error| sqlx::Error::Configuration(Box::new(error)))?;
    connection.set_prepared_statement_cache_capacity(PREPARED);
    let done = work(&connection);
    drop(connection);
    drop(locked);
    Ok(done)
}
