//! The line of commits: one connection, one writer, one flush for all that wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::TryStreamExt;
use sqlx::{
    AssertSqlSafe, Either, Executor as _, SqliteConnection, sqlite::SqliteArguments,
    sqlite::SqliteConnectOptions,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    checkpoint::{self, Pace},
    failpoint::{Failpoints, Side},
    fault::{self, Fault, Stage},
    text::{Frame, Texts},
};
use crate::{
    clock::Clock,
    error::SessionError,
    hub::Hub,
    id::{CommitNo, ConversationId, EntryId, Millis, SubmissionId, TaskId},
    ledger::{Bind, Change, Ledger, Statement},
    sql::batch::{Batch, Lists},
    streams::{Streams, Taken},
    view::ChangeView,
};

/// How often running streams are committed.
const TICK_MS: i64 = 100;
/// Most requests in one transaction.
const GROUP: usize = 256;
/// Most component statements in one call.
const EXTRA: usize = 64;

/// The counters that ids come from; every commit stores them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub conversation: AtomicI64,
    pub entry: AtomicI64,
    pub task: AtomicI64,
    pub submission: AtomicI64,
}

impl Counters {
    pub fn conversation(&self) -> ConversationId {
        ConversationId(self.conversation.fetch_add(1, Ordering::Relaxed))
    }
    pub fn entry(&self) -> EntryId {
        EntryId(self.entry.fetch_add(1, Ordering::Relaxed))
    }
    pub fn task(&self) -> TaskId {
        TaskId(self.task.fetch_add(1, Ordering::Relaxed))
    }
    pub fn submission(&self) -> SubmissionId {
        SubmissionId(self.submission.fetch_add(1, Ordering::Relaxed))
    }
}

/// A commit that is asked for.
#[derive(Debug)]
pub(crate) struct Request {
    /// One of [`super::failpoint::COMMITS`], or a component's own.
    pub name: &'static str,
    pub at: Millis,
    pub batch: Batch,
    pub extra: Vec<Statement>,
    /// What it makes true; told to the ledger once it stands.
    pub changes: Vec<Change>,
    /// What it shows.
    pub view: Option<ChangeView>,
}

struct Waiting {
    request: Request,
    reply: oneshot::Sender<Result<CommitNo, Refused>>,
}

/// A commit that does not stand; of a clean failure the request comes back.
#[derive(Debug)]
pub(crate) struct Refused {
    pub error: SessionError,
    pub request: Option<Box<Request>>,
}

impl From<Refused> for SessionError {
    fn from(refused: Refused) -> SessionError {
        refused.error
    }
}

impl From<SessionError> for Refused {
    fn from(error: SessionError) -> Refused {
        Refused {
            error,
            request: None,
        }
    }
}

/// Asks for commits. Clones share the line.
#[derive(Clone)]
pub(crate) struct Line {
    requests: mpsc::UnboundedSender<Waiting>,
    failure: watch::Receiver<Option<SessionError>>,
}

impl Line {
    /// Admits a commit now; the future is its outcome, and may be dropped.
    pub fn commit(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<CommitNo, Refused>> + Send + use<> {
        let (reply, outcome) = oneshot::channel();
        let sent = self.requests.send(Waiting { request, reply });
        let failure = self.failure.clone();
        async move {
            let lost = || failure.borrow().clone().unwrap_or(SessionError::Closed);
            match sent {
                Err(_) => Err(lost().into()),
                Ok(()) => outcome.await.unwrap_or_else(|_| Err(lost().into())),
            }
        }
    }

    /// Why the session has failed, if it has.
    pub fn failure(&self) -> Option<SessionError> {
        self.failure.borrow().clone()
    }

    /// Resolves once the session has failed or is closed.
    pub async fn failed(&self) -> SessionError {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(error) => error.clone().unwrap_or(SessionError::Closed),
            Err(_) => SessionError::Closed,
        }
    }
}

