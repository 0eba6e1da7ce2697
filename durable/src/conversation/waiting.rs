//! Calls that wait: what they own is made, tended, settled; then they go on.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    actor::{Actor, Effect, Over, Work as Going},
    command::Command,
    decide::find,
    result::Ended,
    round::Running,
    state::{Child, ChildPlace, Round, Slot, WaitRow, Waiting},
    step::{NONE, Step},
};
use crate::{
    error::SessionError,
    extension,
    id::{ConversationId, RequestId, TaskId},
    ledger::{CallOutcome, Change, Statement},
    sql::{
        call::{CallRow, state},
        conversation::{ConversationRow, Origin, Owner},
        open_work::{Wake, What},
        task::{self, TaskStep},
    },
    submission::{AbortScope, Input, Requester, WhenBusy},
    view::Shows,
    wait::{Awaited, Question, Waits, Work, WorkEnd, is_cycle},
};

impl Actor {
    /// A started call whose tool asked to wait. `Some`: it cannot, and ends with that.
    pub(super) fn begin_wait(
        &mut self,
        step: &mut Step,
        ordinal: usize,
        running: &Running,
        waits: Waits,
    ) -> Option<Ended> {
        match step.wait(ordinal, &running.call.requesters, waits) {
            Ok(()) => None,
            Err(text) => Some(Ended::text(CallOutcome::Error, text)),
        }
    }

    /// Goes on with a call that waits, or waited until an earlier process ended.
    pub(super) async fn advance_wait(&mut self, ordinal: usize) -> Result<(), Over> {
        let Some(waiting) = self.slot(ordinal).and_then(|slot| slot.wait.clone()) else {
            return Ok(());
        };
        if !waiting.is_over() {
            self.work.insert(ordinal, Going::Parked);
            for child in waiting.open() {
                self.tend(child, &waiting);
            }
            return Ok(());
        }
        let call = Arc::new(self.call(ordinal));
        let settings = self.state.row.settings.clone();
        let Some(tool) = find(&self.session, self.id, &settings, &call.tool) else {
            // Its code is missing; it goes on when that is back.
            let mut step = self.step("unreachable");
            step.unreachable(ordinal, &format!("there is no tool {} now", call.tool));
            self.rest_call(ordinal);
            if !step.batch.calls.is_empty() {
                step.show_moved(&self.tools());
                step.put_generation();
                self.commit_surely(step).await?;
            }
            return Ok(());
        };
        let settled = waiting.settled();
        self.set_going(ordinal, call.clone(), |cancel| async move {
            tool.resume(&call, &settled, cancel).await
        });
        Ok(())
    }

    pub(super) fn slot(&self, ordinal: usize) -> Option<&Slot> {
        let round = self.state.run.as_ref()?.round.as_ref()?;
        round.slots.get(ordinal)
    }

    /// Lets a conversation that a call owns work, or end.
    pub(super) fn tend(&mut self, child: &Child, waiting: &Waiting) {
        let (Work::Conversation(delegate), Some(conversation)) =
            (&child.awaited.work, child.conversation)
        else {
            return;
        };
        if self.ending() || waiting.fails_fast() {
            return self.abort_child(conversation);
        }
        let requesters = self
            .state
            .run
            .as_ref()
            .map(|run| (run.progress.run.requesters.clone(), run.progress.autonomous));
        let (requesters, autonomous) = requesters.unwrap_or_default();
        let input = Input {
            conversation,
            request_id: Some(child_request(child.task)),
            requester: requesters
                .first()
                .cloned()
                .unwrap_or(Requester::Task { id: child.task.0 }),
            content: delegate.input.clone(),
            when_busy: WhenBusy::FollowUp,
            autonomous,
            data: Value::Null,
            extra: Vec::<Statement>::new(),
        };
        let session = self.session.clone();
        self.effect(
            async move {
                let (reply, answer) = oneshot::channel();
                let command = Command::Submit(Box::new(input), reply);
                session.registry.send(&session, conversation, command);
                let _ = answer.await;
                Effect::Tended
            },
            || Effect::Tended,
        );
    }

