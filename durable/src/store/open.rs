//! Opening: the schema of every component, and the owner's generation.

use std::{collections::HashMap, path::Path};

use sqlx::{
    ConnectOptions, Connection, Row as _, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{
    engine::{Component, Durability},
    error::OpenError,
    id::Millis,
};

/// The engine's own migrations.
const ENGINE: Component = Component {
    name: "engine",
    migrations: &[
        include_str!("../../migrations/0001_records.sql"),
        include_str!("../../migrations/0002_documents.sql"),
        include_str!("../../migrations/0003_ownership.sql"),
    ],
};

/// Connections for reads.
const READERS: u32 = 3;

/// A file as it was opened.
pub(crate) struct Opened {
    pub connection: SqliteConnection,
    pub options: SqliteConnectOptions,
    pub readers: SqlitePool,
    pub incarnation: String,
    pub generation: i64,
    pub commit_no: i64,
    pub next: [i64; 4],
    pub open_runs: usize,
}

/// How the line's connection is opened.
fn options(path: &Path, durability: Durability) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .synchronous(match durability {
            Durability::Full => SqliteSynchronous::Full,
            Durability::Normal => SqliteSynchronous::Normal,
        })
        // Rows refer to each other by what commits write together; checking each costs.
        .foreign_keys(false)
        .busy_timeout(std::time::Duration::from_secs(5))
        // Checkpoints are made off the commit path.
        .pragma("wal_autocheckpoint", "0")
        .pragma("cache_size", "-4096")
        .pragma("temp_store", "MEMORY")
        .statement_cache_capacity(512)
        .disable_statement_logging()
}

/// Opens or creates the database and makes this process its owner.
pub(crate) async fn open(
    path: &Path,
    durability: Durability,
    components: &[Component],
    now: Millis,
) -> Result<Opened, OpenError> {
    let failed = |error: sqlx::Error| open_error(path, &error);
    let options = options(path, durability);
    let mut connection = options.connect().await.map_err(failed)?;
    // Nothing is written before it is known to be ours and not newer.
    let found = inspect(&mut connection, path, components).await?;
    sqlx::query("PRAGMA journal_mode = WAL")
        .execute(&mut connection)
        .await
        .map_err(failed)?;
    migrate(&mut connection, path, components, found, now).await?;
    let row = sqlx::query(
        "UPDATE session SET generation = generation + 1 RETURNING incarnation, generation, commit_no,
         next_conversation, next_entry, next_task, next_submission",
    )
    .fetch_optional(&mut connection)
    .await
    .map_err(failed)?;
    let row = row.ok_or_else(|| corrupt(path, "its session record is missing"))?;
    let number = |at: usize| row.try_get::<i64, _>(at).map_err(failed);
    let open_runs: i64 = sqlx::query(crate::sql::open_work::COUNT_RUNS)
        .fetch_one(&mut connection)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(failed)?;
    let readers = SqlitePoolOptions::new()
        .max_connections(READERS)
        .min_connections(0)
        .idle_timeout(std::time::Duration::from_secs(60))
        .test_before_acquire(false)
        .connect_lazy_with(
            SqliteConnectOptions::new()
                .filename(path)
                .read_only(true)
                .busy_timeout(std::time::Duration::from_secs(5))
                .pragma("cache_size", "-1024")
                .disable_statement_logging(),
        );
    Ok(Opened {
        incarnation: row.try_get(0).map_err(failed)?,
        generation: number(1)?,
        commit_no: number(2)?,
        next: [number(3)?, number(4)?, number(5)?, number(6)?],
        open_runs: open_runs as usize,
        connection,
        options,
        readers,
    })
}

/// Which migration each component is at; `None`: the file is new.
type Found = Option<HashMap<String, i64>>;

