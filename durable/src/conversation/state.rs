//! A conversation in memory: what its rows say, and nothing else.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    boundary::{Queued, QueuedKind},
    compaction,
    gate::{Approval, ApprovalState},
    id::{ConversationId, EntryId, Millis, SubmissionId, TaskId},
    ledger::Run,
    message::{Part, ToolCall},
    sql::{
        attempt::Attempt,
        call::{CallRow, state},
        conversation::ConversationRow,
        submission::{SubmissionRow, SubmissionType},
    },
    submission::{Requester, Submission, Unanswered},
    wait::{Awaited, Question, WaitMode, Work, WorkEnd},
};

/// State that its commits have made true. Cheap to clone: a step works on a clone,
/// which takes the place of the original once its commit stands.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub row: Arc<ConversationRow>,
    /// Of the newest entry.
    pub seq: i64,
    /// Where the context begins: the newest head's entry, or none.
    pub head: Option<EntryId>,
    /// The inbox, oldest first.
    pub queue: Vec<Arc<SubmissionRow>>,
    pub run: Option<Active>,
    /// A summary that is being written.
    pub compaction: Option<Compacting>,
    /// The end of a run of this submission is owed to the owner.
    pub report: Option<SubmissionId>,
    /// Undecided approvals that calls asked for on their way, oldest first.
    pub passing: Vec<Arc<Approval>>,
}

/// A compaction that is going.
#[derive(Debug, Clone)]
pub(crate) struct Compacting {
    pub task: TaskId,
    pub created_at: Millis,
    pub input: Arc<compaction::Input>,
    pub progress: CompactionProgress,
    /// The request that is or was in flight, or is tried again.
    pub attempt: Option<Arc<Attempt>>,
}

/// The checkpoint of a compaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CompactionProgress {
    /// Whom its spend counts for.
    pub run: Run,
    pub phase: CompactionPhase,
    /// The last attempt's number.
    pub attempt: u32,
}

/// Where a compaction stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "kebab-case")]
pub(crate) enum CompactionPhase {
    /// Its request is in flight.
    Request,
    /// Another attempt at that time.
    Retry { until: Millis, delay_ms: i64 },
}

/// A run that is going, at its generation.
#[derive(Debug, Clone)]
pub(crate) struct Active {
    pub generation: TaskId,
    pub created_at: Millis,
    pub progress: Progress,
    /// Inputs that its answer settles, oldest first.
    pub inputs: Vec<Arc<Submission>>,
    /// The request that is or was in flight.
    pub attempt: Option<Arc<Attempt>>,
    pub round: Option<Round>,
    /// It is being ended; submissions from this id on came later.
    pub abort_mark: Option<i64>,
}

/// The checkpoint of a generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub run: Run,
    pub inputs: Vec<SubmissionId>,
    pub autonomous: bool,
    pub phase: Phase,
    /// The last attempt's number.
    pub attempt: u32,
    /// Attempts that only found no key.
    pub uncounted: u32,
    /// A compaction was waited for already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compacted: bool,
    /// What its inputs come to where it is being ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Unanswered>,
}

/// Where a generation stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// A request is to be prepared.
    Prepare,
    /// It is in flight.
    Request,
    /// Another attempt at that time.
    Retry { until: Millis, delay_ms: i64 },
    /// A key is missing.
    NeedsKey,
    /// The context is being compacted; the provider's text where it was too long.
    Compact { overflow: Option<String> },
    /// Its calls are going.
    Tools { entry: EntryId },
}

/// The calls of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub entry: EntryId,
    /// What the answer says.
    pub content: Arc<Vec<Part>>,
    /// Of a sequential round only the calls up to the current one have a task.
    pub slots: Vec<Slot>,
}

/// One call of a round.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub proposed: Arc<ToolCall>,
    /// `None`: its task is not made yet (a later call of a sequential round).
    pub row: Option<Arc<CallRow>>,
    pub approvals: Vec<Arc<Approval>>,
    /// It ended and asked for the end of the run.
    pub terminate: bool,
    /// It ended and asked for a context that begins anew.
    pub handoff: Option<String>,
    /// It has begun, and waits; or it ended, and what it left goes on.
    pub wait: Option<Arc<Waiting>>,
}

/// What a call waits for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waiting {
    pub mode: WaitMode,
    /// Of the children those that it waits for now, in the order in which it named them.
    pub on: Vec<TaskId>,
    pub children: Vec<Arc<Child>>,
}

/// A wait, as the call's task has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WaitRow {
    pub mode: WaitMode,
    pub on: Vec<TaskId>,
}

/// One piece of work that a call owns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Child {
    pub task: TaskId,
    pub awaited: Awaited,
    pub conversation: Option<ConversationId>,
    pub end: Option<WorkEnd>,
    pub created_at: Millis,
}

/// The checkpoint of a piece of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChildPlace {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
}

impl Child {
    /// As a question, where it is one.
    pub fn question(&self, conversation: ConversationId, call: TaskId) -> Option<Question> {
        let Work::Question {
            text,
            choices,
            expires_at,
        } = &self.awaited.work
        else {
            return None;
        };
        Some(Question {
            task: self.task,
            conversation,
            call,
            text: text.clone(),
            choices: choices.clone(),
            asked_at: self.created_at,
            expires_at: *expires_at,
            end: self.end.clone(),
        })
    }
}

