//! The engine: opens a file, takes inputs, drives runs, shows what is committed.

use std::{path::Path, sync::Arc};

use serde_json::Value;

use crate::{
    error::{OpenError, SessionError, SubmitError},
    gate::{Approval, Decision, Gate},
    id::{CommitNo, ConversationId, EntryId, Incarnation, SubmissionId, TaskId},
    ledger::{Ledger, Statement},
    model::Models,
    prompt::Prompt,
    submission::{AbortScope, Aborted, Input, Submission, Submitted},
    tool::Toolbox,
    view::{ConversationSummary, ConversationView, EntryView, Watch},
};

/// What the engine is given by its host.
#[derive(Clone)]
#[allow(missing_docs)]
pub struct Ports {
    pub models: Arc<dyn Models>,
    pub tools: Arc<dyn Toolbox>,
    pub gate: Arc<dyn Gate>,
    pub ledger: Arc<dyn Ledger>,
    pub prompt: Arc<dyn Prompt>,
}

/// A component whose tables live in the same file; its migrations are numbered
/// from 1 by position, and never edited after they land.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    /// Its name, for ever.
    pub name: &'static str,
    /// One SQL text each.
    pub migrations: &'static [&'static str],
}

/// How a file is opened.
pub struct Options {
    /// `synchronous=FULL` (default) or `NORMAL`.
    pub durability: Durability,
    /// The engine's clock; tests drive it.
    pub clock: Arc<dyn crate::clock::Clock>,
    /// Components beside the engine.
    pub components: Vec<Component>,
}

/// What survives power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Whatever was shown.
    #[default]
    Full,
    /// All but the last moments; a crash of the process loses nothing.
    Normal,
}

/// One open file. Clones share it.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<()>,
}

impl Engine {
    /// Opens or creates the file at `path` and recovers its state. Nothing runs
    /// before [`Engine::start`].
    pub async fn open(path: &Path, options: Options, ports: Ports) -> Result<Engine, OpenError> { unimplemented!() }
    /// Lets recovered and new work run.
    pub fn start(&self) { unimplemented!() }
    /// This file's incarnation.
    pub fn incarnation(&self) -> Incarnation { unimplemented!() }
    /// The owner's generation number.
    pub fn generation(&self) -> u64 { unimplemented!() }
    /// Resolves with the reason once the session has failed; the process should reopen.
    pub async fn failed(&self) -> SessionError { unimplemented!() }

    /// A new conversation; `settings` are the host's own (title, thread).
    pub async fn create_conversation(&self, model: &str, settings: Value, extra: Vec<Statement>) -> Result<ConversationId, SessionError> { unimplemented!() }
    /// Admits an input, in one commit with whatever it starts.
    pub async fn submit(&self, input: Input) -> Result<Submitted, SubmitError> { unimplemented!() }
    /// Ends a run, and with [`AbortScope::Conversation`] empties the inbox.
    pub async fn abort(&self, conversation: ConversationId, scope: AbortScope) -> Result<Aborted, SessionError> { unimplemented!() }
    /// Takes a queued input back; another state is left as it is and returned.
    pub async fn withdraw(&self, submission: SubmissionId) -> Result<Option<Submission>, SessionError> { unimplemented!() }
    /// Decides an approval; the first committed decision wins. `Ok((first, approval))`,
    /// `None` where there is no such approval.
    pub async fn decide(&self, approval: TaskId, decision: Decision, extra: Vec<Statement>) -> Result<Option<(bool, Approval)>, SessionError> { unimplemented!() }
    /// Approvals of a conversation, or of all; pending ones only unless `settled` asks for all.
    pub async fn approvals(&self, conversation: Option<ConversationId>, which: Approvals) -> Result<Vec<Approval>, SessionError> { unimplemented!() }
    /// The policy changed: every waiting call is decided anew.
    pub fn policy_changed(&self) { unimplemented!() }
    /// Keys or models changed: runs that wait for one try again.
    pub fn models_changed(&self) { unimplemented!() }
    /// Commits a component's own rows.
    pub async fn commit(&self, name: &'static str, statements: Vec<Statement>) -> Result<CommitNo, SessionError> { unimplemented!() }
    /// A read-only connection pool for components' own tables.
    pub fn reader(&self) -> &sqlx::SqlitePool { unimplemented!() }

    /// A snapshot; `None` where there is no such conversation.
    pub async fn view(&self, conversation: ConversationId, entries: usize, before: Option<EntryId>) -> Result<Option<ConversationView>, SessionError> { unimplemented!() }
    /// Follows one conversation, or all.
    pub async fn watch(&self, conversation: Option<ConversationId>, after: Option<u64>) -> Result<Watch, SessionError> { unimplemented!() }
    /// Newest activity first.
    pub async fn conversations(&self, limit: usize, before: Option<ConversationId>) -> Result<Vec<ConversationSummary>, SessionError> { unimplemented!() }
    /// Raw entries, newest page first asked, oldest first returned.
    pub async fn entries(&self, conversation: ConversationId, before: Option<EntryId>, limit: usize) -> Result<Vec<EntryView>, SessionError> { unimplemented!() }
    /// No new work; running requests end at their committed partial; the file is
    /// checkpointed and closed.
    pub async fn close(&self) -> Result<(), SessionError> { unimplemented!() }
    /// Whether anything runs (not: waits for a person or a timer), for idle exit.
    pub fn running(&self) -> usize { unimplemented!() }
    /// Runs that only wait for a person, a key or a timer.
    pub fn waiting(&self) -> usize { unimplemented!() }
    /// Executions of [`crate::tool::Replay::Attach`] calls whose task is open or
    /// whose release or kill is owed; the host ends and releases all others.
    pub async fn open_executions(&self) -> Result<Vec<String>, SessionError> { unimplemented!() }
}

/// Which approvals are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Approvals { Pending, All }
