//! A conversation in memory: what its rows say, and nothing else.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    boundary::{Queued, QueuedKind},
    gate::{Approval, ApprovalState},
    id::{EntryId, Millis, SubmissionId, TaskId},
    ledger::Run,
    message::{Part, ToolCall},
    sql::{
        attempt::Attempt,
        call::{CallRow, state},
        conversation::ConversationRow,
        submission::{SubmissionRow, SubmissionType},
    },
    submission::{Requester, Submission, Unanswered},
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
}

/// The outcome of an approval's task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settled {
    pub state: ApprovalState,
    pub decision: Option<crate::gate::Decision>,
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
    /// All calls that are left wait for a person.
    pub fn only_waits(&self) -> bool {
        let open: Vec<_> = self
            .slots
            .iter()
            .filter(|slot| slot.row.is_some() && !slot.ended())
            .collect();
        !open.is_empty() && open.iter().all(|slot| slot.state() == state::WAITING)
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
