//! A server that runs in the sandbox: an execution whose standard input and output are
//! a pipe here. Nothing of it runs on this side.

use std::sync::{Arc, Mutex, PoisonError};

use mooring_durable::id::Hash;
use mooring_wire::sandbox::{
    AttachRequest, ExecRequest, Execution, ReleaseRequest, SignalRequest, attach_frame::Frame,
    outcome::End, sandbox_client::SandboxClient, signal_request::Signal,
};
use serde::de::IgnoredAny;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio_util::sync::CancellationToken;
use tonic::{Code, transport::Channel};

use super::limits::Limits;
use crate::sandbox::{Link, State};

/// Bytes that wait in each direction.
const BUFFER: usize = 64 << 10;
/// Bytes of standard input that go in one piece.
const PIECE: usize = 32 << 10;
/// Bytes of what it wrote beside messages that are kept for people.
const LAST_WORDS: usize = 2_000;
/// A server that nobody comes back to ends after a week.
const LONGEST_MS: u64 = 7 * 24 * 3600 * 1000;

/// Why a pipe has ended, once it has.
#[derive(Clone, Default)]
pub struct Why(Arc<Mutex<String>>);

impl Why {
    /// The reason for people; empty while it goes on.
    pub fn get(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The first reason stays.
    pub fn set(&self, text: impl Into<String>) {
        let mut why = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if why.is_empty() {
            *why = text.into();
        }
    }
}

/// How a server in the sandbox is started.
pub struct Program {
    /// For its execution's id.
    pub server: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The environment of commands, beside what the daemon sets.
    pub env: std::collections::HashMap<String, String>,
}

impl Program {
    /// Starts it and gives the other end of its pipe. It ends when that end is dropped,
    /// when `stop` fires, or by itself; `why` then says how.
    pub async fn start(
        self,
        link: Arc<Link>,
        limits: Limits,
        stop: CancellationToken,
        why: Why,
    ) -> Result<DuplexStream, String> {
        if let State::Refused { reason, .. } = link.state() {
            return Err(reason);
        }
        let mut client = link.client()?;
        let id = format!("mcp-{}-{:016x}", self.server, rand::random::<u64>());
        let script = script(&self.command);
        let request = ExecRequest {
            execution: Some(Execution {
                id: id.clone(),
                args_hash: Hash::of(script.as_bytes()).0,
            }),
            command: script,
            timeout_ms: LONGEST_MS,
            stdin: true,
            env: self.env,
            ..ExecRequest::default()
        };
        client
            .exec(request)
            .await
            .map_err(|status| lost(&link, &status))?;
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let (read, write) = tokio::io::split(ours);
        let ended = stop.child_token();
        let run = Run {
            id,
            client,
            link,
            limits,
            why,
            ended,
        };
        tokio::spawn(run.until_its_end(read, write));
        Ok(theirs)
    }
}

struct Run {
    id: String,
    client: SandboxClient<Channel>,
    link: Arc<Link>,
    limits: Limits,
    why: Why,
    ended: CancellationToken,
}

impl Run {
    async fn until_its_end(self, read: ReadHalf<DuplexStream>, write: WriteHalf<DuplexStream>) {
        tokio::select! {
            () = self.ended.cancelled() => self.why.set("it was stopped"),
            () = self.input(read) => {}
            () = self.output(write) => {}
        }
        let mut client = self.client.clone();
        let kill = SignalRequest {
            execution_id: self.id.clone(),
            signal: Some(Signal::Kill(true)),
        };
        let release = ReleaseRequest {
            execution_ids: vec![self.id.clone()],
        };
        // Where the sandbox is away, the next connect ends what nobody wants.
        let _ = client.signal(kill).await;
        let _ = client.release(release).await;
    }

    /// Carries what is written to the server's standard input; ends when this side closes.
    async fn input(&self, mut read: ReadHalf<DuplexStream>) {
        let mut client = self.client.clone();
        let mut piece = vec![0; PIECE];
        loop {
            let count = match read.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(count) => count,
            };
            let begun = tokio::time::Instant::now();
            loop {
                let signal = SignalRequest {
                    execution_id: self.id.clone(),
                    signal: Some(Signal::Stdin(piece[..count].to_vec().into())),
                };
                match client.signal(signal).await {
                    Ok(answer) if answer.get_ref().known => break,
                    // Its outcome is on the way.
                    Ok(_) => return std::future::pending().await,
                    Err(status) if status.code() == Code::ResourceExhausted => {
                        if begun.elapsed() > self.limits.call {
                            return self.why.set("it does not read what is sent to it");
                        }
                        tokio::time::sleep(self.limits.step).await;
                    }
                    Err(status) => return self.why.set(lost(&self.link, &status)),
                }
            }
        }
    }