impl Waiting {
    /// What has not ended.
    pub fn open(&self) -> impl Iterator<Item = &Child> {
        self.children
            .iter()
            .map(|child| &**child)
            .filter(|child| child.end.is_none())
    }

    /// Whether the call goes on.
    pub fn is_over(&self) -> bool {
        self.open().all(|child| !self.on.contains(&child.task))
    }

    /// Whether the others end, because one has failed.
    pub fn fails_fast(&self) -> bool {
        let failed = |child: &Arc<Child>| {
            let end = child.end.as_ref();
            self.on.contains(&child.task) && end.is_some_and(WorkEnd::failed)
        };
        self.mode == WaitMode::FailFast && self.children.iter().any(failed)
    }

    /// What it waited for, in the order in which it named it.
    pub fn settled(&self) -> Vec<crate::wait::Settled> {
        let of = |task: &TaskId| self.children.iter().find(|child| child.task == *task);
        let children = self.on.iter().filter_map(of);
        children
            .filter_map(|child| {
                Some(crate::wait::Settled {
                    key: child.awaited.key.clone(),
                    task: child.task,
                    conversation: child.conversation,
                    end: child.end.clone()?,
                })
            })
            .collect()
    }

    /// The call's state and note, as people read them.
    pub fn told(&self) -> (&'static str, String) {
        let Some(child) = self.open().next() else {
            return (state::RUNNING, String::new());
        };
        match &child.awaited.work {
            Work::Question { text, .. } => (state::ASKING, text.clone()),
            Work::Timer { until } => {
                let at = jiff::Timestamp::from_millisecond(until.0)
                    .map_or_else(|_| until.0.to_string(), |at| at.to_string());
                (state::SLEEPING, format!("sleeps until {at}"))
            }
            Work::Conversation(_) => {
                let open = self.open().filter_map(|child| child.conversation);
                let ids: Vec<_> = open.map(|id| id.to_string()).collect();
                (state::DELEGATED, format!("conversation {}", ids.join(", ")))
            }
            Work::Call { task } => (state::DELEGATED, format!("waits for call {task}")),
        }
    }
}

/// The input of a call's task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallOrigin {
    /// The answer that made it.
    pub entry: EntryId,
    /// Known while the run is going; not kept with the call.
    #[serde(skip, default = "no_run")]
    pub run: SubmissionId,
    #[serde(skip)]
    pub requesters: Vec<Requester>,
    #[serde(skip)]
    pub autonomous: bool,
}

fn no_run() -> SubmissionId {
    SubmissionId(0)
}

/// The outcome of a call's task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallEnd {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminate: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<String>,
}

/// The outcome of an approval's task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settled {
    pub state: ApprovalState,
    pub decision: Option<crate::gate::Decision>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Millis>,
}

impl State {
    /// The inbox, as boundaries see it.
    pub fn queued(&self) -> Vec<Queued> {
        self.queue
            .iter()
            .map(|row| Queued {
                id: row.submission.id,
                what: match row.kind {
                    SubmissionType::Write => QueuedKind::Write,
                    SubmissionType::Input => QueuedKind::Input(row.submission.when_busy),
                },
            })
            .collect()
    }
}

impl Active {
    /// Attempts that count.
    pub fn counted(&self) -> u32 {
        self.progress
            .attempt
            .saturating_sub(self.progress.uncounted)
    }

    pub fn ending(&self) -> bool {
        self.abort_mark.is_some()
    }
}

impl Round {
    /// All calls that are left wait: for a person, a time, work that they own or left.
    pub fn only_waits(&self) -> bool {
        let open: Vec<_> = self
            .slots
            .iter()
            .filter(|slot| slot.row.is_some() && (!slot.ended() || slot.holds()))
            .collect();
        let waits = |slot: &&&Slot| {
            let waiting = matches!(
                slot.state(),
                state::WAITING | state::ASKING | state::SLEEPING | state::DELEGATED
            );
            waiting || slot.holds()
        };
        !open.is_empty() && open.iter().filter(waits).count() == open.len()
    }

    /// Some call is being executed, also where it waits for a person on its way.
    pub fn executes(&self) -> bool {
        self.slots
            .iter()
            .any(|slot| slot.started() && !slot.ended() && slot.wait.is_none())
    }

    /// Which call waits for which.
    pub fn waits(&self) -> Vec<(TaskId, TaskId)> {
        let rows = self.slots.iter().filter_map(|slot| {
            let row = slot.row.as_ref()?;
            Some((row.task, slot.wait.as_ref()?))
        });
        rows.flat_map(|(task, waiting)| {
            let open = waiting.open();
            open.filter_map(move |child| match child.awaited.work {
                Work::Call { task: other } => Some((task, other)),
                _ => None,
            })
        })
        .collect()
    }
}

impl Slot {
    /// A call as the model made it.
    pub fn new(call: ToolCall) -> Slot {
        Slot {
            proposed: Arc::new(call),
            row: None,
            approvals: Vec::new(),
            terminate: false,
            handoff: None,
            wait: None,
        }
    }

    pub fn state(&self) -> &'static str {
        self.row.as_ref().map_or(state::PROPOSED, |row| row.state)
    }

    pub fn ended(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.ended_at.is_some())
    }

    pub fn started(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.started())
    }

    /// The approval that is undecided.
    pub fn pending(&self) -> Option<usize> {
        self.approvals
            .iter()
            .position(|approval| approval.state == ApprovalState::Pending)
    }
}
