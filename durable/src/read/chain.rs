//! What a conversation sees: its own entries, and of each ancestor those through an
//! entry. Ids ascend along the chain, from the farthest ancestor to the conversation.

use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};

use crate::{
    id::{ConversationId, EntryId},
    sql::{conversation, entry},
};

/// The sources of a conversation's history, nearest first, each with the last sequence
/// that is seen of it.
pub(super) struct Chain(pub Vec<(ConversationId, i64)>);

/// Where an entry stands in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Which source.
    pub depth: usize,
    pub seq: i64,
}

/// A head: its own entry, and the one that its range begins at.
pub(super) struct HeadRow {
    pub own: EntryId,
    pub target: EntryId,
}

impl Chain {
    pub async fn read(
        connection: &mut SqliteConnection,
        id: ConversationId,
    ) -> Result<Chain, sqlx::Error> {
        let rows = sqlx::query(conversation::INHERITED)
            .bind(id.0)
            .fetch_all(connection)
            .await?;
        let mut sources = vec![(id, i64::MAX)];
        for row in &rows {
            sources.push((ConversationId(row.try_get(0)?), row.try_get(1)?));
        }
        Ok(Chain(sources))
    }

    /// Where an entry stands; `None`: it cannot be seen from here.
    pub async fn position(
        &self,
        connection: &mut SqliteConnection,
        entry: EntryId,
    ) -> Result<Option<Position>, sqlx::Error> {
        let row = sqlx::query(entry::PLACE)
            .bind(entry.0)
            .fetch_optional(connection)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let (source, seq): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let found = self
            .0
            .iter()
            .position(|(id, through)| id.0 == source && seq <= *through);
        Ok(found.map(|depth| Position { depth, seq }))
    }

    /// The newest entry that is seen.
    pub async fn newest(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<Option<(EntryId, Position)>, sqlx::Error> {
        for (depth, (source, through)) in self.0.iter().enumerate() {
            let row = sqlx::query(entry::LAST)
                .bind(source.0)
                .bind(through)
                .fetch_optional(&mut *connection)
                .await?;
            if let Some(row) = row {
                let seq = row.try_get(1)?;
                return Ok(Some((EntryId(row.try_get(0)?), Position { depth, seq })));
            }
        }
        Ok(None)
    }

    /// The newest head at or before an entry.
    pub async fn head(
        &self,
        connection: &mut SqliteConnection,
        cutoff: i64,
    ) -> Result<Option<HeadRow>, sqlx::Error> {
        for (source, through) in &self.0 {
            let row = sqlx::query(entry::HEAD)
                .bind(source.0)
                .bind(through)
                .bind(cutoff)
                .fetch_optional(&mut *connection)
                .await?;
            if let Some(row) = row {
                return Ok(Some(HeadRow {
                    own: EntryId(row.try_get(0)?),
                    target: EntryId(row.try_get(1)?),
                }));
            }
        }
        Ok(None)
    }

    /// The rows from a position on, through an entry, oldest first.
    pub async fn from(
        &self,
        connection: &mut SqliteConnection,
        position: Position,
        cutoff: i64,
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let mut found = Vec::new();
        for (depth, (source, through)) in self.0[..=position.depth].iter().enumerate().rev() {
            let from = if depth == position.depth {
                position.seq
            } else {
                0
            };
            let rows = sqlx::query(entry::FROM)
                .bind(source.0)
                .bind(from)
                .bind(through)
                .bind(cutoff)
                .fetch_all(&mut *connection)
                .await?;
            found.extend(rows);
        }
        Ok(found)
    }

    /// At most `limit` rows before a position, newest first.
    pub async fn before(
        &self,
        connection: &mut SqliteConnection,
        position: Position,
        limit: usize,
    ) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let mut found = Vec::new();
        for (depth, (source, through)) in self.0.iter().enumerate().skip(position.depth) {
            let left = limit - found.len();
            if left == 0 {
                break;
            }
            let before = if depth == position.depth {
                position.seq
            } else {
                through.saturating_add(1)
            };
            let rows = sqlx::query(entry::BEFORE)
                .bind(source.0)
                .bind(before)
                .bind(left as i64)
                .fetch_all(&mut *connection)
                .await?;
            found.extend(rows);
        }
        Ok(found)
    }
}
