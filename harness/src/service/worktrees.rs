//! Worktrees of conversations: what is in them, and removing them.

use mooring_durable::{id::ConversationId, tool::ToolFailure};
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use tonic::Status;

use super::{Service, session};
use crate::members::{Act, Actor, may};

/// Conversations that are asked about their worktrees.
const MOST: usize = 1_000;

impl Service {
    pub(super) async fn worktrees(
        &self,
        actor: Actor,
        request: wire::WorktreesRequest,
    ) -> Result<wire::WorktreesResponse, Status> {
        let named = ConversationId(request.conversation);
        if request.remove {
            may(&actor, Act::Reset).map_err(|text| status(Code::Forbidden, text))?;
            if self.view_of(named, 0).await?.run.is_some() {
                let text = format!("conversation {named} works at this moment; stop it first");
                return Err(status(Code::Busy, text));
            }
        }
        let conversations = match request.conversation {
            0 => {
                let all = self.engine.conversations(MOST, None).await;
                all.map_err(session)?.into_iter().map(|it| it.id).collect()
            }
            _ => vec![named],
        };
        let mut worktrees = Vec::new();
        for conversation in conversations {
            let found = match request.remove {
                true => self.hands.remove_checkout(conversation).await,
                false => self.hands.look_at_checkout(conversation).await,
            };
            let found = found.map_err(|failure| match failure {
                ToolFailure::Failed(text) => status(Code::Invalid, text),
                other => status(Code::Restarting, other.to_string()),
            })?;
            if found.exists || found.removed {
                worktrees.push(wire::worktrees_response::Worktree {
                    conversation: conversation.0,
                    path: found.path,
                    branch: found.branch,
                    uncommitted: found.uncommitted,
                    unpushed: found.unpushed,
                    removed: found.removed,
                });
            }
        }
        Ok(wire::WorktreesResponse { worktrees })
    }
}
