//! A generation: a request is prepared, pinned, sent, and what came of it committed.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    actor::{Actor, Effect, Over, Requesting},
    state::{Active, Phase, Round, Slot},
    step::{NewEntry, Step},
};
use crate::{
    classify::{Outcome, classify},
    compaction,
    context::Context,
    id::{Hash, Millis},
    ledger::{AttemptEnd, Run, RunOutcome, RunState},
    message::{Message, Part, ToolSchema},
    model::{Model, ModelError, ModelRequest, ModelResponse, Purpose, RequestContext},
    prompt::Rendered,
    retry::{ATTEMPTS, RECOVERIES, deadline},
    section,
    sql::{attempt::Attempt, entry::kind},
    submission::Unanswered,
    window::Retain,
};

impl Actor {
    /// Goes on with the generation.
    pub(super) async fn advance_generation(&mut self) -> Result<(), Over> {
        let Some(run) = &self.state.run else {
            return Ok(());
        };
        match run.progress.phase {
            Phase::Prepare => self.prepare(),
            Phase::Request if self.requesting.is_none() => self.recover().await?,
            Phase::Retry { until, delay_ms }
                if deadline(until, delay_ms, self.session.now()) <= self.session.now() =>
            {
                self.prepare();
            }
            Phase::NeedsKey if self.poked_models => {
                self.poked_models = false;
                self.prepare();
            }
            Phase::Tools { .. } => self.advance_round().await?,
            // What it waited for was stopped.
            Phase::Compact { .. } if self.state.compaction.is_none() => self.prepare(),
            _ => {}
        }
        Ok(())
    }

    /// Renders the prompt, out of the way of commands.
    fn prepare(&mut self) {
        if self.preparing.is_some() {
            return;
        }
        let ticket = self.ticket();
        self.preparing = Some(ticket);
        let (prompt, id) = (self.session.ports.prompt.clone(), self.id);
        let settings = self.state.row.settings.clone();
        self.effect(
            async move {
                Effect::Prepared {
                    ticket,
                    rendered: prompt.sections(id, &settings).await,
                }
            },
            move || Effect::Prepared {
                ticket,
                rendered: Err("it panicked".into()),
            },
        );
    }

    /// The context as it is in memory, or derived from the file.
    async fn context(&mut self) -> Result<&mut Context, Over> {
        if self.context.is_none() {
            let items = self.session.reader.context(self.id, None).await?;
            self.context = Some(Context::derive(&items));
        }
        Ok(self.context.as_mut().expect("it was derived just now"))
    }

    /// Pins a request and sends it.
    pub(super) async fn prepared(
        &mut self,
        rendered: Result<Rendered, String>,
    ) -> Result<(), Over> {
        let model_name = self.state.row.model.clone();
        let Some(model) = self.session.ports.models.resolve(&model_name) else {
            let detail = match model_name.is_empty() {
                true => "there is no default model".to_owned(),
                false => format!("there is no model {model_name}"),
            };
            return self.fail_run(Unanswered::NoModel, detail).await;
        };
        let tools: Vec<ToolSchema> = self
            .tools()
            .iter()
            .map(|tool| tool.declaration().schema)
            .collect();
        let options = model.options();
        let mut step = self.step("request");
        let context = self.context().await?;
        let change = match rendered {
            Ok(rendered) => {
                let sections = rendered.after(context.sections());
                section::change(context.sections(), &sections)
            }
            Err(error) => {
                tracing::warn!(conversation = %step.state.row.id, error, "the prompt is sent as it was: its sections cannot be rendered");
                None
            }
        };
        if let Some((told, changed)) = change {
            let texts: Vec<_> = changed.into_iter().map(|section| section.text).collect();
            for (named, text) in told.sections.iter().zip(&texts) {
                step.batch
                    .put_part(&named.hash, &Value::from(text.as_str()).to_string());
            }
            let data = serde_json::to_value(&told).expect("sections are plain data");
            step.entry(NewEntry {
                data,
                texts,
                ..NewEntry::new(kind::SYSTEM, None)
            });
        }
        // Only this actor adds to the context, and a request that is not sent after all
        // is prepared again: the new entry may be in it before it is committed, if it
        // is taken out again on failure.
        for item in &step.items {
            context.push(item);
        }
        let cutoff = context.cutoff();
        let (request, hash) = context.request(&model_name, &options, &tools);
        let told = std::mem::take(&mut step.items);
        let estimate = model.estimate(&request);
        let window = model.window();
        if window.is_some_and(|window| compaction::is_full(estimate, window))
            && !step.active().progress.compacted
        {
            step.items = told;
            return self.compact_first(step, model, None).await;
        }
        let active = step.active();
        let run = &mut active.progress.run;
        if let Err(detail) = self.admit(run, &model_name, estimate) {
            if !told.is_empty() {
                self.context = None;
            }
            return self.fail_run(Unanswered::Budget, detail).await;
        }
        run.model.clone_from(&model_name);
        run.state = RunState::Requesting;
        run.note = attempt_note(active.progress.attempt + 1 - active.progress.uncounted);
        active.progress.attempt += 1;
        active.progress.phase = Phase::Request;
        let (options_json, tools_json) = (
            options.to_string(),
            serde_json::to_string(&tools).expect("schemas are plain data"),
        );
        let attempt = Attempt {
            task: active.generation,
            attempt: active.progress.attempt,
            model: model_name,
            adapter: model.adapter(),
            options: Hash::of(options_json.as_bytes()),
            tools: Hash::of(tools_json.as_bytes()),
            cutoff,
            request: hash,
            estimate,
            recoveries: 0,
            started_at: Millis(0),
            ended: None,
            usage: None,
        };
        let attempt = Attempt {
            started_at: step.at,
            ..attempt
        };
        self.put_parts(&mut step, &attempt, &options_json, &tools_json);
        step.batch.put_attempt(&attempt);
        step.started(&attempt);
        let attempt = Arc::new(attempt);
        step.active().attempt = Some(attempt.clone());
        let filling = window.is_some_and(|window| compaction::is_filling(estimate, window));
        let summary = match filling && !step.active().progress.compacted {
            true => {
                self.compact_early(&mut step, &told, model.clone(), estimate)
                    .await?
            }
            false => None,
        };
        step.put_generation();
        self.commit_surely(step).await?;
        self.session.parts_stand([&attempt.options, &attempt.tools]);
        self.send(model, request);
        if let Some(summary) = summary {
            self.send_summary(summary);
        }
        Ok(())
    }

