//! A tool round: calls are decided, their intents committed, executed, their results
//! committed.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    actor::{Actor, Effect, Over, Work},
    decide::{Decided, Proposal, find},
    result::Ended,
    step::Step,
};
use crate::{
    consent::Consent,
    document::{DocumentChange, DocumentError},
    hook,
    id::Millis,
    ledger::{CallOutcome, RunOutcome, RunState},
    read::output_of,
    recovery::{Resume, resume},
    sql::call::{CallRow, state},
    streams::Stored,
    tool::{Call, Start, Tool, ToolEnd, ToolFailure},
};

/// Between two tries of something that cannot be reached, in milliseconds.
const UNREACHABLE_WAIT: i64 = 2_000;
/// An execution that goes on for so long after it could not be reached, was reached.
const REACHED_AFTER: i64 = 3_000;

/// A call that is executed.
pub(super) struct Running {
    pub call: Arc<Call>,
    pub cancel: CancellationToken,
}

impl Actor {
    /// Goes on with the round: starts what can be started.
    pub(super) async fn advance_round(&mut self) -> Result<(), Over> {
        let Some(round) = self.state.run.as_ref().and_then(|run| run.round.clone()) else {
            return Ok(());
        };
        let mut interrupted = Vec::new();
        for (ordinal, slot) in round.slots.iter().enumerate() {
            if slot.holds() && !self.work.contains_key(&ordinal) {
                self.tend_left(ordinal);
            }
            let Some(row) = slot.row.as_ref().filter(|_| !slot.ended()) else {
                continue;
            };
            if self.work.contains_key(&ordinal) {
                continue;
            }
            if slot.wait.is_some() {
                self.advance_wait(ordinal).await?;
            } else if row.started() {
                if let Some(why) = self.resume(ordinal, row).await? {
                    interrupted.push((ordinal, why));
                }
            } else {
                self.decide(ordinal);
            }
        }
        if interrupted.is_empty() {
            let stale = |slot: &super::state::Slot| {
                slot.started() && !slot.ended() && slot.state() == state::WAITING
            };
            if self.waiters.is_empty() && round.slots.iter().any(stale) {
                // Whoever waited on its way did so in an earlier process.
                self.account_passing().await?;
            }
            return Ok(());
        }
        let mut step = self.step("result");
        for (ordinal, ended) in interrupted {
            let call = Arc::new(self.call(ordinal));
            step.end_call(ordinal, call, ended, true);
        }
        self.after_results(step, "result").await
    }

    /// The call of a slot, as its rows have it.
    pub(super) fn call(&self, ordinal: usize) -> Call {
        let run = self.state.run.as_ref().expect("calls belong to a run");
        let slot = &run.round.as_ref().expect("calls belong to a round").slots[ordinal];
        let row = slot.row.as_ref().expect("a call that goes on has its task");
        let origin = super::state::CallOrigin {
            entry: run
                .round
                .as_ref()
                .map_or(crate::id::EntryId(0), |round| round.entry),
            run: run.progress.run.id,
            requesters: run.progress.run.requesters.clone(),
            autonomous: run.progress.autonomous,
        };
        let arguments = row
            .arguments
            .clone()
            .unwrap_or_else(|| slot.proposed.arguments.clone());
        crate::debts::call_of(&self.session, row, &origin, arguments)
    }

