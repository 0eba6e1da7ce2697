//! The engine: opens a file, takes inputs, drives runs, shows what is committed.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicI64},
};

use serde_json::Value;
use sqlx::Connection;
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    compaction::Asked,
    conversation::{Command, Poke},
    debts,
    error::{OpenError, SessionError, SubmitError},
    gate::{Approval, ApprovalState, Decision, Gate},
    hub::Hub,
    id::{CommitNo, ConversationId, Incarnation, RequestId, SubmissionId, TaskId},
    ledger::{Change, Ledger, Statement},
    message::{Message, Part},
    model::Models,
    prompt::Prompt,
    read::Reader,
    retention,
    session::Session,
    sql::{
        batch::Batch,
        call,
        conversation::{ConversationRow, Origin},
        entry::kind,
        open_work,
    },
    store::{
        failpoint::Failpoints,
        line::{self, Counters, Request},
        lock::Lock,
        open,
        place::{check_filesystem, look},
        writer::Writer,
    },
    streams::Streams,
    submission::{AbortScope, Aborted, Input, Requester, Submission, Submitted},
    timers,
    tool::Toolbox,
    write::{Head, Write, WriteBody},
};

/// What the engine is given by its host.
#[derive(Clone)]
#[allow(missing_docs)]
pub struct Ports {
    pub models: Arc<dyn Models>,
    pub tools: Arc<dyn Toolbox>,
    pub gate: Arc<dyn Gate>,
    pub ledger: Arc<dyn Ledger>,
    pub prompt: Arc<dyn Prompt>,
}

/// A component whose tables live in the same file; its migrations are numbered
/// from 1 by position, and never edited after they land.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    /// Its name, for ever.
    pub name: &'static str,
    /// One SQL text each.
    pub migrations: &'static [&'static str],
}

/// How a file is opened.
pub struct Options {
    /// `synchronous=FULL` (default) or `NORMAL`.
    pub durability: Durability,
    /// The engine's clock; tests drive it.
    pub clock: Arc<dyn crate::clock::Clock>,
    /// Components beside the engine.
    pub components: Vec<Component>,
}

/// What survives power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Whatever was shown.
    #[default]
    Full,
    /// All but the last moments; a crash of the process loses nothing.
    Normal,
}

/// One open file. Clones share it; [`Engine::close`] ends it for all.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    session: Arc<Session>,
    /// Taken by the first close.
    running: Mutex<Option<Running>>,
}

/// What runs for a session.
struct Running {
    line: line::End,
    tasks: JoinSet<()>,
    lock: Lock,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody can ask for anything any more.
        self.session.closing.cancel();
        self.session.registry.close();
    }
}

impl Engine {
    /// Opens or creates the file at `path` and recovers its state. Nothing runs
    /// before [`Engine::start`].
    ///
    /// The folder has to exist. Beside the file lie its write-ahead log and
    /// `<path>.lock`, which names the owner.
    pub async fn open(path: &Path, options: Options, ports: Ports) -> Result<Engine, OpenError> {
        check_filesystem(path)?;
        let mut lock = Lock::take(path)?;
        look(path, lock.had_database())?;
        let opened = open::open(
            path,
            options.durability,
            &options.components,
            options.clock.now(),
        )
        .await?;
        lock.sign(&opened.incarnation)
            .map_err(|error| OpenError::Other {
                path: path.into(),
                reason: error.to_string(),
            })?;
        let [conversation, entry, task, submission] = opened.next.map(AtomicI64::new);
        let counters = Arc::new(Counters {
            conversation,
            entry,
            task,
            submission,
        });
        let streams = Arc::new(Streams::default());
        let hub = Arc::new(Hub::new(opened.commit_no as u64));
        let writer = Writer {
            generation: opened.generation,
            commit_no: opened.commit_no,
            counters: counters.clone(),
            streams: streams.clone(),
            ledger: ports.ledger.clone(),
            hub: hub.clone(),
            failpoints: Failpoints::default(),
        };
        let (connection, clock) = (opened.connection, options.clock.clone());
        let (line, end) =
            line::start(writer, connection, opened.options, clock).map_err(|error| {
                OpenError::Other {
                    path: path.into(),
                    reason: format!("there is no thread for its commits: {error}"),
                }
            })?;
        let reader = Reader {
            pool: opened.readers,
            tools: ports.tools.clone(),
        };
        let session = Arc::new(Session::new(
            Incarnation(opened.incarnation),
            opened.generation as u64,
            ports,
            options.clock,
            counters,
            line,
            streams,
            hub,
            reader,
            opened.open_runs,
        ));
        let running = Running {
            line: end,
            tasks: JoinSet::new(),
            lock,
        };
        Ok(Engine {
            inner: Arc::new(Inner {
                session,
                running: Mutex::new(Some(running)),
            }),
        })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.inner.session
    }

