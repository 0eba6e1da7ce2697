//! Tool calls, beside their tasks.

use serde_json::Value;
use sqlx::{Row as _, sqlite::SqliteRow};

use super::{batch::Batch, entry::parse_opt};
use crate::{
    id::{ConversationId, Hash, Millis, TaskId},
    tool::Replay,
};

/// Inserts a call, or moves it; who made it stays.
pub(crate) const PUT: &str = "INSERT INTO call
 (task, conversation, generation, ordinal, call_id, tool, arguments, hash, replay, binding, record, state, note,
  offset, started_at, ended_at, released, owed_kill)
 VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, unhex(?9), ?10, ?11, ?12, ?13, ?14, 0, ?15, ?16, ?17, ?18)
 ON CONFLICT (task) DO UPDATE SET arguments = excluded.arguments, hash = excluded.hash, replay = excluded.replay,
  binding = excluded.binding, record = excluded.record, state = excluded.state, note = excluded.note,
  started_at = excluded.started_at, ended_at = excluded.ended_at, released = excluded.released,
  owed_kill = excluded.owed_kill";

/// A release or kill that was owed is done.
pub(crate) const SETTLE_DEBT: &str = "UPDATE call SET released = 1, owed_kill = 0 WHERE task = ?2";

macro_rules! columns {
    () => {
        "SELECT task, conversation, generation, ordinal, call_id, tool, arguments, hex(hash), replay, binding, record,
 state, note, offset, started_at, ended_at, released, owed_kill FROM call "
    };
}

/// The calls of the round of a generation, in the model's order.
pub(crate) const ROUND: &str = concat!(
    columns!(),
    "WHERE task IN (SELECT id FROM open_work WHERE conversation = ?1 AND what = 1) AND generation = ?2 ORDER BY ordinal"
);
/// Calls whose release or kill is owed.
pub(crate) const OWED: &str = concat!(
    columns!(),
    "WHERE (released = 0 OR owed_kill = 1) AND ended_at IS NOT NULL AND task > ? ORDER BY task LIMIT ?"
);
/// Open calls and debts of tools that run elsewhere.
pub(crate) const EXECUTIONS: &str =
    "SELECT task FROM call WHERE released = 0 OR owed_kill = 1 ORDER BY task";

/// What became of a call: 1, its intent was committed; 0, it ended without.
pub(crate) const BECAME: &str = "SELECT CASE WHEN started_at IS NOT NULL THEN 1
 WHEN ended_at IS NOT NULL THEN 0 END FROM call WHERE task = ?";
/// Whether a call has ended.
pub(crate) const ENDED: &str = "SELECT ended_at IS NOT NULL FROM call WHERE task = ?";

/// States of a call, as they are stored and shown.
pub(crate) mod state {
    pub const PROPOSED: &str = "proposed";
    pub const WAITING: &str = "waiting-approval";
    pub const RUNNING: &str = "running";
    pub const ASKING: &str = "asking";
    pub const SLEEPING: &str = "sleeping";
    pub const DELEGATED: &str = "delegated";
    pub const UNREACHABLE: &str = "unreachable";
    pub const DONE: &str = "done";
    pub const ERROR: &str = "error";
    pub const DENIED: &str = "denied";
    pub const INTERRUPTED: &str = "interrupted";
    pub const ABORTED: &str = "aborted";

    /// The stored word as a static one.
    pub fn of(word: &str) -> Option<&'static str> {
        [
            PROPOSED,
            WAITING,
            RUNNING,
            ASKING,
            SLEEPING,
            DELEGATED,
            UNREACHABLE,
            DONE,
            ERROR,
            DENIED,
            INTERRUPTED,
            ABORTED,
        ]
        .into_iter()
        .find(|known| *known == word)
    }
}

/// A call as stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallRow {
    pub task: TaskId,
    pub conversation: ConversationId,
    pub generation: TaskId,
    pub ordinal: usize,
    pub call_id: String,
    pub tool: String,
    /// `None`: as the model sent them.
    pub arguments: Option<Value>,
    /// From the gate's verdict on.
    pub hash: Option<Hash>,
    /// From the intent on.
    pub replay: Option<Replay>,
    pub binding: Value,
    pub record: Value,
    pub state: &'static str,
    pub note: String,
    /// From the intent on.
    pub started_at: Option<Millis>,
    pub ended_at: Option<Millis>,
    /// Nothing outside of the process has to be forgotten.
    pub released: bool,
    pub owed_kill: bool,
    /// Output bytes that the checkpoint holds.
    pub offset: u64,
}

fn replay_word(replay: Replay) -> &'static str {
    match replay {
        Replay::Never => "never",
        Replay::Safe => "safe",
        Replay::Attach => "attach",
    }
}

impl CallRow {
    pub fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let word: &str = row.try_get(11)?;
        Ok(CallRow {
            task: TaskId(row.try_get(0)?),
            conversation: ConversationId(row.try_get(1)?),
            generation: TaskId(row.try_get(2)?),
            ordinal: row.try_get::<i64, _>(3)? as usize,
            call_id: row.try_get(4)?,
            tool: row.try_get(5)?,
            arguments: parse_opt(row.try_get::<Option<&str>, _>(6)?)?,
            hash: row
                .try_get::<Option<String>, _>(7)?
                .filter(|hex| !hex.is_empty())
                .map(|hex| Hash(hex.to_ascii_lowercase())),
            replay: row.try_get::<Option<&str>, _>(8)?.map(|word| match word {
                "safe" => Replay::Safe,
                "attach" => Replay::Attach,
                _ => Replay::Never,
            }),
            binding: parse_opt(row.try_get::<Option<&str>, _>(9)?)?.unwrap_or(Value::Null),
            record: parse_opt(row.try_get::<Option<&str>, _>(10)?)?.unwrap_or(Value::Null),
            state: state::of(word)
                .ok_or_else(|| sqlx::Error::Decode(format!("unknown call state {word}").into()))?,
            note: row.try_get(12)?,
            offset: row.try_get::<i64, _>(13)? as u64,
            started_at: row.try_get::<Option<i64>, _>(14)?.map(Millis),
            ended_at: row.try_get::<Option<i64>, _>(15)?.map(Millis),
            released: row.try_get(16)?,
            owed_kill: row.try_get(17)?,
        })
    }

    /// Whether the intent was committed.
    pub fn started(&self) -> bool {
        self.started_at.is_some()
    }
}

impl Batch {
    pub fn put_call(&mut self, row: &CallRow) {
        self.calls
            .row()
            .int(row.task.0)
            .int(row.conversation.0)
            .int(row.generation.0)
            .int(row.ordinal as i64)
            .text(&row.call_id)
            .text(&row.tool)
            .opt_json(row.arguments.as_ref())
            .opt_text(row.hash.as_ref().map(|hash| hash.0.as_str()))
            .opt_text(row.replay.map(replay_word))
            .opt_json((!row.binding.is_null()).then_some(&row.binding))
            .opt_json((!row.record.is_null()).then_some(&row.record))
            .text(row.state)
            .text(&row.note)
            .opt_int(row.started_at.map(|at| at.0))
            .opt_int(row.ended_at.map(|at| at.0))
            .flag(row.released)
            .flag(row.owed_kill);
    }

    pub fn settle_debt(&mut self, task: TaskId) {
        self.call_debts.row().int(task.0);
    }
}
