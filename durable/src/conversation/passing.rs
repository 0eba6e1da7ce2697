//! Approvals that calls ask for on their way: asked, found again, settled, used.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{
    actor::{Actor, Effect, Over, Work},
    step::Step,
};
use crate::{
    error::SessionError,
    gate::{Approval, ApprovalState, Decision},
    id::{Millis, TaskId},
    ledger::{RunState, Statement},
    on_the_way::{Asked, OnTheWay},
    sql::call::state,
};

/// Somebody who waits for an approval.
pub(crate) struct Waiter {
    approval: TaskId,
    call: TaskId,
    settled: CancellationToken,
}

impl Actor {
    /// Asks for an approval for a call that is being executed, or finds the same one.
    pub(super) async fn ask_on_the_way(
        &mut self,
        ask: OnTheWay,
    ) -> Result<Option<Asked>, SessionError> {
        let Some(run) = self.state.run.as_ref().filter(|run| !run.ending()) else {
            return Ok(None);
        };
        let requesters = run.progress.run.requesters.clone();
        if !self.is_executing(ask.call) {
            return Ok(None);
        }
        let same = |approval: &Approval| {
            approval.arguments_hash == ask.hash && approval.question.rule == ask.question.rule
        };
        let pending = self.state.passing.iter().find(|it| same(it)).cloned();
        let approval = match pending {
            Some(approval) => approval,
            None => {
                let known = self.session.reader.passed(self.id, &ask.hash).await?;
                // A yes counts once, wherever it was asked for; a no for this call.
                let stands = known.into_iter().rev().find(|it| {
                    same(it)
                        && match it.state {
                            ApprovalState::Approved => it.used_at.is_none(),
                            ApprovalState::Denied | ApprovalState::Expired => it.call == ask.call,
                            _ => false,
                        }
                });
                if let Some(approval) = stands {
                    return Ok(Some(Asked {
                        approval,
                        settled: None,
                    }));
                }
                let mut step = self.step("ask");
                let approval = step.ask_passing(ask.clone(), requesters);
                self.commit(step).await?;
                approval
            }
        };
        let (sender, receiver) = oneshot::channel();
        self.wait_for(sender, approval.task, ask.call);
        self.account_passing().await.map_err(|Over(error)| error)?;
        Ok(Some(Asked {
            approval: (*approval).clone(),
            settled: Some(receiver),
        }))
    }

    fn is_executing(&self, call: TaskId) -> bool {
        self.work.values().any(
            |work| matches!(work, Work::Executing { running, .. } if running.call.task == call),
        )
    }

    /// Remembers who waits, until the approval is settled or they have gone.
    fn wait_for(&mut self, mut sender: oneshot::Sender<()>, approval: TaskId, call: TaskId) {
        let ticket = self.ticket();
        let settled = CancellationToken::new();
        let waiter = Waiter {
            approval,
            call,
            settled: settled.clone(),
        };
        self.waiters.insert(ticket, waiter);
        self.effect(
            async move {
                tokio::select! {
                    () = settled.cancelled() => {}
                    () = sender.closed() => {}
                }
                drop(sender);
                Effect::LetGo { ticket }
            },
            move || Effect::LetGo { ticket },
        );
    }

    /// Tells those whose approval is settled.
    pub(super) fn wake_waiters(&self) {
        for waiter in self.waiters.values() {
            if !self
                .state
                .passing
                .iter()
                .any(|it| it.task == waiter.approval)
            {
                waiter.settled.cancel();
            }
        }
    }

    /// Shows which calls wait for a person on their way, and charges no time while all
    /// that are being executed do.
    pub(super) async fn account_passing(&mut self) -> Result<(), Over> {
        if self
            .state
            .run
            .as_ref()
            .is_none_or(super::state::Active::ending)
        {
            return Ok(());
        }
        let waits = |call: TaskId| {
            let mut open = self.waiters.values();
            open.find(|it| it.call == call && !it.settled.is_cancelled())
                .map(|it| it.approval)
        };
        let executing: Vec<_> = self
            .work
            .iter()
            .filter_map(|(ordinal, work)| match work {
                Work::Executing { running, .. } => Some((*ordinal, waits(running.call.task))),
                _ => None,
            })
            .collect();
        let all_wait = !executing.is_empty() && executing.iter().all(|(_, on)| on.is_some());
        let mut step = self.step("settle");
        for (ordinal, on) in &executing {
            step.show_waiting(*ordinal, *on);
        }
        let charged = match (all_wait, self.executing_since) {
            (true, Some(since)) => {
                let passed = (step.at.0 - since.0).max(0) as u64;
                step.active().progress.run.active_ms += passed;
                true
            }
            (false, None) if !executing.is_empty() => {
                self.executing_since = Some(step.at);
                false
            }
            _ => false,
        };
        if step.batch.calls.is_empty() && !charged {
            return Ok(());
        }
        let only_waits = step
            .active()
            .round
            .as_ref()
            .is_some_and(super::state::Round::only_waits);
        step.active().progress.run.state = match only_waits {
            true => RunState::Waiting,
            false => RunState::Tools,
        };
        step.show_moved(&self.tools());
        step.put_generation();
        self.commit_surely(step).await?;
        if charged {
            self.executing_since = None;
        }
        Ok(())
    }

