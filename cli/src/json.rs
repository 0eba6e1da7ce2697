//! Messages of the wire as JSON for programs: one object a line, the names of
//! the protobuf fields, text as it is.

use mooring_wire::harness::watch_frame::Frame;
use mooring_wire::harness::{
    Approval, Call, Child, Chunk, Entry, Grant, Question, Run, StatusResponse, Submission, Task,
    TaskGraph, WatchFrame, conversations_response::Conversation, usage_response,
};
use serde_json::{Value, json};

/// A frame of a watch.
pub fn frame(frame: &WatchFrame) -> Value {
    let mut value = json!({"sequence": frame.sequence, "session": frame.session});
    match &frame.frame {
        Some(Frame::Snapshot(view)) => {
            value["snapshot"] = json!({
                "conversation": view.conversation,
                "title": view.title,
                "entries": all(&view.entries, entry),
                "more": view.more,
                "run": view.run.as_ref().map(run),
                "calls": all(&view.calls, call),
                "chunks": all(&view.chunks, chunk),
                "inbox": all(&view.inbox, submission),
                "approvals": all(&view.approvals, approval),
                "model": view.model,
                "grade": view.grade,
                "parent": view.parent,
                "parent_entry": view.parent_entry,
                "side_chat": view.side_chat,
                "compaction": view.compaction,
                "questions": all(&view.questions, question),
                "tasks": view.tasks.as_ref().map(graph),
                "children": all(&view.children, child),
            });
        }
        Some(Frame::Change(change)) => {
            value["change"] = json!({
                "conversation": change.conversation,
                "entries": all(&change.entries, entry),
                "submissions": all(&change.submissions, submission),
                "run": change.run.as_ref().map(run),
                "ended": change.ended.as_ref().map(run),
                "calls": all(&change.calls, call),
                "chunks": all(&change.chunks, chunk),
                "approvals": all(&change.approvals, approval),
                "compaction": change.compaction,
                "questions": all(&change.questions, question),
                "tasks": change.tasks.as_ref().map(graph),
                "children": all(&change.children, child),
            });
        }
        None => {}
    }
    value
}

fn all<T>(items: &[T], one: impl Fn(&T) -> Value) -> Value {
    items.iter().map(one).collect()
}

