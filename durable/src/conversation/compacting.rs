//! A conversation's compaction: it is begun, its summary asked for, its end committed.

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    actor::{Actor, Effect, Over, Requesting},
    state::{Compacting, CompactionPhase, CompactionProgress, Phase},
    step::{NONE, NewEntry, Step},
};
use crate::{
    classify::{Outcome, classify},
    compaction::{self, Asked, Ended, Input, Mode},
    error::SessionError,
    id::{Hash, RequestId, SubmissionId},
    ledger::{AttemptEnd, Change, Run, RunOutcome, RunState},
    message::{Message, Part},
    model::{
        Model, ModelError, ModelRequest, ModelResponse, PartialSink, Purpose, RequestContext, Usage,
    },
    retry::{RECOVERIES, deadline},
    sql::{
        attempt::Attempt,
        entry::kind,
        open_work::{Wake, What},
        submission::{SubmissionRow, SubmissionType},
        task::{self, TaskStep},
    },
    submission::{Requester, Submission, SubmissionState, Unanswered, WhenBusy},
    write::{Head, WriteBody},
};

/// A summary is shown when it is whole.
struct Unshown;
impl PartialSink for Unshown {
    fn text(&self, _delta: &str) {}
    fn thinking(&self, _delta: &str) {}
}

/// A summary's request that is to be sent once its step stands.
pub(super) struct Summary {
    model: Arc<dyn Model>,
    request: Arc<ModelRequest>,
}

/// A summary that may be asked for, and about the tokens that it takes.
struct Planned {
    input: Input,
    request: ModelRequest,
    estimate: u64,
    model: Arc<dyn Model>,
}

impl Planned {
    fn new(
        items: &[crate::context::Item],
        input: Input,
        run: &Run,
        model: Arc<dyn Model>,
    ) -> Planned {
        let request = compaction::request(items, &input, &run.model, &model.options());
        Planned {
            estimate: model.estimate(&request),
            input,
            request,
            model,
        }
    }
}

impl Actor {
    /// Compacts because somebody asks; a summary that is being written already is that.
    pub(super) async fn compact(
        &mut self,
        requester: Requester,
        instructions: String,
    ) -> Result<Asked, SessionError> {
        if let Some(going) = &self.state.compaction {
            return Ok(Asked::Going(going.input.mode));
        }
        let items = self.session.reader.context(self.id, None).await?;
        let name = self.state.row.model.clone();
        let model = self.session.ports.models.resolve(&name);
        let mut step = self.step("compact");
        let planned = model.and_then(|model| {
            let window = model.window();
            let plan = compaction::plan(&items, Mode::Manual, window, instructions)?;
            Some((model, plan))
        });
        let Some((model, plan)) = planned else {
            step.name = "compacted";
            step.compaction_ended(Mode::Manual, Ended::Skipped, "there is nothing to compact");
            self.commit(step).await?;
            return Ok(Asked::Skipped);
        };
        let run = match &self.state.run {
            Some(active) => active.progress.run.clone(),
            None => Run {
                id: SubmissionId(0),
                conversation: self.id,
                requesters: vec![requester],
                started_at: step.at,
                turns: 0,
                tool_calls: 0,
                usage: Usage::default(),
                active_ms: 0,
                model: name,
                state: RunState::Compacting,
                note: String::new(),
            },
        };
        let planned = Planned::new(&items, plan, &run, model);
        if let Err(refusal) = self.admit(&run, &run.model, planned.estimate) {
            step.name = "compacted";
            step.compaction_ended(Mode::Manual, Ended::Failed, &refusal);
            self.commit(step).await?;
            return Ok(Asked::Refused(refusal));
        }
        let summary = step.begin_compaction(planned, run);
        self.commit(step).await?;
        self.send_summary(summary);
        Ok(Asked::Going(Mode::Manual))
    }

