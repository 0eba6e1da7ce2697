//! A watch that survives the harness: frames come until the caller stops
//! listening, whatever is killed in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mooring_wire::harness::{WatchFrame, WatchRequest};
use tokio::sync::mpsc;

use crate::connection::Connection;
use crate::error::Error;

/// Frames that wait for a slow reader; the harness bounds what lies behind.
const FRAMES: usize = 64;
/// Losses in a row without a frame in between after which it gives up: a
/// harness that dies at once each time would otherwise be started for ever.
const LOSSES: u32 = 5;

/// What a watch delivers.
#[derive(Debug)]
pub enum Watched {
    /// The watch has begun: whatever happens from now on comes as a frame.
    Begun,
    /// A frame.
    Frame(Box<WatchFrame>),
    /// The harness is gone; it is being started again.
    Lost,
    /// It is back. What was missed comes with the next frames.
    Back,
    /// It cannot be brought back.
    Failed(Error),
}

/// A watch in the background, which ends when this is dropped.
pub struct Watch {
    frames: mpsc::Receiver<Watched>,
    focus: Arc<AtomicI64>,
}

impl Watch {
    /// Watches `conversation`, beginning with what it holds; 0: the changes of all.
    pub fn new(connection: Connection, conversation: i64) -> Self {
        let (send, frames) = mpsc::channel(FRAMES);
        let focus = Arc::new(AtomicI64::new(conversation));
        let follower = Follower {
            connection,
            conversation,
            focus: Arc::clone(&focus),
            after: 0,
            session: String::new(),
            heard: false,
        };
        tokio::spawn(follower.run(send));
        Watch { frames, focus }
    }

    /// What comes next; `None` after a failure was told.
    pub async fn next(&mut self) -> Option<Watched> {
        self.frames.recv().await
    }

    /// Tells which conversation matters: after a loss a watch of all begins
    /// again with what that one holds.
    pub fn focus(&self, conversation: i64) {
        self.focus.store(conversation, Ordering::Relaxed);
    }
}

struct Follower {
    connection: Connection,
    conversation: i64,
    focus: Arc<AtomicI64>,
    after: u64,
    session: String,
    heard: bool,
}

impl Follower {
    async fn run(mut self, send: mpsc::Sender<Watched>) {
        let mut losses = 0;
        loop {
            let error = match self.follow(&send).await {
                Err(Stopped::Nobody) => return,
                Err(Stopped::Error(error)) => error,
                Ok(()) => Error::Broken("the watch ended".into()),
            };
            losses = if std::mem::take(&mut self.heard) {
                1
            } else {
                losses + 1
            };
            if !error.is_connection_loss() || losses > LOSSES {
                let _ = send.send(Watched::Failed(error)).await;
                return;
            }
            let _ = send.send(Watched::Lost).await;
            let told = match self.connection.reopen().await {
                Ok(()) => Watched::Back,
                Err(error) => Watched::Failed(error),
            };
            let failed = matches!(told, Watched::Failed(_));
            if send.send(told).await.is_err() || failed {
                return;
            }
            let focus = self.focus.load(Ordering::Relaxed);
            if focus != self.conversation {
                self.conversation = focus;
                self.after = 0;
            }
        }
    }

    async fn follow(&mut self, send: &mpsc::Sender<Watched>) -> Result<(), Stopped> {
        let request = WatchRequest {
            conversation: self.conversation,
            after: self.after,
            session: self.session.clone(),
        };
        let mut stream = self.connection.client().watch(request).await?.into_inner();
        send.send(Watched::Begun).await?;
        loop {
            let frame = tokio::select! {
                frame = stream.message() => frame?,
                () = send.closed() => return Err(Stopped::Nobody),
            };
            let Some(frame) = frame else { return Ok(()) };
            self.heard = true;
            self.after = frame.sequence;
            self.session.clone_from(&frame.session);
            send.send(Watched::Frame(Box::new(frame))).await?;
        }
    }
}

/// Why a stream is not followed any more.
enum Stopped {
    /// Nobody listens.
    Nobody,
    /// It broke.
    Error(Error),
}

impl From<mpsc::error::SendError<Watched>> for Stopped {
    fn from(_: mpsc::error::SendError<Watched>) -> Self {
        Stopped::Nobody
    }
}

impl From<tonic::Status> for Stopped {
    fn from(status: tonic::Status) -> Self {
        Stopped::Error(status.into())
    }
}
