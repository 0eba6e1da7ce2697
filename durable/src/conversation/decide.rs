//! One call before its intent: resolved, prepared, validated, decided, bound.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    consent::{Consent, consent},
    debts::{execution, hash_of},
    gate::{Approval, Verdict},
    hook,
    id::{ConversationId, Hash, SubmissionId, TaskId},
    message::ToolCall,
    session::Session,
    submission::Requester,
    tool::{Call, Replay, Tool, ToolFailure},
};

/// A call that is to be decided.
pub(super) struct Proposal {
    pub session: Arc<Session>,
    pub conversation: ConversationId,
    pub settings: Value,
    pub run: SubmissionId,
    pub task: TaskId,
    pub proposed: Arc<ToolCall>,
    pub requesters: Vec<Requester>,
    pub autonomous: bool,
    pub approvals: Vec<Approval>,
}

/// What came of it.
#[allow(clippy::large_enum_variant)] // always in a box
pub(super) enum Decided {
    /// It cannot be called like this; the text is for the model.
    Refused { call: Call, text: String },
    /// The gate has spoken.
    Spoken {
        call: Call,
        verdict: Verdict,
        consent: Consent,
        tool: Arc<dyn Tool>,
        replay: Replay,
    },
    /// Where it would run cannot be reached.
    Unreachable(String),
}

/// A tool by its name.
pub(super) fn find(
    session: &Session,
    conversation: ConversationId,
    settings: &Value,
    name: &str,
) -> Option<Arc<dyn Tool>> {
    session
        .ports
        .tools
        .tools(conversation, settings)
        .into_iter()
        .find(|tool| tool.declaration().schema.name == name)
}

impl Proposal {
    fn call(&self, arguments: Value) -> Call {
        Call {
            conversation: self.conversation,
            run: self.run,
            task: self.task,
            execution: execution(&self.session, self.task),
            call_id: self.proposed.id.clone(),
            tool: self.proposed.name.clone(),
            arguments_hash: Hash(String::new()),
            arguments,
            requesters: self.requesters.clone(),
            autonomous: self.autonomous,
            binding: Value::Null,
        }
        .hashed()
    }

    /// Decides. Runs again after every change of what it rests on, and after a crash.
    pub async fn decide(self) -> Decided {
        let mut call = self.call(self.proposed.arguments.clone());
        let Some(tool) = find(&self.session, self.conversation, &self.settings, &call.tool) else {
            let mut names: Vec<_> = self
                .session
                .ports
                .tools
                .tools(self.conversation, &self.settings)
                .iter()
                .map(|tool| tool.declaration().schema.name)
                .collect();
            names.sort();
            let text = format!(
                "There is no tool {}. There are: {}.",
                call.tool,
                names.join(", ")
            );
            return Decided::Refused { call, text };
        };
        let declaration = tool.declaration();
        match tool.prepare(call.arguments.clone()).await {
            Ok(arguments) if arguments == call.arguments => {}
            Ok(arguments) => {
                call.arguments = arguments;
                call = call.hashed();
            }
            Err(text) => return Decided::Refused { call, text },
        }
        if let Err(text) = self
            .session
            .schemas
            .check(&declaration.schema, &call.arguments)
        {
            return Decided::Refused { call, text };
        }
        let hooks = self
            .session
            .ports
            .tools
            .hooks(self.conversation, &self.settings);
        let check = |arguments: &Value| self.session.schemas.check(&declaration.schema, arguments);
        let mut call = match hook::before(&hooks, call, check).await {
            Ok(call) => call,
            Err((call, text)) => return Decided::Refused { call, text },
        };
        let verdict = self.session.ports.gate.decide(&call, &self.approvals).await;
        let consent = consent(verdict.clone(), &call.arguments_hash, &self.approvals);
        if matches!(consent, Consent::Run { .. }) {
            match tool.bind(&call).await {
                Ok(binding) => call.binding = binding,
                Err(ToolFailure::Unreachable(text)) => return Decided::Unreachable(text),
                Err(failure) => {
                    return Decided::Refused {
                        call,
                        text: format!("The call could not be started: {failure}"),
                    };
                }
            }
        }
        Decided::Spoken {
            call,
            verdict,
            consent,
            tool,
            replay: declaration.replay,
        }
    }
}

impl Call {
    pub(crate) fn hashed(mut self) -> Call {
        self.arguments_hash = hash_of(&self.arguments);
        self
    }
}