    /// Lets the generation wait for a compaction before it asks again; `overflow` is the
    /// provider's text where it refused the request.
    pub(super) async fn compact_first(
        &mut self,
        mut step: Step,
        model: Arc<dyn Model>,
        overflow: Option<String>,
    ) -> Result<(), Over> {
        step.name = "compact";
        let mode = match overflow {
            Some(_) => Mode::Overflow,
            None => Mode::Threshold,
        };
        let mut summary = None;
        if step.state.compaction.is_none() {
            let mut items = self.session.reader.context(self.id, None).await?;
            items.extend(step.items.iter().cloned());
            let plan = compaction::plan(&items, mode, model.window(), String::new());
            let run = step.run();
            let planned = plan.map(|plan| Planned::new(&items, plan, &run, model));
            let admitted = planned.map(|planned| {
                let admitted = self.admit(&run, &run.model, planned.estimate);
                admitted.map(|()| planned)
            });
            match admitted {
                Some(Ok(planned)) => summary = Some(step.begin_compaction(planned, run)),
                Some(Err(refusal)) => step.compaction_ended(mode, Ended::Failed, &refusal),
                None => step.compaction_ended(mode, Ended::Skipped, "there is nothing to compact"),
            }
        }
        let waits = step.state.compaction.is_some();
        let active = step.active();
        active.progress.compacted = true;
        match (waits, overflow) {
            (true, overflow) => {
                active.progress.phase = Phase::Compact { overflow };
                active.progress.run.state = RunState::Compacting;
                active.progress.run.note.clear();
            }
            (false, Some(detail)) => {
                let reason = Unanswered::ModelError;
                step.end_run(RunOutcome::Unanswered { reason, detail }, "failed");
            }
            (false, None) => active.progress.phase = Phase::Prepare,
        }
        step.put_generation();
        self.commit_surely(step).await?;
        if let Some(summary) = summary {
            self.send_summary(summary);
        }
        Ok(())
    }

    /// Begins a compaction beside a request that is about to be sent and may take about
    /// `beside` tokens.
    pub(super) async fn compact_early(
        &mut self,
        step: &mut Step,
        told: &[crate::context::Item],
        model: Arc<dyn Model>,
        beside: u64,
    ) -> Result<Option<Summary>, Over> {
        let placed = |row: &Arc<SubmissionRow>| {
            let body = row.write.as_ref();
            body.is_some_and(|body| body.kind == kind::COMPACTION)
        };
        if step.state.compaction.is_some() || step.state.queue.iter().any(placed) {
            return Ok(None);
        }
        let mut items = self.session.reader.context(self.id, None).await?;
        items.extend(told.iter().cloned());
        let window = model.window();
        let plan = compaction::plan(&items, Mode::Background, window, String::new());
        let run = step.run();
        let planned = plan.map(|plan| Planned::new(&items, plan, &run, model));
        // With what is left the answer comes first; the threshold will tell.
        let admitted = planned.filter(|planned| {
            let both = planned.estimate.saturating_add(beside);
            self.admit(&run, &run.model, both).is_ok()
        });
        Ok(admitted.map(|planned| step.begin_compaction(planned, run)))
    }

    /// Goes on with the compaction.
    pub(super) async fn advance_compaction(&mut self) -> Result<(), Over> {
        let Some(going) = self.state.compaction.clone() else {
            return Ok(());
        };
        if self.summarizing.is_some() {
            return Ok(());
        }
        match going.progress.phase {
            CompactionPhase::Request => self.again(&going, true).await,
            CompactionPhase::Retry { until, delay_ms }
                if deadline(until, delay_ms, self.session.now()) <= self.session.now() =>
            {
                self.again(&going, false).await
            }
            CompactionPhase::Retry { .. } => Ok(()),
        }
    }

