//! What the built-in tools have in common: they act in the sandbox.

use std::sync::Arc;

use async_trait::async_trait;
use mooring_durable::tool::{Call, OutputSink, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Hands;

/// What is a tool's own: what it is called, and what it does with the hands.
#[async_trait]
pub(super) trait Act: Send + Sync + 'static {
    /// Name, description, parameters, replay.
    fn declaration(&self) -> ToolDeclaration;

    /// One line for people.
    fn summary(&self, arguments: &Value) -> String;

    /// Completes arguments before they are validated. The error is for the model.
    async fn prepare(&self, arguments: Value) -> Result<Value, String> {
        Ok(arguments)
    }

    /// Whether it changes the file that it is decided on.
    fn writes(&self) -> bool {
        false
    }

    /// Runs the call, or goes on with it.
    async fn act(
        &self,
        hands: &Hands,
        call: &Call,
        start: Start,
        output: &dyn OutputSink,
        cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure>;
}

/// A tool of the engine that acts with these hands.
pub(super) fn in_sandbox(act: impl Act, hands: &Arc<Hands>) -> Arc<dyn Tool> {
    Arc::new(InSandbox {
        act,
        hands: hands.clone(),
    })
}

struct InSandbox<A> {
    act: A,
    hands: Arc<Hands>,
}

#[async_trait]
impl<A: Act> Tool for InSandbox<A> {
    fn declaration(&self) -> ToolDeclaration {
        self.act.declaration()
    }

    fn summary(&self, arguments: &Value) -> String {
        self.act.summary(arguments)
    }

    async fn prepare(&self, arguments: Value) -> Result<Value, String> {
        self.act.prepare(arguments).await
    }

    async fn bind(&self, call: &Call) -> Result<Value, ToolFailure> {
        self.hands.link.tried().await;
        match self.act.writes() {
            true => self.hands.bind_write(call).await,
            false => self.hands.bind(call).await,
        }
    }

    async fn execute(
        &self,
        call: &Call,
        start: Start,
        output: &dyn OutputSink,
        cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        tokio::select! {
            () = self.hands.link.tried() => {}
            () = cancel.cancelled() => {
                return Err(ToolFailure::Unreachable("the sandbox is being reached".into()));
            }
        }
        self.act.act(&self.hands, call, start, output, cancel).await
    }

    async fn release(&self, call: &Call) -> Result<(), ToolFailure> {
        self.hands.release(call).await
    }

    async fn kill(&self, call: &Call) -> Result<(), ToolFailure> {
        self.hands.kill(call).await
    }
}
