//! One side of a tunnel: its connections, and the frames that go out.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use tokio::sync::watch;
use tokio_stream::Stream;

use super::{ALL_GROWTH, Connection, LARGEST_WINDOW, MOST_CREDIT, PIECE, REASON, WINDOW};
use crate::sandbox::{TunnelFrame, tunnel_frame::Frame};

/// Who opens connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This side does: the daemon.
    Opens,
    /// The other side does: the harness.
    Takes,
}

/// What the other side did that it may not do; the stream is ended for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A connection was opened by the side that takes them.
    #[error("connection {0} was opened by the wrong side")]
    WrongSide(u64),
    /// Ids do not ascend.
    #[error("connection {0} was opened though it is no new one")]
    NotNew(u64),
    /// Of a connection that was never opened.
    #[error("a frame of connection {0}, which was never opened")]
    NeverOpened(u64),
    /// It opens connections and does not hear that they are refused.
    #[error("more than {0} connections that were refused")]
    TooMany(usize),
    /// More bytes than there was credit for.
    #[error("connection {0} sent more than its window")]
    Overrun(u64),
    /// Data after its end.
    #[error("connection {0} went on after its end")]
    AfterEnd(u64),
    /// Credit beyond any window.
    #[error("connection {0} was given credit beyond all bounds")]
    Credit(u64),
    /// A frame of a kind that this version does not know.
    #[error("a frame of an unknown kind")]
    Unknown,
}

/// One connection's state.
pub(super) struct Line {
    /// Received and not read yet.
    pub inbox: BytesMut,
    /// What the other side may have on its way at once.
    window: usize,
    /// What it may still send.
    granted: usize,
    /// Read since it was last given credit.
    read: usize,
    /// Credit to be told.
    owed: usize,
    /// It sends no more.
    pub peer_finished: bool,
    /// It ended the connection: why.
    pub reset: Option<String>,
    pub reader: Option<Waker>,
    /// Waits for a reset only.
    pub watcher: Option<Waker>,
    /// Written and not sent yet.
    pub outbox: BytesMut,
    /// What may be sent.
    credit: usize,
    /// No more is written.
    pub finishing: bool,
    /// And that is told.
    pub finished: bool,
    pub writer: Option<Waker>,
    /// It stands in `State::ready`.
    queued: bool,
}

impl Line {
    fn new() -> Line {
        Line {
            inbox: BytesMut::new(),
            window: WINDOW,
            granted: WINDOW,
            read: 0,
            owed: 0,
            peer_finished: false,
            reset: None,
            reader: None,
            watcher: None,
            outbox: BytesMut::new(),
            credit: WINDOW,
            finishing: false,
            finished: false,
            writer: None,
            queued: false,
        }
    }

    fn wake(&mut self) {
        let wakers = [self.reader.take(), self.writer.take(), self.watcher.take()];
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
    }

    /// The next frame that may go out.
    fn next(&mut self) -> Option<Frame> {
        if self.reset.is_some() {
            return None;
        }
        if self.owed > 0 {
            let owed = u32::try_from(self.owed).unwrap_or(u32::MAX);
            self.owed -= owed as usize;
            return Some(Frame::Credit(owed));
        }
        let size = self.outbox.len().min(self.credit).min(PIECE);
        if size > 0 {
            self.credit -= size;
            let data = self.outbox.split_to(size).freeze();
            if self.outbox.is_empty() {
                // The next data gets memory of its own; an idle connection keeps none.
                self.outbox = BytesMut::new();
            }
            if let Some(writer) = self.writer.take() {
                writer.wake();
            }
            return Some(Frame::Data(data));
        }
        if self.finishing && !self.finished && self.outbox.is_empty() {
            self.finished = true;
            if let Some(writer) = self.writer.take() {
                writer.wake();
            }
            return Some(Frame::Finish(true));
        }
        None
    }
}

