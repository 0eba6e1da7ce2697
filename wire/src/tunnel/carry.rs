//! Between a connection of a tunnel and a TCP connection.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::{Connection, PIECE};

/// Which way bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the TCP connection into the tunnel.
    In,
    /// Out of the tunnel to the TCP connection.
    Out,
}

/// How long a TCP connection may take what had come before the other end broke.
const FAREWELL: Duration = Duration::from_secs(10);

/// Why no more goes into the tunnel.
enum Inward {
    /// The TCP connection has sent all.
    Finished,
    /// Nobody takes it there.
    Broken,
}

/// Carries both directions until both have ended. `moved` is told all bytes
/// that went; its error ends the connection. Idle, it holds no buffer.
///
/// # Errors
/// Of either side, as it was told.
pub async fn carry(
    tcp: &mut TcpStream,
    connection: &Connection,
    moved: impl Fn(Direction, usize) -> io::Result<()>,
) -> io::Result<()> {
    let (read, write) = tcp.split();
    let mut inward = pin!(inward(read, connection, &moved));
    let mut outward = pin!(outward(write, connection, &moved));
    tokio::select! {
        ended = &mut outward => {
            ended?;
            inward.await.map(drop)
        }
        ended = &mut inward => match ended? {
            // It has sent all and takes no more: it is closed, and is owed nothing.
            Inward::Finished => match outward.await {
                Err(error) if error.raw_os_error().is_some() => Ok(()),
                ended => ended,
            },
            // What came before is delivered; then it tells how it broke.
            Inward::Broken => tokio::time::timeout(FAREWELL, outward).await?,
        },
    }
}

async fn inward(
    tcp: ReadHalf<'_>,
    connection: &Connection,
    moved: &impl Fn(Direction, usize) -> io::Result<()>,
) -> io::Result<Inward> {
    loop {
        // Both before a byte is taken: what waits, waits in the kernel.
        let Ok(room) = connection.room().await else {
            return Ok(Inward::Broken);
        };
        tokio::select! {
            ready = tcp.readable() => ready?,
            _ = connection.broken() => return Ok(Inward::Broken),
        }
        match transfer(&tcp, connection, room) {
            Ok(Some(0)) => {
                return Ok(match connection.finish().await {
                    Ok(()) => Inward::Finished,
                    Err(_) => Inward::Broken,
                });
            }
            Ok(Some(count)) => moved(Direction::In, count)?,
            Ok(None) => return Ok(Inward::Broken),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The buffer lives only here, not while the connection waits.
fn transfer(tcp: &ReadHalf<'_>, connection: &Connection, room: usize) -> io::Result<Option<usize>> {
    let mut buffer = [0; PIECE];
    let count = tcp.try_read(&mut buffer[..room.min(PIECE)])?;
    Ok(match count {
        0 => Some(0),
        // There is room for all of it.
        count => connection.push(&buffer[..count]).ok().map(|_| count),
    })
}

async fn outward(
    mut tcp: WriteHalf<'_>,
    connection: &Connection,
    moved: &impl Fn(Direction, usize) -> io::Result<()>,
) -> io::Result<()> {
    while let Some(bytes) = connection.piece().await? {
        tcp.write_all(&bytes).await?;
        moved(Direction::Out, bytes.len())?;
    }
    // One that is closed already is ended as well.
    let _ = tcp.shutdown().await;
    Ok(())
}
