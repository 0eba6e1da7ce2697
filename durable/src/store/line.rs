//! The line of commits: one connection, one writer, one flush for all that wait.
//!
//! The line is a thread of its own: SQLite and its flushes block, and a commit should
//! cost one change of thread there and one back. Requests come in through a channel;
//! all that wait when a flush has ended share the next one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
        mpsc,
    },
    time::Instant,
};

use sqlx::{SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};

use super::{
    checkpoint::{self, Pace},
    gather::Gather,
    handle,
    writer::Writer,
};
use crate::{
    clock::Clock,
    error::SessionError,
    hub::Sent,
    id::{CommitNo, ConversationId, EntryId, Millis, SubmissionId, TaskId},
    ledger::{Change, Statement},
    sql::batch::Batch,
    streams::Streams,
    view::ChangeView,
};

/// How often running streams are committed.
const TICK_MS: i64 = 100;
/// Most requests in one transaction.
const GROUP: usize = 256;

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

/// A request, and who waits for its outcome.
pub(crate) struct Waiting {
    pub request: Box<Request>,
    pub reply: oneshot::Sender<Result<Stands, Refused>>,
}

/// A commit that stands. What it was made of, and frames that it drove out of the hub, go
/// to who asked for it and are freed there: on the line's thread all others would wait for
/// that, and memory that another thread allocated is freed under that thread's lock.
pub(crate) struct Stands {
    pub number: CommitNo,
    #[expect(dead_code, reason = "only dropped")]
    pub request: Box<Request>,
    #[expect(dead_code, reason = "only dropped")]
    pub forgotten: Vec<Sent>,
}

/// What the line's thread is told.
enum Message {
    Commit(Waiting),
    /// Running streams are due.
    Tick,
    /// It ends after the requests that wait.
    Stop,
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
    messages: mpsc::Sender<Message>,
    failure: watch::Receiver<Option<SessionError>>,
}

impl Line {
    /// Admits a commit now; the future is its outcome, and may be dropped.
    pub fn commit(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<CommitNo, Refused>> + Send + use<> {
        let (reply, outcome) = oneshot::channel();
        let request = Box::new(request);
        // Of what is not sent nothing is told; its outcome is that of the line.
        let _ = self
            .messages
            .send(Message::Commit(Waiting { request, reply }));
        let failure = self.failure.clone();
        async move {
            let lost = || failure.borrow().clone().unwrap_or(SessionError::Closed);
            match outcome.await {
                Ok(outcome) => outcome.map(|stands| stands.number),
                Err(_) => Err(lost().into()),
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

/// The end of a line that runs; dropped, it lets the line end by itself.
pub(crate) struct End {
    messages: mpsc::Sender<Message>,
    connection: oneshot::Receiver<SqliteConnection>,
}

impl End {
    /// Ends the line after the requests that wait, and takes the connection back.
    /// `None`: its thread has panicked.
    pub async fn stop(mut self) -> Option<SqliteConnection> {
        // It may have stopped by itself.
        let _ = self.messages.send(Message::Stop);
        (&mut self.connection).await.ok()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Stop);
    }
}

/// What the line's thread has.
struct Running {
    writer: Writer,
    messages: mpsc::Receiver<Message>,
    failed: watch::Sender<Option<SessionError>>,
    /// Where background checkpoints run, and how they open the file.
    runtime: Handle,
    options: SqliteConnectOptions,
    pace: Arc<Pace>,
}

/// Starts the line on a thread of its own. Called within a runtime.
///
/// # Errors
/// When there is no thread to be had.
pub(crate) fn start(
    writer: Writer,
    mut connection: SqliteConnection,
    options: SqliteConnectOptions,
    clock: Arc<dyn Clock>,
) -> std::io::Result<(Line, End)> {
    let (messages, received) = mpsc::channel();
    let (failed, failure) = watch::channel(None);
    let (give_back, given_back) = oneshot::channel();
    let ticks = tokio::spawn(tick(writer.streams.clone(), clock, messages.clone()));
    let running = Running {
        writer,
        messages: received,
        failed: failed.clone(),
        runtime: Handle::current(),
        options,
        pace: Arc::default(),
    };
    std::thread::Builder::new()
        .name("mooring-commits".into())
        .spawn(move || {
            if let Err(error) = handle::lend(&mut connection, |file| running.run(file)) {
                let text = format!("the commit line did not begin: {error}");
                let _ = failed.send(Some(SessionError::SessionFailed(text)));
            }
            ticks.abort();
            let _ = give_back.send(connection);
        })?;
    let line = Line {
        messages: messages.clone(),
        failure,
    };
    let end = End {
        messages,
        connection: given_back,
    };
    Ok((line, end))
}

/// Tells the line when running streams are due.
async fn tick(streams: Arc<Streams>, clock: Arc<dyn Clock>, messages: mpsc::Sender<Message>) {
    loop {
        streams.waiting.notified().await;
        clock.until(Millis(clock.now().0 + TICK_MS)).await;
        if messages.send(Message::Tick).is_err() {
            return;
        }
    }
}

impl Running {
    fn run(mut self, file: &rusqlite::Connection) {
        let mut group = Vec::new();
        let mut gather = Gather::default();
        let mut stopping = false;
        while !stopping {
            stopping = match self.messages.recv() {
                Ok(message) => take(message, &mut group) || drain(&self.messages, &mut group),
                // Nobody can ask for anything any more.
                Err(_) => true,
            };
            gather.wait(group.len(), || {
                stopping |= drain(&self.messages, &mut group);
                (!stopping).then_some(group.len())
            });
            // At the end, what streams had when their requests were let go.
            let taken = self.writer.streams.take();
            if group.is_empty() && taken.is_empty() {
                continue;
            }
            let members = group.iter().filter_map(|it| it.request.view.as_ref());
            let members = members.map(|view| view.conversation).collect();
            let begun = Instant::now();
            let outcome = self.writer.group(file, &mut group, taken);
            gather.flushed(members, begun.elapsed());
            if let Err(error) = outcome {
                tracing::error!(%error, "the session has failed");
                let _ = self.failed.send(Some(error.clone()));
                for lost in group {
                    let _ = lost.reply.send(Err(error.clone().into()));
                }
                self.writer.hub.close();
                return;
            }
            self.checkpoint(file);
        }
        // Before the messages that are left go with their ends.
        let _ = self.failed.send(Some(SessionError::Closed));
        self.writer.hub.close();
    }

    /// Lets the log be written back where that is due.
    fn checkpoint(&self, file: &rusqlite::Connection) {
        if self.pace.commit() {
            let (options, pace) = (self.options.clone(), self.pace.clone());
            self.runtime
                .spawn(async move { checkpoint::background(options, &pace).await });
        }
        if self.pace.take_large() {
            // Nobody writes now, so this one reaches the end and the log starts over.
            if let Err(error) = checkpoint::on_the_line(file) {
                tracing::warn!(%error, "a checkpoint of the write-ahead log failed; it is tried again");
            }
        }
    }
}

/// Takes a message; whether the line is to end.
fn take(message: Message, group: &mut Vec<Waiting>) -> bool {
    match message {
        Message::Commit(waiting) => group.push(waiting),
        Message::Tick => {}
        Message::Stop => return true,
    }
    false
}

/// Takes what waits, without waiting; whether the line is to end.
fn drain(messages: &mpsc::Receiver<Message>, group: &mut Vec<Waiting>) -> bool {
    while group.len() < GROUP
        && let Ok(next) = messages.try_recv()
    {
        if take(next, group) {
            return true;
        }
    }
    false
}
