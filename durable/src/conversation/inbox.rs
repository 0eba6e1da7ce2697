//! The inbox: submissions come in, are withdrawn, or are found again.

use std::sync::Arc;

use super::{
    actor::{Actor, Over},
    step::Step,
};
use crate::{
    error::{SessionError, SubmitError},
    gate::{Approval, ApprovalState, Decision},
    id::{RequestId, SubmissionId, TaskId},
    ledger::{Change, Statement},
    sql::{
        open_work::What,
        submission::{SubmissionRow, SubmissionType},
    },
    submission::{Input, Submission, SubmissionState, Submitted, Unanswered, WhenBusy},
    write::{Head, Write},
};

impl Actor {
    /// A submission of that request id, from before.
    pub(super) async fn known(
        &self,
        request: Option<&RequestId>,
    ) -> Result<Option<SubmissionRow>, SessionError> {
        match request {
            Some(request) => self.session.reader.by_request(self.id, request).await,
            None => Ok(None),
        }
    }

    /// Admits an input. Whatever goes wrong is the caller's to know, and changes nothing.
    pub(super) async fn submit(&mut self, input: Input) -> Result<Submitted, SubmitError> {
        // Before the busy check: a repeated request is no new one.
        if let Some(known) = self.known(input.request_id.as_ref()).await? {
            return repeated(known, SubmissionType::Input);
        }
        if self.state.run.is_some() && input.when_busy == WhenBusy::Reject {
            return Err(SubmitError::Busy);
        }
        let mut step = self.step("submit");
        let submission = self.admit_input(&mut step, input);
        self.commit(step).await?;
        Ok(Submitted {
            submission,
            repeated: false,
        })
    }

    /// Admits an input to a step, with whatever it starts.
    fn admit_input(&self, step: &mut Step, input: Input) -> Submission {
        let id = self.session.counters.submission();
        step.extra = input.extra;
        let row = SubmissionRow {
            submission: Submission {
                id,
                conversation: self.id,
                request_id: input.request_id,
                requester: input.requester,
                content: input.content,
                when_busy: input.when_busy,
                autonomous: input.autonomous,
                data: input.data,
                state: SubmissionState::Queued,
            },
            write: None,
            kind: SubmissionType::Input,
            entry: None,
            at: step.at,
        };
        step.admit(row);
        if self.state.run.is_none() {
            step.next_run(true);
            step.put_generation();
        }
        step.shown(id)
    }

    /// Takes a queued submission back and admits another in its place, in one commit.
    /// `None`: it is not queued any more, and nothing is admitted.
    pub(super) async fn replace(
        &mut self,
        queued: SubmissionId,
        input: Input,
    ) -> Result<Option<Submitted>, SubmitError> {
        if let Some(known) = self.known(input.request_id.as_ref()).await? {
            return repeated(known, SubmissionType::Input).map(Some);
        }
        let found = self.state.queue.iter();
        let Some(row) = found.clone().find(|row| row.submission.id == queued) else {
            return Ok(None);
        };
        let mut step = self.step("replace");
        step.withdraw(&row.clone());
        let submission = self.admit_input(&mut step, input);
        self.commit(step).await?;
        Ok(Some(Submitted {
            submission,
            repeated: false,
        }))
    }

    /// The next request is made with this model.
    pub(super) async fn set_model(&mut self, model: String) -> Result<(), SessionError> {
        if self.state.row.model == model {
            return Ok(());
        }
        let mut step = self.step("model");
        step.batch.set_model(self.id, &model);
        Arc::make_mut(&mut step.state.row).model = model;
        self.commit(step).await
    }

    /// Admits a write.
    pub(super) async fn write(&mut self, write: Write) -> Result<Submitted, SubmitError> {
        if let Some(known) = self.known(write.request_id.as_ref()).await? {
            return repeated(known, SubmissionType::Write);
        }
        let head = match write.body.head {
            Some(Head::From(entry)) => Some(entry),
            _ => None,
        };
        let targets = write.body.edits.iter().map(|edit| edit.target);
        for entry in head.into_iter().chain(targets) {
            if self
                .session
                .reader
                .place_of(self.id, Some(entry))
                .await?
                .is_none()
            {
                let conversation = self.id;
                return Err(SessionError::NotVisible {
                    conversation,
                    entry,
                }
                .into());
            }
        }
        let mut step = self.step("write");
        let id = self.admit_write(&mut step, write);
        let submission = step.shown(id);
        self.commit(step).await?;
        Ok(Submitted {
            submission,
            repeated: false,
        })
    }

    /// Admits a write to a step, and places it with all others while idle.
    pub(super) fn admit_write(&self, step: &mut Step, write: Write) -> SubmissionId {
        let id = self.session.counters.submission();
        step.extra = write.extra;
        let row = SubmissionRow {
            submission: Submission {
                id,
                conversation: self.id,
                request_id: write.request_id,
                requester: write.requester,
                content: Vec::new(),
                when_busy: WhenBusy::FollowUp,
                autonomous: false,
                data: serde_json::Value::Null,
                state: SubmissionState::Queued,
            },
            write: Some(write.body),
            kind: SubmissionType::Write,
            entry: None,
            at: step.at,
        };
        step.admit(row);
        if self.state.run.is_none() {
            step.place_writes();
        }
        id
    }