    /// Asks again: as it was pinned after a crash, or another attempt.
    async fn again(&mut self, going: &Compacting, lost: bool) -> Result<(), Over> {
        let Some(pinned) = going.attempt.clone() else {
            return Ok(());
        };
        let items = self
            .session
            .reader
            .context(self.id, Some(going.input.cutoff))
            .await?;
        let options = self.session.reader.part(&pinned.options).await?;
        let request = compaction::request(&items, &going.input, &pinned.model, &options);
        let mut step = self.step(if lost { "recover" } else { "compact" });
        if lost {
            step.ended_for(
                &going.progress.run,
                &pinned,
                None,
                true,
                AttemptEnd::Aborted,
            );
        }
        let model = self.session.ports.models.resolve(&pinned.model);
        let refusal = match &model {
            None => Some(format!("there is no model {} any more", pinned.model)),
            Some(_) if lost && pinned.recoveries >= RECOVERIES => {
                Some("the request was lost with the process each time".into())
            }
            Some(_) => {
                let run = self.state.run.as_ref().map(|active| &active.progress.run);
                let run = run.unwrap_or(&going.progress.run);
                self.admit(run, &pinned.model, pinned.estimate).err()
            }
        };
        let (Some(model), None) = (model, &refusal) else {
            step.name = "compacted";
            let text = refusal.unwrap_or_default();
            step.fail_compaction(Ended::Failed, &text);
            return self.commit_surely(step).await;
        };
        let attempt = match lost {
            true => Attempt {
                recoveries: pinned.recoveries + 1,
                ..(*pinned).clone()
            },
            false => Attempt {
                attempt: pinned.attempt + 1,
                recoveries: 0,
                started_at: step.at,
                ..(*pinned).clone()
            },
        };
        step.batch.put_attempt(&attempt);
        step.started_for(&going.progress.run, &attempt);
        let compaction = step.compaction();
        compaction.progress.phase = CompactionPhase::Request;
        compaction.progress.attempt = attempt.attempt;
        compaction.attempt = Some(Arc::new(attempt));
        step.put_compaction();
        self.commit_surely(step).await?;
        self.send_summary(Summary {
            model,
            request: Arc::new(request),
        });
        Ok(())
    }

    pub(super) fn send_summary(&mut self, summary: Summary) {
        let Some(going) = &self.state.compaction else {
            return;
        };
        let context = RequestContext {
            conversation: self.id,
            task: going.task,
            attempt: going.progress.attempt,
            purpose: Purpose::Summary,
        };
        let (ticket, cancel) = (self.ticket(), CancellationToken::new());
        self.summarizing = Some(Requesting {
            ticket,
            cancel: cancel.clone(),
            since: self.session.now(),
        });
        let Summary { model, request } = summary;
        self.effect(
            async move {
                let response = model.respond(&request, &context, &Unshown, cancel).await;
                Effect::Summarized { ticket, response }
            },
            move || Effect::Summarized {
                ticket,
                response: Err(ModelError::Fatal {
                    text: "the model's adapter panicked".into(),
                }),
            },
        );
    }

    /// Commits what came of a summary's request.
    pub(super) async fn summarized(
        &mut self,
        response: Result<ModelResponse, ModelError>,
    ) -> Result<(), Over> {
        let Some(going) = self.state.compaction.clone() else {
            return Ok(());
        };
        let Some(attempt) = going.attempt.clone() else {
            return Ok(());
        };
        let now = self.session.now();
        let found = classify(response, going.progress.attempt, now, rand::random());
        let mut step = self.step("compacted");
        step.at = now;
        if let (Some(usage), Some(active)) = (found.usage, &mut step.state.run) {
            let run = &mut active.progress.run;
            run.usage.input += usage.input;
            run.usage.cached += usage.cached;
            run.usage.output += usage.output;
        }
        let end = found.outcome.attempt_end();
        step.ended_for(&going.progress.run, &attempt, found.usage, false, end);
        match found.outcome {
            Outcome::Answer { content } => {
                let text = content.iter().filter_map(|part| match part {
                    Part::Text { text } => Some(text.as_str()),
                    _ => None,
                });
                let text = text.collect::<Vec<_>>().join("\n");
                let id = self.session.counters.submission();
                step.place_summary(&going, id, text.trim());
            }
            Outcome::Retry { until, delay, .. } => {
                step.name = "compact";
                let delay_ms = delay.as_millis() as i64;
                step.compaction().progress.phase = CompactionPhase::Retry { until, delay_ms };
                step.put_compaction();
            }
            Outcome::Tools { .. } => {
                step.fail_compaction(Ended::Failed, "the model called tools instead of writing");
            }
            Outcome::NeedsKey { needs } => {
                step.fail_compaction(Ended::Failed, &format!("there is no key: {needs}"));
            }
            Outcome::Failed { text, .. } => step.fail_compaction(Ended::Failed, &text),
        }
        step.put_generation();
        self.commit_surely(step).await
    }

    /// Lets go of a summary that nobody waits for any more.
    pub(super) fn forget_summary(&mut self) {
        if self.state.compaction.is_none()
            && let Some(summarizing) = self.summarizing.take()
        {
            summarizing.cancel.cancel();
        }
    }
}

