//! Where the whole of a result is kept that is too long for the model: in an output file of
//! the sandbox, as a command's is, so that the model can read or search it there.

use std::time::Duration;

use mooring_durable::{id::Hash, tool::Call};
use mooring_wire::sandbox::{
    AttachRequest, ExecRequest, Execution, ReleaseRequest, SignalRequest, attach_frame::Frame,
    signal_request::Signal,
};
use tonic::{Code, Status};

use crate::sandbox::Link;

/// How long it may take in all.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that are sent at once.
const PIECE: usize = 64 << 10;
/// Between two tries to send where the sandbox has enough to do.
const STEP: Duration = Duration::from_millis(20);

/// Keeps `text`, and tells where, for the model.
pub async fn keep(link: &Link, call: &Call, text: &str) -> String {
    let bytes = text.len();
    let id = format!("{}-result", call.execution);
    let kept = tokio::time::timeout(PATIENCE, write(link, &id, text)).await;
    let kept = kept.unwrap_or_else(|_| Err("it took too long".into()));
    if let Ok(mut client) = link.client() {
        // Nobody asks for this execution again; its output stays.
        let execution_ids = vec![id];
        let _ = client.release(ReleaseRequest { execution_ids }).await;
    }
    match kept {
        Ok(path) => format!("The result has {bytes} bytes; it is in {path}."),
        Err(why) => {
            tracing::warn!(task = %call.task, error = why, "a long result is not kept whole");
            format!("The result has {bytes} bytes; the rest could not be kept: {why}.")
        }
    }
}

/// Lets the sandbox print it; the path of the output.
async fn write(link: &Link, id: &str, text: &str) -> Result<String, String> {
    let told = |status: Status| status.message().to_owned();
    let mut client = link.client()?;
    let request = ExecRequest {
        execution: Some(Execution {
            id: id.to_owned(),
            args_hash: Hash::of(text.as_bytes()).0,
        }),
        command: "exec cat".into(),
        timeout_ms: PATIENCE.as_millis() as u64,
        stdin: true,
        ..ExecRequest::default()
    };
    client.exec(request).await.map_err(told)?;
    let signal = |signal| SignalRequest {
        execution_id: id.to_owned(),
        signal: Some(signal),
    };
    for piece in text.as_bytes().chunks(PIECE) {
        loop {
            let sent = client
                .signal(signal(Signal::Stdin(piece.to_vec().into())))
                .await;
            match sent {
                Ok(_) => break,
                Err(status) if status.code() == Code::ResourceExhausted => {
                    tokio::time::sleep(STEP).await;
                }
                Err(status) => return Err(told(status)),
            }
        }
    }
    let closed = client.signal(signal(Signal::StdinClose(true))).await;
    closed.map_err(told)?;
    let request = AttachRequest {
        execution_id: id.to_owned(),
        // Only its end is asked for.
        offset: text.len() as u64,
    };
    let mut frames = client.attach(request).await.map_err(told)?.into_inner();
    while let Some(frame) = frames.message().await.map_err(told)? {
        match frame.frame {
            Some(Frame::Finished(end)) if end.output_bytes == text.len() as u64 => {
                return Ok(end.output_path);
            }
            Some(Frame::Finished(end)) => {
                let kept = end.output_bytes;
                return Err(format!("only {kept} bytes were taken. {}", end.message));
            }
            Some(Frame::Gone(_) | Frame::NeverSeen(_)) => break,
            _ => {}
        }
    }
    Err("the sandbox ended".into())
}
