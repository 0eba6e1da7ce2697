//! Waits: a call that has begun may wait for work that it owns – a time, an answer, a
//! conversation of its own – and takes no memory while it does.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    id::{ConversationId, Millis, TaskId},
    message::Part,
    model::Usage,
    submission::Requester,
};

/// What a call waits for; it goes on once all of it has settled.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    /// What the failure of one means for the others.
    pub mode: WaitMode,
    /// The work. Where a call waits again, a key that it used before is the same work.
    pub on: Vec<Awaited>,
}

/// What the failure of one means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitMode {
    /// Nothing: each comes to its own end.
    #[default]
    AllSettled,
    /// They are aborted.
    FailFast,
}

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Awaited {
    /// Names it within its call.
    pub key: String,
    /// What it is.
    pub work: Work,
}

/// What can be waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Work {
    /// A time, on the engine's clock.
    Timer {
        /// When.
        until: Millis,
    },
    /// A person's answer.
    Question {
        /// What is asked.
        text: String,
        /// Answers to choose from; others may be given too.
        #[serde(default)]
        choices: Vec<String>,
        /// When silence ends it.
        expires_at: Option<Millis>,
    },
    /// An answer of a conversation that the call owns, begun for it.
    Conversation(Delegate),
    /// The end of another call of the same round, which goes on whatever becomes of
    /// the one that waits.
    Call {
        /// Its task.
        task: TaskId,
    },
}

/// A conversation that is begun for a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delegate {
    /// Its model; empty: its parent's.
    pub model: String,
    /// The host's settings; of `tokens` a run of it may use that many.
    pub settings: Value,
    /// Its first input.
    pub input: Vec<Part>,
    /// Nobody waits for it: the call goes on at once, and its end comes to the parent
    /// conversation as an input of its own.
    pub background: bool,
}

/// How a piece of work ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "lowercase")]
pub enum WorkEnd {
    /// The time came.
    Fired,
    /// Somebody answered.
    Answered {
        /// What.
        text: String,
        /// Who.
        by: Requester,
    },
    /// Nobody answered in time.
    Expired,
    /// The conversation answered, or the call ended.
    Done {
        /// What it said.
        text: String,
        /// What its run used.
        usage: Usage,
    },
    /// The conversation has no answer.
    Failed {
        /// Why.
        reason: String,
    },
    /// It goes on in the background.
    Begun,
    /// It was ended with its owner, or because another one failed.
    Aborted,
}

impl WorkEnd {
    /// Whether a wait that fails fast ends with it.
    pub fn failed(&self) -> bool {
        matches!(
            self,
            WorkEnd::Expired | WorkEnd::Failed { .. } | WorkEnd::Aborted
        )
    }
}

/// A piece of work with its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Its key.
    pub key: String,
    /// Its task.
    pub task: TaskId,
    /// The conversation that was begun.
    pub conversation: Option<ConversationId>,
    /// How it ended.
    pub end: WorkEnd,
}

/// A question to people.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Its task.
    pub task: TaskId,
    /// Where it is asked.
    pub conversation: ConversationId,
    /// The call that asks.
    pub call: TaskId,
    /// What is asked.
    pub text: String,
    /// Answers to choose from.
    pub choices: Vec<String>,
    /// When.
    pub asked_at: Millis,
    /// When silence ends it.
    pub expires_at: Option<Millis>,
    /// How it ended; `None` while it is open.
    pub end: Option<WorkEnd>,
}

/// A task that has not ended, for the graph of what owns what.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// Its id.
    pub task: TaskId,
    /// The task that owns it; `None`: its conversation does.
    pub owner: Option<TaskId>,
    /// Where it is.
    pub conversation: ConversationId,
    /// `pi.generation`, `pi.tool`, …
    pub kind: String,
    /// pending, running, waiting.
    pub status: String,
    /// It is neither waited for nor aborted with its owner.
    pub background: bool,
    /// What it is about: a tool's name, a question, a time.
    pub about: String,
    /// Tasks that it waits for.
    pub waits: Vec<TaskId>,
    /// The conversation that it owns.
    pub owns: Option<ConversationId>,
    /// Since when, in milliseconds.
    pub created_at: Millis,
}

/// Tasks that have not ended, and who waits for whom.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskGraph {
    /// Owners before what they own.
    pub tasks: Vec<TaskView>,
    /// There are more than were asked for.
    pub more: bool,
}

/// Whether a call would wait, over others, for itself. `edges` are pairs of a call and
/// one that it waits for.
pub(crate) fn is_cycle(edges: &[(TaskId, TaskId)], from: TaskId) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(task) = next.pop() {
        for (_, to) in edges.iter().filter(|(waiter, _)| *waiter == task) {
            if *to == from {
                return true;
            }
            if seen.insert(*to) {
                next.push(*to);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_oneself_is_found_over_others() {
        let edges = |pairs: &[(i64, i64)]| {
            let edge = |(a, b): &(i64, i64)| (TaskId(*a), TaskId(*b));
            pairs.iter().map(edge).collect::<Vec<_>>()
        };
        for (pairs, cycle) in [
            (&[][..], false),
            (&[(1, 1)], true),
            (&[(1, 2)], false),
            (&[(1, 2), (2, 1)], true),
            (&[(1, 2), (2, 3), (3, 1)], true),
            (&[(1, 2), (2, 3), (3, 2)], false),
            (&[(1, 2), (1, 3), (3, 4)], false),
        ] {
            assert_eq!(is_cycle(&edges(pairs), TaskId(1)), cycle, "{pairs:?}");
        }
    }
}
