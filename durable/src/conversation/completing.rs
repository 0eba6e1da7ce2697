//! Calls whose outcome is decided and held: they have their result, and work that they
//! leave goes on. The next turn waits for it.

use std::sync::Arc;

use super::{
    actor::{Actor, Work as Going},
    state::{CallEnd, Round, Slot, WaitRow},
    step::{NONE, Step},
};
use crate::{
    ledger::CallOutcome,
    sql::task::{self, TaskStep},
    tool::{Call, ToolResult},
    wait::{Awaited, WaitMode, Waits, Work},
};

use super::result::Ended;

impl Slot {
    /// Whether it ended, and work that it left goes on.
    pub fn holds(&self) -> bool {
        self.ended() && self.wait.iter().any(|wait| wait.open().next().is_some())
    }
}

impl Round {
    /// Whether all calls have ended, and what they left.
    pub fn is_over(&self) -> bool {
        self.slots.iter().all(|slot| slot.ended() && !slot.holds())
    }
}

impl Actor {
    /// Lets the work that an ended call left go on, also after a crash.
    pub(super) fn tend_left(&mut self, ordinal: usize) {
        let Some(waiting) = self.slot(ordinal).and_then(|slot| slot.wait.clone()) else {
            return;
        };
        self.work.insert(ordinal, Going::Parked);
        for child in waiting.open() {
            self.tend(child, &waiting);
        }
    }
}

impl Step {
    /// Makes the work that a call leaves; its end, or the error where that cannot be left.
    pub(super) fn leave(
        &mut self,
        ordinal: usize,
        call: &Arc<Call>,
        result: ToolResult,
        work: Vec<Awaited>,
    ) -> Ended {
        let can_be_left =
            |awaited: &Awaited| matches!(awaited.work, Work::Timer { .. } | Work::Conversation(_));
        if !work.iter().all(can_be_left) {
            let text = "Only times and conversations can go on after their call.";
            return Ended::text(CallOutcome::Error, text);
        }
        let waits = Waits {
            mode: WaitMode::AllSettled,
            on: work,
        };
        match self.wait(ordinal, &call.requesters, waits) {
            Ok(()) => Ended {
                leaves: true,
                ..Ended::of_tool(result)
            },
            Err(text) => Ended::text(CallOutcome::Error, text),
        }
    }

    /// The task of a call that ended, or whose outcome is held.
    pub(super) fn put_ended_call(&mut self, ordinal: usize, status: &str) {
        let at = self.at;
        let round = self.active().round.as_ref();
        let slot = &round.expect("calls end in a round").slots[ordinal];
        let row = slot.row.clone().expect("a call that ends has its task");
        let outcome = CallEnd {
            terminate: slot.terminate,
            handoff: slot.handoff.clone(),
        };
        let held = slot.wait.as_ref().filter(|_| status == "completing");
        let waits = held.map(|waiting| WaitRow {
            mode: waiting.mode,
            on: waiting.on.clone(),
        });
        self.batch.put_task(TaskStep {
            id: row.task,
            conversation: row.conversation,
            owner: Some(row.generation),
            kind: task::kind::TOOL,
            status,
            background: false,
            abort_mark: None,
            waits: waits.as_ref(),
            input: NONE,
            checkpoint: NONE,
            outcome: Some(&outcome),
            created_at: at,
            ended_at: waits.is_none().then_some(at),
        });
    }

    /// A call that ended does not wait any more: what it left has ended, or ends now. Its
    /// outcome stays as it was decided.
    pub(super) fn let_go_of_left(&mut self, ordinal: usize) {
        self.end_children(ordinal);
        self.put_ended_call(ordinal, "done");
    }
}
