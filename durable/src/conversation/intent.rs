//! What a step writes of a call: its arguments, its intent, its question.

use std::sync::Arc;

use serde_json::Value;

use super::step::Step;
use crate::{
    gate::{Approval, ApprovalState, Verdict},
    ledger::Change,
    read::{call_view, named},
    sql::{
        call::{CallRow, state},
        task::{self, TaskStep},
    },
    tool::{Call, Replay, Tool},
};

/// What the note of a call begins with that waits for what it works with.
const UNREACHABLE: &str = "not reachable since ";

impl Step {
    /// The row of a call, to be moved.
    pub(super) fn call_row(&mut self, ordinal: usize) -> Option<&mut CallRow> {
        let slot = self
            .state
            .run
            .as_mut()?
            .round
            .as_mut()?
            .slots
            .get_mut(ordinal)?;
        slot.row.as_mut().map(Arc::make_mut)
    }

    /// What the gate said, for the ledger.
    pub(super) fn told(&mut self, call: &Arc<Call>, verdict: Verdict) {
        self.changes.push(Change::CallDecided {
            call: call.clone(),
            verdict,
        });
    }

    /// Notes the final arguments, and what the gate wants kept.
    pub(super) fn arguments(&mut self, ordinal: usize, call: &Call, record: Option<Value>) {
        let round = self
            .active()
            .round
            .as_mut()
            .expect("calls belong to a round");
        let slot = &mut round.slots[ordinal];
        let same = slot.proposed.arguments == call.arguments;
        let row = slot
            .row
            .as_mut()
            .map(Arc::make_mut)
            .expect("a call that is decided has its task");
        row.arguments = (!same).then(|| call.arguments.clone());
        row.hash = Some(call.arguments_hash.clone());
        if let Some(record) = record {
            row.record = record;
        }
    }

    /// The intent: from here on the call may have begun.
    pub(super) fn intend(
        &mut self,
        ordinal: usize,
        call: &Arc<Call>,
        replay: Replay,
        record: Value,
    ) {
        let at = self.at;
        let pending = self
            .active()
            .round
            .as_ref()
            .and_then(|round| round.slots[ordinal].pending());
        if let Some(which) = pending {
            self.settle_approval(ordinal, which, ApprovalState::Superseded, None);
        }
        self.arguments(ordinal, call, Some(record));
        let row = self
            .call_row(ordinal)
            .expect("a call that is intended has its task");
        row.replay = Some(replay);
        row.binding = call.binding.clone();
        row.state = state::RUNNING;
        row.note.clear();
        row.started_at = Some(at);
        row.released = replay != Replay::Attach;
        let row = row.clone();
        self.put_call(&row);
        self.reach();
        self.batch.put_task(TaskStep {
            id: row.task,
            conversation: row.conversation,
            owner: Some(row.generation),
            kind: task::kind::TOOL,
            status: "running",
            background: false,
            abort_mark: None,
            waits: None::<&()>,
            input: None::<&()>,
            checkpoint: None::<&()>,
            outcome: None::<&()>,
            created_at: at,
            ended_at: None,
        });
        self.changes
            .push(Change::CallStarted { call: call.clone() });
    }

    /// A person is asked.
    pub(super) fn question(
        &mut self,
        ordinal: usize,
        call: &Call,
        question: crate::gate::Question,
    ) {
        let at = self.at;
        let pending = self
            .active()
            .round
            .as_ref()
            .and_then(|round| round.slots[ordinal].pending());
        if let Some(which) = pending {
            self.settle_approval(ordinal, which, ApprovalState::Superseded, None);
        }
        self.arguments(ordinal, call, None);
        let row = self
            .call_row(ordinal)
            .expect("a call that is asked for has its task");
        row.state = state::WAITING;
        row.note.clear();
        let row = row.clone();
        self.put_call(&row);
        self.reach();
        let task = self.new_task();
        self.ask(
            ordinal,
            Approval {
                task,
                conversation: call.conversation,
                call: call.task,
                tool: call.tool.clone(),
                arguments_hash: call.arguments_hash.clone(),
                requesters: call.requesters.clone(),
                question,
                asked_at: at,
                state: ApprovalState::Pending,
                decision: None,
                on_the_way: false,
                used_at: None,
            },
        );
    }

    /// Notes since when something cannot be reached, and what is known of it now: on the
    /// call and on its run.
    pub(super) fn unreachable(&mut self, ordinal: usize, text: &str) {
        let at = self.at;
        let Some(row) = self.call_row(ordinal) else {
            return;
        };
        let known = (row.state == state::UNREACHABLE).then_some(row.note.as_str());
        let since = known.and_then(|note| note.strip_prefix(UNREACHABLE)?.split_once(": "));
        let since = since.map_or_else(
            || {
                jiff::Timestamp::from_millisecond(at.0).map_or_else(
                    |_| at.0.to_string(),
                    |at| at.strftime("%H:%M:%S UTC").to_string(),
                )
            },
            |(since, _)| since.to_owned(),
        );
        let note = format!("{UNREACHABLE}{since}: {text}");
        if known == Some(note.as_str()) {
            return;
        }
        row.state = state::UNREACHABLE;
        row.note.clone_from(&note);
        let row = row.clone();
        self.put_call(&row);
        self.note_run(note);
    }

    /// A call of the run is not waited for any more.
    pub(super) fn reach(&mut self) {
        if self.active().progress.run.note.starts_with(UNREACHABLE) {
            self.note_run(String::new());
        }
    }

    fn note_run(&mut self, note: String) {
        self.active().progress.run.note = note;
        self.put_generation();
    }

    /// Shows the calls that moved, as they stand now.
    pub(super) fn show_moved(&mut self, tools: &[Arc<dyn Tool>]) {
        let Some(round) = self.state.run.as_ref().and_then(|run| run.round.as_ref()) else {
            return;
        };
        if self.moved.is_empty() {
            return;
        }
        let tools = named(tools);
        let moved = std::mem::take(&mut self.moved).into_iter();
        let slots = moved.filter_map(|ordinal| round.slots.get(ordinal));
        let views = slots.filter_map(|slot| call_view(slot, &tools));
        self.view.calls.extend(views);
    }

    /// Whether a call that ended is still to be released or killed.
    pub(super) fn owes(&self) -> bool {
        let round = self.state.run.as_ref().and_then(|run| run.round.as_ref());
        round.is_some_and(|round| {
            round
                .slots
                .iter()
                .filter_map(|slot| slot.row.as_ref())
                .any(|row| row.ended_at.is_some() && !row.released)
        })
    }
}
