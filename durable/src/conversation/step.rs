//! A step: the next state of a conversation and the commit that makes it true.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::state::{Active, CallOrigin, Phase, Progress, State};
use crate::{
    boundary::{self, Boundary, QueueModes},
    context::Item,
    gate::{Approval, ApprovalState},
    id::{EntryId, Millis, SubmissionId, TaskId},
    ledger::{Change, Run, RunOutcome, RunState, Statement},
    message::Message,
    model::Usage,
    read::entry_view,
    sql::{
        batch::Batch,
        call::CallRow,
        entry::{Edit, EntryRow, kind},
        open_work::{Wake, What},
        submission::{SubmissionRow, SubmissionType},
        task::{self, TaskStep},
    },
    store::line::Counters,
    submission::{SubmissionState, Unanswered},
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
    counters: Arc<Counters>,
    before: Option<Run>,
    /// A submission that this step admits; written once, as it ends up.
    fresh: Option<SubmissionId>,
    touched: bool,
    /// Calls that moved, by ordinal.
    pub moved: BTreeSet<usize>,
    /// The ledger's own rows were refused, and are left out.
    pub unledgered: bool,
}

/// None of a task's three documents; names the type.
const NONE: Option<&()> = None;

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

    /// Admits a submission to the inbox.
    pub fn admit(&mut self, row: SubmissionRow) {
        self.fresh = Some(row.submission.id);
        self.batch.put_open(
            self.state.row.id,
            What::Submission,
            row.submission.id.0,
            Wake::OnEvent,
        );
        self.state.queue.push(Arc::new(row));
    }

    /// The admitted submission as it ended up; told first.
    pub fn admitted(&mut self, row: &SubmissionRow) {
        self.batch.insert_submission(row);
        self.changes.insert(
            0,
            Change::Admitted {
                submission: row.submission.clone(),
            },
        );
        self.view.submissions.push(row.submission.clone());
    }

    /// Places what a boundary lets in; the inputs among it.
    pub fn place(&mut self, ids: &[SubmissionId]) -> Vec<Arc<SubmissionRow>> {
        let mut inputs = Vec::new();
        for id in ids {
            let Some(at) = self
                .state
                .queue
                .iter()
                .position(|row| row.submission.id == *id)
            else {
                continue;
            };
            let row = self.state.queue.remove(at);
            match row.kind {
                SubmissionType::Write => self.place_write(&row),
                SubmissionType::Input => inputs.push(self.place_input(&row)),
            }
        }
        inputs
    }

    fn place_write(&mut self, row: &SubmissionRow) {
        let mut submission = row.submission.clone();
        let Some(body) = &row.write else { return };
        let stale = match (body.head, self.state.head) {
            (Some(Head::From(entry)), Some(head)) => entry < head,
            _ => false,
        };
        let mut entry = None;
        submission.state = if stale {
            SubmissionState::Unanswered {
                reason: Unanswered::Stale,
                detail: "the context begins later by now".into(),
            }
        } else {
            entry = Some(self.entry(NewEntry {
                data: body.data.clone(),
                head: body.head,
                edits: body.edits.clone(),
                submission: Some(submission.id),
                ..NewEntry::new(&body.kind, body.message.clone())
            }));
            SubmissionState::Done
        };
        if self.fresh == Some(submission.id) {
            // Written settled; it never was open work in the file.
            self.batch
                .drop_open(self.state.row.id, What::Submission, submission.id.0);
            self.admitted(&SubmissionRow {
                submission: submission.clone(),
                entry,
                ..row.clone()
            });
        } else {
            self.batch
                .move_submission(submission.id, &submission.state, entry, None);
            self.batch
                .drop_open(self.state.row.id, What::Submission, submission.id.0);
            self.view.submissions.push(submission.clone());
        }
        self.changes.push(Change::Settled { submission });
    }

    fn place_input(&mut self, row: &SubmissionRow) -> Arc<SubmissionRow> {
        let mut submission = row.submission.clone();
        submission.state = SubmissionState::Placed;
        let message = Message::User {
            content: submission.content.clone(),
        };
        let data =
            serde_json::json!({"submission": submission.id, "requester": submission.requester});
        let entry = self.entry(NewEntry {
            data,
            submission: Some(submission.id),
            ..NewEntry::new(kind::USER, Some(message))
        });
        if !self.touched {
            self.touched = true;
            let title = self
                .state
                .row
                .title
                .is_empty()
                .then(|| title_of(&submission.content))
                .flatten();
            self.batch
                .touch_conversation(self.state.row.id, title.as_deref(), self.at);
            let row = Arc::make_mut(&mut self.state.row);
            row.last_at = self.at;
            if let Some(title) = title {
                row.title = title;
            }
        }
        let placed = SubmissionRow {
            submission,
            entry: Some(entry),
            ..row.clone()
        };
        if self.fresh == Some(placed.submission.id) {
            self.admitted(&placed);
        } else {
            self.batch.move_submission(
                placed.submission.id,
                &SubmissionState::Placed,
                Some(entry),
                None,
            );
            self.view.submissions.push(placed.submission.clone());
        }
        Arc::new(placed)
    }

    /// Places what may enter now, and starts a run with the inputs among it.
    pub fn start(&mut self, ids: &[SubmissionId], model: &str) {
        let inputs = self.place(ids);
        let Some(first) = inputs.first() else { return };
        let run = Run {
            id: first.submission.id,
            conversation: self.state.row.id,
            requesters: Vec::new(),
            started_at: self.at,
            turns: 0,
            tool_calls: 0,
            usage: Usage::default(),
            active_ms: 0,
            model: model.to_owned(),
            state: RunState::Preparing,
            note: String::new(),
        };
        let autonomous = first.submission.autonomous;
        self.generation(run, Vec::new(), autonomous);
        self.join(&inputs);
        self.before = Some(self.run());
        let run = self.run();
        self.changes.push(Change::RunStarted { run });
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
            },
            inputs,
            attempt: None,
            round: None,
            abort_mark: None,
        });
    }

    /// Placed inputs join the run.
    pub fn join(&mut self, inputs: &[Arc<SubmissionRow>]) {
        for row in inputs {
            let active = self.active();
            active.inputs.push(Arc::new(row.submission.clone()));
            active.progress.inputs.push(row.submission.id);
            let run = &mut active.progress.run;
            if !run.requesters.contains(&row.submission.requester) {
                run.requesters.push(row.submission.requester.clone());
            }
            let (run, entry) = (run.id, row.entry.expect("a placed input has its entry"));
            self.changes.push(Change::Placed {
                submission: row.submission.clone(),
                entry,
                run,
            });
        }
    }

    /// What the final boundary, or an idle conversation, lets in.
    pub fn next_run(&mut self, idle: bool) {
        let modes = QueueModes::of(&self.state.row.settings);
        let queue = self.state.queued();
        let ids = if idle {
            boundary::place_idle(&queue, modes)
        } else {
            boundary::place(Boundary::Final, &queue, modes)
        };
        let model = self.state.row.model.clone();
        self.start(&ids, &model);
    }

    /// What joins a run after a round.
    pub fn steer(&mut self) {
        let modes = QueueModes::of(&self.state.row.settings);
        let ids = boundary::place(Boundary::PostTools, &self.state.queued(), modes);
        let inputs = self.place(&ids);
        self.join(&inputs);
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
            abort_mark: None,
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
            Phase::NeedsKey => Wake::OnEvent,
            Phase::Tools { .. }
                if active
                    .round
                    .as_ref()
                    .is_some_and(super::state::Round::only_waits) =>
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
            abort_mark: active.abort_mark,
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

    /// Makes a call's task.
    pub fn propose(&mut self, ordinal: usize) {
        let conversation = self.state.row.id;
        let task = self.counters.task();
        let at = self.at;
        let active = self.active();
        let generation = active.generation;
        let origin = CallOrigin {
            entry: active
                .round
                .as_ref()
                .expect("calls are proposed in a round")
                .entry,
            run: active.progress.run.id,
            requesters: active.progress.run.requesters.clone(),
            autonomous: active.progress.autonomous,
        };
        let slot = &mut active
            .round
            .as_mut()
            .expect("calls are proposed in a round")
            .slots[ordinal];
        let row = CallRow {
            task,
            conversation,
            generation,
            ordinal,
            call_id: slot.proposed.id.clone(),
            tool: slot.proposed.name.clone(),
            arguments: None,
            hash: None,
            replay: None,
            binding: Value::Null,
            record: Value::Null,
            state: crate::sql::call::state::PROPOSED,
            note: String::new(),
            started_at: None,
            ended_at: None,
            released: true,
            owed_kill: false,
            offset: 0,
        };
        slot.row = Some(Arc::new(row.clone()));
        self.batch.put_task(TaskStep {
            id: task,
            conversation,
            owner: Some(generation),
            kind: task::kind::TOOL,
            status: "pending",
            abort_mark: None,
            input: Some(&origin),
            checkpoint: NONE,
            outcome: NONE,
            created_at: at,
            ended_at: None,
        });
        self.put_call(&row);
        self.batch
            .put_open(conversation, What::Call, task.0, Wake::OnEvent);
    }

    /// Settles a pending approval of a call.
    pub fn settle_approval(
        &mut self,
        ordinal: usize,
        which: usize,
        state: ApprovalState,
        decision: Option<crate::gate::Decision>,
    ) -> Arc<Approval> {
        let at = self.at;
        let round = self
            .active()
            .round
            .as_mut()
            .expect("approvals belong to a round");
        let slot = &mut round.slots[ordinal];
        let approval = Arc::make_mut(&mut slot.approvals[which]);
        approval.state = state;
        approval.decision = decision;
        let approval = Arc::new(approval.clone());
        let outcome = super::state::Settled {
            state,
            decision: approval.decision.clone(),
        };
        self.batch.put_task(TaskStep {
            id: approval.task,
            conversation: approval.conversation,
            owner: Some(approval.call),
            kind: task::kind::APPROVAL,
            status: if state == ApprovalState::Aborted {
                "aborted"
            } else {
                "done"
            },
            abort_mark: None,
            input: NONE,
            checkpoint: NONE,
            outcome: Some(&outcome),
            created_at: approval.asked_at,
            ended_at: Some(at),
        });
        self.batch
            .drop_open(approval.conversation, What::Approval, approval.task.0);
        self.changes.push(Change::ApprovalSettled {
            approval: (*approval).clone(),
        });
        self.view.approvals.push((*approval).clone());
        approval
    }

    /// Makes an approval's task.
    pub fn ask(&mut self, ordinal: usize, approval: Approval) {
        self.batch.put_task(TaskStep {
            id: approval.task,
            conversation: approval.conversation,
            owner: Some(approval.call),
            kind: task::kind::APPROVAL,
            status: "waiting",
            abort_mark: None,
            input: Some(&approval),
            checkpoint: NONE,
            outcome: NONE,
            created_at: approval.asked_at,
            ended_at: None,
        });
        let wake = match approval.question.expires_at {
            Some(at) => {
                self.wake_at(at.0);
                Wake::At(at.0)
            }
            None => Wake::OnEvent,
        };
        self.batch
            .put_open(approval.conversation, What::Approval, approval.task.0, wake);
        self.changes.push(Change::ApprovalAsked {
            approval: approval.clone(),
        });
        self.view.approvals.push(approval.clone());
        let round = self
            .active()
            .round
            .as_mut()
            .expect("approvals belong to a round");
        round.slots[ordinal].approvals.push(Arc::new(approval));
    }

    /// Moves a call's row.
    pub fn put_call(&mut self, row: &CallRow) {
        self.moved.insert(row.ordinal);
        self.batch.put_call(row);
    }

    pub fn new_task(&self) -> TaskId {
        self.counters.task()
    }

    fn wake_at(&mut self, at: i64) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// A conversation's title from its first input: the first line, cut.
fn title_of(content: &[crate::message::Part]) -> Option<String> {
    const LONGEST: usize = 80;
    let text = content.iter().find_map(|part| match part {
        crate::message::Part::Text { text } => {
            text.lines().map(str::trim).find(|line| !line.is_empty())
        }
        _ => None,
    })?;
    Some(text[..crate::window::floor(text, LONGEST)].to_owned())
}
