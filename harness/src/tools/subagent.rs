//! `subagent`: a conversation of its own that works for a call.

use std::sync::Arc;

use async_trait::async_trait;
use mooring_durable::{
    message::Part,
    tool::{Call, OutputSink, Replay, Start, Tool, ToolDeclaration, ToolEnd, ToolFailure},
    wait::{Awaited, Delegate, Settled, WaitMode, Waits, Work, WorkEnd},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{declare, done, failed, number, object, text};
use crate::workspace::Source;

/// Characters of a title.
const TITLE: usize = 60;

pub(super) struct Subagent(pub Arc<Source>);

impl Subagent {
    /// Tokens that a subagent's run may use: as asked, but at most half of what a run may.
    fn share(&self, asked: u64) -> Option<u64> {
        let half = self
            .0
            .current()
            .spec
            .budgets
            .per_run
            .tokens
            .map(|all| all / 2);
        match (asked, half) {
            (0, half) => half,
            (asked, Some(half)) => Some(asked.min(half)),
            (asked, None) => Some(asked),
        }
    }

    fn delegate(&self, arguments: &Value) -> Delegate {
        let task = text(arguments, "task");
        let line = task.lines().next().unwrap_or_default();
        let title: String = line.chars().take(TITLE).collect();
        let mut settings = json!({ "title": title, "subagent": true });
        if let Some(tools) = arguments.get("tools").filter(|tools| tools.is_array()) {
            settings["tools"] = tools.clone();
        }
        if let Some(tokens) = self.share(number(arguments, "tokens")) {
            settings["tokens"] = json!(tokens);
        }
        Delegate {
            model: text(arguments, "model").to_owned(),
            settings,
            input: vec![Part::text(format!(
                "{task}\n\n(You work for another agent, which sees only your last answer. Answer with \
                 what it asked for, whole and brief.)"
            ))],
            background: arguments.get("background") == Some(&Value::Bool(true)),
        }
    }
}

#[async_trait]
impl Tool for Subagent {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "subagent",
            "Lets another agent do a piece of work in a conversation of its own and gives you its answer. It \
             knows nothing of this conversation: say all that it needs. In the background it answers later, \
             as a message here. Several of one round work side by side.",
            Replay::Safe,
            object(
                &["task"],
                json!({
                    "task": { "type": "string", "minLength": 1, "description": "What to do, and what to answer with." },
                    "model": { "type": "string", "description": "By its name in the Workspace; yours where left out." },
                    "tools": { "type": "array", "items": { "type": "string" }, "description": "The tools that it may use; all where left out." },
                    "tokens": { "type": "integer", "minimum": 1, "description": "The most that it may use." },
                    "background": { "type": "boolean", "description": "Do not wait for it." },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        text(arguments, "task").to_owned()
    }

    async fn execute(
        &self,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        Ok(ToolEnd::Waits(Waits {
            mode: WaitMode::AllSettled,
            on: vec![Awaited {
                key: "subagent".into(),
                work: Work::Conversation(self.delegate(&call.arguments)),
            }],
        }))
    }

    async fn resume(
        &self,
        _call: &Call,
        settled: &[Settled],
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let Some(settled) = settled.first() else {
            return failed("The subagent is gone.");
        };
        let conversation = settled.conversation.map_or(0, |id| id.0);
        let data = json!({ "conversation": conversation });
        match &settled.end {
            WorkEnd::Done { text, .. } => done(text.clone(), data),
            WorkEnd::Begun => done(
                format!(
                    "The subagent works in the background, in conversation {conversation}. Its answer comes as a message here."
                ),
                data,
            ),
            WorkEnd::Failed { reason } => failed(format!("The subagent has no answer: {reason}")),
            _ => failed("The subagent was stopped before it answered."),
        }
    }
}
