//! Tasks: durable state machines.

use serde::Serialize;
use sqlx::{Row as _, sqlite::SqliteRow};

use super::batch::Batch;
use crate::id::{ConversationId, Millis, TaskId};

/// Inserts a task, or moves it; what was given at its creation stays.
pub(crate) const PUT: &str = "INSERT INTO task
 (id, conversation, owner_task, kind, version, background, status, abort_mark, input, checkpoint, outcome,
  created_at, ended_at, created_commit, changed_commit, waits)
 VALUES (?2, ?3, ?4, ?5, 1, ?13, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?1, ?1, ?14)
 ON CONFLICT (id) DO UPDATE SET status = excluded.status, abort_mark = coalesce(excluded.abort_mark, abort_mark),
  checkpoint = excluded.checkpoint, outcome = excluded.outcome, ended_at = excluded.ended_at,
  changed_commit = excluded.changed_commit, waits = excluded.waits";

macro_rules! columns {
    () => {
        "SELECT t.id, t.conversation, t.abort_mark, t.input, t.checkpoint, t.outcome, t.created_at, t.kind,
 t.waits, t.owner_task, t.status, t.background FROM "
    };
}

/// Open tasks of a conversation and kind, oldest first.
pub(crate) const OPEN: &str = concat!(
    columns!(),
    "open_work o JOIN task t ON t.id = o.id WHERE o.conversation = ? AND o.what = ? ORDER BY o.id"
);
pub(crate) const BY_ID: &str = concat!(columns!(), "task t WHERE t.id = ?");
/// Open approvals of all conversations.
pub(crate) const OPEN_APPROVALS: &str = concat!(
    columns!(),
    "open_work o JOIN task t ON t.id = o.id WHERE o.what = 2 ORDER BY o.id"
);
/// All approvals ever asked, oldest first.
pub(crate) const APPROVALS: &str = concat!(
    columns!(),
    "task t WHERE t.kind = 'mooring.approval' AND (?1 IS NULL OR t.conversation = ?1) ORDER BY t.id"
);
/// All approvals of a call, oldest first.
/// What a call waits for; the list of kinds is that of the index.
pub(crate) const CHILDREN_OF: &str = concat!(
    columns!(),
    "task t WHERE t.kind IN ('mooring.timer', 'mooring.input', 'mooring.subagent') AND t.owner_task = ?
 UNION ALL ",
    columns!(),
    "open_work o JOIN task t ON t.id = o.id
 WHERE o.conversation = ? AND o.what = 5 AND t.kind = 'mooring.followed' AND t.owner_task = ? ORDER BY 1"
);
/// All tasks of a conversation that have not ended.
pub(crate) const OPEN_ALL: &str = concat!(
    columns!(),
    "open_work o JOIN task t ON t.id = o.id WHERE o.conversation = ? AND o.what <> 3 AND t.ended_at IS NULL ORDER BY o.id LIMIT ?"
);
/// Questions of all conversations that nobody has answered.
pub(crate) const OPEN_QUESTIONS: &str = concat!(
    columns!(),
    "open_work o JOIN task t ON t.id = o.id WHERE o.what = 5 AND t.kind = 'mooring.input' ORDER BY o.id"
);
pub(crate) const APPROVALS_OF: &str = concat!(
    columns!(),
    "task t WHERE t.kind = 'mooring.approval' AND t.owner_task = ? ORDER BY t.id"
);

/// Approvals of a conversation that were asked for on the way with these arguments.
pub(crate) const APPROVALS_OF_HASH: &str = concat!(
    columns!(),
    "task t WHERE t.kind = 'mooring.approval' AND t.conversation = ? AND t.input->>'$.arguments_hash' = ?
 AND t.input->>'$.on_the_way' ORDER BY t.id"
);

/// Task kinds of the engine.
pub(crate) mod kind {
    pub const GENERATION: &str = "pi.generation";
    pub const TOOL: &str = "pi.tool";
    pub const TIMER: &str = "mooring.timer";
    pub const QUESTION: &str = "mooring.input";
    pub const SUBAGENT: &str = "mooring.subagent";
    pub const FOLLOWED: &str = "mooring.followed";
    pub const COMPACTION: &str = "pi.compaction";
    pub const APPROVAL: &str = "mooring.approval";
}

/// A task as stored.
#[derive(Debug, Clone)]
pub(crate) struct TaskRow {
    pub id: TaskId,
    pub conversation: ConversationId,
    pub abort_mark: Option<i64>,
    pub input: Option<String>,
    pub checkpoint: Option<String>,
    pub outcome: Option<String>,
    pub created_at: Millis,
    pub kind: String,
    pub waits: Option<String>,
    pub owner: Option<TaskId>,
    pub status: String,
    pub background: bool,
}

impl TaskRow {
    pub fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(TaskRow {
            id: TaskId(row.try_get(0)?),
            conversation: ConversationId(row.try_get(1)?),
            abort_mark: row.try_get(2)?,
            input: row.try_get(3)?,
            checkpoint: row.try_get(4)?,
            outcome: row.try_get(5)?,
            created_at: Millis(row.try_get(6)?),
            kind: row.try_get(7)?,
            waits: row.try_get(8)?,
            owner: row.try_get::<Option<i64>, _>(9)?.map(TaskId),
            status: row.try_get(10)?,
            background: row.try_get(11)?,
        })
    }
}

/// A step of a task. Input counts at its creation only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskStep<'a, W: Serialize, I: Serialize, C: Serialize, O: Serialize> {
    pub id: TaskId,
    pub conversation: ConversationId,
    pub owner: Option<TaskId>,
    pub kind: &'a str,
    pub status: &'a str,
    pub background: bool,
    pub abort_mark: Option<i64>,
    pub waits: Option<&'a W>,
    pub input: Option<&'a I>,
    pub checkpoint: Option<&'a C>,
    pub outcome: Option<&'a O>,
    pub created_at: Millis,
    pub ended_at: Option<Millis>,
}

impl Batch {
    pub fn put_task<W: Serialize, I: Serialize, C: Serialize, O: Serialize>(
        &mut self,
        step: TaskStep<'_, W, I, C, O>,
    ) {
        self.tasks
            .row()
            .int(step.id.0)
            .int(step.conversation.0)
            .opt_int(step.owner.map(|id| id.0))
            .text(step.kind)
            .text(step.status)
            .opt_int(step.abort_mark)
            .opt_json(step.input)
            .opt_json(step.checkpoint)
            .opt_json(step.outcome)
            .int(step.created_at.0)
            .opt_int(step.ended_at.map(|at| at.0))
            .flag(step.background)
            .opt_json(step.waits);
    }
}
