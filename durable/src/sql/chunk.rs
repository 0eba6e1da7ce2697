//! Chunks: committed pieces of running answers and of tool output.

use serde::Serialize;
use sqlx::{Row as _, sqlite::SqliteRow};

use super::batch::Batch;
use crate::{id::TaskId, view::StreamKind};

pub(crate) const INSERT: &str = "INSERT INTO chunk (task, stream, offset, length, text)
 VALUES (?2, ?3, ?4, ?5, ?6)";

/// The retained window of a call's output goes into its checkpoint …
pub(crate) const FOLD: &str = "UPDATE task SET checkpoint = ?3 WHERE id = ?2";
/// … and the chunks that it holds go.
pub(crate) const DROP_BELOW: &str =
    "DELETE FROM chunk WHERE task = ?2 AND stream = 2 AND offset < ?3";

/// All chunks of tasks whose outcome is committed.
pub(crate) const DROP: &str = "DELETE FROM chunk WHERE task = ?2";

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