    fn abort_child(&mut self, conversation: ConversationId) {
        let session = self.session.clone();
        self.effect(
            async move {
                let (reply, answer) = oneshot::channel();
                let command = Command::Abort(AbortScope::Conversation, reply);
                session.registry.send(&session, conversation, command);
                let _ = answer.await;
                Effect::Tended
            },
            || Effect::Tended,
        );
    }

    fn ending(&self) -> bool {
        self.state
            .run
            .as_ref()
            .is_some_and(super::state::Active::ending)
    }

    /// A run that is being ended ends the conversations that its calls own, first.
    pub(super) fn abort_children(&mut self) {
        for (_, _, conversation) in self.open_conversations() {
            self.abort_child(conversation);
        }
    }

    /// Conversations that calls of the round own and that have not come to their end.
    pub(super) fn open_conversations(&self) -> Vec<(usize, TaskId, ConversationId)> {
        let round = self.state.run.as_ref().and_then(|run| run.round.as_ref());
        let slots = round.map_or(&[][..], |round| &round.slots);
        slots
            .iter()
            .enumerate()
            .filter_map(|(ordinal, slot)| Some((ordinal, slot.wait.as_ref()?)))
            .flat_map(|(ordinal, waiting)| {
                let open = waiting.open();
                open.filter_map(move |child| Some((ordinal, child.task, child.conversation?)))
            })
            .collect()
    }

    /// Looks whether conversations that calls own have come to their end.
    pub(super) async fn look_at_children(&mut self) -> Result<(), Over> {
        let mut ends = Vec::new();
        for (ordinal, task, conversation) in self.open_conversations() {
            let request = child_request(task);
            let reader = &self.session.reader;
            if self.is_background(ordinal, task) {
                // It has its input, and goes on by itself.
                if reader.by_request(conversation, &request).await?.is_some() {
                    ends.push((ordinal, task, WorkEnd::Begun));
                } else if self.ending() {
                    ends.push((ordinal, task, WorkEnd::Aborted));
                }
                continue;
            }
            match reader.work_end(conversation, &request).await? {
                Some(end) => ends.push((ordinal, task, end)),
                // It was ended before it began.
                None if self.ending() => {
                    let begun = self
                        .session
                        .reader
                        .by_request(conversation, &request)
                        .await?;
                    if begun.is_none() {
                        ends.push((ordinal, task, WorkEnd::Aborted));
                    }
                }
                None => {}
            }
        }
        self.settle_children(ends).await
    }

    fn is_background(&self, ordinal: usize, task: TaskId) -> bool {
        let waiting = self.slot(ordinal).and_then(|slot| slot.wait.as_ref());
        let mut children = waiting.iter().flat_map(|waiting| &waiting.children);
        children.any(|child| {
            matches!(&child.awaited.work, Work::Conversation(delegate) if delegate.background)
                && child.task == task
        })
    }

    /// Settles times that have come, and questions that nobody answered in time.
    pub(super) async fn fire(&mut self) -> Result<(), Over> {
        let now = self.session.now();
        let round = self.state.run.as_ref().and_then(|run| run.round.as_ref());
        let slots = round.map_or(&[][..], |round| &round.slots);
        let mut ends = Vec::new();
        for (ordinal, slot) in slots.iter().enumerate() {
            let open = slot.wait.iter().flat_map(|waiting| waiting.open());
            for child in open {
                let end = match &child.awaited.work {
                    Work::Timer { until } if *until <= now => WorkEnd::Fired,
                    Work::Question {
                        expires_at: Some(at),
                        ..
                    } if *at <= now => WorkEnd::Expired,
                    _ => continue,
                };
                ends.push((ordinal, child.task, end));
            }
        }
        self.settle_children(ends).await
    }

