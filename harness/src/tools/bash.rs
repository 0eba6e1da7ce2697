//! `bash`: a command in the sandbox, which outlives this process.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use mooring_durable::{
    message::Part,
    tool::{Call, OutputSink, Replay, Start, ToolDeclaration, ToolEnd, ToolFailure, ToolResult},
    window,
};
use mooring_wire::sandbox::{
    AttachRequest, ExecRequest, Execution, Outcome, SignalRequest, attach_frame::Frame,
    exec_response::Start as Started, outcome::End, signal_request::Signal,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Act, Hands, bound, declare, number, object, text};

/// A command without a limit of its own ends after this.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How long a cancelled command is waited for.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Bash;

#[async_trait]
impl Act for Bash {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "bash",
            "Runs a command with bash in the project folder, in a sandbox whose only network \
             is what the Workspace allows. \
             Standard output and standard error come back together; long output is cut and \
             kept whole in a file that is named.",
            Replay::Attach,
            object(
                &["command"],
                json!({
                    "command": { "type": "string", "description": "The command.", "minLength": 1 },
                    "timeout_ms": {
                        "type": "integer", "minimum": 1, "maximum": 86_400_000,
                        "description": "Ends the command after this many milliseconds; 30 minutes when absent.",
                    },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        text(arguments, "command").to_owned()
    }

    async fn act(
        &self,
        hands: &Hands,
        call: &Call,
        start: Start,
        output: &dyn OutputSink,
        cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let mut client = hands.client()?;
        let timeout = match number(&call.arguments, "timeout_ms") {
            0 => DEFAULT_TIMEOUT.as_millis() as u64,
            given => given,
        };
        // Sent again after a crash: a known id never starts a second time.
        let mut request = ExecRequest {
            execution: Some(Execution {
                id: call.execution.clone(),
                args_hash: call.arguments_hash.0.clone(),
            }),
            command: text(&call.arguments, "command").to_owned(),
            timeout_ms: timeout,
            env: environment(hands, call),
            ca_bundle: hands
                .source
                .current()
                .spec
                .sandbox
                .ca_bundle
                .clone()
                .unwrap_or_default()
                .into(),
            cwd: bound(call, "cwd").to_owned(),
            state_id: bound(call, "state").to_owned(),
            boot_id: bound(call, "boot").to_owned(),
            ..ExecRequest::default()
        };
        let sent = client.exec(request.clone()).await;
        let answer = sent.map_err(|status| hands.failure(&status))?.into_inner();
        if answer.start() == Started::OtherSandbox
            && start == Start::Fresh
            && let Some(status) = hands.link.status()
        {
            // The daemon was replaced between the intent and this first try, so
            // nothing can have run: the new one takes it.
            request.state_id = status.state_id.clone();
            request.boot_id = status.boot_id.clone();
            request.env = environment(hands, call);
            let sent = client.exec(request).await;
            sent.map_err(|status| hands.failure(&status))?;
        }
        let mut offset = match start {
            Start::Fresh => 0,
            Start::Again { offset } => offset,
        };
        let request = AttachRequest {
            execution_id: call.execution.clone(),
            offset,
        };
        let mut frames = client
            .attach(request)
            .await
            .map_err(|status| hands.failure(&status))?
            .into_inner();
        let mut cancelled = false;
        // Output before a re-attach was shown, or not, by a former process.
        let mut shown = Shown {
            bytes: offset,
            lines: 0,
        };
        loop {
            let frame = tokio::select! {
                () = cancel.cancelled(), if !cancelled => {
                    cancelled = true;
                    let kill = SignalRequest {
                        execution_id: call.execution.clone(),
                        signal: Some(Signal::Kill(true)),
                    };
                    client.signal(kill).await.map_err(|status| hands.failure(&status))?;
                    continue;
                }
                frame = frames.message() => frame.map_err(|status| hands.failure(&status))?,
                () = tokio::time::sleep(KILL_PATIENCE), if cancelled => {
                    return Err(ToolFailure::Unreachable("the command does not end".into()));
                }
            };
            match frame.and_then(|frame| frame.frame) {
                None => {
                    hands.link.lost();
                    return Err(ToolFailure::Unreachable(
                        "the sandbox ended the stream".into(),
                    ));
                }
                Some(Frame::Running(_)) => {}
                Some(Frame::Output(piece)) => {
                    output.output(piece.offset, &piece.data);
                    shown.add(&piece.data);
                    offset = piece.offset + piece.data.len() as u64;
                }
                Some(Frame::Gap(gap)) => {
                    output.gap(gap.offset, gap.length);
                    offset = gap.offset.saturating_add(gap.length);
                }
                Some(Frame::Finished(_)) if cancelled => return Err(ToolFailure::Cancelled),
                Some(Frame::Finished(outcome)) => {
                    let mut result = result(&outcome, offset, shown);
                    let notes = hands.boundary.credentials.notes(&call.execution);
                    result.content.extend(
                        notes
                            .into_iter()
                            .map(|note| Part::text(format!("[{note}]"))),
                    );
                    return Ok(ToolEnd::Completed(result));
                }
                Some(Frame::Gone(gone)) => {
                    return Ok(ToolEnd::Interrupted {
                        note: format!(
                            "The sandbox ended while the command ran; whether it had finished is not known. Its output until then ({} bytes) is in {}.",
                            gone.output_bytes, gone.output_path
                        ),
                    });
                }
                Some(Frame::NeverSeen(_)) => {
                    return Ok(ToolEnd::Interrupted {
                        note: "The sandbox was replaced before the command ran, or while it ran; nothing of it is known.".into(),
                    });
                }
            }
        }
    }
}

/// What the Workspace sets, and over it what leads to the world.
fn environment(hands: &Hands, call: &Call) -> HashMap<String, String> {
    let mut all = hands.source.current().environment();
    if let Some(status) = hands.link.status() {
        all.extend(hands.boundary.environment(call, &status.tunnel_address));
    }
    all
}

/// How much output the engine was given to show.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    bytes: u64,
    lines: u64,
}

impl Shown {
    fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.lines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
    }