    /// Decides a call, or decides it anew.
    pub(super) fn decide(&mut self, ordinal: usize) {
        if !self.session.started() {
            return;
        }
        self.decided.retain(|(decided, _)| *decided != ordinal);
        let Some(run) = &self.state.run else { return };
        let Some(slot) = run
            .round
            .as_ref()
            .and_then(|round| round.slots.get(ordinal))
        else {
            return;
        };
        let Some(row) = &slot.row else { return };
        let proposal = Proposal {
            session: self.session.clone(),
            conversation: self.id,
            settings: self.state.row.settings.clone(),
            run: run.progress.run.id,
            task: row.task,
            proposed: slot.proposed.clone(),
            requesters: run.progress.run.requesters.clone(),
            autonomous: run.progress.autonomous,
            approvals: slot
                .approvals
                .iter()
                .map(|approval| (**approval).clone())
                .collect(),
        };
        let ticket = self.ticket();
        self.work.insert(ordinal, Work::Deciding(ticket));
        self.effect(
            async move {
                Effect::Decided {
                    ticket,
                    ordinal,
                    decided: Box::new(proposal.decide().await),
                }
            },
            move || Effect::Decided {
                ticket,
                ordinal,
                decided: Box::new(Decided::Unreachable(
                    "the decision of the call failed".into(),
                )),
            },
        );
    }

    /// A call whose intent an earlier process committed. `Some`: it ends here.
    async fn resume(&mut self, ordinal: usize, row: &CallRow) -> Result<Option<Ended>, Over> {
        let settings = self.state.row.settings.clone();
        let tool = find(&self.session, self.id, &settings, &row.tool);
        let present = tool.as_ref().map(|tool| tool.declaration().replay);
        let retain = tool
            .as_ref()
            .map_or_else(Default::default, |tool| tool.retain());
        let stored = self.outputs.remove(&row.task);
        match (resume(row.replay, present), tool) {
            (Resume::Rerun, Some(tool)) => {
                // Its output begins anew, so what is stored of it goes first.
                let mut step = self.step("recover");
                step.batch.drop_chunks(row.task);
                self.commit_surely(step).await?;
                self.execute(ordinal, tool, Start::Again { offset: 0 }, None);
                Ok(None)
            }
            (Resume::Attach, Some(tool)) => {
                let (window, offset) =
                    output_of(&self.session.reader, row.task, stored, retain).await?;
                self.execute(
                    ordinal,
                    tool,
                    Start::Again { offset },
                    Some(Stored { window, offset }),
                );
                Ok(None)
            }
            _ => {
                let (window, _) = output_of(&self.session.reader, row.task, stored, retain).await?;
                let text = "The process that ran this call ended before the call did. What it had done by then is not known; check before you repeat it.";
                Ok(Some(
                    Ended::text(CallOutcome::Interrupted, text).after_output(window.render()),
                ))
            }
        }
    }

    /// Executes a call whose intent stands.
    fn execute(
        &mut self,
        ordinal: usize,
        tool: Arc<dyn Tool>,
        start: Start,
        stored: Option<Stored>,
    ) {
        let call = Arc::new(self.call(ordinal));
        let streams = &self.session.streams;
        // A call that could not be reached for a while goes on with what it has.
        let sink = match (stored, streams.sink(call.task)) {
            (None, Some(sink)) => sink,
            (stored, _) => streams.open(self.id, call.task, tool.retain(), stored),
        };
        self.set_going(ordinal, call.clone(), |cancel| async move {
            tool.execute(&call, start, &sink, cancel).await
        });
    }

    /// Sets a call's code going; its end comes back as an effect, also that of a panic.
    pub(super) fn set_going<F>(
        &mut self,
        ordinal: usize,
        call: Arc<Call>,
        code: impl FnOnce(CancellationToken) -> F,
    ) where
        F: Future<Output = Result<ToolEnd, ToolFailure>> + Send + 'static,
    {
        let cancel = CancellationToken::new();
        let ticket = self.ticket();
        let code = code(cancel.clone());
        let settings = &self.state.row.settings;
        let hooks = self.session.ports.tools.hooks(self.id, settings);
        let called = call.clone();
        let running = Running { call, cancel };
        self.work
            .insert(ordinal, Work::Executing { ticket, running });
        self.executing_since.get_or_insert(self.session.now());
        self.effect(
            async move {
                let mut end = code.await;
                if let Ok(ended) = end {
                    end = Ok(hook::after(&hooks, &called, ended).await);
                }
                Effect::Ended {
                    ticket,
                    ordinal,
                    end,
                }
            },
            move || Effect::Ended {
                ticket,
                ordinal,
                end: Err(ToolFailure::Failed("it panicked".into())),
            },
        );
    }