    /// Decides one of them; the first decision wins.
    pub(super) async fn decide_passing(
        &mut self,
        id: TaskId,
        decision: Decision,
        extra: Vec<Statement>,
    ) -> Result<(bool, Approval), SessionError> {
        let approval = self.state.passing.iter().find(|it| it.task == id).cloned();
        let approval = approval.expect("it was found a moment ago");
        let (mut step, state, late) = self.decision(&approval, &decision, extra);
        let settled = step.settle_passing(id, state, (!late).then_some(decision));
        self.commit(step).await?;
        Ok((!late, settled.expect("it is pending")))
    }

    /// Settles those that nobody decided in time.
    pub(super) async fn expire_passing(&mut self, now: Millis) -> Result<(), Over> {
        let due: Vec<_> = self
            .state
            .passing
            .iter()
            .filter(|it| it.question.expires_at.is_some_and(|at| at <= now))
            .map(|it| it.task)
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        let mut step = self.step("expire");
        for id in due {
            step.settle_passing(id, ApprovalState::Expired, None);
        }
        self.commit_surely(step).await
    }

    /// Takes back a question.
    pub(super) async fn supersede(&mut self, id: TaskId) -> Result<(), SessionError> {
        let mut step = self.step("settle");
        match step.settle_passing(id, ApprovalState::Superseded, None) {
            Some(_) => self.commit(step).await,
            None => Ok(()),
        }
    }

    /// Uses a yes; `false` where it is none, or was used.
    pub(super) async fn use_approval(
        &mut self,
        id: TaskId,
        extra: Vec<Statement>,
    ) -> Result<bool, SessionError> {
        let Some(approval) = self.session.reader.approval(id).await? else {
            return Ok(false);
        };
        let usable = approval.on_the_way
            && approval.conversation == self.id
            && approval.state == ApprovalState::Approved
            && approval.used_at.is_none();
        if !usable {
            return Ok(false);
        }
        let mut step = self.step("settle");
        step.extra = extra;
        step.put_outcome(&Approval {
            used_at: Some(step.at),
            ..approval
        });
        self.commit(step).await?;
        Ok(true)
    }
}

impl Step {
    /// Makes an approval that a call asks for on its way.
    fn ask_passing(
        &mut self,
        ask: OnTheWay,
        requesters: Vec<crate::submission::Requester>,
    ) -> Arc<Approval> {
        let approval = Approval {
            task: self.new_task(),
            conversation: ask.conversation,
            call: ask.call,
            tool: ask.what,
            arguments_hash: ask.hash,
            requesters,
            question: ask.question,
            asked_at: self.at,
            state: ApprovalState::Pending,
            decision: None,
            on_the_way: true,
            used_at: None,
        };
        self.put_asked(&approval);
        let approval = Arc::new(approval);
        self.state.passing.push(approval.clone());
        approval
    }

    /// Settles a pending one; `None` where it is not pending.
    fn settle_passing(
        &mut self,
        id: TaskId,
        state: ApprovalState,
        decision: Option<Decision>,
    ) -> Option<Approval> {
        let which = self.state.passing.iter().position(|it| it.task == id)?;
        let mut approval = (*self.state.passing.remove(which)).clone();
        approval.state = state;
        approval.decision = decision;
        self.put_settled(&approval);
        Some(approval)
    }

    /// Nobody of the run waits any more.
    pub(super) fn end_passing(&mut self, state: ApprovalState) {
        let open: Vec<_> = self.state.passing.iter().map(|it| it.task).collect();
        for id in open {
            self.settle_passing(id, state, None);
        }
    }

    /// Moves a call that is being executed between running and waiting.
    fn show_waiting(&mut self, ordinal: usize, on: Option<TaskId>) {
        let Some(row) = self.call_row(ordinal) else {
            return;
        };
        let (word, note) = match on {
            Some(approval) => (
                state::WAITING,
                format!("waits on its way for approval {approval}"),
            ),
            None => (state::RUNNING, String::new()),
        };
        let waited = row.state == state::WAITING;
        if (on.is_none() && !waited) || (row.state == word && row.note == note) {
            return;
        }
        row.state = word;
        row.note = note;
        let row = row.clone();
        self.put_call(&row);
    }
}
