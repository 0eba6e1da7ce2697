//! How a call's end enters the transcript.

use std::sync::Arc;

use serde_json::Value;

use super::step::{NewEntry, Step};
use crate::{
    gate::ApprovalState,
    ledger::{CallOutcome, Change},
    message::{Message, Part},
    sql::{call::state, document::DocumentRow, entry::kind},
    tool::{Call, ToolResult},
    window::floor,
};

/// Most of a result's text that the ledger is told.
const TOLD: usize = 16 * 1024;

/// The end of a call.
pub(super) struct Ended {
    pub outcome: CallOutcome,
    pub content: Vec<Part>,
    pub data: Value,
    pub terminate: bool,
    /// For people, where it went wrong: the first line of what the model is told.
    pub why: String,
    /// The execution could not be ended; its kill is owed.
    pub owed_kill: bool,
    /// It was aborted while its code was missing.
    pub orphaned: bool,
    /// Documents that change with it.
    pub documents: Vec<DocumentRow>,
    /// The context begins anew after the round.
    pub handoff: Option<String>,
    /// Work that it leaves goes on.
    pub leaves: bool,
}

/// Bytes of a reason that is shown beside the call.
const MAX_WHY: usize = 200;

/// The first line with something in it, cut.
fn why(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or_default();
    line[..floor(line, MAX_WHY)].to_owned()
}

impl Ended {
    /// An end that a tool gave, but for its documents.
    pub fn of_tool(result: ToolResult) -> Ended {
        let said = result.content.iter().rev().find_map(|part| match part {
            Part::Text { text } => Some(why(text)),
            _ => None,
        });
        let outcome = match result.is_error {
            true => CallOutcome::Error,
            false => CallOutcome::Done,
        };
        Ended {
            why: said.unwrap_or_default(),
            content: result.content,
            data: result.data,
            terminate: result.terminate,
            ..Ended::text(outcome, "")
        }
    }

    /// An end that is a text.
    pub fn text(outcome: CallOutcome, text: impl Into<String>) -> Ended {
        let text = text.into();
        Ended {
            outcome,
            why: why(&text),
            content: vec![Part::text(text)],
            data: Value::Null,
            terminate: false,
            owed_kill: false,
            orphaned: false,
            documents: Vec::new(),
            handoff: None,
            leaves: false,
        }
    }

    /// Puts output that was streamed in front.
    pub fn after_output(mut self, output: String) -> Ended {
        if !output.is_empty() {
            self.content.insert(0, Part::text(output));
        }
        if self.content.is_empty() {
            self.content.push(Part::text("(no output)"));
        }
        self
    }
}

impl Step {
    /// Records the end of a call: its entry, its rows, its pending approval.
    pub(super) fn end_call(
        &mut self,
        ordinal: usize,
        call: Arc<Call>,
        ended: Ended,
        stored_chunks: bool,
    ) {
        let at = self.at;
        if !ended.leaves {
            self.end_children(ordinal);
        }
        let pending = self
            .active()
            .round
            .as_ref()
            .and_then(|round| round.slots[ordinal].pending());
        if let Some(which) = pending {
            let state = match ended.outcome {
                CallOutcome::Aborted => ApprovalState::Aborted,
                _ => ApprovalState::Superseded,
            };
            self.settle_approval(ordinal, which, state, None);
        }
        let is_error = ended.outcome != CallOutcome::Done;
        let text = ended
            .content
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect::<Vec<_>>()
            .join("\n");
        let message = Message::ToolResult {
            call_id: call.call_id.clone(),
            name: call.tool.clone(),
            content: ended.content,
            is_error,
        };
        let task = call.task;
        self.entry(NewEntry {
            data: ended.data.clone(),
            writer: Some(task),
            ..NewEntry::new(kind::TOOL_RESULT, Some(message))
        });
        let slot = &mut self
            .active()
            .round
            .as_mut()
            .expect("calls end in a round")
            .slots[ordinal];
        slot.terminate = ended.terminate;
        slot.handoff.clone_from(&ended.handoff);
        let row = slot
            .row
            .as_mut()
            .map(Arc::make_mut)
            .expect("a call that ends has its task");
        row.state = match ended.outcome {
            CallOutcome::Done => state::DONE,
            CallOutcome::Error => state::ERROR,
            CallOutcome::Denied => state::DENIED,
            CallOutcome::Interrupted => state::INTERRUPTED,
            CallOutcome::Aborted => state::ABORTED,
        };
        row.note = match ended.outcome {
            CallOutcome::Done | CallOutcome::Aborted => String::new(),
            _ => ended.why.clone(),
        };
        row.ended_at = Some(at);
        row.owed_kill = ended.owed_kill;
        let row = row.clone();
        self.put_call(&row);
        let status = match ended.outcome {
            _ if ended.leaves => "completing",
            CallOutcome::Aborted if ended.orphaned => "orphaned",
            CallOutcome::Aborted => "aborted",
            _ => "done",
        };
        self.put_ended_call(ordinal, status);
        for change in &ended.documents {
            self.batch.change_document(change);
        }
        if stored_chunks {
            self.batch.drop_chunks(task);
        }
        let text = text[..floor(&text, TOLD)].to_owned();
        self.changes.push(Change::CallEnded {
            call,
            outcome: ended.outcome,
            text,
            data: ended.data,
        });
    }
}