    /// Whether a run may send another request, by the ledger and by what the conversation
    /// itself may use; else why not, for people.
    pub(super) fn admit(&self, run: &Run, model: &str, estimate: u64) -> Result<(), String> {
        let admitted = self.session.ports.ledger.admit(run, model, estimate);
        admitted.map_err(|refusal| refusal.detail)?;
        let used = run.usage.input + run.usage.output;
        let share = self.state.row.settings.get("tokens");
        match share.and_then(Value::as_u64) {
            Some(share) if used.saturating_add(estimate) > share => Err(format!(
                "{used} of its {share} tokens are used and the next request needs about {estimate}"
            )),
            _ => Ok(()),
        }
    }

    /// Options and tools, where this process has not stored them already.
    fn put_parts(&self, step: &mut Step, attempt: &Attempt, options: &str, tools: &str) {
        for (hash, body) in [(&attempt.options, options), (&attempt.tools, tools)] {
            if !self.session.has_part(hash) {
                step.batch.put_part(hash, body);
            }
        }
    }

    /// A request that was in flight when the process ended.
    async fn recover(&mut self) -> Result<(), Over> {
        let Some(active) = &self.state.run else {
            return Ok(());
        };
        let Some(lost) = active.attempt.clone() else {
            return Ok(());
        };
        let items = self
            .session
            .reader
            .context(self.id, Some(lost.cutoff))
            .await?;
        let (options, tools) = (
            self.session.reader.part(&lost.options).await?,
            self.session.reader.part(&lost.tools).await?,
        );
        let tools: Vec<ToolSchema> = serde_json::from_value(tools).map_err(|error| {
            crate::error::SessionError::Corrupt(format!("tools of a request: {error}"))
        })?;
        let (text, thinking) = self.session.reader.partial(lost.task).await?;
        let mut context = Context::derive(&items);
        let (request, hash) = context.request(&lost.model, &options, &tools);
        if hash != lost.request {
            tracing::warn!(task = %lost.task, attempt = lost.attempt, "the request that is sent again differs from the one that was lost");
        }
        let model = self.session.ports.models.resolve(&lost.model);
        let mut step = self.step("recover");
        step.partial(text, thinking);
        step.ended(&lost, None, true, AttemptEnd::Aborted);
        step.batch.drop_chunks(lost.task);
        let run = step.run();
        let refused = match model {
            _ if lost.recoveries >= RECOVERIES => Some((
                Unanswered::ModelError,
                format!(
                    "the request was lost {} times, each time with the process",
                    lost.recoveries + 1
                ),
            )),
            None => Some((
                Unanswered::NoModel,
                format!("there is no model {} any more", lost.model),
            )),
            Some(_) => {
                let refusal = self.admit(&run, &lost.model, lost.estimate).err();
                refusal.map(|detail| (Unanswered::Budget, detail))
            }
        };
        if let Some((reason, detail)) = refused {
            step.end_run(RunOutcome::Unanswered { reason, detail }, "failed");
            return self.commit_surely(step).await;
        }
        let attempt = Attempt {
            recoveries: lost.recoveries + 1,
            ..(*lost).clone()
        };
        step.batch.put_attempt(&attempt);
        step.started(&attempt);
        step.active().attempt = Some(Arc::new(attempt));
        step.put_generation();
        self.context = Some(context);
        self.commit_surely(step).await?;
        if let Some(model) = model {
            self.send(model, request);
        }
        Ok(())
    }