pub(super) struct State {
    pub lines: HashMap<u64, Line>,
    /// Connections that were opened here: to be told before all else of them.
    opens: VecDeque<u64>,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<u64>,
    /// Connections that ended here: to be told.
    resets: VecDeque<(u64, String)>,
    /// The highest id so far.
    newest: u64,
    /// By how much windows have grown.
    grown: usize,
    outgoing: Option<Waker>,
    /// Why nothing goes any more.
    pub ended: Option<String>,
}

impl State {
    fn poke(&mut self) {
        if let Some(waker) = self.outgoing.take() {
            waker.wake();
        }
    }

    /// The connection may have something to send.
    pub fn enqueue(&mut self, id: u64) {
        if let Some(line) = self.lines.get_mut(&id)
            && !line.queued
        {
            line.queued = true;
            self.ready.push_back(id);
        }
        self.poke();
    }

    /// `count` bytes of the inbox were read: the other side gets credit for them.
    pub fn consumed(&mut self, id: u64, count: usize) {
        let Some(line) = self.lines.get_mut(&id) else {
            return;
        };
        if line.inbox.is_empty() {
            line.inbox = BytesMut::new();
        }
        line.read += count;
        if line.peer_finished || line.reset.is_some() || line.read < line.window / 2 {
            return;
        }
        let mut more = std::mem::take(&mut line.read);
        // Whoever reads faster than the window lets come in gets a larger one.
        if line.inbox.is_empty()
            && line.window < LARGEST_WINDOW
            && self.grown + line.window <= ALL_GROWTH
        {
            self.grown += line.window;
            more += line.window;
            line.window *= 2;
        }
        line.granted += more;
        line.owed += more;
        self.enqueue(id);
    }

    /// Forgets a connection whose owner is gone; tells the other side where it does not know.
    pub fn forget(&mut self, id: u64, reason: String) {
        let Some(line) = self.lines.remove(&id) else {
            return;
        };
        self.grown -= line.window - WINDOW;
        let over = line.reset.is_some() || (line.finished && line.peer_finished);
        if !over && self.ended.is_none() {
            self.resets.push_back((id, reason));
            self.poke();
        }
    }

    fn next(&mut self) -> Option<TunnelFrame> {
        if let Some(connection) = self.opens.pop_front() {
            return Some(TunnelFrame {
                connection,
                frame: Some(Frame::Open(true)),
            });
        }
        if let Some((connection, reason)) = self.resets.pop_front() {
            return Some(TunnelFrame {
                connection,
                frame: Some(Frame::Reset(reason)),
            });
        }
        while let Some(id) = self.ready.pop_front() {
            let Some(line) = self.lines.get_mut(&id) else {
                continue;
            };
            match line.next() {
                Some(frame) => {
                    self.ready.push_back(id);
                    return Some(TunnelFrame {
                        connection: id,
                        frame: Some(frame),
                    });
                }
                None => line.queued = false,
            }
        }
        None
    }

    fn end(&mut self, reason: &str) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(reason.to_owned());
        self.opens.clear();
        self.ready.clear();
        self.resets.clear();
        for line in self.lines.values_mut() {
            line.wake();
        }
        self.poke();
    }
}

