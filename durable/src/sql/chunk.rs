//! Chunks: committed pieces of running answers and of tool output.

use serde::Serialize;
use sqlx::{Row as _, sqlite::SqliteRow};

use super::batch::Batch;
use crate::{id::TaskId, view::StreamKind};

pub(crate) const INSERT: &str = "INSERT INTO chunk (task, stream, offset, length, text)
 SELECT value->>1, value->>2, value->>3, value->>4, value->>5 FROM jsonb_each(?)";

/// The retained window of a call's output goes into its checkpoint …
pub(crate) const FOLD: &str = "UPDATE task SET checkpoint = n.window
 FROM (SELECT value->>1 AS id, value->>2 AS window FROM jsonb_each(?)) AS n WHERE task.id = n.id";
/// … and the chunks that it holds go.
pub(crate) const DROP_BELOW: &str = "DELETE FROM chunk WHERE (task, stream, offset) IN
 (SELECT c.task, c.stream, c.offset FROM jsonb_each(?) j JOIN chunk c
  ON c.task = j.value->>1 AND c.stream = 2 AND c.offset < j.value->>2)";

/// All chunks of tasks whose outcome is committed.
pub(crate) const DROP: &str =
    "DELETE FROM chunk WHERE task IN (SELECT value->>1 FROM jsonb_each(?))";

pub(crate) const OF_TASK: &str =
    "SELECT task, stream, offset, length, text FROM chunk WHERE task = ? ORDER BY stream, offset";
/// Chunks of all open tasks of a conversation.
pub(crate) const OF_CONVERSATION: &str = "SELECT c.task, c.stream, c.offset, c.length, c.text
 FROM open_work o JOIN chunk c ON c.task = o.id WHERE o.conversation = ? AND o.what IN (0, 1)
 ORDER BY c.task, c.stream, c.offset";

/// A chunk as stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChunkRow {
    pub task: TaskId,
    pub stream: StreamKind,
    pub offset: u64,
    pub length: u64,
    pub text: String,
}

impl ChunkRow {
    pub fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(ChunkRow {
            task: TaskId(row.try_get(0)?),
            stream: match row.try_get::<i64, _>(1)? {
                0 => StreamKind::Answer,
                1 => StreamKind::Thinking,
                _ => StreamKind::Output,
            },
            offset: row.try_get::<i64, _>(2)? as u64,
            length: row.try_get::<i64, _>(3)? as u64,
            text: row.try_get(4)?,
        })
    }
}

impl Batch {
    pub fn insert_chunk(&mut self, row: &ChunkRow) {
        let stream = match row.stream {
            StreamKind::Answer => 0,
            StreamKind::Thinking => 1,
            StreamKind::Output => 2,
        };
        self.chunks
            .row()
            .int(row.task.0)
            .int(stream)
            .int(row.offset as i64)
            .int(row.length as i64)
            .text(&row.text);
    }

    pub fn fold_output<W: Serialize>(&mut self, task: TaskId, window: &W, below: u64) {
        self.folds.row().int(task.0).json(window);
        self.fold_drops.row().int(task.0).int(below as i64);
    }

    pub fn drop_chunks(&mut self, task: TaskId) {
        self.chunk_drops.row().int(task.0);
    }
}
