//! From the engine's values to the wire's.

use mooring_durable::{
    gate::Approval,
    ledger::{Run, RunState},
    message::{Message, Part},
    submission::{Submission, SubmissionState, WhenBusy},
    view::{CallView, ChangeView, ChunkView, ConversationView, EntryView, Shows, StreamKind},
};
use mooring_wire::harness as wire;
use serde_json::{Value, json};

use super::work;
use crate::{
    books::{Books, plain},
    card::one_line,
    tools::text,
};

/// Longer JSON goes over the wire as its size only.
const MAX_JSON: usize = 128 << 10;
/// Longer texts are cut on the wire; the file has them whole.
const MAX_TEXT: usize = 256 << 10;

/// Turns engine values into wire values for one harness.
pub struct Convert<'a> {
    /// Knows prices and the keys of approvals.
    pub books: &'a Books,
    /// Of the sandbox.
    pub grade: String,
}

/// A run's state, in the words of the wire.
pub fn state_of(state: RunState) -> &'static str {
    match state {
        RunState::Preparing => "preparing",
        RunState::Requesting => "requesting",
        RunState::Retrying => "retrying",
        RunState::Tools => "tools",
        RunState::Waiting | RunState::NeedsKey => "waiting",
        RunState::Compacting => "compacting",
        RunState::Ending => "ending",
    }
}

impl Convert<'_> {
    /// A snapshot.
    pub fn view(&self, view: &ConversationView) -> wire::ConversationView {
        wire::ConversationView {
            conversation: view.conversation.0,
            title: view.title.clone(),
            sequence: view.sequence,
            entries: view.entries.iter().map(entry).collect(),
            more: view.more,
            run: view.run.as_ref().map(|run| self.run(run)),
            calls: view.calls.iter().map(call).collect(),
            chunks: view.chunks.iter().map(chunk).collect(),
            inbox: view.inbox.iter().map(submission).collect(),
            approvals: view
                .approvals
                .iter()
                .map(|approval| self.approval(approval))
                .collect(),
            model: view.model.clone(),
            grade: self.grade.clone(),
            parent: view.origin.parent.map_or(0, |(parent, _)| parent.0),
            parent_entry: view.origin.parent.map_or(0, |(_, entry)| entry.0),
            questions: view.questions.iter().map(work::shown).collect(),
            side_chat: view.origin.shows == Shows::Own,
            compaction: view
                .compaction
                .map(|mode| mode.word().to_owned())
                .unwrap_or_default(),
            // Read beside it, where it is asked for.
            tasks: None,
            children: Vec::new(),
        }
    }

    /// What one commit changed.
    pub fn change(&self, change: &ChangeView) -> wire::Change {
        wire::Change {
            conversation: change.conversation.0,
            entries: change.entries.iter().map(entry).collect(),
            submissions: change.submissions.iter().map(submission).collect(),
            run: change.run.as_ref().map(|run| match run {
                Some(run) => self.run(run),
                None => wire::Run {
                    state: "idle".into(),
                    ..wire::Run::default()
                },
            }),
            ended: change.ended.as_ref().map(|run| self.run(run)),
            calls: change.calls.iter().map(call).collect(),
            chunks: change.chunks.iter().map(chunk).collect(),
            questions: change.questions.iter().map(work::shown).collect(),
            compaction: change
                .compaction
                .map(|now| now.map(|mode| mode.word().to_owned()).unwrap_or_default()),
            approvals: change
                .approvals
                .iter()
                .map(|approval| self.approval(approval))
                .collect(),
            tasks: None,
            children: Vec::new(),
        }
    }

    /// A run.
    pub fn run(&self, run: &Run) -> wire::Run {
        let cost = self.books.cost(run);
        wire::Run {
            id: run.id.0,
            state: state_of(run.state).into(),
            started_ms: run.started_at.0,
            turns: run.turns,
            tool_calls: run.tool_calls,
            input_tokens: run.usage.input,
            output_tokens: run.usage.output,
            cost_micros: cost.unwrap_or(0),
            note: run.note.clone(),
            model: run.model.clone(),
            ended_ms: 0,
            cost_known: cost.is_some(),
            branch: self.books.branch(run.conversation),
        }
    }

    /// An approval.
    pub fn approval(&self, approval: &Approval) -> wire::Approval {
        let card = self.books.card(approval);
        let stored = crate::card::Card::read(approval);
        wire::Approval {
            id: card.approval,
            conversation: approval.conversation.0,
            call_task: approval.call.0,
            tool: card.tool,
            summary: card.summary,
            facts: card.facts.join("\n"),
            rule: card.rule,
            reason: card.reason,
            requesters: card.requesters,
            asked_ms: approval.asked_at.0,
            expires_ms: card.expires_ms,
            state: card.state,
            decided_by: card.decided_by,
            decided_via: card.decided_via,
            decided_ms: card.decided_ms,
            decision_reason: card.decision_reason,
            grade: card.grade,
            policy_digest: stored.policy_digest,
            scope: approval
                .decision
                .as_ref()
                .map(|d| d.scope.clone())
                .unwrap_or_default(),
            detail: card.detail,
        }
    }
}