/// The writer's end.
pub(crate) struct Writer {
    pub connection: SqliteConnection,
    pub options: SqliteConnectOptions,
    pub generation: i64,
    pub commit_no: i64,
    pub counters: Arc<Counters>,
    pub clock: Arc<dyn Clock>,
    pub streams: Arc<Streams>,
    pub ledger: Arc<dyn Ledger>,
    pub hub: Arc<Hub>,
    pub texts: Texts,
    pub failpoints: Failpoints,
    pub pace: Arc<Pace>,
}

/// Starts the line; `stop` ends it after the requests that wait, and gives the connection back.
pub(crate) fn start(
    writer: Writer,
    stop: oneshot::Receiver<()>,
) -> (Line, tokio::task::JoinHandle<SqliteConnection>) {
    let (requests, waiting) = mpsc::unbounded_channel();
    let (failed, failure) = watch::channel(None);
    let done = tokio::spawn(run(writer, waiting, failed, stop));
    (Line { requests, failure }, done)
}

async fn run(
    mut writer: Writer,
    mut waiting: mpsc::UnboundedReceiver<Waiting>,
    failed: watch::Sender<Option<SessionError>>,
    mut stop: oneshot::Receiver<()>,
) -> SqliteConnection {
    let mut tick: Option<futures::future::BoxFuture<'static, ()>> = None;
    let mut group = Vec::new();
    let streams = writer.streams.clone();
    let mut stopping = false;
    let mut gather = Gather::default();
    loop {
        tokio::select! {
            biased;
            first = waiting.recv() => match first {
                Some(first) => group.push(first),
                None => break,
            },
            () = async { match tick.as_mut() { Some(tick) => tick.await, None => std::future::pending().await } } => tick = None,
            () = streams.waiting.notified(), if tick.is_none() => {
                let clock = writer.clock.clone();
                let due = Millis(clock.now().0 + TICK_MS);
                tick = Some(Box::pin(async move { clock.until(due).await }));
                continue;
            }
            _ = &mut stop, if !stopping => {
                stopping = true;
                waiting.close();
                continue;
            }
        }
        drain(&mut waiting, &mut group);
        gather.wait(&mut waiting, &mut group).await;
        let taken = writer.streams.take();
        if group.is_empty() && taken.is_empty() {
            continue;
        }
        let (members, begun) = (group.len(), Instant::now());
        let outcome = writer.group(&mut group, taken).await;
        gather.flushed(members, begun.elapsed());
        if let Err(error) = outcome {
            tracing::error!(%error, "the session has failed");
            let _ = failed.send(Some(error.clone()));
            waiting.close();
            for lost in group
                .drain(..)
                .chain(std::iter::from_fn(|| waiting.try_recv().ok()))
            {
                let _ = lost.reply.send(Err(error.clone().into()));
            }
            writer.hub.close();
            return writer.connection;
        }
        if writer.pace.commit() {
            let (options, pace) = (writer.options.clone(), writer.pace.clone());
            tokio::spawn(async move { checkpoint::background(options, &pace).await });
        }
        if writer.pace.take_large() {
            // Nobody writes now, so this one reaches the end and the log starts over.
            if let Err(error) = checkpoint::passive(&mut writer.connection).await {
                tracing::warn!(%error, "a checkpoint of the write-ahead log failed; it is tried again");
            }
        }
    }
    // What streams had when their requests were let go.
    let taken = writer.streams.take();
    if !taken.is_empty()
        && let Err(error) = writer.group(&mut group, taken).await
    {
        tracing::warn!(%error, "the last output was not committed");
    }
    let _ = failed.send(Some(SessionError::Closed));
    writer.hub.close();
    writer.connection
}

/// Takes what waits, without waiting.
fn drain(waiting: &mut mpsc::UnboundedReceiver<Waiting>, group: &mut Vec<Waiting>) {
    while group.len() < GROUP
        && let Ok(next) = waiting.try_recv()
    {
        group.push(next);
    }
}

/// Whether a group waits for more members. Those whose commits stood together come
/// back together, a little apart: without this the first of them would have a flush
/// of its own, and the others would wait for it.
#[derive(Debug, Default)]
struct Gather {
    /// Members of the last two groups.
    sizes: [usize; 2],
    last_flush: Duration,
}

impl Gather {
    /// The longest wait.
    const LONGEST: Duration = Duration::from_millis(3);

