//! The actor of one conversation: takes commands, starts what follows from the state,
//! commits what came of it. It never waits for anything but a commit.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    command::{Command, Poke},
    decide::Decided,
    round::Running,
    state::State,
    step::Step,
};
use crate::{
    context::Context,
    error::SessionError,
    id::{ConversationId, Millis, SubmissionId, TaskId},
    model::{ModelError, ModelResponse},
    prompt::Rendered,
    registry::Mode,
    session::{Full, Session},
    store::line::{Refused, Request},
    tool::{Tool, ToolEnd, ToolFailure},
    window::Window,
};

/// Between two tries of a commit that found the disk full, in milliseconds.
const FULL_WAIT: i64 = 1_000;

/// The actor cannot go on: the session has failed or is closed.
#[derive(Debug)]
pub(super) struct Over(pub SessionError);

impl From<SessionError> for Over {
    fn from(error: SessionError) -> Over {
        Over(error)
    }
}

/// Something that was going on has ended.
pub(super) enum Effect {
    Prepared {
        ticket: u64,
        rendered: Result<Rendered, String>,
    },
    Responded {
        ticket: u64,
        response: Result<ModelResponse, ModelError>,
    },
    /// The model's adapter broke: there is no response, and none will come.
    Broke { ticket: u64 },
    Decided {
        ticket: u64,
        ordinal: usize,
        decided: Box<Decided>,
    },
    Ended {
        ticket: u64,
        ordinal: usize,
        end: Result<ToolEnd, ToolFailure>,
    },
    /// A compaction's request ended.
    Summarized {
        ticket: u64,
        response: Result<ModelResponse, ModelError>,
    },
    /// A call that could not be reached may be tried again.
    Rested { ticket: u64, ordinal: usize },
    /// A conversation that a call owns was told to work, or to end.
    Tended,
    /// The end of this conversation was told to its owner's, or was not.
    Reported {
        submission: SubmissionId,
        told: bool,
    },
    /// An execution goes on for a while already.
    Reached { ticket: u64, ordinal: usize },
    /// An abort has waited long enough.
    Impatient { ticket: u64 },
    /// Nobody waits any more for an approval that was asked for on the way.
    LetGo { ticket: u64 },
}

/// What is in motion. The mutex is never locked: whoever has the actor to itself has
/// this too. It makes the actor one that may be borrowed across threads.
#[derive(Default)]
pub(super) struct Effects {
    futures: std::sync::Mutex<FuturesUnordered<BoxFuture<'static, Effect>>>,
    count: usize,
}

impl Effects {
    fn push(&mut self, effect: BoxFuture<'static, Effect>) {
        self.count += 1;
        self.futures
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(effect);
    }

