//! The output of one execution from an offset on, then its outcome.
//!
//! Everything is read from the output file, so that a slow reader costs the
//! daemon one piece of memory and the command nothing.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use mooring_wire::sandbox::attach_frame::{Frame, Gap, Gone, NeverSeen, Output, Running};
use mooring_wire::sandbox::{self, AttachFrame};
use tokio::sync::mpsc;
use tonic::Status;

use crate::executions::{Executions, Known, Progress};
use crate::protocol::{End, Finished};
use crate::spool::{self, Layout};

/// Output travels in pieces of at most this many bytes.
const PIECE: u64 = 256 << 10;

/// One reader of one execution.
pub struct Attachment {
    pub executions: Arc<Executions>,
    pub output_path: PathBuf,
    pub limit: u64,
    pub frames: mpsc::Sender<Result<AttachFrame, Status>>,
}

impl Attachment {
    /// Sends frames until the outcome or until nobody listens.
    pub async fn run(self, id: String, offset: u64) {
        if let Err(status) = self.stream(&id, offset).await
            && let Some(status) = status
        {
            let _ = self.frames.send(Err(status)).await;
        }
    }

    async fn stream(&self, id: &str, offset: u64) -> Result<(), Option<Status>> {
        let known = self
            .executions
            .known(id)
            .map_err(|e| Some(crate::service::execution_status(&e)))?;
        match known {
            None => self.send(Frame::NeverSeen(NeverSeen {})).await,
            Some(Known::Running {
                started_ms,
                output,
                mut progress,
            }) => {
                self.send(Frame::Running(Running {
                    started_ms,
                    output_path: self.path(&output),
                }))
                .await?;
                let mut offset = offset;
                loop {
                    // Marked as seen before reading, so that nothing is missed in between.
                    let Progress { end, .. } = progress.borrow_and_update().clone();
                    offset = self.send_output(&output, offset).await?.max(offset);
                    if let Some((finished, finished_ms)) = end {
                        self.send_loss(offset, &finished).await?;
                        return self
                            .send_outcome(&output, started_ms, &finished, finished_ms)
                            .await;
                    }
                    tokio::select! {
                        changed = progress.changed() => if changed.is_err() {
                            return Err(Some(Status::unavailable("the execution was forgotten")));
                        },
                        () = self.frames.closed() => return Err(None),
                    }
                }
            }
            Some(Known::Finished {
                started_ms,
                output,
                finished,
                finished_ms,
            }) => {
                let end = self.send_output(&output, offset).await?.max(offset);
                self.send_loss(end, &finished).await?;
                self.send_outcome(&output, started_ms, &finished, finished_ms)
                    .await
            }
            Some(Known::Gone { output }) => {
                let end = self.send_output(&output, offset).await?;
                self.send(Frame::Gone(Gone {
                    output_bytes: end,
                    output_path: self.path(&output),
                }))
                .await
            }
        }
    }

    /// Output behind the file's end is what the disk had no room for.
    async fn send_loss(&self, offset: u64, finished: &Finished) -> Result<(), Option<Status>> {
        match finished.output_bytes.checked_sub(offset) {
            None | Some(0) => Ok(()),
            Some(length) => self.send(Frame::Gap(Gap { offset, length })).await,
        }
    }

    async fn send_outcome(
        &self,
        output: &str,
        started_ms: i64,
        finished: &Finished,
        finished_ms: i64,
    ) -> Result<(), Option<Status>> {
        self.send(Frame::Finished(outcome(
            finished,
            self.path(output),
            started_ms,
            finished_ms,
        )))
        .await
    }

    /// Sends what the file holds from the offset on; returns where it ended.
    async fn send_output(&self, name: &str, mut offset: u64) -> Result<u64, Option<Status>> {
        loop {
            match self.piece(name, offset) {
                Ok(Piece::Bytes(data)) => {
                    let length = data.len() as u64;
                    self.send(Frame::Output(Output {
                        offset,
                        data: data.into(),
                    }))
                    .await?;
                    offset += length;
                }
                Ok(Piece::Gap(length)) => {
                    self.send(Frame::Gap(Gap { offset, length })).await?;
                    offset += length;
                }
                Ok(Piece::End(end)) => return Ok(end),
                Err(error) => {
                    return Err(Some(Status::internal(format!(
                        "output file {name}: {error}"
                    ))));
                }
            }
        }
    }

    fn piece(&self, name: &str, offset: u64) -> std::io::Result<Piece> {
        let file = match spool::open(self.executions.output_folder().as_fd(), name) {
            Ok(file) => file,
            // Not written yet, or never.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Piece::End(0)),
            Err(error) => return Err(error),
        };
        let layout = Layout::of(&file, self.limit)?;
        if offset >= layout.total {
            return Ok(Piece::End(layout.total));
        }
        let Some((place, length)) = layout.place(offset) else {
            return Ok(Piece::Gap(layout.gap.0 + layout.gap.1 - offset));
        };
        let mut data = vec![0; usize::try_from(length.min(PIECE)).unwrap_or(0)];
        let count = file.read_at(&mut data, place)?;
        data.truncate(count);
        // The hole may have reached these bytes while they were read.
        let after = Layout::of(&file, self.limit)?;
        match after.place(offset) {
            Some((same, left)) if same == place => {
                data.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                // Nothing where something was: the file was cut by other hands.
                Ok(if data.is_empty() {
                    Piece::End(offset)
                } else {
                    Piece::Bytes(data)
                })
            }
            _ => Ok(Piece::Gap(after.gap.0 + after.gap.1 - offset)),
        }
    }

    fn path(&self, name: &str) -> String {
        self.output_path.join(name).display().to_string()
    }

    async fn send(&self, frame: Frame) -> Result<(), Option<Status>> {
        let frame = AttachFrame { frame: Some(frame) };
        self.frames.send(Ok(frame)).await.map_err(|_| None)
    }
}

enum Piece {
    Bytes(Vec<u8>),
    Gap(u64),
    End(u64),
}

/// In the contract's words.
fn outcome(
    finished: &Finished,
    output_path: String,
    started_ms: i64,
    finished_ms: i64,
) -> sandbox::Outcome {
    use sandbox::outcome::End as Wire;
    let end = match finished.end {
        End::Exited => Wire::Exited,
        End::Signaled => Wire::Signaled,
        End::TimedOut => Wire::TimedOut,
        End::Killed => Wire::Killed,
        End::Failed => Wire::Failed,
    };
    sandbox::Outcome {
        end: end.into(),
        code: finished.code,
        message: finished.message.clone(),
        output_bytes: finished.output_bytes,
        output_path,
        started_ms,
        finished_ms,
        peak_memory: finished.peak_memory,
    }
}