impl Step {
    /// The compaction; steps that need one are made only while there is one.
    fn compaction(&mut self) -> &mut Compacting {
        self.state
            .compaction
            .as_mut()
            .expect("this step is made while a compaction is going")
    }

    /// Makes a compaction's task and pins its request.
    fn begin_compaction(&mut self, planned: Planned, run: Run) -> Summary {
        let Planned {
            input,
            request,
            estimate,
            model,
        } = planned;
        let json = serde_json::to_vec(&request).expect("requests are plain data");
        let (options, tools) = (request.options.to_string(), "[]");
        let attempt = Attempt {
            task: self.new_task(),
            attempt: 1,
            model: request.model.clone(),
            adapter: model.adapter(),
            options: Hash::of(options.as_bytes()),
            tools: Hash::of(tools.as_bytes()),
            cutoff: input.cutoff,
            request: Hash::of(&json),
            estimate,
            recoveries: 0,
            started_at: self.at,
            ended: None,
            usage: None,
        };
        self.batch.put_part(&attempt.options, &options);
        self.batch.put_part(&attempt.tools, tools);
        self.batch.put_attempt(&attempt);
        self.started_for(&run, &attempt);
        self.state.compaction = Some(Compacting {
            task: attempt.task,
            created_at: self.at,
            input: Arc::new(input),
            progress: CompactionProgress {
                run,
                phase: CompactionPhase::Request,
                attempt: 1,
            },
            attempt: Some(Arc::new(attempt)),
        });
        self.put_compaction();
        Summary {
            model,
            request: Arc::new(request),
        }
    }

    /// Writes the compaction's checkpoint as it stands now.
    fn put_compaction(&mut self) {
        let conversation = self.state.row.id;
        let going = self.compaction().clone();
        let wake = match going.progress.phase {
            CompactionPhase::Request => Wake::Runnable,
            CompactionPhase::Retry { until, .. } => Wake::At(until.0),
        };
        self.batch.put_task(TaskStep {
            id: going.task,
            conversation,
            owner: None,
            kind: task::kind::COMPACTION,
            status: match wake {
                Wake::Runnable => "running",
                _ => "waiting",
            },
            background: going.input.mode == Mode::Background,
            abort_mark: None,
            waits: None::<&()>,
            input: Some(&*going.input),
            checkpoint: Some(&going.progress),
            outcome: NONE,
            created_at: going.created_at,
            ended_at: None,
        });
        self.batch
            .put_open(conversation, What::Compaction, going.task.0, wake);
        if let Wake::At(at) = wake {
            self.wake_at(at);
        }
        self.view.compaction = Some(Some(going.input.mode));
    }

    /// The compaction's task ends.
    fn end_compaction(&mut self, status: &str, ended: Ended) {
        let conversation = self.state.row.id;
        let Some(going) = self.state.compaction.take() else {
            return;
        };
        self.batch.put_task(TaskStep {
            id: going.task,
            conversation,
            owner: None,
            kind: task::kind::COMPACTION,
            status,
            background: going.input.mode == Mode::Background,
            abort_mark: None,
            waits: None::<&()>,
            input: Some(&*going.input),
            checkpoint: NONE,
            outcome: Some(&ended),
            created_at: going.created_at,
            ended_at: Some(self.at),
        });
        self.batch
            .drop_open(conversation, What::Compaction, going.task.0);
        self.view.compaction = Some(None);
    }