    /// Sends the pinned request.
    fn send(&mut self, model: Arc<dyn Model>, request: Arc<ModelRequest>) {
        let Some(active) = &self.state.run else {
            return;
        };
        let context = RequestContext {
            conversation: self.id,
            task: active.generation,
            attempt: active.progress.attempt,
            purpose: Purpose::Turn,
        };
        let sink = self
            .session
            .streams
            .open(self.id, active.generation, Retain::Tail, None);
        let (ticket, cancel) = (self.ticket(), CancellationToken::new());
        self.requesting = Some(Requesting {
            ticket,
            cancel: cancel.clone(),
            since: self.session.now(),
        });
        self.effect(
            async move {
                let response = model.respond(&request, &context, &sink, cancel).await;
                Effect::Responded { ticket, response }
            },
            move || Effect::Broke { ticket },
        );
    }

    /// Commits what came of a request.
    pub(super) async fn responded(
        &mut self,
        since: Millis,
        response: Result<ModelResponse, ModelError>,
    ) -> Result<(), Over> {
        let Some(active) = self.state.run.clone() else {
            return Ok(());
        };
        let Some(attempt) = active.attempt.clone() else {
            return Ok(());
        };
        let now = self.session.now();
        let found = classify(response, active.counted(), now, rand::random());
        let (_, stored) = self.session.streams.close(active.generation);
        let mut step = self.step("answer");
        step.at = now;
        if stored {
            step.batch.drop_chunks(active.generation);
        }
        let run = &mut step.active().progress.run;
        run.active_ms += (now.0 - since.0).max(0) as u64;
        if let Some(usage) = found.usage {
            run.usage.input += usage.input;
            run.usage.cached += usage.cached;
            run.usage.output += usage.output;
        }
        step.ended(&attempt, found.usage, false, found.outcome.attempt_end());
        step.active().attempt = None;
        match found.outcome {
            Outcome::Answer { content } => {
                let entry = step.answer(&content);
                step.active().progress.run.turns += 1;
                step.end_run(RunOutcome::Answered { entry, content }, "done");
                step.next_run(false);
                step.put_generation();
            }
            Outcome::Tools { content, calls } => {
                step.name = "calls";
                let entry = step.answer(&content);
                let run = &mut step.active().progress.run;
                run.turns += 1;
                if let Err(refusal) = self
                    .session
                    .ports
                    .ledger
                    .admit_calls(run, calls.len() as u32)
                {
                    step.end_run(
                        RunOutcome::Unanswered {
                            reason: Unanswered::Budget,
                            detail: refusal.detail,
                        },
                        "failed",
                    );
                } else {
                    run.tool_calls += calls.len() as u32;
                    run.state = RunState::Tools;
                    run.note.clear();
                    self.propose(&mut step, entry, content, calls);
                    step.put_generation();
                    step.show_moved(&self.tools());
                }
            }
            Outcome::Retry { text, until, delay } => {
                step.name = "retry";
                step.failure(attempt.attempt, &text);
                let counted = active.counted();
                let delay_ms = delay.as_millis() as i64;
                let active = step.active();
                active.progress.phase = Phase::Retry { until, delay_ms };
                active.progress.run.state = RunState::Retrying;
                active.progress.run.note = format!(
                    "retry {counted} of {} in {}: {text}",
                    ATTEMPTS - 1,
                    seconds(delay)
                );
                step.put_generation();
            }
            Outcome::NeedsKey { needs } => {
                step.name = "retry";
                let active = step.active();
                active.progress.phase = Phase::NeedsKey;
                active.progress.uncounted += 1;
                active.progress.run.state = RunState::NeedsKey;
                active.progress.run.note = format!("waits for {needs}");
                step.put_generation();
            }
            Outcome::Failed { reason, text, end } => {
                step.name = "failed";
                step.failure(attempt.attempt, &text);
                let again = end == AttemptEnd::Overflow && !active.progress.compacted;
                if let (true, Some(model)) =
                    (again, self.session.ports.models.resolve(&attempt.model))
                {
                    // The next request is the same attempt, of a context that fits.
                    step.active().progress.uncounted += 1;
                    return self.compact_first(step, model, Some(text)).await;
                }
                step.end_run(
                    RunOutcome::Unanswered {
                        reason,
                        detail: text,
                    },
                    "failed",
                );
            }
        }
        self.commit_surely(step).await
    }