    /// Commits what was decided together: intents, questions, refusals.
    pub(super) async fn settle_decisions(&mut self) -> Result<(), Over> {
        if self.decided.is_empty()
            || self
                .work
                .values()
                .any(|work| matches!(work, Work::Deciding(_)))
        {
            return Ok(());
        }
        let mut decided = std::mem::take(&mut self.decided);
        decided.sort_by_key(|(ordinal, _)| *ordinal);
        if self
            .state
            .run
            .as_ref()
            .is_none_or(|run| run.ending() || run.round.is_none())
        {
            return Ok(());
        }
        let mut step = self.step("ask");
        let (mut start, mut ended, mut kept, mut resting) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (ordinal, decided) in decided {
            match *decided {
                Decided::Unreachable(text) => {
                    step.unreachable(ordinal, &text);
                    resting.push(ordinal);
                }
                Decided::Refused { call, text } => {
                    step.arguments(ordinal, &call, None);
                    step.end_call(
                        ordinal,
                        Arc::new(call),
                        Ended::text(CallOutcome::Error, text),
                        false,
                    );
                    ended.push(ordinal);
                }
                Decided::Spoken {
                    call,
                    verdict,
                    consent,
                    tool,
                    replay,
                } => {
                    let call = Arc::new(call);
                    match consent {
                        Consent::Keep => kept.push(ordinal),
                        Consent::Run { record } => {
                            step.told(&call, verdict);
                            step.intend(ordinal, &call, replay, record);
                            start.push((ordinal, tool));
                        }
                        Consent::Deny { reason, record } => {
                            step.told(&call, verdict);
                            step.arguments(ordinal, &call, Some(record));
                            step.end_call(
                                ordinal,
                                call,
                                Ended::text(CallOutcome::Denied, reason),
                                false,
                            );
                            ended.push(ordinal);
                        }
                        Consent::Ask(question) => {
                            step.told(&call, verdict);
                            step.question(ordinal, &call, question);
                            kept.push(ordinal);
                        }
                    }
                }
            }
        }
        for ordinal in kept {
            self.work.insert(ordinal, Work::Parked);
        }
        for ordinal in &ended {
            self.work.remove(ordinal);
        }
        if step.batch.calls.is_empty() {
            // Everything is as it was.
            resting
                .into_iter()
                .for_each(|ordinal| self.rest_call(ordinal));
            return Ok(());
        }
        let name = match (start.is_empty(), ended.is_empty()) {
            (false, _) => "intent",
            (true, false) => "result",
            (true, true) if resting.is_empty() => "ask",
            (true, true) => "unreachable",
        };
        self.after_results(step, name).await?;
        for (ordinal, tool) in start {
            self.execute(ordinal, tool, Start::Fresh, None);
        }
        for ordinal in resting {
            self.rest_call(ordinal);
        }
        Ok(())
    }

    /// Tries again later.
    pub(super) fn rest_call(&mut self, ordinal: usize) {
        let ticket = self.ticket();
        self.work.insert(ordinal, Work::Resting(ticket));
        let (clock, until) = (
            self.session.clock.clone(),
            Millis(self.session.now().0 + UNREACHABLE_WAIT),
        );
        self.effect(
            async move {
                clock.until(until).await;
                Effect::Rested { ticket, ordinal }
            },
            move || Effect::Rested { ticket, ordinal },
        );
    }