    /// The summary becomes a write: placed where nothing is being asked, else queued for
    /// the next boundary.
    fn place_summary(&mut self, going: &Compacting, id: SubmissionId, text: &str) {
        self.end_compaction("done", Ended::Compacted);
        let message = compaction::summary(text);
        let after = crate::context::weight(&message) / 4;
        let mode = going.input.mode;
        let told = format!(
            "compacted ({}): of about {} tokens the beginning is a summary of about {after} now",
            mode.word(),
            going.input.before
        );
        let body = WriteBody {
            kind: kind::COMPACTION.into(),
            message: Some(message),
            data: json!({
                "outcome": Ended::Compacted,
                "mode": mode,
                "task": going.task,
                "before": going.input.before,
                "text": told,
            }),
            head: Some(Head::From(going.input.cut)),
            edits: Vec::new(),
        };
        let conversation = self.state.row.id;
        self.admit(SubmissionRow {
            submission: Submission {
                id,
                conversation,
                request_id: Some(RequestId(format!("task:{}", going.task))),
                requester: Requester::Task { id: going.task.0 },
                content: Vec::new(),
                when_busy: WhenBusy::FollowUp,
                autonomous: false,
                data: serde_json::Value::Null,
                state: SubmissionState::Queued,
            },
            write: Some(body),
            kind: SubmissionType::Write,
            entry: None,
            at: self.at,
        });
        match &mut self.state.run {
            None => self.place_writes(),
            Some(active) if matches!(active.progress.phase, Phase::Compact { .. }) => {
                active.progress.phase = Phase::Prepare;
                active.progress.run.state = RunState::Preparing;
                self.place(&[id]);
            }
            Some(_) => {}
        }
        self.shown(id);
    }

    /// There is no summary: the request that waits is sent as it is, but for one that was
    /// refused as too long.
    pub(super) fn fail_compaction(&mut self, ended: Ended, text: &str) {
        let Some(going) = self.state.compaction.clone() else {
            return;
        };
        let status = match ended {
            Ended::Aborted => "aborted",
            _ => "failed",
        };
        self.end_compaction(status, ended);
        self.compaction_ended(going.input.mode, ended, text);
        let Some(active) = self.state.run.as_mut().filter(|run| !run.ending()) else {
            return;
        };
        let Phase::Compact { overflow } = active.progress.phase.clone() else {
            return;
        };
        match overflow {
            None => {
                active.progress.phase = Phase::Prepare;
                active.progress.run.state = RunState::Preparing;
            }
            Some(detail) => {
                let reason = Unanswered::ModelError;
                self.end_run(RunOutcome::Unanswered { reason, detail }, "failed");
            }
        }
    }

    /// An entry that tells how a compaction without a summary ended; no model sees it.
    pub(super) fn compaction_ended(&mut self, mode: Mode, ended: Ended, why: &str) {
        let word = match ended {
            Ended::Compacted => "done",
            Ended::Skipped => "skipped",
            Ended::Aborted => "aborted",
            Ended::Failed => "failed",
        };
        let text = match why {
            "" => format!("compaction {word}"),
            why => format!("compaction {word}: {why}"),
        };
        self.entry(NewEntry {
            data: json!({"outcome": ended, "mode": mode, "text": text}),
            ..NewEntry::new(kind::COMPACTION, None::<Message>)
        });
    }

    /// Ends a compaction that is stopped, whatever its request comes to.
    pub(super) fn abort_compaction(&mut self) {
        let Some(going) = self.state.compaction.clone() else {
            return;
        };
        if let (CompactionPhase::Request, Some(attempt)) = (&going.progress.phase, &going.attempt) {
            self.ended_for(
                &going.progress.run,
                attempt,
                None,
                false,
                AttemptEnd::Aborted,
            );
        }
        self.fail_compaction(Ended::Aborted, "");
    }

    /// An attempt begins, for the ledger.
    pub(super) fn started_for(&mut self, run: &Run, attempt: &Attempt) {
        self.changes.push(Change::AttemptStarted {
            run: run.clone(),
            task: attempt.task,
            attempt: attempt.attempt,
            model: attempt.model.clone(),
            estimate: attempt.estimate,
        });
    }

    /// An attempt ends.
    pub(super) fn ended_for(
        &mut self,
        run: &Run,
        attempt: &Attempt,
        usage: Option<Usage>,
        lost: bool,
        end: AttemptEnd,
    ) {
        self.batch
            .end_attempt(attempt.task, attempt.attempt, self.at, end, usage.as_ref());
        self.changes.push(Change::AttemptEnded {
            run: run.clone(),
            task: attempt.task,
            attempt: attempt.attempt,
            model: attempt.model.clone(),
            usage,
            lost,
            ended: end,
        });
    }
}

impl Compacting {
    /// Whether it needs no time of its own at this moment.
    pub fn only_waits(&self) -> bool {
        matches!(self.progress.phase, CompactionPhase::Retry { .. })
    }
}
