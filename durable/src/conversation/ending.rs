//! The end of a run that did not come to its answer by itself.

use std::sync::Arc;

use super::{
    actor::{Actor, Effect, Over, Work},
    decide::find,
    result::Ended,
    state::Phase,
    step::{NewEntry, Step},
};
use crate::{
    error::SessionError,
    gate::ApprovalState,
    id::Millis,
    ledger::{AttemptEnd, CallOutcome, RunOutcome, RunState},
    message::{Message, Part},
    sql::{entry::kind, submission::SubmissionType},
    submission::{AbortScope, Aborted, Unanswered},
    tool::Replay,
};

/// How long an abort waits for executions to end, in milliseconds.
const PATIENCE: i64 = 10_000;

impl Actor {
    /// Ends the run, and with the conversation's scope empties the inbox.
    pub(super) async fn abort(&mut self, scope: AbortScope) -> Result<Aborted, SessionError> {
        let mut step = self.step("abort");
        let mut aborted = Aborted {
            was_running: self.state.run.is_some(),
            withdrawn: Vec::new(),
        };
        let going = self.state.run.as_ref().map(|run| run.ending());
        if going == Some(false) {
            // First: a run that ends does not go on for what it waited for.
            self.mark(&mut step, Unanswered::Aborted);
        }
        if scope == AbortScope::Conversation {
            let inputs: Vec<_> = step
                .state
                .queue
                .iter()
                .filter(|row| row.kind == SubmissionType::Input)
                .cloned()
                .collect();
            aborted.withdrawn = inputs.iter().map(|row| step.withdraw(row)).collect();
            step.abort_compaction();
        }
        if going != Some(false) {
            if !aborted.withdrawn.is_empty() || step.view.compaction.is_some() {
                self.commit(step).await?;
            }
            return Ok(aborted);
        }
        self.commit(step).await?;
        self.let_go();
        Ok(aborted)
    }

    /// Marks the run: it is being ended, for a reason.
    pub(super) fn mark(&self, step: &mut Step, reason: Unanswered) {
        // Submissions from here on came after the abort.
        let mark = self
            .session
            .counters
            .submission
            .load(std::sync::atomic::Ordering::Relaxed);
        let active = step.active();
        active.abort_mark = Some(mark);
        active.progress.ending = Some(reason);
        active.progress.run.state = RunState::Ending;
        active.progress.run.note.clear();
        // Whoever waits for an approval on its way hears of it at once.
        step.end_passing(ApprovalState::Aborted);
        step.put_generation();
    }

    /// Cancels what a marked run does, and bounds the wait for it.
    pub(super) fn let_go(&mut self) {
        if let Some(requesting) = &self.requesting {
            requesting.cancel.cancel();
        }
        for work in self.work.values() {
            if let Work::Executing { running, .. } = work {
                running.cancel.cancel();
            }
        }
        self.abort_children();
        let ticket = self.ticket();
        self.patience = Some(ticket);
        let (clock, until) = (
            self.session.clock.clone(),
            Millis(self.session.now().0 + PATIENCE),
        );
        self.effect(
            async move {
                clock.until(until).await;
                Effect::Impatient { ticket }
            },
            move || Effect::Impatient { ticket },
        );
    }

    /// Ends the run once nothing of it executes, or patience is at its end. Bottom-up:
    /// calls and their approvals, then the generation, then its inputs.
    pub(super) async fn advance_ending(&mut self) -> Result<(), Over> {
        let started = |ordinal: &usize| {
            let round = self.state.run.as_ref().and_then(|run| run.round.as_ref());
            round.is_some_and(|round| round.slots[*ordinal].started())
        };
        let executing = self.work.iter().any(|(ordinal, work)| match work {
            Work::Executing { .. } => true,
            Work::Resting(_) => started(ordinal),
            Work::Deciding(_) | Work::Parked => false,
        });
        let owned = !self.open_conversations().is_empty();
        if owned && self.patience.is_none() && !self.given_up {
            // Marked by an earlier process: what it owns is ended first all the same.
            self.let_go();
        }
        let executing = executing || owned;
        if executing && self.patience.is_some() {
            return Ok(());
        }
        let Some(active) = self.state.run.clone() else {
            return Ok(());
        };
        let reason = active.progress.ending.unwrap_or(Unanswered::Aborted);
        let mut step = self.step("aborted");
        if let (Phase::Request, Some(attempt)) = (&active.progress.phase, &active.attempt) {
            let lost = self.requesting.is_none();
            let (text, thinking) = self.session.reader.partial(active.generation).await?;
            self.session.streams.close(active.generation);
            step.partial(text, thinking);
            step.batch.drop_chunks(active.generation);
            step.ended(attempt, None, lost, AttemptEnd::Aborted);
            step.active().attempt = None;
        }
        if matches!(active.progress.phase, Phase::Compact { .. }) {
            step.abort_compaction();
        }
        self.abort_calls(&mut step).await?;
        let tools = self.tools();
        step.show_moved(&tools);
        let owes = step.owes();
        step.end_run(
            RunOutcome::Unanswered {
                reason,
                detail: String::new(),
            },
            "aborted",
        );
        // What was queued before an abort stays; what came after it goes on.
        let mark = active.abort_mark.unwrap_or(i64::MAX);
        let later = |step: &Step, kind| {
            let mut queue = step.state.queue.iter();
            queue.any(|row| row.kind == kind && row.submission.id.0 >= mark)
        };
        if reason == Unanswered::Reset {
            step.next_run(false);
        } else if later(&step, SubmissionType::Input) {
            step.next_run(true);
        } else if later(&step, SubmissionType::Write) {
            step.place_writes();
        }
        step.put_generation();
        self.forget_work();
        self.commit_surely(step).await?;
        if owes {
            self.session.owed.notify_one();
        }
        Ok(())
    }