    /// A call that could not be reached is tried again.
    pub(super) fn rested(&mut self, ordinal: usize) {
        self.work.remove(&ordinal);
        let slot = self
            .state
            .run
            .as_ref()
            .and_then(|run| run.round.as_ref())
            .map(|round| round.slots[ordinal].clone());
        let waits = slot.as_ref().is_some_and(|slot| slot.wait.is_some());
        let Some(row) = slot.and_then(|slot| slot.row) else {
            return;
        };
        if !row.started() {
            return self.decide(ordinal);
        }
        if waits {
            return;
        }
        let settings = self.state.row.settings.clone();
        let Some(tool) = find(&self.session, self.id, &settings, &row.tool) else {
            return;
        };
        let offset = self.session.streams.seen(row.task);
        self.execute(ordinal, tool, Start::Again { offset }, None);
        if let Some(Work::Executing { ticket, running }) = self.work.get(&ordinal) {
            if self
                .state
                .run
                .as_ref()
                .is_some_and(super::state::Active::ending)
            {
                running.cancel.cancel();
            }
            let ticket = *ticket;
            let (clock, until) = (
                self.session.clock.clone(),
                Millis(self.session.now().0 + REACHED_AFTER),
            );
            self.effect(
                async move {
                    clock.until(until).await;
                    Effect::Reached { ticket, ordinal }
                },
                move || Effect::Reached { ticket, ordinal },
            );
        }
    }

    /// An execution that could not be reached goes on.
    pub(super) async fn reached(&mut self, ordinal: usize) -> Result<(), Over> {
        let mut step = self.step("unreachable");
        let Some(row) = step
            .call_row(ordinal)
            .filter(|row| row.state == state::UNREACHABLE)
        else {
            return Ok(());
        };
        row.state = state::RUNNING;
        row.note.clear();
        let row = row.clone();
        step.put_call(&row);
        step.reach();
        step.show_moved(&self.tools());
        self.commit_surely(step).await
    }

    /// Commits executions that ended together.
    pub(super) async fn settle_ends(
        &mut self,
        mut ends: Vec<(usize, Running, Result<ToolEnd, ToolFailure>)>,
    ) -> Result<(), Over> {
        ends.sort_by_key(|(ordinal, ..)| *ordinal);
        let mut step = self.step("result");
        let mut resting = Vec::new();
        let (mut results, mut waiting) = (0, 0);
        for (ordinal, running, end) in ends {
            let task = running.call.task;
            let ended = match end {
                Ok(ToolEnd::Waits(waits)) => {
                    match self.begin_wait(&mut step, ordinal, &running, waits) {
                        None => {
                            waiting += 1;
                            continue;
                        }
                        Some(ended) => ended,
                    }
                }
                Err(ToolFailure::Unreachable(text)) => {
                    step.unreachable(ordinal, &text);
                    resting.push(ordinal);
                    continue;
                }
                Ok(ToolEnd::Completed(mut result)) => {
                    let documents = std::mem::take(&mut result.documents);
                    self.with_documents(Ended::of_tool(result), documents)
                        .await?
                }
                Ok(ToolEnd::Leaves { mut result, work }) => {
                    let mut documents = std::mem::take(&mut result.documents);
                    // With a run that is being ended nothing new begins.
                    let ended = match step.active().ending() {
                        true => Ended::of_tool(result),
                        false => {
                            let ended = step.leave(ordinal, &running.call, result, work);
                            if !ended.leaves {
                                // A call that failed for what it would leave changes none.
                                documents.clear();
                            }
                            ended
                        }
                    };
                    self.with_documents(ended, documents).await?
                }
                Ok(ToolEnd::HandsOff { mut result, brief }) => {
                    let documents = std::mem::take(&mut result.documents);
                    let ended = Ended {
                        handoff: Some(brief),
                        ..Ended::of_tool(result)
                    };
                    self.with_documents(ended, documents).await?
                }
                Ok(ToolEnd::Interrupted { note }) => Ended::text(
                    CallOutcome::Interrupted,
                    format!("The call was interrupted and its outcome is not known: {note}"),
                ),
                Err(ToolFailure::Failed(text)) => {
                    Ended::text(CallOutcome::Error, format!("The tool failed: {text}"))
                }
                Err(ToolFailure::Cancelled) => {
                    Ended::text(CallOutcome::Aborted, "The call was aborted.")
                }
            };
            let (output, stored) = self.session.streams.close(task);
            step.end_call(ordinal, running.call, ended.after_output(output), stored);
            results += 1;
        }
        if !self
            .work
            .values()
            .any(|work| matches!(work, Work::Executing { .. }))
        {
            let since = self.executing_since.take().unwrap_or(step.at);
            step.active().progress.run.active_ms += (step.at.0 - since.0).max(0) as u64;
        }
        if results > 0 {
            self.after_results(step, "result").await?;
        } else if waiting > 0 {
            self.after_results(step, "wait").await?;
        } else if !step.batch.calls.is_empty() {
            self.after_results(step, "unreachable").await?;
        }
        for ordinal in resting {
            self.rest_call(ordinal);
        }
        Ok(())
    }

