//! A server's tool as the engine calls it.

use std::sync::Arc;

use async_trait::async_trait;
use mooring_crds::McpReplay;
use mooring_durable::{
    message::{Part, ToolSchema},
    tool::{Call, OutputSink, Replay, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    overflow,
    server::{Answered, Offer, Server},
};
use crate::sandbox::Link;

/// One tool of one server.
pub struct ServerTool {
    /// Whose it is.
    pub server: Arc<Server>,
    /// What it is.
    pub offer: Offer,
    /// Where results are kept that are too long.
    pub link: Arc<Link>,
}

#[async_trait]
impl Tool for ServerTool {
    fn declaration(&self) -> ToolDeclaration {
        ToolDeclaration {
            schema: ToolSchema {
                name: self.offer.name.clone(),
                description: self.offer.description.clone(),
                parameters: self.offer.parameters.clone(),
            },
            replay: match self.server.spec.replay {
                McpReplay::Never => Replay::Never,
                McpReplay::Safe => Replay::Safe,
            },
            sequential: false,
        }
    }

    fn summary(&self, arguments: &Value) -> String {
        arguments.to_string()
    }

    /// A call whose server is away waits before its intent: it was surely not sent.
    async fn bind(&self, _call: &Call) -> Result<Value, ToolFailure> {
        self.server.tried().await;
        match self.server.unreachable() {
            Some(why) => Err(ToolFailure::Unreachable(why)),
            None => Ok(Value::Null),
        }
    }

    async fn execute(
        &self,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        tokio::select! {
            () = self.server.tried() => {}
            () = cancel.cancelled() => return Err(ToolFailure::Cancelled),
        }
        let called = self.server.call(&self.offer.own, &call.arguments, cancel);
        let Answered { mut end, whole } = called.await?;
        if let (Some(whole), ToolEnd::Completed(result)) = (whole, &mut end) {
            let told = overflow::keep(&self.link, call, &whole).await;
            // After what is shown of it, before images.
            let at = result.content.len().min(1);
            result.content.insert(at, Part::text(told));
        }
        Ok(end)
    }
}
