//! The tool port: what a call is, and how one is executed once.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    document::DocumentChange,
    hook::Hook,
    id::{ConversationId, Hash, SubmissionId, TaskId},
    message::{Part, ToolSchema},
    submission::Requester,
    wait::{Awaited, Settled, Waits},
    window::Retain,
};

/// What becomes of a started call after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replay {
    /// It is `interrupted`.
    #[default]
    Never,
    /// It runs again, where both the stored and the present declaration say so.
    Safe,
    /// Its execution lives outside the process under [`Call::execution`]; the
    /// call re-attaches to it.
    Attach,
}

/// A tool as it declares itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDeclaration {
    /// Name, description and schema, as the model sees them.
    pub schema: ToolSchema,
    /// What becomes of a started call after a crash.
    pub replay: Replay,
    /// One such call makes its whole round sequential.
    pub sequential: bool,
}

/// One call with its final arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Where it was made.
    pub conversation: ConversationId,
    /// The first submission of the run.
    pub run: SubmissionId,
    /// Its task.
    pub task: TaskId,
    /// Names its execution for ever: incarnation and task id.
    pub execution: String,
    /// The provider's id of the call.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// Final arguments.
    pub arguments: Value,
    /// SHA-256 of the final arguments' JSON.
    pub arguments_hash: Hash,
    /// All authors whose inputs are in the run so far, first asker first.
    pub requesters: Vec<Requester>,
    /// Nobody can be asked.
    pub autonomous: bool,
    /// What [`Tool::bind`] gave before the intent was committed.
    pub binding: Value,
}

/// Whether a call may have begun before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The intent was committed by this process just now.
    Fresh,
    /// An earlier process committed the intent and may have begun.
    Again {
        /// Bytes of output that are committed; go on from here.
        offset: u64,
    },
}

/// Takes a call's output as it comes. Calls are cheap and never block.
pub trait OutputSink: Send + Sync {
    /// Bytes at `offset` of the call's output stream.
    fn output(&self, offset: u64, bytes: &[u8]);
    /// Bytes `[offset, offset + length)` were not kept.
    fn gap(&self, offset: u64, length: u64);
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// For the model. Where output was streamed, the retained window of it
    /// comes first and this follows.
    pub content: Vec<Part>,
    /// An error that the model should read; it completes the call all the same.
    pub is_error: bool,
    /// Ends the run after this round, where every call of the round says so.
    pub terminate: bool,
    /// For the transcript, not for the model (exit status, output file, diff).
    pub data: Value,
    /// Documents that change with it, in the same commit.
    pub documents: Vec<DocumentChange>,
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolEnd {
    /// With a result.
    Completed(ToolResult),
    /// It had begun and its outcome cannot be known.
    Interrupted {
        /// Why, for the model.
        note: String,
    },
    /// It goes on once what it waits for has settled; see [`Tool::resume`].
    Waits(Waits),
    /// With a result that stands from now on, and work that goes on: the next turn waits
    /// for it, and an abort of it changes nothing of the result.
    Leaves {
        /// The result.
        result: ToolResult,
        /// Times and conversations.
        work: Vec<Awaited>,
    },
    /// With a result after whose round the context begins anew, with this brief; of a
    /// round the last one in call order counts.
    HandsOff {
        /// The result.
        result: ToolResult,
        /// What the model is told at the new beginning.
        brief: String,
    },
}

/// Why there is no end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ToolFailure {
    /// Where it runs cannot be reached now; never an outcome. The engine asks
    /// again, and shows since when.
    #[error("{0}")]
    Unreachable(String),
    /// The tool itself failed; aborts what the call owns.
    #[error("{0}")]
    Failed(String),
    /// Ended because `cancel` fired.
    #[error("cancelled")]
    Cancelled,
}

/// One tool.
#[async_trait]
pub trait Tool: Send + Sync {
    /// The present declaration.
    fn declaration(&self) -> ToolDeclaration;

    /// One line for people: the exact command, the path.
    fn summary(&self, arguments: &Value) -> String;

    /// Which end of streamed output the model is shown, where not all of it fits.
    fn retain(&self) -> Retain {
        Retain::Tail
    }

    /// Completes arguments before they are validated. The error is for the model.
    async fn prepare(&self, arguments: Value) -> Result<Value, String> {
        Ok(arguments)
    }

    /// What the intent must remember of where it will run (the sandbox's state
    /// and boot ids); read again in [`Call::binding`].
    async fn bind(&self, _call: &Call) -> Result<Value, ToolFailure> {
        Ok(Value::Null)
    }

    /// Executes the call, or with [`Start::Again`] finds out what became of it.
    /// When `cancel` fires the execution is ended, descendants included.
    async fn execute(
        &self,
        call: &Call,
        start: Start,
        output: &dyn OutputSink,
        cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure>;

    /// Goes on after a wait, with what it waited for in the order in which it was named.
    /// Runs again after a crash before the result was committed.
    async fn resume(
        &self,
        _call: &Call,
        _settled: &[Settled],
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        Err(ToolFailure::Failed("it cannot go on after a wait".into()))
    }

    /// The result is committed; the execution may be forgotten. Only for
    /// [`Replay::Attach`]. Of the call, run and requesters are not kept by then.
    async fn release(&self, _call: &Call) -> Result<(), ToolFailure> {
        Ok(())
    }

    /// Ends and forgets an execution whose call was given up while it could not
    /// be reached. Only for [`Replay::Attach`].
    async fn kill(&self, _call: &Call) -> Result<(), ToolFailure> {
        Ok(())
    }
}

/// The tools that a conversation may see at this moment, and the hooks around them.
pub trait Toolbox: Send + Sync {
    /// In the order in which the model is told of them. `settings` are the
    /// conversation's; null asks for all that there are.
    fn tools(&self, conversation: ConversationId, settings: &Value) -> Vec<Arc<dyn Tool>>;

    /// What looks at each call before and after it runs, in order.
    fn hooks(&self, _conversation: ConversationId, _settings: &Value) -> Vec<Arc<dyn Hook>> {
        Vec::new()
    }
}
