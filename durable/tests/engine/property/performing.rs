//! What an operation is for the engine.

use std::{collections::HashMap, sync::Arc};

use mooring_durable::{
    Edit, Engine,
    compaction::Asked,
    error::SubmitError,
    fork::Fork,
    id::{ConversationId, EntryId, RequestId, SubmissionId, TaskId},
    message::{Message, Part},
    submission::{AbortScope, Input, WhenBusy},
    view::Shows,
    write::{Head, Write, WriteBody},
};
use serde_json::{Value, json};

use super::{
    held::{Held, Reply},
    history::Said,
    operation::When,
    rules::{Act, Fate},
    shown,
};
use crate::support::{TestClock, anna};

/// What the engine calls what the rules name by place.
#[derive(Clone, Default)]
pub struct Names {
    pub conversations: Vec<ConversationId>,
    /// Of each conversation's whole history.
    pub entries: Vec<Vec<EntryId>>,
    pub submissions: HashMap<String, SubmissionId>,
    /// Tasks of calls.
    pub tasks: HashMap<String, TaskId>,
}

/// What an operation answered.
pub enum Answered {
    Nothing,
    Submission(SubmissionId, Fate),
    Busy,
    Conversation(ConversationId),
    Compaction(Asked),
    /// Request ids.
    Withdrawn(Vec<String>),
}

pub fn modes(all: bool) -> Value {
    let mode = if all { "all" } else { "one-at-a-time" };
    json!({"steerMode": mode, "followUpMode": mode})
}

pub fn note(text: &str) -> WriteBody {
    WriteBody {
        kind: "host.note".into(),
        message: Some(user(text)),
        data: Value::Null,
        head: None,
        edits: Vec::new(),
    }
}

fn user(text: &str) -> Message {
    Message::User {
        content: vec![Part::text(text)],
    }
}

pub fn said(conversation: ConversationId, key: &str, text: &str, when: When) -> Input {
    Input {
        request_id: Some(RequestId(key.into())),
        ..crate::support::input(
            conversation,
            text,
            match when {
                When::Steer => WhenBusy::Steer,
                When::FollowUp => WhenBusy::FollowUp,
                When::Reject => WhenBusy::Reject,
            },
        )
    }
}

pub fn written(conversation: ConversationId, key: &str, body: WriteBody) -> Write {
    Write {
        conversation,
        request_id: Some(RequestId(key.into())),
        requester: anna(),
        body,
        extra: Vec::new(),
    }
}

/// The engine's part of an operation; an error is one that the rules know nothing of.
pub async fn perform(
    engine: Engine,
    held: Held,
    clock: Arc<TestClock>,
    names: Names,
    act: Act,
) -> Result<Answered, String> {
    let of = |at: usize| names.conversations[at];
    let failed = |error: &dyn std::fmt::Display| Err(error.to_string());
    match act {
        Act::Submit {
            at,
            key,
            text,
            when,
        } => match engine.submit(said(of(at), &key, &text, when)).await {
            Ok(it) => Ok(Answered::Submission(
                it.submission.id,
                shown::fate(&it.submission.state),
            )),
            Err(SubmitError::Busy) => Ok(Answered::Busy),
            Err(error) => failed(&error),
        },
        Act::Write {
            at,
            key,
            entry,
            here,
        } => {
            let edits = entry.edit.iter().map(|(target, text)| Edit {
                target: names.entries[at][*target],
                replace: text.as_deref().map(user),
            });
            let (kind, message) = match &entry.said {
                Said::User(text) => ("host.note", Some(user(text))),
                _ => ("host.edit", None),
            };
            let head = match (here, entry.head) {
                (true, _) => Some(Head::Here),
                (false, head) => head.map(|at_entry| Head::From(names.entries[at][at_entry])),
            };
            let body = WriteBody {
                kind: kind.into(),
                message,
                data: Value::Null,
                head,
                edits: edits.collect(),
            };
            match engine.write(written(of(at), &key, body)).await {
                Ok(it) => Ok(Answered::Submission(
                    it.submission.id,
                    shown::fate(&it.submission.state),
                )),
                Err(error) => failed(&error),
            }
        }
        Act::Reset { at, key, brief } => {
            match engine
                .reset(of(at), Some(RequestId(key)), anna(), brief)
                .await
            {
                Ok(it) => Ok(Answered::Submission(
                    it.submission.id,
                    shown::fate(&it.submission.state),
                )),
                Err(error) => failed(&error),
            }
        }
        Act::Abort { at, all } => {
            let scope = match all {
                true => AbortScope::Conversation,
                false => AbortScope::Run,
            };
            match engine.abort(of(at), scope).await {
                Ok(aborted) => {
                    let keys = aborted.withdrawn.into_iter().filter_map(|it| it.request_id);
                    Ok(Answered::Withdrawn(keys.map(|id| id.0).collect()))
                }
                Err(error) => failed(&error),
            }
        }
        Act::Withdraw { key, .. } => match engine.withdraw(names.submissions[&key]).await {
            Ok(Some(it)) => Ok(Answered::Submission(it.id, shown::fate(&it.state))),
            Ok(None) => failed(&format!("{key} is not known")),
            Err(error) => failed(&error),
        },
        Act::Fork {
            at,
            through,
            own,
            all,
        } => {
            let fork = Fork {
                parent: of(at),
                at: Some(names.entries[at][through]),
                shows: if own { Shows::Own } else { Shows::All },
                model: None,
                settings: modes(all),
                note: Some("a fork".into()),
                extra: Vec::new(),
            };
            match engine.fork(fork).await {
                Ok(id) => Ok(Answered::Conversation(id)),
                Err(error) => failed(&error),
            }
        }
        Act::Compact { at } => match engine.compact(of(at), anna(), String::new()).await {
            Ok(asked) => Ok(Answered::Compaction(asked)),
            Err(error) => failed(&error),
        },
        Act::Answer { at, text } => {
            held.answer(of(at), Reply::Say(text));
            Ok(Answered::Nothing)
        }
        Act::Call { at, calls } => {
            held.answer(of(at), Reply::Call(calls));
            Ok(Answered::Nothing)
        }
        Act::Fail { at, how } => {
            held.answer(of(at), Reply::Fail(how));
            Ok(Answered::Nothing)
        }
        Act::EndCall {
            at,
            call,
            end,
            text,
        } => {
            held.end(of(at), &call, end, text);
            Ok(Answered::Nothing)
        }
        Act::Summary { at, text, failing } => {
            held.summarize(of(at), failing.map_or(Reply::Say(text), Reply::Fail));
            Ok(Answered::Nothing)
        }
        Act::Wait => {
            clock.advance(3_600_000);
            Ok(Answered::Nothing)
        }
    }
}