    /// Takes a queued submission back.
    pub(super) async fn withdraw(
        &mut self,
        id: SubmissionId,
    ) -> Result<Option<Submission>, SessionError> {
        let Some(row) = self
            .state
            .queue
            .iter()
            .find(|row| row.submission.id == id)
            .cloned()
        else {
            // Placed or settled: as it is.
            return Ok(self
                .session
                .reader
                .submission(id)
                .await?
                .map(|row| row.submission));
        };
        let mut step = self.step("withdraw");
        let submission = step.withdraw(&row);
        self.commit(step).await?;
        Ok(Some(submission))
    }

    /// Decides an approval; the first decision wins.
    pub(super) async fn decide_approval(
        &mut self,
        id: TaskId,
        decision: Decision,
        extra: Vec<Statement>,
    ) -> Result<Option<(bool, Approval)>, SessionError> {
        let round = self.state.run.as_ref().and_then(|run| run.round.as_ref());
        let found = round.and_then(|round| {
            round.slots.iter().enumerate().find_map(|(ordinal, slot)| {
                let which = slot
                    .approvals
                    .iter()
                    .position(|approval| approval.task == id)?;
                Some((ordinal, which, slot.approvals[which].clone()))
            })
        });
        if found.is_none() && self.state.passing.iter().any(|it| it.task == id) {
            return self.decide_passing(id, decision, extra).await.map(Some);
        }
        let Some((ordinal, which, approval)) = found else {
            return Ok(self
                .session
                .reader
                .approval(id)
                .await?
                .map(|approval| (false, approval)));
        };
        if approval.state != ApprovalState::Pending {
            return Ok(Some((false, (*approval).clone())));
        }
        let (mut step, state, late) = self.decision(&approval, &decision, extra);
        let settled = step.settle_approval(ordinal, which, state, (!late).then_some(decision));
        self.commit(step).await?;
        self.decide(ordinal);
        Ok(Some((!late, (*settled).clone())))
    }

    /// A step for a decision, and what the approval becomes by it; `true` where it
    /// came too late.
    pub(super) fn decision(
        &self,
        approval: &Approval,
        decision: &Decision,
        extra: Vec<Statement>,
    ) -> (Step, ApprovalState, bool) {
        let mut step = self.step("decide");
        step.extra = extra;
        // It counts when it was given, which may be before this process could take it.
        let given = decision.at.min(step.at);
        let late = approval.question.expires_at.is_some_and(|at| at <= given);
        let state = match (late, decision.approved) {
            (true, _) => ApprovalState::Expired,
            (false, true) => ApprovalState::Approved,
            (false, false) => ApprovalState::Denied,
        };
        if late {
            // Nobody decided in time; what the caller adds belongs to a decision.
            step.name = "expire";
            step.extra.clear();
        }
        (step, state, late)
    }

    /// Settles approvals that nobody decided in time.
    pub(super) async fn expire(&mut self) -> Result<(), Over> {
        let now = self.session.now();
        self.expire_passing(now).await?;
        let Some(round) = self.state.run.as_ref().and_then(|run| run.round.as_ref()) else {
            return Ok(());
        };
        let due: Vec<_> = round
            .slots
            .iter()
            .enumerate()
            .filter_map(|(ordinal, slot)| {
                slot.pending()
                    .map(|which| (ordinal, which, &slot.approvals[which]))
            })
            .filter(|(_, _, approval)| approval.question.expires_at.is_some_and(|at| at <= now))
            .map(|(ordinal, which, _)| (ordinal, which))
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        let mut step = self.step("expire");
        for (ordinal, which) in &due {
            step.settle_approval(*ordinal, *which, ApprovalState::Expired, None);
        }
        self.commit_surely(step).await?;
        due.into_iter()
            .for_each(|(ordinal, _)| self.decide(ordinal));
        Ok(())
    }
}

impl Step {
    /// What became of a submission that this step admits, as it is told and shown.
    pub(super) fn shown(&mut self, id: SubmissionId) -> Submission {
        let queued = self.state.queue.iter().find(|row| row.submission.id == id);
        if let Some(row) = queued.cloned() {
            self.admitted(&row);
        }
        self.view
            .submissions
            .iter()
            .find(|submission| submission.id == id)
            .cloned()
            .expect("an admitted submission is shown")
    }

    /// Places every write.
    pub(super) fn place_writes(&mut self) {
        let writes: Vec<_> = self
            .state
            .queue
            .iter()
            .filter(|row| row.kind == SubmissionType::Write)
            .map(|row| row.submission.id)
            .collect();
        self.place(&writes);
    }

    /// A queued submission is taken back.
    pub(super) fn withdraw(&mut self, row: &Arc<SubmissionRow>) -> Submission {
        let mut submission = row.submission.clone();
        submission.state = SubmissionState::Unanswered {
            reason: Unanswered::Withdrawn,
            detail: String::new(),
        };
        self.state
            .queue
            .retain(|queued| queued.submission.id != submission.id);
        self.batch
            .move_submission(submission.id, &submission.state, None, None);
        self.batch
            .drop_open(self.state.row.id, What::Submission, submission.id.0);
        self.changes.push(Change::Settled {
            submission: submission.clone(),
        });
        self.view.submissions.push(submission.clone());
        submission
    }
}

/// A request id that is known finds its submission, of its type.
pub(super) fn repeated(
    known: SubmissionRow,
    kind: SubmissionType,
) -> Result<Submitted, SubmitError> {
    if known.kind == kind {
        return Ok(Submitted {
            submission: known.submission,
            repeated: true,
        });
    }
    Err(SubmitError::OtherType(
        known
            .submission
            .request_id
            .map_or_else(String::new, |id| id.0),
    ))
}