/// Reads the components, and refuses what is not ours or newer.
async fn inspect(
    connection: &mut SqliteConnection,
    path: &Path,
    components: &[Component],
) -> Result<Found, OpenError> {
    let failed = |error: sqlx::Error| open_error(path, &error);
    let tables: i64 = sqlx::query("SELECT count(*) FROM sqlite_schema WHERE type = 'table'")
        .fetch_one(&mut *connection)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(failed)?;
    if tables == 0 {
        return Ok(None);
    }
    let rows = sqlx::query("SELECT name, migration FROM component")
        .fetch_all(&mut *connection)
        .await
        .map_err(|error| match error {
            sqlx::Error::Database(error) if error.message().contains("no such table") => {
                corrupt(path, "it holds no session of this program")
            }
            error => failed(error),
        })?;
    let mut found = HashMap::new();
    for row in rows {
        found.insert(
            row.try_get::<String, _>(0).map_err(failed)?,
            row.try_get::<i64, _>(1).map_err(failed)?,
        );
    }
    for component in std::iter::once(&ENGINE).chain(components) {
        let (at, known) = (at(&found, component), component.migrations.len() as i64);
        if at > known {
            return Err(OpenError::Newer {
                path: path.into(),
                component: component.name.into(),
                found: at,
                known,
            });
        }
    }
    Ok(Some(found))
}

fn at(found: &HashMap<String, i64>, component: &Component) -> i64 {
    found.get(component.name).copied().unwrap_or(0)
}

/// Brings every component to its newest migration, in one transaction.
async fn migrate(
    connection: &mut SqliteConnection,
    path: &Path,
    components: &[Component],
    found: Found,
    now: Millis,
) -> Result<(), OpenError> {
    let failed = |error: sqlx::Error| open_error(path, &error);
    let new = found.is_none();
    let found = found.unwrap_or_default();
    let done = |component: &Component| at(&found, component) == component.migrations.len() as i64;
    if !new && std::iter::once(&ENGINE).chain(components).all(done) {
        return Ok(());
    }
    let mut tx = connection
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(failed)?;
    if new {
        sqlx::raw_sql(
            "CREATE TABLE component (name TEXT PRIMARY KEY, migration INTEGER NOT NULL) STRICT",
        )
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    }
    for component in std::iter::once(&ENGINE).chain(components) {
        let (at, known) = (at(&found, component), component.migrations.len() as i64);
        for migration in &component.migrations[at as usize..] {
            sqlx::raw_sql(*migration)
                .execute(&mut *tx)
                .await
                .map_err(|error| OpenError::Other {
                    path: path.into(),
                    reason: format!(
                        "a migration of component {} failed: {error}",
                        component.name
                    ),
                })?;
        }
        if at < known {
            sqlx::query("INSERT INTO component VALUES (?, ?) ON CONFLICT DO UPDATE SET migration = excluded.migration")
                .bind(component.name)
                .bind(known)
                .execute(&mut *tx)
                .await
                .map_err(failed)?;
        }
    }
    if new {
        sqlx::query("INSERT INTO session VALUES (1, ?, 0, 0, 1, 1, 1, 1, ?)")
            .bind(new_incarnation())
            .bind(now.0)
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
    }
    tx.commit().await.map_err(failed)
}

/// A random value, of letters and digits only.
fn new_incarnation() -> String {
    hex::encode(rand::random::<[u8; 8]>())
}

fn corrupt(path: &Path, reason: &str) -> OpenError {
    OpenError::Corrupt {
        path: path.into(),
        reason: reason.into(),
    }
}

/// What an error says about the file.
pub(crate) fn open_error(path: &Path, error: &sqlx::Error) -> OpenError {
    let (code, text) = match error {
        sqlx::Error::Database(error) => (
            error
                .code()
                .and_then(|code| code.parse::<i32>().ok())
                .unwrap_or(0)
                & 0xFF,
            error.message().to_owned(),
        ),
        other => (0, other.to_string()),
    };
    match code {
        11 | 26 => corrupt(path, &text),
        13 => OpenError::StorageFull { path: path.into() },
        8 | 14 | 23 => OpenError::ReadOnly {
            path: path.into(),
            reason: text,
        },
        _ => OpenError::Other {
            path: path.into(),
            reason: text,
        },
    }
}
