//! Hooks: code of extensions around the calls of tools.

use std::{panic::AssertUnwindSafe, sync::Arc};

use async_trait::async_trait;
use futures::FutureExt;
use serde_json::Value;

use crate::tool::{Call, ToolEnd, ToolResult};

/// What a hook makes of a call that is to be decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// Goes on as it is.
    Go,
    /// Goes on with these arguments, which are validated again.
    With(Value),
    /// Is not carried out; the text is for the model.
    Refuse(String),
}

/// Code around each call of a conversation that has its extension.
#[async_trait]
pub trait Hook: Send + Sync {
    /// Before the gate decides a call whose arguments are valid. Runs again after a crash
    /// and after a change of policy, always on the arguments that the model gave: it has to
    /// come to the same again, else an approval that was given is not found. One that
    /// breaks refuses the call.
    async fn before(&self, _call: &Call) -> Before {
        Before::Go
    }

    /// After a call has ended with a result, before that is committed; of output that was
    /// streamed it sees nothing. Runs again where the call does. An error is reported, and
    /// the result stays as it was.
    async fn after(&self, _call: &Call, result: ToolResult) -> Result<ToolResult, String> {
        Ok(result)
    }
}

/// A call with its final arguments, or why it is refused.
pub(crate) async fn before(
    hooks: &[Arc<dyn Hook>],
    mut call: Call,
    check: impl Fn(&Value) -> Result<(), String>,
) -> Result<Call, (Call, String)> {
    for hook in hooks {
        let spoken = AssertUnwindSafe(hook.before(&call)).catch_unwind().await;
        match spoken {
            Ok(Before::Go) => {}
            Ok(Before::With(arguments)) => {
                call.arguments = arguments;
                call = call.hashed();
                if let Err(text) = check(&call.arguments) {
                    return Err((call, text));
                }
            }
            Ok(Before::Refuse(text)) => return Err((call, text)),
            Err(_) => {
                let text = "What looks at calls before they run failed, so the call was not \
                            carried out."
                    .to_owned();
                return Err((call, text));
            }
        }
    }
    Ok(call)
}

/// The end of a call, as the hooks leave it; the first hook has the last word.
pub(crate) async fn after(hooks: &[Arc<dyn Hook>], call: &Call, mut end: ToolEnd) -> ToolEnd {
    let result = match &mut end {
        ToolEnd::Completed(result)
        | ToolEnd::Leaves { result, .. }
        | ToolEnd::HandsOff { result, .. } => result,
        ToolEnd::Interrupted { .. } | ToolEnd::Waits(_) => return end,
    };
    for hook in hooks.iter().rev() {
        let changed = AssertUnwindSafe(hook.after(call, result.clone()))
            .catch_unwind()
            .await;
        match changed {
            Ok(Ok(changed)) => *result = changed,
            Ok(Err(error)) => {
                tracing::warn!(task = %call.task, error, "a hook leaves a result as it was");
            }
            Err(_) => tracing::warn!(task = %call.task, "a hook panicked after a call"),
        }
    }
    end
}
