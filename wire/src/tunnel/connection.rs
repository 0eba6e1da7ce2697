//! One connection of a tunnel, as whoever owns it reads and writes it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::mux::{Line, Shared, State};
use super::{OUTBOX, PIECE};

/// One connection. Dropped before both sides have finished, it resets the other
/// side; a shutdown waits until all that was written has been sent.
pub struct Connection {
    shared: Arc<Shared>,
    id: u64,
    /// What the other side is told when this is dropped unfinished.
    reason: String,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, id: u64) -> Connection {
        Connection {
            shared,
            id,
            reason: "closed".into(),
        }
    }

    /// Its number in the tunnel.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Ends it; the other side is told why.
    pub fn reset(mut self, reason: impl Into<String>) {
        self.reason = reason.into();
    }

    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        step: impl FnOnce(&mut State, u64, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        step(&mut self.shared.lock(), self.id, context)
    }

    /// The next bytes, at most [`PIECE`]; `None` where no more come.
    ///
    /// # Errors
    /// The other side reset the connection, or the tunnel ended.
    pub async fn piece(&self) -> io::Result<Option<Bytes>> {
        poll_fn(|context| {
            self.poll(context, |state, id, context| {
                match readable(state, id, context) {
                    Poll::Ready(Ok(0)) => Poll::Ready(Ok(None)),
                    Poll::Ready(Ok(size)) => {
                        let size = size.min(PIECE);
                        let bytes = line(state, id).inbox.split_to(size).freeze();
                        state.consumed(id, size);
                        Poll::Ready(Ok(Some(bytes)))
                    }
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Pending => Poll::Pending,
                }
            })
        })
        .await
    }

    /// Waits until something can be written: how many bytes.
    ///
    /// # Errors
    /// As [`Self::piece`], or it was finished.
    pub async fn room(&self) -> io::Result<usize> {
        poll_fn(|context| self.poll(context, writable)).await
    }

    /// Writes what there is room for; returns how much that was.
    ///
    /// # Errors
    /// As [`Self::room`].
    pub fn push(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.lock();
        fails(&state, self.id)?;
        let room = OUTBOX - line(&mut state, self.id).outbox.len().min(OUTBOX);
        let size = bytes.len().min(room);
        line(&mut state, self.id)
            .outbox
            .extend_from_slice(&bytes[..size]);
        state.enqueue(self.id);
        Ok(size)
    }

    /// Nothing more is written; returns when all that was has been sent.
    ///
    /// # Errors
    /// As [`Self::piece`].
    pub async fn finish(&self) -> io::Result<()> {
        poll_fn(|context| self.poll(context, finish)).await
    }

    /// Whether the other side has reset the connection; not where the tunnel ended.
    #[must_use]
    pub fn was_reset(&self) -> bool {
        let state = self.shared.lock();
        let line = state.lines.get(&self.id);
        line.is_some_and(|line| line.reset.is_some())
    }

    /// Returns when the other side has reset the connection, or the tunnel ended.
    pub async fn broken(&self) -> io::Error {
        poll_fn(|context| {
            self.poll(context, |state, id, context| {
                let error = broken(state, id);
                line(state, id).watcher = Some(context.waker().clone());
                error.map_or(Poll::Pending, Poll::Ready)
            })
        })
        .await
    }
}

fn line(state: &mut State, id: u64) -> &mut Line {
    state
        .lines
        .get_mut(&id)
        .expect("a line is removed only by its connection's end")
}

fn broken(state: &State, id: u64) -> Option<io::Error> {
    let line = state.lines.get(&id)?;
    if let Some(reason) = &line.reset {
        return Some(io::Error::new(
            io::ErrorKind::ConnectionReset,
            reason.clone(),
        ));
    }
    let reason = state.ended.as_ref()?;
    Some(io::Error::new(
        io::ErrorKind::ConnectionAborted,
        reason.clone(),
    ))
}

/// Why nothing can be written.
fn fails(state: &State, id: u64) -> io::Result<()> {
    if let Some(error) = broken(state, id) {
        return Err(error);
    }
    match state.lines.get(&id).is_some_and(|line| line.finishing) {
        true => Err(io::ErrorKind::BrokenPipe.into()),
        false => Ok(()),
    }
}

/// How much can be read; 0 at the end.
fn readable(state: &mut State, id: u64, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let error = broken(state, id);
    let line = line(state, id);
    match (line.inbox.len(), line.peer_finished, error) {
        (1.., _, _) => Poll::Ready(Ok(line.inbox.len())),
        (0, true, _) => Poll::Ready(Ok(0)),
        (0, false, Some(error)) => Poll::Ready(Err(error)),
        (0, false, None) => {
            line.reader = Some(context.waker().clone());
            Poll::Pending
        }
    }
}

fn writable(state: &mut State, id: u64, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
    if let Err(error) = fails(state, id) {
        return Poll::Ready(Err(error));
    }
    let line = line(state, id);
    match OUTBOX - line.outbox.len().min(OUTBOX) {
        0 => {
            line.writer = Some(context.waker().clone());
            Poll::Pending
        }
        room => Poll::Ready(Ok(room)),
    }
}

fn finish(state: &mut State, id: u64, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    if line(state, id).finished {
        return Poll::Ready(Ok(()));
    }
    if let Some(error) = broken(state, id) {
        return Poll::Ready(Err(error));
    }
    let line = line(state, id);
    line.finishing = true;
    line.writer = Some(context.waker().clone());
    state.enqueue(id);
    Poll::Pending
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll(context, |state, id, context| {
            match readable(state, id, context) {
                Poll::Ready(Ok(0)) => Poll::Ready(Ok(())),
                Poll::Ready(Ok(size)) => {
                    let size = size.min(buffer.remaining());
                    buffer.put_slice(&line(state, id).inbox.split_to(size));
                    state.consumed(id, size);
                    Poll::Ready(Ok(()))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            }
        })
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.poll(context, writable) {
            Poll::Ready(Ok(_)) => Poll::Ready(self.push(bytes)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was taken is sent without being asked for.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(context, finish)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let reason = std::mem::take(&mut self.reason);
        self.shared.lock().forget(self.id, reason);
    }
}