    /// Lets recovered and new work run: requests that were in flight, calls that had
    /// begun, everything that is due.
    ///
    /// Calls that wait for a person stay asleep in the file; a host whose policy may
    /// have changed since the file was last open calls [`Engine::policy_changed`] too.
    pub fn start(&self) {
        let session = self.session().clone();
        if !session.set_started() {
            return;
        }
        session.registry.poke_loaded(Poke::Due);
        if let Some(running) = self
            .inner
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
        {
            running.tasks.spawn(timers::run(session.clone()));
            running.tasks.spawn(debts::run(session.clone()));
            running.tasks.spawn(retention::run(session.clone()));
            running.tasks.spawn(async move {
                if let Err(error) = session.sweep_runnable().await {
                    tracing::error!(%error, "recovered work does not run");
                }
            });
        }
    }

    /// This file's incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.session().incarnation.clone()
    }

    /// The owner's generation number.
    pub fn generation(&self) -> u64 {
        self.session().generation
    }

    /// Resolves with the reason once the session has failed; the process should reopen.
    pub async fn failed(&self) -> SessionError {
        self.session().line.failed().await
    }

    /// A new conversation; `settings` are the host's own. Of them the engine reads
    /// `title` (else the first input's first line is the title), `steerMode` and
    /// `followUpMode` (`"all"`: a boundary places the whole queue, not its oldest).
    pub async fn create_conversation(
        &self,
        model: &str,
        settings: Value,
        extra: Vec<Statement>,
    ) -> Result<ConversationId, SessionError> {
        let session = self.session();
        let id = session.counters.conversation();
        let title = settings
            .get("title")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let at = session.now();
        let mut batch = Batch::default();
        let changes = vec![Change::ConversationCreated {
            conversation: id,
            settings: settings.clone(),
        }];
        batch.insert_conversation(&ConversationRow {
            id,
            title,
            settings,
            model: model.to_owned(),
            last_at: at,
            origin: Origin::default(),
        });
        let mut statements = session.ports.ledger.statements(at, &changes);
        statements.extend(extra);
        let view = Some(crate::view::ChangeView::empty(id));
        session
            .line
            .commit(Request {
                name: "create",
                at,
                batch,
                extra: statements,
                changes,
                view,
            })
            .await?;
        Ok(id)
    }

    /// Sends a command to a conversation and waits for its answer.
    pub(crate) async fn ask<T, E: From<SessionError>>(
        &self,
        conversation: ConversationId,
        command: impl FnOnce(oneshot::Sender<Result<T, E>>) -> Command,
    ) -> Result<T, E> {
        let (reply, answer) = oneshot::channel();
        self.session()
            .registry
            .send(self.session(), conversation, command(reply));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self
                .session()
                .line
                .failure()
                .unwrap_or(SessionError::Closed)
                .into()),
        }
    }

    /// Admits an input, in one commit with whatever it starts.
    pub async fn submit(&self, input: Input) -> Result<Submitted, SubmitError> {
        self.ask(input.conversation, |reply| {
            Command::Submit(Box::new(input), reply)
        })
        .await
    }

    /// Admits a write, placed at once while idle, else at the next boundary.
    pub async fn write(&self, write: Write) -> Result<Submitted, SubmitError> {
        self.ask(write.conversation, |reply| {
            Command::Write(Box::new(write), reply)
        })
        .await
    }

    /// Lets the context begin anew with a `pi.reset` entry, which may tell the model
    /// something: `brief`. A run that is going ends `unanswered: reset`, and what is
    /// queued runs in the new context.
    pub async fn reset(
        &self,
        conversation: ConversationId,
        request_id: Option<RequestId>,
        requester: Requester,
        brief: Option<String>,
    ) -> Result<Submitted, SubmitError> {
        let write = Write {
            conversation,
            request_id,
            requester,
            body: WriteBody {
                kind: kind::RESET.into(),
                message: brief.map(|text| Message::User {
                    content: vec![Part::text(text)],
                }),
                data: Value::Null,
                head: Some(Head::Here),
                edits: Vec::new(),
            },
            extra: Vec::new(),
        };
        self.ask(conversation, |reply| Command::Reset(Box::new(write), reply))
            .await
    }

    /// Lets a summary take the place of the beginning of the context. Returns once the
    /// compaction has begun; a `pi.compaction` entry tells how it ended.
    pub async fn compact(
        &self,
        conversation: ConversationId,
        requester: Requester,
        instructions: String,
    ) -> Result<Asked, SessionError> {
        self.ask(conversation, |reply| Command::Compact {
            requester,
            instructions,
            reply,
        })
        .await
    }

    /// Ends a run, and with [`AbortScope::Conversation`] empties the inbox. Returns
    /// once the abort is committed; the run ends when its executions have.
    pub async fn abort(
        &self,
        conversation: ConversationId,
        scope: AbortScope,
    ) -> Result<Aborted, SessionError> {
        self.ask(conversation, |reply| Command::Abort(scope, reply))
            .await
    }

    /// Takes a queued submission back; another state is left as it is and returned.
    pub async fn withdraw(
        &self,
        submission: SubmissionId,
    ) -> Result<Option<Submission>, SessionError> {
        match self.session().reader.submission(submission).await? {
            None => Ok(None),
            Some(row) => {
                self.ask(row.submission.conversation, |reply| {
                    Command::Withdraw(submission, reply)
                })
                .await
            }
        }
    }

    /// The first conversation in which this request id was used: a caller that
    /// asked for a new one and did not hear the answer finds it again.
    pub async fn conversation_of_request(
        &self,
        request: &RequestId,
    ) -> Result<Option<ConversationId>, SessionError> {
        self.session().reader.conversation_of_request(request).await
    }

    /// Takes a queued submission back and admits an input in its place, in one commit.
    /// `None`: it is not queued any more, and nothing was admitted.
    pub async fn replace(
        &self,
        queued: SubmissionId,
        input: Input,
    ) -> Result<Option<Submitted>, SubmitError> {
        self.ask(input.conversation, |reply| {
            Command::Replace(queued, Box::new(input), reply)
        })
        .await
    }

    /// Sets the model of a conversation's next request, and of those that follow.
    pub async fn set_model(
        &self,
        conversation: ConversationId,
        model: String,
    ) -> Result<(), SessionError> {
        self.ask(conversation, |reply| Command::Model(model, reply))
            .await
    }

    /// A submission as it stands.
    pub async fn submission(&self, id: SubmissionId) -> Result<Option<Submission>, SessionError> {
        Ok(self
            .session()
            .reader
            .submission(id)
            .await?
            .map(|row| row.submission))
    }

    /// Decides an approval; the first committed decision wins. `Ok((first, approval))`,
    /// `None` where there is no such approval.
    pub async fn decide(
        &self,
        approval: TaskId,
        decision: Decision,
        extra: Vec<Statement>,
    ) -> Result<Option<(bool, Approval)>, SessionError> {
        let Some(found) = self.session().reader.approval(approval).await? else {
            return Ok(None);
        };
        self.ask(found.conversation, |reply| Command::Decide {
            approval,
            decision,
            extra,
            reply,
        })
        .await
    }

    /// Approvals of a conversation, or of all; pending ones only unless `which` asks for all.
    pub async fn approvals(
        &self,
        conversation: Option<ConversationId>,
        which: Approvals,
    ) -> Result<Vec<Approval>, SessionError> {
        self.session()
            .reader
            .approvals(conversation, which == Approvals::Pending)
            .await
    }

    /// One approval; `None` where there is none of that number.
    pub async fn approval(&self, id: TaskId) -> Result<Option<Approval>, SessionError> {
        self.session().reader.approval(id).await
    }

    /// What became of an approved call: whether its intent was committed, or, where it
    /// was asked for on the way, whether the yes was used. `None` where that is still
    /// open, and where nothing was approved.
    pub async fn executed(&self, approval: &Approval) -> Result<Option<bool>, SessionError> {
        if approval.state != ApprovalState::Approved {
            return Ok(None);
        }
        let (reader, call) = (&self.session().reader, [approval.call.0]);
        if !approval.on_the_way {
            let became = reader.number(call::BECAME, &call).await?;
            return Ok(became.map(|began| began == 1));
        }
        if approval.used_at.is_some() {
            return Ok(Some(true));
        }
        if reader.number(call::ENDED, &call).await? != Some(1) {
            return Ok(None);
        }
        // Used from now on it cannot be, so this is the last word.
        let now = reader.approval(approval.task).await?;
        Ok(Some(now.is_some_and(|now| now.used_at.is_some())))
    }

    /// The policy changed: every waiting call is decided anew.
    pub fn policy_changed(&self) {
        self.sweep(open_work::WAITING, Poke::Policy);
    }

    /// Keys or models changed: runs that wait for one try again.
    pub fn models_changed(&self) {
        self.sweep(open_work::KEYLESS, Poke::Models);
    }

    fn sweep(&self, sql: &'static str, poke: Poke) {
        let session = self.session().clone();
        if let Some(running) = self
            .inner
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
        {
            running.tasks.spawn(async move {
                if let Err(error) = session.sweep(sql, &[], poke).await {
                    tracing::warn!(%error, "a change does not reach every conversation");
                }
            });
        }
    }

    /// Commits a component's own rows.
    pub async fn commit(
        &self,
        name: &'static str,
        statements: Vec<Statement>,
    ) -> Result<CommitNo, SessionError> {
        let session = self.session();
        let request = Request {
            name,
            at: session.now(),
            batch: Batch::default(),
            extra: statements,
            changes: Vec::new(),
            view: None,
        };
        Ok(session.line.commit(request).await?)
    }

    /// A read-only connection pool for components' own tables.
    pub fn reader(&self) -> &sqlx::SqlitePool {
        &self.session().reader.pool
    }

    /// No new work; running requests end at their committed partial; executions that
    /// live outside of the process go on; the file is checkpointed and closed.
    pub async fn close(&self) -> Result<(), SessionError> {
        self.end(true).await
    }

    /// Ends the session at once, as the end of the process would, but waits until
    /// the file can be opened again. For tests.
    #[doc(hidden)]
    pub async fn abandon(&self) {
        let _ = self.end(false).await;
    }

    async fn end(&self, checkpoint: bool) -> Result<(), SessionError> {
        let session = self.session();
        let running = self
            .inner
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(Running {
            line,
            mut tasks,
            lock,
        }) = running
        else {
            return Ok(());
        };
        session.closing.cancel();
        session.registry.close();
        tasks.shutdown().await;
        let failure = session.line.failure();
        let connection = line.stop().await;
        session.reader.pool.close().await;
        let mut outcome = failure.map_or(Ok(()), Err);
        match connection {
            Some(mut connection) => {
                if checkpoint && outcome.is_ok() {
                    let done = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
                        .execute(&mut connection)
                        .await;
                    if let Err(error) = done {
                        tracing::warn!(%error, "the write-ahead log stays; the next open reads it");
                    }
                }
                if let Err(error) = connection.close().await {
                    tracing::warn!(%error, "the database was not closed cleanly");
                }
            }
            None => {
                outcome = Err(SessionError::SessionFailed(
                    "the commit line broke off".into(),
                ))
            }
        }
        drop(lock);
        outcome
    }

    /// Whether anything runs (not: waits for a person or a timer), for idle exit.
    pub fn running(&self) -> usize {
        self.session().registry.running()
    }

    /// Since when runs wait because the disk is full; they go on by themselves.
    pub fn full_since(&self) -> Option<crate::id::Millis> {
        self.session().full_since()
    }

    /// Runs that only wait for a person, a key or a timer.
    pub fn waiting(&self) -> usize {
        self.session().registry.waiting()
    }

    /// Executions of [`crate::tool::Replay::Attach`] calls whose task is open or
    /// whose release or kill is owed; the host ends and releases all others.
    pub async fn open_executions(&self) -> Result<Vec<String>, SessionError> {
        let tasks = self
            .session()
            .reader
            .column::<i64>(call::EXECUTIONS, &[])
            .await?;
        Ok(tasks
            .into_iter()
            .map(|task| debts::execution(self.session(), TaskId(task)))
            .collect())
    }
}

/// Which approvals are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Approvals {
    Pending,
    All,
}
