//! A step: the next state of a conversation and the commit that makes it true.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{
    state::{Active, Phase, Progress, State},
    waiting::child_request,
};
use crate::{
    context::Item,
    gate::ApprovalState,
    id::{EntryId, Millis, SubmissionId, TaskId},
    ledger::{Change, Run, RunOutcome, Statement},
    message::Message,
    read::entry_view,
    sql::{
        batch::Batch,
        entry::{Edit, EntryRow},
        open_work::{Wake, What},
        task::{self, TaskStep},
    },
    store::line::Counters,
    submission::SubmissionState,
    view::ChangeView,
    write::Head,
};

/// A new entry.
pub(super) struct NewEntry<'a> {
    pub kind: &'a str,
    pub state: &'static str,
    pub message: Option<Message>,
    pub data: Value,
    pub writer: Option<TaskId>,
    pub submission: Option<SubmissionId>,
    pub head: Option<Head>,
    pub edits: Vec<Edit>,
    /// Of a system entry.
    pub texts: Vec<String>,
}

impl<'a> NewEntry<'a> {
    pub fn new(kind: &'a str, message: Option<Message>) -> NewEntry<'a> {
        NewEntry {
            kind,
            state: "",
            message,
            data: Value::Null,
            writer: None,
            submission: None,
            head: None,
            edits: Vec::new(),
            texts: Vec::new(),
        }
    }
}

/// A step that is being put together.
pub(super) struct Step {
    pub name: &'static str,
    pub at: Millis,
    /// The state once it stands.
    pub state: State,
    pub batch: Batch,
    pub changes: Vec<Change>,
    pub view: ChangeView,
    pub extra: Vec<Statement>,
    /// New entries, for the context.
    pub items: Vec<Item>,
    /// The earliest time at which something new is due.
    pub wake: Option<i64>,
    pub(super) counters: Arc<Counters>,
    pub(super) before: Option<Run>,
    /// A submission that this step admits; written once, as it ends up.
    pub(super) fresh: Option<SubmissionId>,
    pub(super) touched: bool,
    /// Calls that moved, by ordinal.
    pub moved: BTreeSet<usize>,
    /// The ledger's own rows were refused, and are left out.
    pub unledgered: bool,
}

/// None of a task's three documents; names the type.
pub(super) const NONE: Option<&()> = None;

impl Step {
    pub fn new(name: &'static str, at: Millis, state: &State, counters: &Arc<Counters>) -> Step {
        Step {
            name,
            at,
            state: state.clone(),
            batch: Batch::default(),
            changes: Vec::new(),
            view: ChangeView::empty(state.row.id),
            extra: Vec::new(),
            items: Vec::new(),
            wake: None,
            counters: counters.clone(),
            before: state.run.as_ref().map(|active| active.progress.run.clone()),
            fresh: None,
            touched: false,
            moved: BTreeSet::new(),
            unledgered: false,
        }
    }

    /// The run; steps that need one are made only while there is one.
    pub fn active(&mut self) -> &mut Active {
        self.state
            .run
            .as_mut()
            .expect("this step is made while a run is going")
    }

    pub fn run(&self) -> Run {
        self.state
            .run
            .as_ref()
            .expect("this step is made while a run is going")
            .progress
            .run
            .clone()
    }

    /// Appends an entry.
    pub fn entry(&mut self, new: NewEntry<'_>) -> EntryId {
        let id = self.counters.entry();
        self.state.seq += 1;
        let head = new.head.map(|head| match head {
            Head::Here => id,
            Head::From(entry) => entry,
        });
        if head.is_some() {
            self.state.head = head;
        }
        let row = EntryRow {
            id,
            conversation: self.state.row.id,
            seq: self.state.seq,
            kind: new.kind.to_owned(),
            state: new.state,
            message: new.message,
            data: new.data,
            head,
            edits: new.edits,
            writer: new.writer,
            submission: new.submission,
            at: self.at,
        };
        self.batch.insert_entry(&row);
        let item = Item {
            row: Arc::new(row),
            texts: new.texts,
        };
        self.view.entries.push(entry_view(&item));
        self.items.push(item);
        id
    }

    /// A new generation of a run.
    pub fn generation(
        &mut self,
        run: Run,
        inputs: Vec<Arc<crate::submission::Submission>>,
        autonomous: bool,
    ) {
        self.state.run = Some(Active {
            generation: self.counters.task(),
            created_at: self.at,
            progress: Progress {
                run,
                inputs: inputs.iter().map(|input| input.id).collect(),
                autonomous,
                phase: Phase::Prepare,
                attempt: 0,
                uncounted: 0,
                compacted: false,
                ending: None,
            },
            inputs,
            attempt: None,
            round: None,
            abort_mark: None,
        });
    }

