//! A watch that survives the harness: frames come until the caller stops
//! listening, whatever is killed in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use mooring_wire::harness::{WatchFrame, WatchRequest};
use tokio::sync::mpsc;

use crate::connection::Connection;
use crate::error::Error;
use crate::processes;

/// Frames that wait for a slow reader; the harness bounds what lies behind.
const FRAMES: usize = 64;
/// Losses in a row without a frame in between after which it gives up: a
/// harness that dies at once each time would otherwise be started for ever.
const LOSSES: u32 = 7;
/// A harness that lived for so long is started again at once.
const LIVED: Duration = Duration::from_secs(10);
/// Before the second start in a row, and at most; each pause is twice the one before.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// How long it is waited before a harness that was lost so often in a row is started
/// again.
pub fn pause(losses: u32) -> Duration {
    match losses {
        0 | 1 => Duration::ZERO,
        more => LONGEST_PAUSE.min(PAUSE * 2_u32.pow((more - 2).min(10))),
    }
}

/// What people are told of a pause that they notice.
pub fn waits(pause: Duration) -> Option<String> {
    let seconds = pause.as_secs();
    (seconds > 0)
        .then(|| format!("the harness is gone again and again; the next start is in {seconds} s"))
}

/// What people at a terminal are told of a loss.
pub fn lost(pause: Duration) -> String {
    waits(pause).unwrap_or_else(|| "the harness is gone; starting it again".into())
}

/// What a watch delivers.
#[derive(Debug)]
pub enum Watched {
    /// The watch has begun: whatever happens from now on comes as a frame.
    Begun,
    /// A frame.
    Frame(Box<WatchFrame>),
    /// The harness is gone; it is started again after the pause.
    Lost {
        /// Nothing, unless it is lost again and again.
        pause: Duration,
    },
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
        let (mut silent, mut losses) = (0, 0);
        loop {
            let since = Instant::now();
            let error = match self.follow(&send).await {
                Err(Stopped::Nobody) => return,
                Err(Stopped::Error(error)) => error,
                Ok(()) => Error::Broken("the watch ended".into()),
            };
            let heard = std::mem::take(&mut self.heard);
            silent = if heard { 1 } else { silent + 1 };
            losses = if since.elapsed() < LIVED {
                losses + 1
            } else {
                1
            };
            if !error.is_connection_loss() || silent > LOSSES {
                // In a cluster nobody here has started it.
                let error = match error.is_connection_loss() && !self.connection.is_attached() {
                    true => self.lost(silent),
                    false => self.connection.told(error),
                };
                let _ = send.send(Watched::Failed(error)).await;
                return;
            }
            let pause = pause(losses);
            let _ = send.send(Watched::Lost { pause }).await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = send.closed() => return,
            }
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

    fn lost(&self, times: u32) -> Error {
        let log = self.connection.plan().state.log();
        let tail = processes::tail(&log, 0).unwrap_or_else(|error| error.to_string());
        Error::HarnessLost { times, log, tail }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_harness_that_is_lost_again_and_again_is_started_less_and_less_often() {
        for (losses, millis) in [
            (1, 0),
            (2, 250),
            (3, 500),
            (5, 2_000),
            (7, 8_000),
            (90, 8_000),
        ] {
            assert_eq!(pause(losses), Duration::from_millis(millis), "{losses}");
        }
        assert_eq!(waits(pause(2)), None);
        assert!(waits(pause(5)).is_some_and(|text| text.ends_with("in 2 s")));
    }
}
