//! What would be decided about a call, and what somebody may do here.

use mooring_durable::{
    id::{ConversationId, Hash, SubmissionId, TaskId},
    tool::Call,
};
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use serde_json::{Value, json};
use tonic::Status;

use super::Service;
use crate::{
    card::facts,
    members::{Act, Actor, may},
};

/// Bytes of a call.
const MAX_INPUT: usize = 64 << 10;

impl Service {
    pub(super) async fn explain(
        &self,
        actor: Actor,
        request: wire::ExplainRequest,
    ) -> Result<wire::ExplainResponse, Status> {
        may(&actor, Act::Talk).map_err(|text| status(Code::Forbidden, text))?;
        if request.input.len() > MAX_INPUT {
            let text = format!("a call has at most {} KiB", MAX_INPUT >> 10);
            return Err(status(Code::Invalid, text));
        }
        let tool = match request.tool.as_str() {
            "" => "bash".to_owned(),
            tool => tool.to_owned(),
        };
        let arguments = arguments(&tool, &request.input)?;
        let call = Call {
            run: SubmissionId(0),
            task: TaskId(0),
            conversation: ConversationId(request.conversation),
            arguments_hash: Hash::of(arguments.to_string().as_bytes()),
            arguments,
            requesters: vec![actor.requester],
            tool,
            call_id: String::new(),
            execution: String::new(),
            autonomous: false,
            binding: Value::Null,
        };
        let workspace = self.source.current();
        let (decision, grant) = self.gate.explain(&workspace, &call).await;
        Ok(wire::ExplainResponse {
            verdict: decision.verdict.to_string(),
            reason: decision.reason.clone(),
            rule: decision.rule.to_string(),
            facts: facts(&decision),
            policy_digest: workspace.rules.digest().to_owned(),
            grant: grant.unwrap_or(0),
        })
    }

    pub(super) fn role(&self, actor: &Actor) -> Result<wire::RoleResponse, Status> {
        may(actor, Act::Talk).map_err(|text| status(Code::Forbidden, text))?;
        Ok(wire::RoleResponse {
            role: actor
                .role
                .map(|role| format!("{role:?}"))
                .unwrap_or_default(),
        })
    }
}

/// What the tool would be called with.
fn arguments(tool: &str, input: &str) -> Result<Value, Status> {
    match tool {
        "bash" => Ok(json!({ "command": input })),
        "read" | "write" | "edit" | "grep" | "find" | "ls" => Ok(json!({ "path": input })),
        _ if input.trim().is_empty() => Ok(json!({})),
        _ => match serde_json::from_str(input) {
            Ok(arguments @ Value::Object(_)) => Ok(arguments),
            Ok(_) => Err(status(Code::Invalid, "the arguments are no JSON object")),
            Err(error) => Err(status(
                Code::Invalid,
                format!("the arguments of {tool} are no JSON: {error}"),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_given_as_a_command_a_path_or_json() {
        for (tool, input, expected) in [
            ("bash", "git push", Some(json!({"command": "git push"}))),
            ("edit", "src/a.rs", Some(json!({"path": "src/a.rs"}))),
            ("mcp__x__y", "{\"a\": 1}", Some(json!({"a": 1}))),
            ("todo", "", Some(json!({}))),
            ("todo", "[1]", None),
            ("todo", "nonsense", None),
        ] {
            assert_eq!(arguments(tool, input).ok(), expected, "{tool} {input}");
        }
    }
}
