//! What outbox rows hold (`OutboxRow.json`): the same types for the harness that
//! writes them and the bot that shows them.

use serde::{Deserialize, Serialize};

/// A run's one message: kinds `anchor` and `anchor-edit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Anchor {
    /// First submission of the run.
    pub run: i64,
    /// `working`, `waiting`, `answered`, `unanswered`.
    pub state: String,
    /// The answer, whole; only when answered.
    pub answer: String,
    /// Why there is none, for people.
    pub reason: String,
    /// "retry 2 of 5 in 4 s: overloaded".
    pub note: String,
    /// Model responses so far.
    pub turns: u32,
    /// Tool calls so far.
    pub tool_calls: u32,
    /// Input and output tokens so far.
    pub tokens: u64,
    /// Millionths of a US dollar; absent where the price is not known.
    pub cost_micros: Option<i64>,
    /// Milliseconds since the Unix epoch.
    pub started_ms: i64,
    /// When it ended; 0 while it goes on.
    pub ended_ms: i64,
    /// The model's name in the Workspace.
    pub model: String,
    /// The branch of the conversation's own worktree; empty where it has none.
    pub branch: String,
    /// Conversations that work for the run.
    pub children: Vec<Child>,
    /// The conversation's plan.
    pub plan: Vec<Step>,
}

/// A conversation that works for a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Child {
    /// What it is called.
    pub name: String,
    /// `working`, `waiting`, `answered`, `unanswered`.
    pub state: String,
    /// Tool calls so far.
    pub tool_calls: u32,
    /// Input and output tokens so far.
    pub tokens: u64,
}

/// A step of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Step {
    /// What is done in it.
    pub text: String,
    /// `open`, `doing`, `done`.
    pub state: String,
}

/// An approval card: kinds `card` and `card-edit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Card {
    /// The approval's id, as `Decide` takes it.
    pub approval: String,
    /// The tool's name.
    pub tool: String,
    /// One line: the exact command or path, escaped.
    pub summary: String,
    /// All of it, escaped.
    pub detail: String,
    /// Canonical facts.
    pub facts: Vec<String>,
    /// Table and pattern that asked.
    pub rule: String,
    /// A sentence for people.
    pub reason: String,
    /// Who asked, as shown.
    pub requesters: Vec<String>,
    /// Whether who asked may also approve.
    pub requester_may_approve: bool,
    /// Milliseconds since the Unix epoch; 0: never.
    pub expires_ms: i64,
    /// `pending`, `approved`, `denied`, `expired`, `superseded`, `aborted`.
    pub state: String,
    /// Who decided, by which way, and when.
    pub decided_by: String,
    /// `terminal`, `discord`, `kubernetes`.
    pub decided_via: String,
    /// Milliseconds since the Unix epoch; 0: not decided.
    pub decided_ms: i64,
    /// Why, in their words.
    pub decision_reason: String,
    /// isolated, confined, not-isolated.
    pub grade: String,
    /// The conversation that asks, where it is not the thread's own.
    pub from: String,
}

/// A question to people: kinds `question` and `question-edit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Question {
    /// The question's id, as `Answer` takes it.
    pub question: String,
    /// What is asked.
    pub text: String,
    /// Answers to choose from; others may be given too.
    pub choices: Vec<String>,
    /// Whose question it is to answer beside approvers, as shown.
    pub requesters: Vec<String>,
    /// Milliseconds since the Unix epoch; 0: never.
    pub expires_ms: i64,
    /// `open`, `answered`, `expired`, `aborted`.
    pub state: String,
    /// What was answered, and by whom.
    pub answer: String,
    /// As shown.
    pub answered_by: String,
    /// The conversation that asks, where it is not the thread's own.
    pub from: String,
}

/// A plain message: kind `note`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Note {
    /// The text.
    pub text: String,
}