    /// The calls of an answer become a round.
    fn propose(
        &mut self,
        step: &mut Step,
        entry: crate::id::EntryId,
        content: Vec<Part>,
        calls: Vec<crate::message::ToolCall>,
    ) {
        let tools = self.tools();
        let sequential = calls.iter().any(|call| {
            tools
                .iter()
                .map(|tool| tool.declaration())
                .any(|declared| declared.sequential && declared.schema.name == call.name)
        });
        let count = if sequential { 1 } else { calls.len() };
        let active = step.active();
        active.progress.phase = Phase::Tools { entry };
        active.round = Some(Round {
            entry,
            content: Arc::new(content),
            slots: calls.into_iter().map(Slot::new).collect(),
        });
        for ordinal in 0..count {
            step.propose(ordinal);
        }
    }

    /// Ends the run without an answer, while no request is in flight.
    pub(super) async fn fail_run(
        &mut self,
        reason: Unanswered,
        detail: String,
    ) -> Result<(), Over> {
        let mut step = self.step("failed");
        step.end_run(RunOutcome::Unanswered { reason, detail }, "failed");
        self.commit_surely(step).await
    }
}

/// What people see of a request that is not the first.
fn attempt_note(attempt: u32) -> String {
    if attempt > 1 {
        format!("attempt {attempt} of {ATTEMPTS}")
    } else {
        String::new()
    }
}

fn seconds(delay: Duration) -> String {
    format!("{} s", delay.as_secs_f64().round() as u64)
}

impl Step {
    /// The entry of an answer.
    fn answer(&mut self, content: &[Part]) -> crate::id::EntryId {
        let writer = Some(self.active().generation);
        let message = Message::Assistant {
            content: content.to_vec(),
        };
        self.entry(NewEntry {
            writer,
            ..NewEntry::new(kind::ASSISTANT, Some(message))
        })
    }

    /// The entry of a request that failed; no later request contains it.
    fn failure(&mut self, attempt: u32, text: &str) {
        let writer = Some(self.active().generation);
        let data = serde_json::json!({"error": text, "attempt": attempt});
        self.entry(NewEntry {
            state: "error",
            data,
            writer,
            ..NewEntry::new(kind::ASSISTANT, None)
        });
    }

    /// The entry of an answer that was cut off, as far as it was committed.
    pub(super) fn partial(&mut self, text: String, thinking: String) {
        if text.is_empty() && thinking.is_empty() {
            return;
        }
        let mut content = Vec::new();
        if !thinking.is_empty() {
            content.push(Part::Thinking {
                text: thinking,
                signature: None,
            });
        }
        if !text.is_empty() {
            content.push(Part::text(text));
        }
        let writer = Some(self.active().generation);
        self.entry(NewEntry {
            state: "aborted",
            writer,
            ..NewEntry::new(kind::ASSISTANT, Some(Message::Assistant { content }))
        });
    }

    /// An attempt begins, for the ledger.
    fn started(&mut self, attempt: &Attempt) {
        let run = self.run();
        self.started_for(&run, attempt);
    }

    /// An attempt ends.
    pub(super) fn ended(
        &mut self,
        attempt: &Attempt,
        usage: Option<crate::model::Usage>,
        lost: bool,
        end: AttemptEnd,
    ) {
        let run = self.run();
        self.ended_for(&run, attempt, usage, lost, end);
    }
}

impl Active {
    /// Whether something outside of the engine is going on, or will by itself.
    pub(super) fn only_waits(&self) -> bool {
        match self.progress.phase {
            _ if self.ending() => false,
            Phase::Retry { .. } | Phase::NeedsKey => true,
            Phase::Tools { .. } => self.round.as_ref().is_some_and(Round::only_waits),
            Phase::Prepare | Phase::Request | Phase::Compact { .. } => false,
        }
    }
}