pub(super) struct Shared {
    state: Mutex<State>,
    over: watch::Sender<bool>,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while it was held would be one of this module's own.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One side of a tunnel. Cheap to clone.
#[derive(Clone)]
pub struct Mux {
    shared: Arc<Shared>,
    side: Side,
    most: usize,
}

impl Mux {
    /// A side with at most `most` connections at once, and the frames that it sends.
    pub fn new(side: Side, most: usize) -> (Mux, Outgoing) {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                lines: HashMap::new(),
                opens: VecDeque::new(),
                ready: VecDeque::new(),
                resets: VecDeque::new(),
                newest: 0,
                grown: 0,
                outgoing: None,
                ended: None,
            }),
            over: watch::Sender::new(false),
        });
        let outgoing = Outgoing(shared.clone());
        (Mux { shared, side, most }, outgoing)
    }

    /// A new connection; none where there are too many, or the tunnel has ended.
    pub fn open(&self) -> Option<Connection> {
        let mut state = self.shared.lock();
        if state.ended.is_some() || state.lines.len() + state.resets.len() >= self.most {
            return None;
        }
        state.newest += 1;
        let id = state.newest;
        state.lines.insert(id, Line::new());
        state.opens.push_back(id);
        state.poke();
        drop(state);
        Some(Connection::new(self.shared.clone(), id))
    }

    /// What the other side sent. A connection where it opened one.
    ///
    /// # Errors
    /// It broke the rules; the tunnel is ended.
    pub fn take(&self, frame: TunnelFrame) -> Result<Option<Connection>, Violation> {
        let mut state = self.shared.lock();
        let taken = self.apply(&mut state, frame);
        match taken {
            Ok(None) => Ok(None),
            Ok(Some(id)) => {
                drop(state);
                Ok(Some(Connection::new(self.shared.clone(), id)))
            }
            Err(violation) => {
                state.end(&violation.to_string());
                drop(state);
                self.shared.over.send_replace(true);
                Err(violation)
            }
        }
    }

    fn apply(&self, state: &mut State, frame: TunnelFrame) -> Result<Option<u64>, Violation> {
        let id = frame.connection;
        let frame = frame.frame.ok_or(Violation::Unknown)?;
        if let Frame::Open(_) = frame {
            if self.side == Side::Opens {
                return Err(Violation::WrongSide(id));
            }
            if id <= state.newest {
                return Err(Violation::NotNew(id));
            }
            // Whoever opens without taking the answers would fill the memory.
            if state.resets.len() >= self.most {
                return Err(Violation::TooMany(self.most));
            }
            state.newest = id;
            // Owners here may let go of theirs later than the other side does of its own.
            if state.lines.len() >= self.most {
                state.resets.push_back((id, "too many connections".into()));
                state.poke();
                return Ok(None);
            }
            state.lines.insert(id, Line::new());
            return Ok(Some(id));
        }
        if id == 0 || id > state.newest {
            return Err(Violation::NeverOpened(id));
        }
        // It ended here, and the other side does not know yet.
        let Some(line) = state.lines.get_mut(&id) else {
            return Ok(None);
        };
        if line.reset.is_some() {
            return Err(Violation::AfterEnd(id));
        }
        match frame {
            Frame::Open(_) => {}
            Frame::Data(data) => {
                if line.peer_finished {
                    return Err(Violation::AfterEnd(id));
                }
                if data.len() > line.granted {
                    return Err(Violation::Overrun(id));
                }
                line.granted -= data.len();
                line.inbox.extend_from_slice(&data);
                if let Some(reader) = line.reader.take() {
                    reader.wake();
                }
            }
            Frame::Credit(bytes) => {
                line.credit += bytes as usize;
                if line.credit > MOST_CREDIT {
                    return Err(Violation::Credit(id));
                }
                state.enqueue(id);
            }
            Frame::Finish(_) => {
                if std::mem::replace(&mut line.peer_finished, true) {
                    return Err(Violation::AfterEnd(id));
                }
                if let Some(reader) = line.reader.take() {
                    reader.wake();
                }
            }
            Frame::Reset(reason) => {
                line.reset = Some(reason.chars().take(REASON).collect());
                line.outbox = BytesMut::new();
                line.wake();
            }
        }
        Ok(None)
    }

    /// Ends all connections; `reason` is what their owners are told.
    pub fn end(&self, reason: &str) {
        self.shared.lock().end(reason);
        self.shared.over.send_replace(true);
    }

    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        *self.shared.over.borrow()
    }

    /// Returns when it has ended.
    pub async fn ended(&self) {
        let mut over = self.shared.over.subscribe();
        // The sender lives as long as `self`.
        let _ = over.wait_for(|over| *over).await;
    }
}

/// The frames of one side, in the order in which they are to be sent. Dropped, it
/// ends the tunnel.
pub struct Outgoing(Arc<Shared>);

impl Stream for Outgoing {
    type Item = TunnelFrame;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<TunnelFrame>> {
        let mut state = self.0.lock();
        if state.ended.is_some() {
            return Poll::Ready(None);
        }
        match state.next() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => {
                state.outgoing = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.0.lock().end("the other side is gone");
        self.0.over.send_replace(true);
    }
}