    /// The generation ends; nothing of it is open any more.
    pub fn end_generation(&mut self, status: &str, outcome: &str) {
        let conversation = self.state.row.id;
        let active = self.active();
        let (id, created_at) = (active.generation, active.created_at);
        let calls: Vec<_> = active
            .round
            .iter()
            .flat_map(|round| &round.slots)
            .filter_map(|slot| slot.row.clone())
            .collect();
        let at = self.at;
        self.batch.put_task(TaskStep {
            id,
            conversation,
            owner: None,
            kind: task::kind::GENERATION,
            status,
            background: false,
            abort_mark: None,
            waits: None::<&()>,
            input: NONE,
            checkpoint: NONE,
            outcome: Some(&outcome),
            created_at,
            ended_at: Some(at),
        });
        self.batch.drop_open(conversation, What::Generation, id.0);
        for call in calls {
            self.batch.drop_open(conversation, What::Call, call.task.0);
        }
    }

    /// The run ends, and its inputs are settled with it.
    pub fn end_run(&mut self, outcome: RunOutcome, status: &str) {
        let word = match &outcome {
            RunOutcome::Answered { .. } => "answered",
            RunOutcome::Unanswered { .. } => "unanswered",
        };
        self.end_generation(status, word);
        self.end_passing(match status {
            "aborted" => ApprovalState::Aborted,
            _ => ApprovalState::Superseded,
        });
        let run = self.run();
        let (state, answer) = match &outcome {
            RunOutcome::Answered { entry, .. } => (SubmissionState::Done, Some(*entry)),
            RunOutcome::Unanswered { reason, detail } => (
                SubmissionState::Unanswered {
                    reason: *reason,
                    detail: detail.clone(),
                },
                None,
            ),
        };
        let mut inputs = Vec::new();
        for input in std::mem::take(&mut self.active().inputs) {
            let mut submission = (*input).clone();
            submission.state = state.clone();
            self.batch
                .move_submission(submission.id, &state, None, answer);
            self.batch
                .drop_open(self.state.row.id, What::Submission, submission.id.0);
            self.view.submissions.push(submission.clone());
            inputs.push(submission);
        }
        let begun = inputs.iter().any(|input| {
            let owner = self.state.row.origin.owner;
            owner.is_some_and(|owner| input.request_id == Some(child_request(owner.task)))
        });
        self.owe_report(run.id, begun);
        self.state.run = None;
        self.before = None;
        self.view.run = Some(None);
        self.view.ended = Some(run.clone());
        self.changes.push(Change::RunEnded {
            run,
            outcome,
            inputs,
        });
    }

    /// Writes the generation's checkpoint as it stands now.
    pub fn put_generation(&mut self) {
        let conversation = self.state.row.id;
        let Some(active) = &self.state.run else {
            return;
        };
        let wake = match &active.progress.phase {
            _ if active.ending() => Wake::Runnable,
            Phase::Prepare | Phase::Request => Wake::Runnable,
            Phase::Retry { until, .. } => Wake::At(until.0),
            Phase::NeedsKey | Phase::Compact { .. } => Wake::OnEvent,
            Phase::Tools { .. }
                if active
                    .round
                    .as_ref()
                    .is_some_and(|round| round.only_waits() && !round.executes()) =>
            {
                Wake::OnEvent
            }
            Phase::Tools { .. } => Wake::Runnable,
        };
        self.batch.put_task(TaskStep {
            id: active.generation,
            conversation,
            owner: None,
            kind: task::kind::GENERATION,
            status: if wake == Wake::Runnable {
                "running"
            } else {
                "waiting"
            },
            background: false,
            abort_mark: active.abort_mark,
            waits: None::<&()>,
            input: NONE,
            checkpoint: Some(&active.progress),
            outcome: NONE,
            created_at: active.created_at,
            ended_at: None,
        });
        self.batch
            .put_open(conversation, What::Generation, active.generation.0, wake);
        let run = active.progress.run.clone();
        if let Wake::At(at) = wake {
            self.wake_at(at);
        }
        if self.before.as_ref().is_some_and(|before| {
            before.id == run.id && (before.state, &before.note) != (run.state, &run.note)
        }) {
            self.changes.push(Change::RunChanged { run: run.clone() });
        }
        self.view.run = Some(Some(run));
    }

    pub fn new_task(&self) -> TaskId {
        self.counters.task()
    }

    pub(super) fn wake_at(&mut self, at: i64) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}
