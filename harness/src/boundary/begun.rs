//! A connection whose first bytes were read already.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use mooring_wire::tunnel::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that gives what was read of it again, then the rest.
pub struct Begun {
    read: Bytes,
    connection: Connection,
}

impl Begun {
    /// `read` comes before what `connection` has still to give.
    pub fn new(read: Bytes, connection: Connection) -> Begun {
        Begun { read, connection }
    }
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.connection).poll_read(context, buffer);
        }
        let size = self.read.len().min(buffer.remaining());
        buffer.put_slice(&self.read[..size]);
        self.read.advance(size);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Begun {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}