/// A transcript item.
pub fn entry(entry: &EntryView) -> wire::Entry {
    wire::Entry {
        id: entry.id.0,
        kind: entry.kind.clone(),
        at_ms: entry.at.0,
        json: whole_or_size(json!({ "message": entry.message, "data": entry.data })),
        text: shown(match &entry.message {
            Some(message) => read_out(message),
            None => text(&entry.data, "text").to_owned(),
        }),
        state: entry.state.clone(),
        task: entry.writer.map_or(0, |task| task.0),
    }
}

/// What people read of a message.
fn read_out(message: &Message) -> String {
    match message {
        Message::System { text } => text.clone(),
        Message::User { content }
        | Message::Assistant { content }
        | Message::ToolResult { content, .. } => {
            let images = content
                .iter()
                .filter(|part| matches!(part, Part::Image { .. }))
                .count();
            match (plain(content), images) {
                (text, 0) => text,
                (text, images) if text.is_empty() => format!("[{images} images]"),
                (text, images) => format!("{text}\n[{images} images]"),
            }
        }
    }
}

/// A submission.
pub fn submission(submission: &Submission) -> wire::Submission {
    let (state, reason, detail) = state(&submission.state);
    wire::Submission {
        id: submission.id.0,
        request_id: submission
            .request_id
            .as_ref()
            .map(|id| id.0.clone())
            .unwrap_or_default(),
        state: state.into(),
        reason,
        text: shown(plain(&submission.content)),
        detail,
        when_busy: match submission.when_busy {
            WhenBusy::Steer => wire::WhenBusy::Steer,
            WhenBusy::FollowUp => wire::WhenBusy::FollowUp,
            WhenBusy::Reject => wire::WhenBusy::Reject,
        }
        .into(),
        answer_entry: 0,
        thread: said_in(&submission.data),
    }
}

/// Where in Discord an input was said.
pub(super) fn said_in(data: &Value) -> Option<wire::Thread> {
    let discord = data.get("discord")?;
    let also = discord.get("also").and_then(Value::as_array);
    let also = also.into_iter().flatten().filter_map(Value::as_str);
    Some(wire::Thread {
        thread_id: text(discord, "thread").to_owned(),
        channel_id: text(discord, "channel").to_owned(),
        message_id: text(discord, "message").to_owned(),
        also_message_ids: also.map(str::to_owned).collect(),
        ..wire::Thread::default()
    })
}

/// The words of a state: state, reason, detail.
pub fn state(state: &SubmissionState) -> (&'static str, String, String) {
    match state {
        SubmissionState::Queued => ("queued", String::new(), String::new()),
        SubmissionState::Placed => ("placed", String::new(), String::new()),
        SubmissionState::Done => ("done", String::new(), String::new()),
        SubmissionState::Unanswered { reason, detail } => {
            let word = serde_json::to_value(reason).unwrap_or_default();
            (
                "unanswered",
                word.as_str().unwrap_or_default().to_owned(),
                detail.clone(),
            )
        }
    }
}

fn call(call: &CallView) -> wire::Call {
    wire::Call {
        task: call.task.0,
        tool: call.tool.clone(),
        summary: one_line(&mooring_policy::escape_for_display(&call.summary)),
        state: call.state.into(),
        started_ms: call.started_at.map_or(0, |at| at.0),
        ended_ms: call.ended_at.map_or(0, |at| at.0),
        arguments: whole_or_size(call.arguments.clone()),
        note: call.note.clone(),
    }
}

/// JSON as it is, or where it is long its size: one large text must not keep a
/// whole conversation from being shown.
fn whole_or_size(value: Value) -> String {
    let text = value.to_string();
    if text.len() <= MAX_JSON {
        return text;
    }
    json!({ "cut": true, "bytes": text.len() }).to_string()
}

/// A text as people read it; a long one is cut, and says so.
fn shown(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        let more = text.len() - text.floor_char_boundary(MAX_TEXT);
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push_str(&format!("\n[{more} more bytes, not shown]"));
    }
    text
}

fn chunk(chunk: &ChunkView) -> wire::Chunk {
    wire::Chunk {
        of: match chunk.of {
            StreamKind::Answer => wire::chunk::Of::Answer,
            StreamKind::Thinking => wire::chunk::Of::Thinking,
            StreamKind::Output => wire::chunk::Of::Output,
        }
        .into(),
        task: chunk.task.0,
        offset: chunk.offset,
        text: chunk.text.clone(),
    }
}