    /// The next one that ends; `None` when there is none.
    async fn next(&mut self) -> Option<Effect> {
        let futures = self
            .futures
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let ended = futures.next().await;
        self.count -= usize::from(ended.is_some());
        ended
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A request in flight.
pub(super) struct Requesting {
    pub ticket: u64,
    pub cancel: CancellationToken,
    pub since: Millis,
}

/// What is going on for one call of the round.
pub(super) enum Work {
    Deciding(u64),
    Executing {
        ticket: u64,
        running: Running,
    },
    /// Until it is tried again.
    Resting(u64),
    /// Waits for a person.
    Parked,
}

/// One conversation.
pub(super) struct Actor {
    pub session: Arc<Session>,
    pub id: ConversationId,
    pub state: State,
    pub context: Option<Context>,
    pub effects: Effects,
    pub preparing: Option<u64>,
    pub requesting: Option<Requesting>,
    /// A compaction's request in flight.
    pub summarizing: Option<Requesting>,
    pub work: HashMap<usize, Work>,
    /// Decisions that wait for those made at the same time.
    pub decided: Vec<(usize, Box<Decided>)>,
    /// Output of open calls as the file has it, from before this process.
    pub outputs: HashMap<TaskId, (Window, u64)>,
    pub executing_since: Option<Millis>,
    /// Who waits for an approval that was asked for on the way, by ticket.
    pub(super) waiters: HashMap<u64, super::passing::Waiter>,
    pub poked_models: bool,
    /// Its owner is being told of its end.
    pub reporting: bool,
    /// An abort waits for executions.
    pub patience: Option<u64>,
    /// An abort waits for nothing any more.
    pub given_up: bool,
    tickets: u64,
    mode: Mode,
    resting: bool,
}

/// Runs a conversation until its memory is needed, or the session ends.
pub(crate) async fn run(
    session: Arc<Session>,
    id: ConversationId,
    mut mailbox: mpsc::UnboundedReceiver<Command>,
) {
    let failure = match session.reader.load(id).await {
        Ok(Some(loaded)) => {
            let mode = if loaded.state.run.is_some() {
                Mode::Waiting
            } else {
                Mode::Idle
            };
            let mut actor = Actor {
                session: session.clone(),
                id,
                state: loaded.state,
                context: None,
                effects: Effects::default(),
                preparing: None,
                requesting: None,
                summarizing: None,
                work: HashMap::new(),
                decided: Vec::new(),
                outputs: loaded.outputs,
                executing_since: None,
                waiters: HashMap::new(),
                poked_models: false,
                reporting: false,
                patience: None,
                given_up: false,
                tickets: 0,
                mode,
                resting: false,
            };
            let error = loop {
                match actor.live(&mut mailbox).await {
                    Ok(()) => return,
                    // What the step was about cannot be made true: the run ends with it.
                    Err(Over(SessionError::Constraint(text))) if actor.state.run.is_some() => {
                        if let Err(Over(error)) = actor.fault(text).await {
                            break error;
                        }
                    }
                    Err(Over(error)) => break error,
                }
            };
            if !matches!(
                error,
                SessionError::Closed | SessionError::NoConversation(_)
            ) {
                tracing::error!(conversation = %id, %error, "the conversation stops");
            }
            for requesting in [&actor.requesting, &actor.summarizing]
                .into_iter()
                .flatten()
            {
                requesting.cancel.cancel();
            }
            session.registry.changed(actor.mode, mode);
            error
        }
        Ok(None) => SessionError::NoConversation(id),
        Err(error) => error,
    };
    // Whoever still asks gets the reason.
    loop {
        while let Ok(command) = mailbox.try_recv() {
            command.fail(failure.clone());
        }
        if session.registry.leave(id, &mailbox) {
            return;
        }
    }
}

impl Actor {
    async fn live(&mut self, mailbox: &mut mpsc::UnboundedReceiver<Command>) -> Result<(), Over> {
        loop {
            if self.session.started() {
                self.advance().await?;
            }
            self.report(mailbox);
            tokio::select! {
                biased;
                () = self.session.closing.cancelled() => return Err(Over(SessionError::Closed)),
                Some(effect) = self.effects.next(), if !self.effects.is_empty() => {
                    // What ended together is committed together.
                    let mut effects = vec![effect];
                    while let Some(Some(effect)) = self.effects.next().now_or_never() {
                        effects.push(effect);
                    }
                    self.take(effects).await?;
                }
                command = mailbox.recv() => match command {
                    None => return Err(Over(SessionError::Closed)),
                    Some(Command::Rest) => {
                        if self.at_rest() && self.session.registry.leave(self.id, mailbox) {
                            return Ok(());
                        }
                        self.resting = false;
                    }
                    Some(command) => self.obey(command).await?,
                },
            }
        }
    }

    /// Starts whatever follows from the state.
    async fn advance(&mut self) -> Result<(), Over> {
        loop {
            self.forget_summary();
            self.report_end();
            self.advance_compaction().await?;
            let before = self
                .state
                .run
                .as_ref()
                .map(|run| (run.generation, run.progress.phase.clone(), run.ending()));
            match &self.state.run {
                None => self.forget_work(),
                Some(run) if run.ending() => self.advance_ending().await?,
                Some(_) => self.advance_generation().await?,
            }
            let after = self
                .state
                .run
                .as_ref()
                .map(|run| (run.generation, run.progress.phase.clone(), run.ending()));
            if before == after {
                return Ok(());
            }
        }
    }

    async fn obey(&mut self, command: Command) -> Result<(), Over> {
        // A caller that went away is no reason to stop; what failed the session is.
        match command {
            Command::Submit(input, reply) => drop(reply.send(self.submit(*input).await)),
            Command::Write(write, reply) => drop(reply.send(self.write(*write).await)),
            Command::Reset(write, reply) => drop(reply.send(self.reset(*write).await)),
            Command::Compact {
                requester,
                instructions,
                reply,
            } => drop(reply.send(self.compact(requester, instructions).await)),
            Command::Abort(scope, reply) => drop(reply.send(self.abort(scope).await)),
            Command::Delete { extra, reply } => {
                let deleted = self.delete(extra).await;
                let gone = deleted.is_ok();
                drop(reply.send(deleted));
                if gone {
                    return Err(Over(SessionError::NoConversation(self.id)));
                }
            }
            Command::Withdraw(id, reply) => drop(reply.send(self.withdraw(id).await)),
            Command::Replace(id, input, reply) => {
                drop(reply.send(self.replace(id, *input).await));
            }
            Command::Model(model, reply) => drop(reply.send(self.set_model(model).await)),
            Command::Decide {
                approval,
                decision,
                extra,
                reply,
            } => {
                drop(reply.send(self.decide_approval(approval, decision, extra).await));
            }
            Command::AskOnTheWay(ask, reply) => {
                drop(reply.send(self.ask_on_the_way(*ask).await));
            }
            Command::UseApproval {
                approval,
                extra,
                reply,
            } => drop(reply.send(self.use_approval(approval, extra).await)),
            Command::Supersede(approval, reply) => {
                drop(reply.send(self.supersede(approval).await));
            }
            Command::Answer {
                task,
                text,
                by,
                extra,
                reply,
            } => drop(reply.send(self.answer(task, text, by, extra).await)),
            Command::Poke(Poke::Due) => {
                self.expire().await?;
                self.fire().await?;
            }
            Command::Poke(Poke::Child) => self.look_at_children().await?,
            Command::Poke(Poke::Policy) => {
                let undecided = |work: &Work| matches!(work, Work::Parked | Work::Deciding(_));
                let anew: Vec<_> = self
                    .work
                    .iter()
                    .filter(|(_, work)| undecided(work))
                    .map(|(ordinal, _)| *ordinal)
                    // What has begun was decided.
                    .filter(|ordinal| self.slot(*ordinal).is_some_and(|slot| !slot.started()))
                    .collect();
                anew.into_iter().for_each(|ordinal| self.decide(ordinal));
            }
            Command::Poke(Poke::Models) => self.poked_models = true,
            Command::Rest => {}
        }
        match self.session.line.failure() {
            Some(error) => Err(Over(error)),
            None => Ok(()),
        }
    }

    /// Takes what has ended; what belongs to a run that is over is dropped.
    async fn take(&mut self, effects: Vec<Effect>) -> Result<(), Over> {
        let mut ends = Vec::new();
        let (mut looks, mut passed) = (false, false);
        for effect in effects {
            match effect {
                Effect::Prepared { ticket, rendered } if self.preparing == Some(ticket) => {
                    self.preparing = None;
                    if self.state.run.as_ref().is_some_and(|run| !run.ending()) {
                        self.prepared(rendered).await?;
                    }
                }
                Effect::Responded { ticket, response }
                    if self
                        .requesting
                        .as_ref()
                        .is_some_and(|it| it.ticket == ticket) =>
                {
                    if self.state.run.as_ref().is_some_and(|run| !run.ending())
                        && let Some(requesting) = self.requesting.take()
                    {
                        self.responded(requesting.since, response).await?;
                    }
                }
                Effect::Broke { ticket } => {
                    let requesting = self.requesting.as_ref();
                    if requesting.is_some_and(|it| it.ticket == ticket)
                        && self.state.run.as_ref().is_some_and(|run| !run.ending())
                    {
                        self.fault("the model's adapter broke at what it got".into())
                            .await?;
                    }
                }
                Effect::Summarized { ticket, response } => {
                    if self
                        .summarizing
                        .as_ref()
                        .is_some_and(|it| it.ticket == ticket)
                    {
                        self.summarizing = None;
                        self.summarized(response).await?;
                    }
                }
                Effect::Decided {
                    ticket,
                    ordinal,
                    decided,
                } => {
                    if matches!(self.work.get(&ordinal), Some(Work::Deciding(now)) if *now == ticket)
                    {
                        // Parked, until it is committed with the others.
                        self.work.insert(ordinal, Work::Parked);
                        self.decided.push((ordinal, decided));
                    }
                }
                Effect::Ended {
                    ticket,
                    ordinal,
                    end,
                } => {
                    if matches!(self.work.get(&ordinal), Some(Work::Executing { ticket: now, .. }) if *now == ticket)
                        && let Some(Work::Executing { running, .. }) = self.work.remove(&ordinal)
                    {
                        ends.push((ordinal, running, end));
                    }
                }
                Effect::Rested { ticket, ordinal } => {
                    if matches!(self.work.get(&ordinal), Some(Work::Resting(now)) if *now == ticket)
                    {
                        self.rested(ordinal);
                    }
                }
                Effect::Reached { ticket, ordinal } => {
                    if matches!(self.work.get(&ordinal), Some(Work::Executing { ticket: now, .. }) if *now == ticket)
                    {
                        self.reached(ordinal).await?;
                    }
                }
                Effect::Tended => looks = true,
                Effect::Reported { submission, told } => {
                    self.reporting = false;
                    if told {
                        self.reported(submission).await?;
                    }
                }
                Effect::Impatient { ticket } => {
                    if self.patience == Some(ticket) {
                        self.patience = None;
                        self.given_up = true;
                    }
                }
                Effect::LetGo { ticket } => {
                    self.waiters.remove(&ticket);
                    passed = true;
                }
                Effect::Prepared { .. } | Effect::Responded { .. } => {}
            }
        }
        if !ends.is_empty() {
            self.settle_ends(ends).await?;
            passed = true;
        }
        if passed {
            self.account_passing().await?;
        }
        if looks {
            self.look_at_children().await?;
        }
        self.settle_decisions().await
    }

    /// Puts something in motion; `failed` is what a panic of it comes to.
    pub(super) fn effect(
        &mut self,
        effect: impl Future<Output = Effect> + Send + 'static,
        failed: impl FnOnce() -> Effect + Send + 'static,
    ) {
        let caught = AssertUnwindSafe(effect).catch_unwind();
        self.effects.push(Box::pin(async move {
            caught.await.unwrap_or_else(|_| failed())
        }));
    }

    /// A number that no other effect has.
    pub(super) fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    pub(super) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.session
            .ports
            .tools
            .tools(self.id, &self.state.row.settings)
    }

    pub(super) fn step(&self, name: &'static str) -> Step {
        Step::new(
            name,
            self.session.now(),
            &self.state,
            &self.session.counters,
        )
    }

    /// Commits a step; the state is as it was if it does not stand.
    pub(super) async fn commit(&mut self, step: Step) -> Result<(), SessionError> {
        self.try_commit(step).await.map_err(|(error, _)| error)
    }

    /// Commits a step that has to stand: a full disk is waited for.
    pub(super) async fn commit_surely(&mut self, step: Step) -> Result<(), Over> {
        let mut refused = match self.try_commit(step).await {
            Ok(()) => return Ok(()),
            Err((SessionError::StorageFull, Some(refused))) => refused,
            Err((error, _)) => return Err(Over(error)),
        };
        loop {
            self.session.note_full(Full::Yes);
            let until = Millis(self.session.now().0 + FULL_WAIT);
            tokio::select! {
                () = self.session.clock.until(until) => {}
                () = self.session.closing.cancelled() => return Err(Over(SessionError::Closed)),
            }
            let Remains {
                request,
                state,
                items,
                wake,
            } = refused;
            match self.session.line.commit(request).await {
                Ok(_) => {
                    self.session.note_full(Full::No);
                    self.stands(state, items, wake);
                    return Ok(());
                }
                Err(Refused {
                    error: SessionError::StorageFull,
                    request: Some(request),
                }) => {
                    refused = Remains {
                        request: *request,
                        state,
                        items,
                        wake,
                    };
                }
                Err(Refused { error, .. }) => return Err(Over(error)),
            }
        }
    }

    async fn try_commit(&mut self, mut step: Step) -> Result<(), (SessionError, Option<Remains>)> {
        let mut extra = match step.unledgered {
            true => Vec::new(),
            false => self.session.ports.ledger.statements(step.at, &step.changes),
        };
        extra.append(&mut step.extra);
        let request = Request {
            name: step.name,
            at: step.at,
            batch: step.batch,
            extra,
            changes: step.changes,
            view: Some(step.view),
        };
        match self.session.line.commit(request).await {
            Ok(_) => {
                self.stands(step.state, step.items, step.wake);
                Ok(())
            }
            Err(Refused { error, request }) => {
                let remains = request.map(|request| Remains {
                    request: *request,
                    state: step.state,
                    items: step.items,
                    wake: step.wake,
                });
                // A request that is not sent after all is prepared anew.
                self.context = None;
                Err((error, remains))
            }
        }
    }

    /// A step stands: its state is the state.
    fn stands(&mut self, state: State, items: Vec<crate::context::Item>, wake: Option<i64>) {
        let going = |state: &State| state.run.as_ref().map(|run| run.progress.run.id);
        let ended = going(&self.state).is_some() && going(&self.state) != going(&state);
        self.state = state;
        self.wake_waiters();
        if items.iter().any(|item| !Context::appends(&item.row)) {
            self.context = None;
        }
        if let Some(context) = &mut self.context {
            items.iter().for_each(|item| context.push(item));
        }
        if let Some(at) = wake {
            self.session.timers.note(at);
        }
        if ended && let Some(owner) = self.state.row.origin.owner {
            // Whoever waits for it looks.
            let poke = Command::Poke(Poke::Child);
            self.session
                .registry
                .send(&self.session, owner.conversation, poke);
        }
    }

    fn at_rest(&self) -> bool {
        self.effects.is_empty()
            && self.decided.is_empty()
            && self
                .state
                .run
                .as_ref()
                .is_none_or(|run| !self.session.started() || run.only_waits())
            && self
                .state
                .compaction
                .as_ref()
                .is_none_or(|it| !self.session.started() || it.only_waits())
    }

    /// Tells others what this conversation does now.
    fn report(&mut self, mailbox: &mpsc::UnboundedReceiver<Command>) {
        let mode = match &self.state.run {
            None if self.summarizing.is_some() => Mode::Running,
            None => Mode::Idle,
            Some(run) if !self.session.started() || run.only_waits() => Mode::Waiting,
            Some(_) => Mode::Running,
        };
        if mode != self.mode {
            self.session.registry.changed(self.mode, mode);
            self.mode = mode;
        }
        let rest = self.at_rest() && mailbox.is_empty();
        if rest && !self.resting {
            let bytes = 4_096 + self.context.as_ref().map_or(0, Context::bytes);
            self.session.registry.rest(self.id, bytes);
        }
        self.resting = rest;
    }
}

/// A refused step, to be tried again.
struct Remains {
    request: Request,
    state: State,
    items: Vec<crate::context::Item>,
    wake: Option<i64>,
}