    /// An end with the documents that change with it, or the error where they cannot.
    async fn with_documents(
        &self,
        ended: Ended,
        documents: Vec<DocumentChange>,
    ) -> Result<Ended, Over> {
        match self.session.document_rows(&documents).await {
            Err(DocumentError::Session(error)) => Err(Over(error)),
            Err(error) => Ok(Ended::text(CallOutcome::Error, error.to_string())),
            Ok(documents) => Ok(Ended { documents, ..ended }),
        }
    }

    /// Commits a step that moved calls, together with what follows from it: the next
    /// call of a sequential round, or the end of the round.
    async fn after_results(&mut self, mut step: Step, name: &'static str) -> Result<(), Over> {
        step.name = name;
        step.settle_ended_calls();
        let tools = self.tools();
        step.show_moved(&tools);
        let ending = step.active().ending();
        let round = step
            .active()
            .round
            .as_ref()
            .expect("calls belong to a round");
        if !ending
            && round
                .slots
                .iter()
                .all(|slot| slot.ended() || slot.row.is_none())
        {
            let next = round.slots.iter().position(|slot| slot.row.is_none());
            match next {
                Some(next) => {
                    step.propose(next);
                    step.show_moved(&tools);
                }
                None if !round.is_over() => {}
                None => {
                    step.name = "round";
                    return self.finish_round(step).await;
                }
            }
        }
        let round = step
            .active()
            .round
            .as_ref()
            .expect("calls belong to a round");
        let state = if ending {
            RunState::Ending
        } else if round.only_waits() {
            RunState::Waiting
        } else {
            RunState::Tools
        };
        step.active().progress.run.state = state;
        step.put_generation();
        let owes = step.owes();
        self.commit_surely(step).await?;
        if owes {
            self.session.owed.notify_one();
        }
        let parked = self
            .work
            .iter()
            .filter(|(_, work)| matches!(work, Work::Parked));
        let parked: Vec<_> = parked.map(|(ordinal, _)| *ordinal).collect();
        parked
            .into_iter()
            .for_each(|ordinal| self.resume_over(ordinal));
        Ok(())
    }

    /// All calls have ended: the run goes on with what was steered, or ends.
    pub(super) async fn finish_round(&mut self, mut step: Step) -> Result<(), Over> {
        let owes = step.owes();
        let round = step
            .active()
            .round
            .clone()
            .expect("a round that ends is there");
        let mut briefs = round.slots.iter().rev();
        let brief = briefs.find_map(|slot| slot.handoff.clone());
        if round.slots.iter().all(|slot| slot.terminate) {
            step.end_run(
                RunOutcome::Answered {
                    entry: round.entry,
                    content: (*round.content).clone(),
                },
                "done",
            );
            step.hand_off(brief);
            step.next_run(false);
        } else {
            step.end_generation("done", "tools");
            let active = step.active();
            let mut run = active.progress.run.clone();
            run.state = RunState::Preparing;
            run.note.clear();
            let (inputs, autonomous) = (active.inputs.clone(), active.progress.autonomous);
            step.generation(run, inputs, autonomous);
            step.hand_off(brief);
            step.steer();
        }
        step.put_generation();
        self.work.clear();
        self.commit_surely(step).await?;
        if owes {
            self.session.owed.notify_one();
        }
        Ok(())
    }
}