    /// Carries whole messages of the server to this side; ends with the server.
    async fn output(&self, mut write: WriteHalf<DuplexStream>) {
        let request = AttachRequest {
            execution_id: self.id.clone(),
            offset: 0,
        };
        let attached = self.client.clone().attach(request).await;
        let mut frames = match attached {
            Ok(frames) => frames.into_inner(),
            Err(status) => return self.why.set(lost(&self.link, &status)),
        };
        let mut lines = Lines::new(self.limits.message);
        loop {
            let frame = match frames.message().await {
                Ok(Some(frame)) => frame.frame,
                Ok(None) => return self.why.set("the sandbox ended the stream"),
                Err(status) => return self.why.set(lost(&self.link, &status)),
            };
            match frame {
                Some(Frame::Output(piece)) => {
                    let messages = match lines.push(&piece.data) {
                        Ok(messages) => messages,
                        Err(wrong) => return self.why.set(wrong),
                    };
                    for message in messages {
                        if write.write_all(&message).await.is_err() {
                            return;
                        }
                    }
                }
                Some(Frame::Gap(gap)) => {
                    return self
                        .why
                        .set(format!("{} bytes of its output are lost", gap.length));
                }
                Some(Frame::Finished(outcome)) => {
                    let how = match outcome.end() {
                        End::Exited => format!("it ended with status {}", outcome.code),
                        End::Signaled => format!("it was ended by signal {}", outcome.code),
                        End::TimedOut => "it ran for too long".to_owned(),
                        End::Killed => "it was ended".to_owned(),
                        End::Failed | End::Unspecified => {
                            format!("it could not be started: {}", outcome.message)
                        }
                    };
                    return self.why.set(match lines.last_words() {
                        words if words.is_empty() => how,
                        words => format!("{how}: {words}"),
                    });
                }
                Some(Frame::Gone(_) | Frame::NeverSeen(_)) => {
                    return self.why.set("the sandbox was replaced");
                }
                Some(Frame::Running(_)) | None => {}
            }
        }
    }
}

/// Splits output into messages: lines of JSON. What else is written is kept for people.
struct Lines {
    longest: usize,
    line: Vec<u8>,
    words: Vec<u8>,
}

impl Lines {
    fn new(longest: usize) -> Lines {
        Lines {
            longest,
            line: Vec::new(),
            words: Vec::new(),
        }
    }

    /// The messages that end in `piece`, line ends included. The error says what is wrong
    /// with one that can never be read.
    fn push(&mut self, piece: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut messages = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() > self.longest {
                return Err(format!(
                    "it sent a message of more than {} MiB",
                    self.longest >> 20
                ));
            }
            if !part.ends_with(b"\n") {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let text = line.trim_ascii();
            if !text.starts_with(b"{") {
                self.words.extend_from_slice(&line);
                let over = self.words.len().saturating_sub(LAST_WORDS);
                self.words.drain(..over);
            } else if serde_json::from_slice::<IgnoredAny>(text).is_err() {
                return Err("it sent a message that is no JSON".into());
            } else {
                messages.push(line);
            }
        }
        Ok(messages)
    }

    /// What it wrote last beside messages, its standard error included.
    fn last_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.words);
        let lines: Vec<&str> = text
            .lines()
            .map(|line| line.strip_prefix(STDERR).unwrap_or(line).trim_end())
            .filter(|line| !line.trim().is_empty())
            .collect();
        let last = &lines[lines.len().saturating_sub(5)..];
        last.join(" | ")
    }
}

/// In front of lines of standard error.
const STDERR: &str = "stderr: ";

/// The command for bash. The end of its standard error comes after its output: beside it,
/// the two would be one stream.
fn script(command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    format!(
        "exec 3> >(tail -c 1000 | sed 's/^/{STDERR}/'); p=$!; {} 2>&3 3>&-; s=$?; exec 3>&-; wait \"$p\"; exit \"$s\"",
        words.join(" ")
    )
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A failed method of the daemon, for people; the link is made again where it is broken.
fn lost(link: &Link, status: &tonic::Status) -> String {
    if link.broke(status) {
        return format!("the sandbox is not reached: {}", status.message());
    }
    status.message().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_lines_of_json_and_the_rest_is_for_people() {
        let mut lines = Lines::new(100);
        assert_eq!(lines.push(b"starting up\n{\"a\"").map(|m| m.len()), Ok(0));
        let messages = lines.push(b": 1}\n{}\r\nstderr: oh\n\n");
        assert_eq!(
            messages,
            Ok(vec![b"{\"a\": 1}\n".to_vec(), b"{}\r\n".to_vec()])
        );
        assert_eq!(lines.last_words(), "starting up | oh");
    }

    #[test]
    fn a_message_that_cannot_be_read_is_told() {
        for (piece, part) in [
            (&b"{\"a\": 1\n"[..], "no JSON"),
            (&[b'x'; 101][..], "more than"),
        ] {
            let mut lines = Lines::new(100);
            let wrong = lines.push(piece).err().unwrap_or_default();
            assert!(wrong.contains(part), "{wrong}");
        }
    }

    #[test]
    fn words_reach_the_program_as_they_are() {
        let words = ["a b", "it's", "$HOME", "`x`"].map(str::to_owned);
        assert!(script(&words).contains(r"'a b' 'it'\''s' '$HOME' '`x`' 2>&3"));
    }
}
