//! Keys that the harness makes itself, once.

use mooring_durable::{
    Engine,
    error::SessionError,
    ledger::{Bind, Statement},
};
use sqlx::{Row, SqlitePool};

use super::text;

/// The key of this name, made where there is none.
pub async fn key(engine: &Engine, name: &str) -> Result<[u8; 32], SessionError> {
    let told = |error: sqlx::Error| SessionError::Corrupt(error.to_string());
    if let Some(key) = stored(engine.reader(), name).await.map_err(told)? {
        return Ok(key);
    }
    let key: [u8; 32] = rand::random();
    let made = Statement {
        sql: "INSERT INTO mooring_secret (name, value) VALUES (?1, ?2)",
        binds: vec![text(name), Bind::Blob(key.to_vec())],
    };
    engine.commit("secret", vec![made]).await?;
    Ok(key)
}

async fn stored(pool: &SqlitePool, name: &str) -> sqlx::Result<Option<[u8; 32]>> {
    let row = sqlx::query("SELECT value FROM mooring_secret WHERE name = ?1")
        .bind(name)
        .fetch_optional(pool)
        .await?;
    row.map(|row| {
        let value: Vec<u8> = row.try_get("value")?;
        value
            .try_into()
            .map_err(|_| sqlx::Error::Decode("a key of another length".into()))
    })
    .transpose()
}
