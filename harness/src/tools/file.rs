//! `write` and `edit`: each acts once per execution id.

use async_trait::async_trait;
use mooring_durable::tool::{
    Call, OutputSink, Replay, Start, ToolDeclaration, ToolEnd, ToolFailure,
};
use mooring_wire::sandbox::{
    EditRequest, Execution, FileOutcome, WriteRequest, edit_request::Replacement,
    file_outcome::Outcome,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Act, Hands, bound, changes::baseline, decided_path, declare, done, failed, object, text,
};

fn execution(call: &Call) -> Option<Execution> {
    Some(Execution {
        id: call.execution.clone(),
        args_hash: call.arguments_hash.0.clone(),
    })
}

fn told(outcome: FileOutcome, call: &Call) -> Result<ToolEnd, ToolFailure> {
    let path = text(&call.arguments, "path");
    match outcome.outcome {
        Some(Outcome::Written(written)) => changed(
            call,
            format!(
                "{} {path} ({} bytes)",
                if written.created { "Created" } else { "Wrote" },
                written.bytes
            ),
            json!({
                "path": path,
                "created": written.created,
                "diff": written.diff,
                "before": written.sha256_before,
                "after": written.sha256_after,
            }),
        ),
        Some(Outcome::Refused(why)) => failed(why),
        None => Err(ToolFailure::Failed("the sandbox gave no outcome".into())),
    }
}

/// A result that keeps how the file was before.
fn changed(call: &Call, text: String, data: Value) -> Result<ToolEnd, ToolFailure> {
    let mut end = done(text, data)?;
    if let ToolEnd::Completed(result) = &mut end {
        result.documents = baseline(call);
    }
    Ok(end)
}

/// After a crash the id is sent again only to the daemon that the intent was
/// made for: another one has no record of whether it had acted.
fn other_sandbox(hands: &Hands, call: &Call, start: Start) -> Option<ToolEnd> {
    let known = hands.link.status()?;
    (start != Start::Fresh && known.state_id != bound(call, "state")).then(|| {
        ToolEnd::Interrupted {
            note: "The sandbox was replaced; whether the file was written is not known.".into(),
        }
    })
}

pub(super) struct Write;

#[async_trait]
impl Act for Write {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "write",
            "Writes a whole file, making its folders where they are missing.",
            Replay::Attach,
            object(
                &["path", "content"],
                json!({
                    "path": { "type": "string", "minLength": 1, "description": "Relative to the project, or absolute." },
                    "content": { "type": "string", "description": "The whole new content." },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        format!(
            "{} ({} bytes)",
            text(arguments, "path"),
            text(arguments, "content").len()
        )
    }

    fn writes(&self) -> bool {
        true
    }

    async fn act(
        &self,
        hands: &Hands,
        call: &Call,
        start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let mut client = hands.client()?;
        if let Some(end) = other_sandbox(hands, call, start) {
            return Ok(end);
        }
        let request = WriteRequest {
            execution: execution(call),
            path: decided_path(call)?,
            content: text(&call.arguments, "content")
                .to_owned()
                .into_bytes()
                .into(),
        };
        let outcome = client
            .write(request)
            .await
            .map_err(|status| hands.failure(&status))?;
        told(outcome.into_inner(), call)
    }
}

pub(super) struct Edit;

#[async_trait]
impl Act for Edit {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "edit",
            "Replaces exact text in a file. `old` must occur exactly once, unless `all` is true.",
            Replay::Attach,
            object(
                &["path", "old", "new"],
                json!({
                    "path": { "type": "string", "minLength": 1, "description": "Relative to the project, or absolute." },
                    "old": { "type": "string", "minLength": 1, "description": "The exact text to replace, with enough around it to be unique." },
                    "new": { "type": "string", "description": "What stands there afterwards." },
                    "all": { "type": "boolean", "description": "Replace every occurrence." },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        text(arguments, "path").to_owned()
    }

    fn writes(&self) -> bool {
        true
    }

    async fn act(
        &self,
        hands: &Hands,
        call: &Call,
        start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let mut client = hands.client()?;
        if let Some(end) = other_sandbox(hands, call, start) {
            return Ok(end);
        }
        let request = EditRequest {
            execution: execution(call),
            path: decided_path(call)?,
            replacements: vec![Replacement {
                old: text(&call.arguments, "old").to_owned(),
                new: text(&call.arguments, "new").to_owned(),
                all: call
                    .arguments
                    .get("all")
                    .and_then(Value::as_bool)
                    .unwrap_or_default(),
            }],
        };
        let outcome = client
            .edit(request)
            .await
            .map_err(|status| hands.failure(&status))?;
        told(outcome.into_inner(), call)
    }
}