    /// Answers a question; the first answer wins.
    pub(super) async fn answer(
        &mut self,
        task: TaskId,
        text: String,
        by: Requester,
        extra: Vec<Statement>,
    ) -> Result<Option<(bool, Question)>, SessionError> {
        let round = self.state.run.as_ref().and_then(|run| run.round.as_ref());
        let slots = round.map_or(&[][..], |round| &round.slots);
        let found = slots.iter().enumerate().find_map(|(ordinal, slot)| {
            let waiting = slot.wait.as_ref()?;
            let mut open = waiting.open();
            open.find(|child| child.task == task).map(|_| ordinal)
        });
        let Some(ordinal) = found.filter(|_| !self.ending()) else {
            return Ok(self
                .session
                .reader
                .question(task)
                .await?
                .map(|question| (false, question)));
        };
        let mut step = self.step("settle");
        step.extra = extra;
        step.settle_child(ordinal, task, WorkEnd::Answered { text, by });
        step.after_children(ordinal);
        step.show_moved(&self.tools());
        step.put_generation();
        self.commit(step).await?;
        self.resume_over(ordinal);
        Ok(self
            .session
            .reader
            .question(task)
            .await?
            .map(|question| (true, question)))
    }

    async fn settle_children(&mut self, ends: Vec<(usize, TaskId, WorkEnd)>) -> Result<(), Over> {
        if ends.is_empty() {
            return Ok(());
        }
        let mut step = self.step("settle");
        let mut ordinals = Vec::new();
        for (ordinal, task, end) in ends {
            step.settle_child(ordinal, task, end);
            ordinals.push(ordinal);
        }
        ordinals.dedup();
        for ordinal in &ordinals {
            step.after_children(*ordinal);
        }
        step.show_moved(&self.tools());
        let round = step.active().round.as_ref();
        if round.is_some_and(Round::is_over) && !step.active().ending() {
            // The last of what calls left has ended.
            step.name = "round";
            return self.finish_round(step).await;
        }
        step.put_generation();
        self.commit_surely(step).await?;
        ordinals
            .into_iter()
            .for_each(|ordinal| self.resume_over(ordinal));
        Ok(())
    }

    /// A call whose wait is over is looked at again, as is one that fails fast.
    pub(super) fn resume_over(&mut self, ordinal: usize) {
        let over = self
            .slot(ordinal)
            .and_then(|slot| slot.wait.as_ref())
            .is_some_and(|waiting| waiting.is_over() || waiting.fails_fast());
        if over && matches!(self.work.get(&ordinal), Some(Going::Parked)) {
            self.work.remove(&ordinal);
        }
    }
}

/// The request id of the input that begins an owned conversation.
pub(crate) fn child_request(task: TaskId) -> RequestId {
    RequestId(format!("task:{task}"))
}

impl Step {
    /// Makes what a call waits for; work of a key that is known is the same.
    pub(super) fn wait(
        &mut self,
        ordinal: usize,
        requesters: &[Requester],
        waits: Waits,
    ) -> Result<(), String> {
        if waits.on.is_empty() {
            return Err("The call waits for nothing.".into());
        }
        let (at, conversation) = (self.at, self.state.row.id);
        let round = self.active().round.clone().expect("calls wait in a round");
        let slot = &round.slots[ordinal];
        let call = slot.row.clone().expect("a call that waits has its task");
        let mut children = slot
            .wait
            .as_ref()
            .map_or_else(Vec::new, |waiting| waiting.children.clone());
        let mut edges = round.waits();
        let mut on = Vec::new();
        for awaited in waits.on {
            if let Some(known) = children
                .iter()
                .find(|child| child.awaited.key == awaited.key)
            {
                if known.awaited.work != awaited.work {
                    return Err(format!(
                        "The key {} stands for other work already.",
                        awaited.key
                    ));
                }
                on.push(known.task);
                continue;
            }
            if let Work::Call { task } = awaited.work {
                let other = round.slots.iter().filter_map(|slot| slot.row.as_ref());
                if !other.clone().any(|row| row.task == task) {
                    return Err(format!("There is no call {task} in this round."));
                }
                edges.push((call.task, task));
                if is_cycle(&edges, call.task) {
                    return Err(format!(
                        "The call would wait for itself: call {task} waits for it."
                    ));
                }
            }
            let child = self.make_child(&call, requesters, awaited);
            on.push(child.task);
            children.push(Arc::new(child));
        }
        let waiting = Waiting {
            mode: waits.mode,
            on,
            children,
        };
        let row = WaitRow {
            mode: waiting.mode,
            on: waiting.on.clone(),
        };
        self.batch.put_task(TaskStep {
            id: call.task,
            conversation,
            owner: Some(call.generation),
            kind: task::kind::TOOL,
            status: "waiting",
            background: false,
            abort_mark: None,
            waits: Some(&row),
            input: NONE,
            checkpoint: NONE,
            outcome: NONE,
            created_at: at,
            ended_at: None,
        });
        let slot = &mut self
            .active()
            .round
            .as_mut()
            .expect("calls wait in a round")
            .slots[ordinal];
        slot.wait = Some(Arc::new(waiting));
        self.after_children(ordinal);
        self.settle_ended_calls();
        Ok(())
    }