    fn flushed(&mut self, members: usize, took: Duration) {
        self.sizes = [self.sizes[1], members];
        self.last_flush = took;
    }

    /// Waits for as many as there were before, for a small part of a flush.
    async fn wait(&self, waiting: &mut mpsc::UnboundedReceiver<Waiting>, group: &mut Vec<Waiting>) {
        let expected = self.sizes[0].max(self.sizes[1]).min(GROUP);
        if group.is_empty() || group.len() >= expected {
            return;
        }
        let until = Instant::now() + (self.last_flush / 4).min(Self::LONGEST);
        while group.len() < expected && Instant::now() < until {
            tokio::task::yield_now().await;
            drain(waiting, group);
        }
    }
}

/// A member of a group.
struct Member {
    waiting: Option<Waiting>,
    /// The streams' commit, which nobody waits for.
    taken: Option<Taken>,
    batch: Batch,
    name: &'static str,
    outcome: Option<Result<CommitNo, Fault>>,
}

impl Member {
    fn extra(&self) -> &[Statement] {
        self.waiting
            .as_ref()
            .map_or(&[], |waiting| &waiting.request.extra)
    }
}

impl Writer {
    /// Commits a group. An error has failed the session; each member has its answer else.
    async fn group(&mut self, group: &mut Vec<Waiting>, taken: Taken) -> Result<(), SessionError> {
        let mut members = Vec::with_capacity(group.len() + 1);
        if !taken.is_empty() {
            members.push(Member {
                batch: taken.batch(),
                name: "chunks",
                waiting: None,
                taken: Some(taken),
                outcome: None,
            });
        }
        for mut waiting in group.drain(..) {
            let batch = std::mem::take(&mut waiting.request.batch);
            members.push(Member {
                name: waiting.request.name,
                batch,
                waiting: Some(waiting),
                taken: None,
                outcome: None,
            });
        }
        for member in &members {
            self.failpoints.crash(member.name, Side::Before);
        }
        let outcome = self.commit_members(&mut members).await;
        if outcome.is_ok() {
            for member in &members {
                self.failpoints.crash(member.name, Side::After);
            }
        }
        match outcome {
            Ok(()) => {
                members.into_iter().for_each(|member| self.publish(member));
                Ok(())
            }
            Err(fault) => {
                group.extend(members.into_iter().filter_map(|member| member.waiting));
                Err(SessionError::from(&fault))
            }
        }
    }

    /// All in one, or each in a savepoint, or each alone.
    async fn commit_members(&mut self, members: &mut [Member]) -> Result<(), Fault> {
        match self.together(members).await {
            Ok(()) => return Ok(()),
            Err(fatal @ (Fault::Fatal(_) | Fault::Superseded)) => return Err(fatal),
            Err(fault) if members.len() == 1 => {
                // One request alone failed cleanly; a full disk gets its one more try.
                let again = match fault {
                    Fault::Full => self.together(members).await,
                    fault => Err(fault),
                };
                return match again {
                    Err(fatal @ (Fault::Fatal(_) | Fault::Superseded)) => Err(fatal),
                    Err(fault) => {
                        members[0].outcome = Some(Err(fault));
                        Ok(())
                    }
                    Ok(()) => Ok(()),
                };
            }
            Err(Fault::Refused(_)) => match self.in_savepoints(members).await {
                Ok(()) => return Ok(()),
                Err(fatal @ (Fault::Fatal(_) | Fault::Superseded)) => return Err(fatal),
                Err(Fault::Full | Fault::Refused(_)) => {}
            },
            Err(Fault::Full) => {}
        }
        for member in members {
            member.outcome = None;
            match self.together(std::slice::from_mut(member)).await {
                Ok(()) => {}
                Err(fatal @ (Fault::Fatal(_) | Fault::Superseded)) => return Err(fatal),
                Err(fault) => member.outcome = Some(Err(fault)),
            }
        }
        Ok(())
    }