    /// Every call that has not ended gets its result, in call order.
    async fn abort_calls(&mut self, step: &mut Step) -> Result<(), Over> {
        let Some(round) = step.active().round.clone() else {
            return Ok(());
        };
        for (ordinal, slot) in round.slots.iter().enumerate() {
            if slot.holds() {
                step.let_go_of_left(ordinal);
            }
            if slot.ended() {
                continue;
            }
            let Some(row) = &slot.row else {
                step.abort_unmade(ordinal);
                continue;
            };
            let call = Arc::new(self.call(ordinal));
            let text = match (row.started(), row.replay) {
                (false, _) => "The call was aborted before it began.",
                (true, Some(Replay::Attach)) => {
                    "The call was aborted, but it could not be ended: it may still be running."
                }
                (true, _) => {
                    "The call was aborted while it ran; what it had done by then is not known."
                }
            };
            // A sandbox that could not be reached in time is told at the next connect.
            let owed_kill = row.started() && row.replay == Some(Replay::Attach);
            let (mut output, mut stored) = self.session.streams.close(row.task);
            if row.started() && output.is_empty() {
                let kept = self.outputs.remove(&row.task);
                let (window, offset) = crate::read::output_of(
                    &self.session.reader,
                    row.task,
                    kept,
                    Default::default(),
                )
                .await?;
                output = window.render();
                stored |= offset > 0;
            }
            let settings = &self.state.row.settings;
            let missing = find(&self.session, self.id, settings, &row.tool).is_none();
            let ended = Ended {
                owed_kill,
                orphaned: row.started() && missing,
                ..Ended::text(CallOutcome::Aborted, text)
            };
            step.end_call(ordinal, call, ended.after_output(output), stored);
        }
        Ok(())
    }

    /// Ends a run that cannot go on: a step of it was refused by the database, or its
    /// model's adapter broke.
    pub(super) async fn fault(&mut self, text: String) -> Result<(), Over> {
        tracing::error!(conversation = %self.id, text, "a run cannot go on, and ends");
        self.context = None;
        for work in self.work.values() {
            if let Work::Executing { running, .. } = work {
                running.cancel.cancel();
            }
        }
        self.forget_work();
        for unledgered in [false, true] {
            let mut step = self.step("failed");
            step.unledgered = unledgered;
            if let Some(Phase::Compact { .. }) =
                step.state.run.as_ref().map(|run| &run.progress.phase)
            {
                step.abort_compaction();
            }
            self.abort_calls(&mut step).await?;
            let generation = step.active().generation;
            if let Some(attempt) = step.active().attempt.take() {
                let (text, thinking) = self.session.reader.partial(generation).await?;
                step.partial(text, thinking);
                step.ended(&attempt, None, false, AttemptEnd::Failed);
            }
            step.batch.drop_chunks(generation);
            self.session.streams.close(generation);
            step.end_run(
                RunOutcome::Unanswered {
                    reason: Unanswered::Faulted,
                    detail: text.clone(),
                },
                "faulted",
            );
            match self.commit_surely(step).await {
                Err(Over(SessionError::Constraint(_))) if !unledgered => {}
                outcome => return outcome,
            }
        }
        Ok(())
    }

    /// Lets go of everything that is going on for a run.
    pub(super) fn forget_work(&mut self) {
        if let Some(requesting) = self.requesting.take() {
            requesting.cancel.cancel();
        }
        self.work.clear();
        self.decided.clear();
        self.preparing = None;
        self.patience = None;
        self.given_up = false;
        self.executing_since = None;
    }
}

impl Step {
    /// A call whose turn never came gets a result, and no task.
    fn abort_unmade(&mut self, ordinal: usize) {
        let round = self
            .active()
            .round
            .as_ref()
            .expect("calls belong to a round");
        let proposed = round.slots[ordinal].proposed.clone();
        let generation = self.active().generation;
        let message = Message::ToolResult {
            call_id: proposed.id.clone(),
            name: proposed.name.clone(),
            content: vec![Part::text("The call was aborted before it began.")],
            is_error: true,
        };
        self.entry(NewEntry {
            writer: Some(generation),
            ..NewEntry::new(kind::TOOL_RESULT, Some(message))
        });
    }
}