    fn make_child(&mut self, call: &CallRow, requesters: &[Requester], awaited: Awaited) -> Child {
        let (at, conversation) = (self.at, self.state.row.id);
        let task = self.new_task();
        let mut child = Child {
            task,
            awaited,
            conversation: None,
            end: None,
            created_at: at,
        };
        let (mut wake, mut background) = (Wake::OnEvent, false);
        match &child.awaited.work {
            Work::Timer { until } => wake = Wake::At(until.0),
            Work::Question {
                expires_at,
                text,
                choices,
            } => {
                wake = expires_at.map_or(Wake::OnEvent, |at| Wake::At(at.0));
                let question = Question {
                    task,
                    conversation,
                    call: call.task,
                    text: text.clone(),
                    choices: choices.clone(),
                    asked_at: at,
                    expires_at: *expires_at,
                    end: None,
                };
                self.view.questions.push(question.clone());
                self.changes.push(Change::QuestionAsked {
                    question,
                    requesters: requesters.to_vec(),
                });
            }
            Work::Conversation(delegate) => {
                // Looked at again after a crash.
                wake = Wake::Runnable;
                background = delegate.background;
                let id = self.counters.conversation();
                child.conversation = Some(id);
                let own = delegate.settings.clone();
                let settings = extension::narrowed(&self.state.row.settings, own);
                let title = settings.get("title").and_then(Value::as_str);
                let model = match delegate.model.as_str() {
                    "" => self.state.row.model.clone(),
                    name => name.to_owned(),
                };
                self.batch.insert_conversation(&ConversationRow {
                    id,
                    title: title.unwrap_or_default().to_owned(),
                    settings: settings.clone(),
                    model,
                    last_at: at,
                    origin: Origin {
                        parent: None,
                        owner: Some(Owner {
                            conversation,
                            task,
                            background,
                        }),
                        shows: Shows::All,
                    },
                });
                self.changes.push(Change::ConversationCreated {
                    conversation: id,
                    settings: settings.clone(),
                });
            }
            Work::Call { .. } => {}
        }
        if let Wake::At(at) = wake {
            self.wake_at(at);
        }
        self.batch.put_task(TaskStep {
            id: task,
            conversation,
            owner: Some(call.task),
            kind: kind_of(&child.awaited.work),
            status: "waiting",
            background,
            abort_mark: None,
            waits: NONE,
            input: Some(&child.awaited),
            checkpoint: Some(&ChildPlace {
                conversation: child.conversation,
            }),
            outcome: NONE,
            created_at: at,
            ended_at: None,
        });
        self.batch.put_open(conversation, What::Child, task.0, wake);
        child
    }

