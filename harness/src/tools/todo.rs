//! `todo`: the conversation's plan, a document that changes with the call's result.

use async_trait::async_trait;
use mooring_durable::{
    document::{DocumentChange, DocumentKind, ForkPolicy, History, Op, Scope},
    message::Part,
    tool::{
        Call, OutputSink, Replay, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure, ToolResult,
    },
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{declare, object, text};

/// The plan of a conversation: `{"items": [{"text", "state"}]}`.
pub static PLAN: DocumentKind = DocumentKind::new(
    "mooring.todo",
    1,
    History::Rewindable,
    ForkPolicy::AsOf,
    |_, value| Ok(value),
);

pub(super) struct Todo;

fn items(arguments: &Value) -> &[Value] {
    arguments
        .get("items")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// How far a plan is, and what is being done.
fn progress(arguments: &Value) -> String {
    let items = items(arguments);
    let done = items.iter().filter(|item| text(item, "state") == "done");
    let doing = items.iter().find(|item| text(item, "state") == "doing");
    let so_far = format!("{} of {} done", done.count(), items.len());
    match doing {
        Some(item) => format!("{so_far}; now: {}", text(item, "text")),
        None => so_far,
    }
}

#[async_trait]
impl Tool for Todo {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "todo",
            "Writes down the plan of this conversation, whole, in place of the last one. People see it. \
             Use it for work of several steps, and keep it up to date.",
            Replay::Safe,
            object(
                &["items"],
                json!({
                    "items": {
                        "type": "array",
                        "maxItems": 100,
                        "items": {
                            "type": "object",
                            "properties": {
                                "text": { "type": "string", "minLength": 1, "maxLength": 500 },
                                "state": { "enum": ["open", "doing", "done"] },
                            },
                            "required": ["text", "state"],
                            "additionalProperties": false,
                        },
                    },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        progress(arguments)
    }

    async fn execute(
        &self,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        Ok(ToolEnd::Completed(ToolResult {
            content: vec![Part::text(format!(
                "The plan is kept: {}.",
                progress(&call.arguments)
            ))],
            is_error: false,
            terminate: false,
            data: Value::Null,
            documents: vec![DocumentChange {
                scope: Scope::Conversation(call.conversation),
                kind: &PLAN,
                op: Op::Set(call.arguments.clone()),
            }],
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_what_is_done_and_names_what_is_being_done() {
        for (plan, expected) in [
            (json!({}), "0 of 0 done"),
            (
                json!({"items": [{"text": "a", "state": "done"}, {"text": "b", "state": "open"}]}),
                "1 of 2 done",
            ),
            (
                json!({"items": [{"text": "a", "state": "doing"}]}),
                "0 of 1 done; now: a",
            ),
        ] {
            assert_eq!(progress(&plan), expected);
        }
    }
}