    /// Whether the model does not see all of it.
    fn is_cut(self) -> bool {
        self.bytes > window::MAX_BYTES as u64 || self.lines > window::MAX_LINES as u64
    }
}

/// What the model is told after the output.
fn result(outcome: &Outcome, seen: u64, shown: Shown) -> ToolResult {
    let seconds = (outcome.finished_ms - outcome.started_ms).max(0) as f64 / 1000.0;
    let ended = match outcome.end() {
        End::Exited if outcome.code == 0 && seen == 0 => "(no output)".to_owned(),
        End::Exited if outcome.code == 0 => String::new(),
        End::Exited => format!("exit status {}", outcome.code),
        End::Signaled => format!("ended by signal {}", outcome.code),
        End::TimedOut => format!("ended after its time limit ({seconds:.1} s)"),
        End::Killed => "ended on request".to_owned(),
        End::Failed | End::Unspecified => format!("could not be started: {}", outcome.message),
    };
    // What the daemon adds is for the model: output that was lost, files of git
    // that it put right.
    let added = match outcome.end() {
        End::Failed | End::Unspecified => "",
        _ => outcome.message.as_str(),
    };
    let file = match shown.is_cut() && !outcome.output_path.is_empty() {
        true => format!(
            "The output has {} bytes; it is in {}.",
            outcome.output_bytes, outcome.output_path
        ),
        false => String::new(),
    };
    let told = [ended.as_str(), file.as_str(), added];
    let told: Vec<&str> = told.into_iter().filter(|text| !text.is_empty()).collect();
    ToolResult {
        content: match told.is_empty() {
            true => Vec::new(),
            false => vec![Part::text(told.join("\n"))],
        },
        is_error: !(outcome.end() == End::Exited && outcome.code == 0),
        terminate: false,
        data: json!({
            "end": outcome.end().as_str_name().to_ascii_lowercase(),
            "code": outcome.code,
            "output_bytes": outcome.output_bytes,
            "output_path": outcome.output_path,
            "ms": outcome.finished_ms - outcome.started_ms,
        }),
        documents: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_told_how_a_command_ended() {
        for (end, code, seen, expected, is_error) in [
            (End::Exited, 0, 0, "(no output)", false),
            (End::Exited, 0, 5, "", false),
            (End::Exited, 2, 5, "exit status 2", true),
            (End::Signaled, 9, 0, "ended by signal 9", true),
            (
                End::TimedOut,
                0,
                0,
                "ended after its time limit (1.5 s)",
                true,
            ),
        ] {
            let outcome = Outcome {
                end: end.into(),
                code,
                started_ms: 1_000,
                finished_ms: 2_500,
                ..Outcome::default()
            };
            let told = result(&outcome, seen, Shown::default());
            let text = match told.content.first() {
                Some(Part::Text { text }) => text.as_str(),
                _ => "",
            };
            assert_eq!((text, told.is_error), (expected, is_error));
        }
    }

    #[test]
    fn the_file_of_output_that_is_cut_is_named() {
        let outcome = Outcome {
            end: End::Exited.into(),
            output_bytes: 70_000,
            output_path: "/out/7".into(),
            ..Outcome::default()
        };
        for (bytes, lines, named) in [(51_200, 2_000, false), (51_201, 1, true), (9, 2_001, true)] {
            let told = result(&outcome, bytes, Shown { bytes, lines });
            let expected = Part::text("The output has 70000 bytes; it is in /out/7.");
            assert_eq!(told.content.contains(&expected), named, "{bytes} {lines}");
        }
    }

    #[test]
    fn what_the_daemon_adds_reaches_the_model() {
        let outcome = Outcome {
            end: End::Exited.into(),
            message: "9 bytes of output could not be kept: no space left on the disk".into(),
            ..Outcome::default()
        };
        let told = result(&outcome, 5, Shown::default());
        assert_eq!(told.content, [Part::text(outcome.message.clone())]);
    }
}
