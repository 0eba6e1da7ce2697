//! The tasks of a round as a step writes them: calls, and the approvals they wait for.

use std::sync::Arc;

use serde_json::Value;

use super::{
    state::{CallOrigin, Settled},
    step::{NONE, Step},
};
use crate::{
    gate::{Approval, ApprovalState},
    ledger::Change,
    sql::{
        call::CallRow,
        open_work::{Wake, What},
        task::{self, TaskStep},
    },
};

impl Step {
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
            background: false,
            abort_mark: None,
            waits: None::<&()>,
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
        self.put_settled(&approval);
        if matches!(
            state,
            ApprovalState::Approved | ApprovalState::Denied | ApprovalState::Expired
        ) {
            // The call goes on, also where this process ends before it does.
            self.batch.put_open(
                approval.conversation,
                What::Call,
                approval.call.0,
                Wake::Runnable,
            );
        }
        approval
    }

    /// Makes an approval's task.
    pub fn ask(&mut self, ordinal: usize, approval: Approval) {
        self.put_asked(&approval);
        self.batch.put_open(
            approval.conversation,
            What::Call,
            approval.call.0,
            Wake::OnEvent,
        );
        let round = self
            .active()
            .round
            .as_mut()
            .expect("approvals belong to a round");
        round.slots[ordinal].approvals.push(Arc::new(approval));
    }

    /// Writes a pending approval, and shows it.
    pub(super) fn put_asked(&mut self, approval: &Approval) {
        self.batch.put_task(TaskStep {
            id: approval.task,
            conversation: approval.conversation,
            owner: Some(approval.call),
            kind: task::kind::APPROVAL,
            status: "waiting",
            background: false,
            abort_mark: None,
            waits: NONE,
            input: Some(approval),
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
    }

    /// Writes what a pending approval came to, and shows it.
    pub(super) fn put_settled(&mut self, approval: &Approval) {
        self.put_outcome(approval);
        self.batch
            .drop_open(approval.conversation, What::Approval, approval.task.0);
        self.changes.push(Change::ApprovalSettled {
            approval: approval.clone(),
        });
        self.view.approvals.push(approval.clone());
    }

    /// Writes an approval's end as it now stands.
    pub(super) fn put_outcome(&mut self, approval: &Approval) {
        let outcome = Settled {
            state: approval.state,
            decision: approval.decision.clone(),
            used_at: approval.used_at,
        };
        let at = self.at;
        self.batch.put_task(TaskStep {
            id: approval.task,
            conversation: approval.conversation,
            owner: Some(approval.call),
            kind: task::kind::APPROVAL,
            status: match approval.state {
                ApprovalState::Aborted => "aborted",
                _ => "done",
            },
            background: false,
            abort_mark: None,
            waits: NONE,
            input: NONE,
            checkpoint: NONE,
            outcome: Some(&outcome),
            created_at: approval.asked_at,
            ended_at: Some(at),
        });
    }

    /// Moves a call's row.
    pub fn put_call(&mut self, row: &CallRow) {
        self.moved.insert(row.ordinal);
        self.batch.put_call(row);
    }
}
