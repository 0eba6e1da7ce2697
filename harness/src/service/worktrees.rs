//! Worktrees of conversations: what is in them, and removing them.

use mooring_crds::Worktrees;
use mooring_durable::{id::ConversationId, tool::ToolFailure};
use mooring_wire::{
    code::{Code, status},
    harness::{self as wire, worktrees_response::Worktree},
    sandbox::WorktreeResponse,
};
use tonic::Status;

use super::{Service, session};
use crate::members::{Act, Actor, may};

impl Service {
    pub(super) async fn worktrees(
        &self,
        actor: Actor,
        request: wire::WorktreesRequest,
    ) -> Result<wire::WorktreesResponse, Status> {
        let named = ConversationId(request.conversation);
        if request.remove {
            may(&actor, Act::Reset).map_err(|text| status(Code::Forbidden, text))?;
            let view = self.engine.view(named, 0, None).await.map_err(session)?;
            if view.is_some_and(|view| view.run.is_some()) {
                let text = format!("conversation {named} works at this moment; stop it first");
                return Err(status(Code::Busy, text));
            }
        }
        // What the sandbox has, also of conversations that were deleted.
        let conversations = match request.conversation {
            0 => self.hands.checkouts().await.map_err(not_known)?,
            _ => vec![named],
        };
        let mut worktrees = Vec::new();
        for conversation in conversations {
            let found = match request.remove {
                true => self.hands.remove_checkout(conversation).await,
                false => self.hands.look_at_checkout(conversation).await,
            };
            let found = found.map_err(not_known)?;
            let view = self.engine.view(conversation, 0, None).await;
            let deleted = view.map_err(session)?.is_none();
            worktrees.extend(shown(conversation, found, deleted));
        }
        Ok(wire::WorktreesResponse { worktrees })
    }

    /// Removes the worktree of a conversation that was just deleted, where nothing is
    /// lost by that; what became of it.
    pub(super) async fn leave_worktree(
        &self,
        conversation: ConversationId,
    ) -> wire::DeleteResponse {
        let shared = self.source.current().spec.worktrees() == Worktrees::Shared;
        match self.hands.remove_checkout(conversation).await {
            Ok(found) => wire::DeleteResponse {
                worktree: shown(conversation, found, true),
                ..wire::DeleteResponse::default()
            },
            Err(_) if shared => wire::DeleteResponse::default(),
            Err(failure) => wire::DeleteResponse {
                worktree_error: failure.to_string(),
                ..wire::DeleteResponse::default()
            },
        }
    }
}

fn shown(conversation: ConversationId, found: WorktreeResponse, deleted: bool) -> Option<Worktree> {
    (found.exists || found.removed).then_some(Worktree {
        conversation: conversation.0,
        path: found.path,
        branch: found.branch,
        uncommitted: found.uncommitted,
        unpushed: found.unpushed,
        removed: found.removed,
        deleted,
    })
}

fn not_known(failure: ToolFailure) -> Status {
    match failure {
        ToolFailure::Failed(text) => status(Code::Invalid, text),
        other => status(Code::Restarting, other.to_string()),
    }
}