    /// A piece of work comes to its end.
    fn settle_child(&mut self, ordinal: usize, task: TaskId, end: WorkEnd) {
        let (at, conversation) = (self.at, self.state.row.id);
        let slot = &mut self
            .active()
            .round
            .as_mut()
            .expect("calls wait in a round")
            .slots[ordinal];
        let call = slot.row.as_ref().map_or(TaskId(0), |row| row.task);
        let Some(waiting) = slot.wait.as_mut().map(Arc::make_mut) else {
            return;
        };
        let Some(child) = waiting
            .children
            .iter_mut()
            .find(|child| child.task == task && child.end.is_none())
            .map(Arc::make_mut)
        else {
            return;
        };
        child.end = Some(end.clone());
        let child = child.clone();
        if let WorkEnd::Done { usage, .. } = &end {
            let run = &mut self.active().progress.run;
            run.usage.input += usage.input;
            run.usage.cached += usage.cached;
            run.usage.output += usage.output;
        }
        self.batch.put_task(TaskStep {
            id: task,
            conversation,
            owner: Some(call),
            kind: kind_of(&child.awaited.work),
            status: match end {
                WorkEnd::Aborted => "aborted",
                _ if end.failed() => "failed",
                _ => "done",
            },
            background: false,
            abort_mark: None,
            waits: NONE,
            input: Some(&child.awaited),
            checkpoint: Some(&ChildPlace {
                conversation: child.conversation,
            }),
            outcome: Some(&end),
            created_at: child.created_at,
            ended_at: Some(at),
        });
        self.batch.drop_open(conversation, What::Child, task.0);
        if let Some(question) = child.question(conversation, call) {
            self.view.questions.push(question.clone());
            self.changes.push(Change::QuestionSettled { question });
        }
    }

    /// Work that is not waited for any more ends with its call.
    pub(super) fn end_children(&mut self, ordinal: usize) {
        let open: Vec<_> = self
            .active()
            .round
            .as_ref()
            .and_then(|round| round.slots[ordinal].wait.clone())
            .iter()
            .flat_map(|waiting| waiting.children.clone())
            .filter(|child| child.end.is_none())
            .map(|child| child.task)
            .collect();
        for task in open {
            self.settle_child(ordinal, task, WorkEnd::Aborted);
        }
    }

    /// Calls that waited for one that has ended.
    pub(super) fn settle_ended_calls(&mut self) {
        let Some(round) = self.state.run.as_ref().and_then(|run| run.round.clone()) else {
            return;
        };
        let ended = |task: &TaskId| {
            let mut rows = round.slots.iter().filter_map(|slot| slot.row.as_ref());
            rows.any(|row| row.task == *task && row.ended_at.is_some())
        };
        for (ordinal, slot) in round.slots.iter().enumerate() {
            let open = slot.wait.iter().flat_map(|waiting| waiting.open());
            for child in open {
                if let Work::Call { task } = &child.awaited.work
                    && ended(task)
                {
                    let end = WorkEnd::Done {
                        text: String::new(),
                        usage: Default::default(),
                    };
                    self.settle_child(ordinal, child.task, end);
                    self.after_children(ordinal);
                }
            }
        }
    }

    /// How a call stands by what it waits for; siblings of what failed fast end.
    fn after_children(&mut self, ordinal: usize) {
        let round = self.active().round.as_ref().expect("calls wait in a round");
        let Some(waiting) = round.slots[ordinal].wait.clone() else {
            return;
        };
        if waiting.fails_fast() {
            let of_its_own = |child: &&Child| child.conversation.is_none();
            let open: Vec<_> = waiting
                .open()
                .filter(of_its_own)
                .map(|it| it.task)
                .collect();
            for task in open {
                self.settle_child(ordinal, task, WorkEnd::Aborted);
            }
        }
        let round = self.active().round.as_ref().expect("calls wait in a round");
        let slot = &round.slots[ordinal];
        if slot.ended() {
            if !slot.holds() {
                self.put_ended_call(ordinal, "done");
            }
            return;
        }
        let (word, note) = round.slots[ordinal]
            .wait
            .as_ref()
            .map_or((state::RUNNING, String::new()), |waiting| waiting.told());
        let Some(row) = self.call_row(ordinal) else {
            return;
        };
        row.state = word;
        row.note = note;
        let row = row.clone();
        self.put_call(&row);
    }
}

fn kind_of(work: &Work) -> &'static str {
    match work {
        Work::Timer { .. } => task::kind::TIMER,
        Work::Question { .. } => task::kind::QUESTION,
        Work::Conversation(_) => task::kind::SUBAGENT,
        Work::Call { .. } => task::kind::FOLLOWED,
    }
}