    /// Every member in one transaction, their rows merged; all stand or none.
    async fn together(&mut self, members: &mut [Member]) -> Result<(), Fault> {
        let mut lists = Lists::new();
        let mut number = self.commit_no;
        for member in members.iter() {
            number += 1;
            lists.add(&member.batch, number);
        }
        let whole = members.len() == 1 && members[0].extra().len() <= EXTRA;
        let fails = members
            .iter()
            .any(|member| self.failpoints.fails(member.name));
        let result = if whole && !fails {
            let extra = members[0].extra().to_vec();
            self.call(Frame::Whole, lists, number, extra).await
        } else {
            self.parts(lists, number, members, fails).await
        };
        if let Err((fault, stage)) = result {
            // After a failed COMMIT SQLite has rolled back by itself, or the session ends anyway.
            if !matches!(fault, Fault::Fatal(_)) || stage == Stage::Statement {
                let _ = self.plain("ROLLBACK").await;
            }
            return Err(fault);
        }
        for (at, member) in members.iter_mut().enumerate() {
            member.outcome = Some(Ok(CommitNo(self.commit_no + 1 + at as i64)));
        }
        self.commit_no = number;
        Ok(())
    }

    async fn parts(
        &mut self,
        lists: Lists,
        number: i64,
        members: &[Member],
        fails: bool,
    ) -> Result<(), (Fault, Stage)> {
        self.call(Frame::Open, lists, number, Vec::new()).await?;
        for member in members {
            for extra in member.extra().chunks(EXTRA) {
                self.component(extra.to_vec())
                    .await
                    .map_err(|fault| (fault, Stage::Statement))?;
            }
        }
        if fails {
            let _ = self.plain("ROLLBACK").await;
            return Err((
                Fault::Fatal("a flush failed, as the test asked".into()),
                Stage::Commit,
            ));
        }
        self.plain("COMMIT")
            .await
            .map_err(|error| (fault::of(&error, Stage::Commit), Stage::Commit))
    }

    /// Every member in a savepoint of its own, in one transaction. `Err(Full)`: SQLite
    /// has rolled the whole back, nobody has an outcome.
    async fn in_savepoints(&mut self, members: &mut [Member]) -> Result<(), Fault> {
        let statement = |error: sqlx::Error| fault::of(&error, Stage::Statement);
        self.plain("BEGIN IMMEDIATE").await.map_err(statement)?;
        let mut number = self.commit_no;
        for member in members.iter_mut() {
            let mut lists = Lists::new();
            lists.add(&member.batch, number + 1);
            let extra = member.extra().to_vec();
            let result = match extra.len() <= EXTRA {
                true => self
                    .call(Frame::Savepoint, lists, number + 1, extra)
                    .await
                    .map_err(|(fault, _)| fault),
                false => Err(Fault::Refused(format!(
                    "more than {EXTRA} statements in a group"
                ))),
            };
            match result {
                Ok(()) => {
                    number += 1;
                    member.outcome = Some(Ok(CommitNo(number)));
                }
                Err(Fault::Refused(text)) => {
                    // Fails where the whole transaction is gone.
                    for sql in ["ROLLBACK TO request", "RELEASE request"] {
                        self.plain(sql).await.map_err(|_| Fault::Full)?;
                    }
                    member.outcome = Some(Err(Fault::Refused(text)));
                }
                Err(fault) => {
                    let _ = self.plain("ROLLBACK").await;
                    return Err(fault);
                }
            }
        }
        match self.plain("COMMIT").await {
            Ok(()) => {
                self.commit_no = number;
                Ok(())
            }
            Err(error) => {
                let _ = self.plain("ROLLBACK").await;
                Err(fault::of(&error, Stage::Commit))
            }
        }
    }