/// JSON that came as text; as a string where it is none.
fn embedded(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

fn graph(graph: &TaskGraph) -> Value {
    json!({"tasks": all(&graph.tasks, task), "more": graph.more})
}

fn child(child: &Child) -> Value {
    json!({
        "conversation": child.conversation, "call_task": child.call_task, "depth": child.depth,
        "title": child.title, "state": child.state, "tool_calls": child.tool_calls,
        "tokens": child.tokens, "doing": child.doing,
    })
}

/// A task.
pub fn task(task: &Task) -> Value {
    json!({
        "id": task.id, "owner": task.owner, "conversation": task.conversation, "kind": task.kind,
        "status": task.status, "background": task.background, "about": task.about,
        "waits": task.waits, "owns": task.owns, "created_ms": task.created_ms,
    })
}

fn question(question: &Question) -> Value {
    json!({
        "id": question.id, "conversation": question.conversation, "call_task": question.call_task,
        "text": question.text, "choices": question.choices, "asked_ms": question.asked_ms,
        "expires_ms": question.expires_ms, "state": question.state, "answer": question.answer,
        "answered_by": question.answered_by,
    })
}

/// An entry of a transcript.
pub fn entry(entry: &Entry) -> Value {
    json!({
        "id": entry.id, "kind": entry.kind, "at_ms": entry.at_ms, "text": entry.text,
        "state": entry.state, "task": entry.task, "json": embedded(&entry.json),
    })
}

/// An input.
pub fn submission(submission: &Submission) -> Value {
    json!({
        "id": submission.id, "request_id": submission.request_id, "state": submission.state,
        "reason": submission.reason, "text": submission.text, "detail": submission.detail,
        "answer_entry": submission.answer_entry,
    })
}

/// A run's figures.
pub fn run(run: &Run) -> Value {
    json!({
        "id": run.id, "state": run.state, "started_ms": run.started_ms, "ended_ms": run.ended_ms,
        "turns": run.turns, "tool_calls": run.tool_calls, "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens, "cost_micros": run.cost_micros,
        "cost_known": run.cost_known, "note": run.note, "model": run.model,
    })
}

/// A call.
pub fn call(call: &Call) -> Value {
    json!({
        "task": call.task, "tool": call.tool, "summary": call.summary, "state": call.state,
        "started_ms": call.started_ms, "ended_ms": call.ended_ms, "note": call.note,
        "arguments": embedded(&call.arguments),
    })
}

fn chunk(chunk: &Chunk) -> Value {
    use mooring_wire::harness::chunk::Of;
    let of = match chunk.of() {
        Of::Unspecified => "",
        Of::Answer => "answer",
        Of::Thinking => "thinking",
        Of::Output => "output",
    };
    json!({"of": of, "task": chunk.task, "offset": chunk.offset, "text": chunk.text})
}

/// An approval.
pub fn approval(approval: &Approval) -> Value {
    json!({
        "id": approval.id, "conversation": approval.conversation, "call_task": approval.call_task,
        "tool": approval.tool, "summary": approval.summary, "facts": approval.facts,
        "detail": approval.detail, "rule": approval.rule, "reason": approval.reason,
        "requesters": approval.requesters, "asked_ms": approval.asked_ms,
        "expires_ms": approval.expires_ms, "state": approval.state, "scope": approval.scope,
        "decided_by": approval.decided_by, "decided_via": approval.decided_via,
        "decided_ms": approval.decided_ms, "decision_reason": approval.decision_reason,
        "grade": approval.grade, "policy_digest": approval.policy_digest,
    })
}

/// A conversation of the list.
pub fn conversation(conversation: &Conversation) -> Value {
    json!({
        "id": conversation.id, "title": conversation.title, "last_at_ms": conversation.last_at_ms,
        "state": conversation.state, "pending_approvals": conversation.pending_approvals,
        "queued": conversation.queued, "entries": conversation.entries,
        "thread_id": conversation.thread_id,
    })
}

/// A grant.
pub fn grant(grant: &Grant) -> Value {
    json!({
        "id": grant.id, "conversation": grant.conversation, "tool": grant.tool,
        "rule": grant.rule, "asked_by_rule": grant.asked_by_rule, "given_by": grant.given_by,
        "given_ms": grant.given_ms, "expires_ms": grant.expires_ms,
        "revoked_ms": grant.revoked_ms, "revoked_by": grant.revoked_by,
    })
}

/// A row of the usage table.
pub fn usage(row: &usage_response::Row) -> Value {
    json!({
        "day": row.day, "model": row.model, "requests": row.requests,
        "input_tokens": row.input_tokens, "cached_tokens": row.cached_tokens,
        "output_tokens": row.output_tokens, "cost_micros": row.cost_micros,
        "cost_known": row.cost_known, "unknown_requests": row.unknown_requests,
    })
}

/// How the harness is.
pub fn status(status: &StatusResponse) -> Value {
    json!({
        "version": status.version, "workspace": status.workspace,
        "workspace_path": status.workspace_path, "project": status.project,
        "policy_digest": status.policy_digest, "incarnation": status.incarnation,
        "generation": status.generation, "model": status.model,
        "sandbox": status.sandbox.as_ref().map(|sandbox| json!({
            "reachable": sandbox.reachable, "grade": sandbox.grade, "missing": sandbox.missing,
            "since_ms": sandbox.since_ms, "error": sandbox.error,
            "warning": sandbox.warning, "checkout": sandbox.checkout, "address": sandbox.address, "project": sandbox.project,
        })),
        "missing_keys": status.missing_keys, "running": status.running,
        "waiting": status.waiting, "pending_approvals": status.pending_approvals,
        "pending_workspace": status.pending_workspace, "pending_changes": status.pending_changes,
        "workspace_error": status.workspace_error, "database_bytes": status.database_bytes,
        "started_ms": status.started_ms, "pid": status.pid,
        "full_since_ms": status.full_since_ms, "database_path": status.database_path,
        "database_error": status.database_error,
        "extensions": status.extensions,
        "mcp": all(&status.mcp, |server| json!({
            "name": server.name, "place": server.place, "state": server.state,
            "since_ms": server.since_ms, "error": server.error, "tools": server.tools,
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mooring_wire::harness::Change;

    #[test]
    fn a_frame_is_one_line_with_nested_json_as_json() {
        let call = Call {
            task: 3,
            arguments: "{\"command\":\"ls\\n\"}".into(),
            ..Call::default()
        };
        let change = Change {
            conversation: 7,
            calls: vec![call],
            ..Change::default()
        };
        let value = frame(&WatchFrame {
            sequence: 9,
            session: "s".into(),
            frame: Some(Frame::Change(change)),
        });
        assert_eq!(value["change"]["calls"][0]["arguments"]["command"], "ls\n");
        assert_eq!(value["change"]["run"], Value::Null);
        assert!(!value.to_string().contains('\n'));
        assert_eq!(embedded("no json"), "no json");
    }
}
