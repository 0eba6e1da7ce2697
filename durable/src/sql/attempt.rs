//! Requests: what was sent, so that it can be sent or rebuilt again.

use serde::{Deserialize, Serialize};
use sqlx::{Row as _, sqlite::SqliteRow};

use super::{
    batch::Batch,
    entry::{parse, parse_opt},
};
use crate::{
    id::{EntryId, Hash, Millis, TaskId},
    ledger::AttemptEnd,
    model::Usage,
};

pub(crate) const PUT_PART: &str = "INSERT INTO part (hash, body)
 VALUES (unhex(?2), ?3) ON CONFLICT DO NOTHING";
pub(crate) const PART: &str = "SELECT body FROM part WHERE hash = unhex(?)";

pub(crate) const PUT: &str = "INSERT INTO attempt
 (task, attempt, model, adapter, options, tools, cutoff, request, estimate, recoveries, started_at)
 VALUES (?2, ?3, ?4, ?5, unhex(?6), unhex(?7), ?8, unhex(?9), ?10, ?11, ?12)
 ON CONFLICT (task, attempt) DO UPDATE SET recoveries = excluded.recoveries";

pub(crate) const END: &str =
    "UPDATE attempt SET ended_at = ?4, ended = ?5, usage = ?6 WHERE task = ?2 AND attempt = ?3";

/// What all requests of a conversation have used.
pub(crate) const USED: &str =
    "SELECT sum(a.usage->>'$.input'), sum(a.usage->>'$.cached'), sum(a.usage->>'$.output')
 FROM attempt a WHERE a.task IN (SELECT DISTINCT writer FROM entry WHERE conversation = ?)";

pub(crate) const READ: &str =
    "SELECT task, attempt, model, adapter, hex(options), hex(tools), cutoff, hex(request),
 estimate, recoveries, started_at, ended, usage FROM attempt WHERE task = ? AND attempt = ?";

/// An attempt of a generation as it was pinned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The generation.
    pub task: TaskId,
    /// From 1.
    pub attempt: u32,
    /// The model's name.
    pub model: String,
    /// Name and version of the adapter that made the wire.
    pub adapter: String,
    /// The part with the model's options.
    pub options: Hash,
    /// The part with the tools on offer.
    pub tools: Hash,
    /// The newest entry that the request contains; 0 for none.
    pub cutoff: EntryId,
    /// Of the canonical request.
    pub request: Hash,
    /// Tokens, as they were estimated.
    pub estimate: u64,
    /// How often a crash hid the answer.
    pub recoveries: u32,
    /// When it was first sent.
    pub started_at: Millis,
    /// How it ended: answer, tools, retry, overflow, failed, aborted.
    pub ended: Option<String>,
    /// What it used.
    pub usage: Option<Usage>,
}

impl Attempt {
    pub(crate) fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let hash = |at: usize| {
            row.try_get::<String, _>(at)
                .map(|hex| Hash(hex.to_ascii_lowercase()))
        };
        Ok(Attempt {
            task: TaskId(row.try_get(0)?),
            attempt: row.try_get(1)?,
            model: row.try_get(2)?,
            adapter: row.try_get(3)?,
            options: hash(4)?,
            tools: hash(5)?,
            cutoff: EntryId(row.try_get(6)?),
            request: hash(7)?,
            estimate: row.try_get::<i64, _>(8)? as u64,
            recoveries: row.try_get(9)?,
            started_at: Millis(row.try_get(10)?),
            ended: row.try_get(11)?,
            usage: parse_opt(row.try_get::<Option<&str>, _>(12)?)?,
        })
    }
}

/// Reads a part's JSON.
pub(crate) fn part_of(row: &SqliteRow) -> Result<serde_json::Value, sqlx::Error> {
    parse(row.try_get::<&str, _>(0)?)
}

impl Batch {
    pub fn put_part(&mut self, hash: &Hash, body: &str) {
        self.parts.row().text(&hash.0).text(body);
    }

    pub fn put_attempt(&mut self, attempt: &Attempt) {
        self.attempts
            .row()
            .int(attempt.task.0)
            .int(i64::from(attempt.attempt))
            .text(&attempt.model)
            .text(&attempt.adapter)
            .text(&attempt.options.0)
            .text(&attempt.tools.0)
            .int(attempt.cutoff.0)
            .text(&attempt.request.0)
            .int(attempt.estimate as i64)
            .int(i64::from(attempt.recoveries))
            .int(attempt.started_at.0);
    }

    pub fn end_attempt(
        &mut self,
        task: TaskId,
        attempt: u32,
        at: Millis,
        end: AttemptEnd,
        usage: Option<&Usage>,
    ) {
        self.attempt_ends
            .row()
            .int(task.0)
            .int(i64::from(attempt))
            .int(at.0)
            .text(end.word())
            .opt_json(usage);
    }
}
