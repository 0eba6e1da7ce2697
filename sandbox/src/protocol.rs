//! What the daemon, the init process and the supervisors say to each other.
//!
//! All of it travels over `SOCK_SEQPACKET` pairs: a packet is a message, and
//! the end of either side is seen at once by the other.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// No message is longer. Below the kernel's default send buffer of 208 KiB.
pub const MAX_MESSAGE: usize = 192 << 10;

/// A report is short; only an order or a job may carry much.
pub const MAX_REPORT: usize = 16 << 10;

/// What init starts for the daemon; the other end of the execution's control
/// socket travels along as a file descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub enum Job {
    /// A command with a supervisor.
    Run(Run),
    /// Tries to reach addresses from where commands are, then ends.
    Probe(Vec<ProbeTarget>),
}

/// One command.
#[derive(Debug, Serialize, Deserialize)]
pub struct Run {
    pub command: String,
    pub cwd: String,
    pub env: Vec<(String, String)>,
    /// Wall time in milliseconds; 0 is none.
    pub timeout_ms: u64,
    /// Rows and columns.
    pub pty: Option<(u16, u16)>,
    pub stdin: bool,
    /// Name of the output file in the output folder.
    pub output: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ProbeTarget {
    pub name: String,
    pub address: String,
    pub udp: bool,
    pub timeout_ms: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ProbeResult {
    pub name: String,
    pub reached: bool,
    pub detail: String,
}

/// From the daemon to a supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// The record is on disk: what was prepared may start.
    Go,
    Stdin(Vec<u8>),
    StdinClose,
    Resize(u16, u16),
    Kill,
    /// The time limit does not run for so many milliseconds from now.
    Hold(u32),
}

/// Input travels in pieces of this size; as JSON numbers they stay below [`MAX_MESSAGE`].
pub const STDIN_PIECE: usize = 32 << 10;

/// From a supervisor to the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// Output bytes so far.
    Output(u64),
    /// Input bytes that the command's pipe has taken since the last report.
    StdinTaken(u64),
    Finished(Finished),
    Probed(Vec<ProbeResult>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finished {
    pub end: End,
    /// Exit status or signal number.
    pub code: i32,
    pub message: String,
    pub output_bytes: u64,
    pub peak_memory: u64,
}

impl Finished {
    /// Adds to what is told with it.
    pub fn tell(&mut self, notes: Vec<String>) {
        let before = std::mem::take(&mut self.message);
        let all: Vec<String> = std::iter::once(before)
            .filter(|text| !text.is_empty())
            .chain(notes)
            .collect();
        self.message = all.join("; ");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    Exited,
    Signaled,
    TimedOut,
    Killed,
    Failed,
}

/// A pair of connected packet sockets; neither survives an exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends one message, blocking or not as the socket is.
pub fn send<T: Serialize>(socket: BorrowedFd<'_>, message: &T, flags: SendFlags) -> io::Result<()> {
    let bytes = encode(message)?;
    rustix::net::send(socket, &bytes, flags | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Sends a job and the descriptor that belongs to it.
pub fn send_job(socket: BorrowedFd<'_>, job: &Job, control: BorrowedFd<'_>) -> io::Result<()> {
    let bytes = encode(job)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [control];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
    if bytes.len() > MAX_MESSAGE {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "{} bytes are too long for one message of {MAX_MESSAGE}",
                bytes.len()
            ),
        ));
    }
    Ok(bytes)
}

/// One message of at most `most` bytes, `None` at the end of the other side.
pub fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    most: usize,
    flags: RecvFlags,
) -> io::Result<Option<T>> {
    buffer.resize(most, 0);
    let (length, _) = rustix::net::recv(socket, buffer.as_mut_slice(), flags)?;
    if length == 0 {
        return Ok(None);
    }
    Ok(Some(
        serde_json::from_slice(&buffer[..length]).map_err(io::Error::other)?,
    ))
}

/// One job with its control socket, `None` at the end of the daemon.
pub fn receive_job(socket: impl AsFd, buffer: &mut Vec<u8>) -> io::Result<Option<(Job, OwnedFd)>> {
    buffer.resize(MAX_MESSAGE, 0);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(buffer)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let control = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let control = control.ok_or_else(|| io::Error::other("a job came without its socket"))?;
    let job = serde_json::from_slice(&buffer[..received.bytes]).map_err(io::Error::other)?;
    Ok(Some((job, control)))
}
