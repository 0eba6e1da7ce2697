//! What a conversation changed in the project's files.

use mooring_crds::Worktrees;
use mooring_durable::id::ConversationId;
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use tonic::Status;

use super::Service;
use crate::tools::changes;

/// Bytes of a diff on the wire.
const MAX_DIFF: usize = 4 << 20;

impl Service {
    pub(super) async fn diff(
        &self,
        request: wire::DiffRequest,
    ) -> Result<wire::DiffResponse, Status> {
        let conversation = ConversationId(request.conversation);
        self.view_of(conversation, 0).await?;
        let unreachable = |error: mooring_durable::tool::ToolFailure| {
            let text = format!("the files cannot be read now: {error}");
            status(Code::Restarting, text)
        };
        let known = self.hands.known(conversation).await.map_err(unreachable)?;
        let shared = self.link.status().map(|status| status.project.clone());
        let own = match self.source.current().spec.worktrees() {
            Worktrees::Shared => None,
            Worktrees::PerThread => match self.hands.known_checkout(conversation) {
                // A subagent's is that of whom it works for.
                Some(known) => Some(known.path),
                None => {
                    let found = self.hands.look_at_checkout(conversation).await;
                    found
                        .ok()
                        .filter(|found| found.exists)
                        .map(|found| found.path)
                }
            },
        };
        let project = own.or(shared).map(|path| format!("{path}/"));
        let project = project.unwrap_or_default();
        let mut response = wire::DiffResponse::default();
        for (path, before) in &known {
            let now = self.hands.file(path).await.map_err(unreachable)?;
            let name = path.strip_prefix(&project).unwrap_or(path);
            let diff = changes::diff(name, before, &now);
            if diff.is_empty() {
                continue;
            }
            response.files += 1;
            if response.diff.len() + diff.len() > MAX_DIFF {
                response.cut = true;
                continue;
            }
            response.diff.push_str(&diff);
        }
        Ok(response)
    }
}
