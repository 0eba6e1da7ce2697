//! Which files a conversation works on: the one checkout, or a worktree of its own.

use mooring_crds::Worktrees;
use mooring_durable::{id::ConversationId, tool::ToolFailure, view::ConversationView};
use mooring_wire::sandbox::{
    WorktreeRequest, WorktreeResponse,
    worktree_request::{Act, Add},
};

use super::Hands;

/// Subagents of subagents end somewhere.
const DEEPEST: usize = 16;

/// A conversation's own worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkout {
    /// Its folder, canonical in the sandbox.
    pub path: String,
    /// Its branch.
    pub branch: String,
    /// The daemon that has told it; another one is asked again.
    boot: String,
}

impl Hands {
    /// The worktree of a conversation, made where it is not there; none where all
    /// work on one checkout. A subagent works on that of whom it works for.
    pub(crate) async fn checkout(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<Checkout>, ToolFailure> {
        if self.source.current().spec.worktrees() == Worktrees::Shared {
            return Ok(None);
        }
        let boot = self.link.status().map(|status| status.boot_id.clone());
        if let Some(known) = self.known_checkout(conversation)
            && boot.as_ref() == Some(&known.boot)
        {
            return Ok(Some(known));
        }
        // There is nothing to make one of before the project is there.
        if let Some(why) = self.first_checkout.soon().await {
            return Err(ToolFailure::Unreachable(why));
        }
        let owner = self.owner(conversation).await?;
        let parent = owner.origin.parent.map(|(parent, _)| parent);
        let add = Add {
            from: parent.map(|parent| parent.to_string()).unwrap_or_default(),
        };
        let made = self.worktree(owner.conversation, Act::Add(add)).await?;
        let checkout = Checkout {
            path: made.path,
            branch: made.branch,
            boot: boot.unwrap_or_default(),
        };
        self.checkouts
            .lock()
            .expect("never poisoned: no panic while held")
            .insert(conversation, checkout.clone());
        Ok(Some(checkout))
    }

    /// The worktree of a conversation that has used it since this harness began.
    pub(crate) fn known_checkout(&self, conversation: ConversationId) -> Option<Checkout> {
        self.checkouts
            .lock()
            .expect("never poisoned: no panic while held")
            .get(&conversation)
            .cloned()
    }

    /// How the worktree of a conversation is; nothing is made.
    pub(crate) async fn look_at_checkout(
        &self,
        conversation: ConversationId,
    ) -> Result<WorktreeResponse, ToolFailure> {
        self.worktree(conversation, Act::Status(true)).await
    }

    /// The conversations that have worktrees, in their order; some may be deleted.
    pub(crate) async fn checkouts(&self) -> Result<Vec<ConversationId>, ToolFailure> {
        let request = WorktreeRequest {
            owner: self.owner_of_worktrees(),
            act: Some(Act::List(true)),
            ..WorktreeRequest::default()
        };
        let answer = self.client()?.worktree(request).await;
        let names = answer
            .map_err(|status| self.failure(&status))?
            .into_inner()
            .names;
        let numbers = names.iter().filter_map(|name| name.parse().ok());
        let mut all: Vec<_> = numbers.map(ConversationId).collect();
        all.sort_unstable();
        Ok(all)
    }

    fn owner_of_worktrees(&self) -> String {
        let engine = self.engine();
        engine.map(|it| it.incarnation().0).unwrap_or_default()
    }

    /// Removes the worktree of a conversation with its branch, unless that would lose
    /// something that is nowhere else.
    pub(crate) async fn remove_checkout(
        &self,
        conversation: ConversationId,
    ) -> Result<WorktreeResponse, ToolFailure> {
        let removed = self.worktree(conversation, Act::Remove(true)).await?;
        if removed.removed {
            let mut checkouts = self
                .checkouts
                .lock()
                .expect("never poisoned: no panic while held");
            // Also of those that work for it.
            checkouts.retain(|_, checkout| checkout.path != removed.path);
        }
        Ok(removed)
    }

    async fn worktree(
        &self,
        conversation: ConversationId,
        act: Act,
    ) -> Result<WorktreeResponse, ToolFailure> {
        let request = WorktreeRequest {
            name: conversation.to_string(),
            owner: self.owner_of_worktrees(),
            act: Some(act),
        };
        let answer = self.client()?.worktree(request).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| match self.failure(&status) {
                ToolFailure::Failed(why) => ToolFailure::Failed(format!(
                    "conversation {conversation} has no worktree of its own: {why}"
                )),
                other => other,
            })
    }

    /// The conversation whose files this one works on.
    async fn owner(&self, conversation: ConversationId) -> Result<ConversationView, ToolFailure> {
        let failed = |why: String| ToolFailure::Failed(why);
        let engine = self
            .engine()
            .ok_or_else(|| failed("the harness is starting".into()))?;
        let mut at = conversation;
        for _ in 0..DEEPEST {
            let view = engine
                .view(at, 0, None)
                .await
                .map_err(|error| failed(error.to_string()))?
                .ok_or_else(|| failed(format!("there is no conversation {at}")))?;
            match view.origin.owner {
                Some(owner) => at = owner.conversation,
                None => return Ok(view),
            }
        }
        Err(failed("subagents of subagents go too deep".into()))
    }
}