    /// One call: the session's row, the engine's rows, a component's statements.
    async fn call(
        &mut self,
        frame: Frame,
        lists: Lists,
        number: i64,
        extra: Vec<Statement>,
    ) -> Result<(), (Fault, Stage)> {
        let shape = lists.shape();
        let text = self.texts.commit(frame, shape, &extra);
        let mut arguments = Arguments::default();
        for value in [
            self.generation,
            number,
            self.counters.conversation.load(Ordering::Relaxed),
            self.counters.entry.load(Ordering::Relaxed),
            self.counters.task.load(Ordering::Relaxed),
            self.counters.submission.load(Ordering::Relaxed),
        ] {
            arguments.bind(Bind::Int(value));
        }
        lists
            .binds()
            .for_each(|list| arguments.bind(Bind::Text(list)));
        self.texts.binds(extra.clone(), |bind| arguments.bind(bind));
        // BEGIN or SAVEPOINT, the session's row, the tables, the extras, and COMMIT or RELEASE.
        let statements = 2 + shape.count_ones() as usize + extra.len();
        let (finished, result) = execute(&mut self.connection, text, arguments).await;
        result.map_err(|error| {
            let stage = if frame == Frame::Whole && finished >= statements {
                Stage::Commit
            } else {
                Stage::Statement
            };
            (fault::of(&error, stage), stage)
        })
    }

    async fn component(&mut self, extra: Vec<Statement>) -> Result<(), Fault> {
        let text = self.texts.component(&extra);
        let mut arguments = Arguments::default();
        self.texts.binds(extra, |bind| arguments.bind(bind));
        let (_, result) = execute(&mut self.connection, text, arguments).await;
        result.map_err(|error| fault::of(&error, Stage::Statement))
    }

    async fn plain(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(sql)
            .execute(&mut self.connection)
            .await
            .map(|_| ())
    }

    /// Tells what stands: to the ledger, to watchers, to who asked.
    fn publish(&self, member: Member) {
        let Member {
            waiting,
            taken,
            outcome,
            batch,
            ..
        } = member;
        let outcome = outcome.unwrap_or(Err(Fault::Full));
        match (waiting, taken) {
            (Some(Waiting { mut request, reply }), _) => {
                let answer = match outcome {
                    Ok(number) => {
                        self.ledger.committed(number, request.at, &request.changes);
                        if let Some(view) = request.view {
                            self.hub.publish(number.0 as u64, view);
                        }
                        Ok(number)
                    }
                    Err(fault) => {
                        request.batch = batch;
                        Err(Refused {
                            error: SessionError::from(&fault),
                            request: Some(Box::new(request)),
                        })
                    }
                };
                // A caller that went away never undoes a commit.
                let _ = reply.send(answer);
            }
            (None, Some(taken)) => match outcome {
                Ok(number) => {
                    let mut views: Vec<_> = taken.views().into_iter().collect();
                    views.sort_by_key(|(conversation, _)| *conversation);
                    for (conversation, chunks) in views {
                        self.hub.publish(
                            number.0 as u64,
                            ChangeView {
                                chunks,
                                ..ChangeView::empty(conversation)
                            },
                        );
                    }
                }
                Err(fault) => {
                    tracing::warn!(error = %SessionError::from(&fault), "running output waits for the next tick");
                    self.streams.give_back(taken);
                    self.streams.waiting.notify_one();
                }
            },
            (None, None) => {}
        }
    }
}

/// Binds of one call.
#[derive(Default)]
struct Arguments(SqliteArguments);

impl Arguments {
    fn bind(&mut self, bind: Bind) {
        use sqlx::Arguments as _;
        match bind {
            Bind::Null => self.0.add(None::<i64>),
            Bind::Int(value) => self.0.add(value),
            Bind::Real(value) => self.0.add(value),
            Bind::Text(value) => self.0.add(value),
            Bind::Blob(value) => self.0.add(value),
        }
        .expect("plain values always encode");
    }
}

/// Runs all statements of a text in one round trip; how many finished, and the error of the next.
async fn execute(
    connection: &mut SqliteConnection,
    text: Arc<str>,
    arguments: Arguments,
) -> (usize, Result<(), sqlx::Error>) {
    let mut finished = 0;
    let query = sqlx::query_with(AssertSqlSafe(text), arguments.0).persistent(true);
    let mut results = connection.fetch_many(query);
    loop {
        match results.try_next().await {
            Ok(Some(Either::Left(_))) => finished += 1,
            Ok(Some(Either::Right(_))) => {}
            Ok(None) => return (finished, Ok(())),
            Err(error) => return (finished, Err(error)),
        }
    }
}
