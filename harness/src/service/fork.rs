//! Reset, compaction and fork: where a conversation's context begins.

use mooring_crds::Worktrees;
use mooring_durable::{
    compaction::Asked,
    fork::Fork,
    id::{ConversationId, EntryId, RequestId},
    view::Shows,
};
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use serde_json::json;
use tonic::Status;

use super::{
    Service, convert, session,
    talk::{not_admitted, thread_settings},
};
use crate::members::{Act, Actor, may};

/// Bytes of a brief.
const MAX_BRIEF: usize = 1 << 20;
/// Bytes of what people want of a summary.
const MAX_INSTRUCTIONS: usize = 16 << 10;

impl Service {
    pub(super) async fn reset(
        &self,
        actor: Actor,
        request: wire::ResetRequest,
    ) -> Result<wire::ResetResponse, Status> {
        may(&actor, Act::Reset).map_err(|text| status(Code::Forbidden, text))?;
        if request.brief.len() > MAX_BRIEF {
            let text = format!("a brief has at most {} KiB", MAX_BRIEF >> 10);
            return Err(status(Code::Invalid, text));
        }
        let submitted = self
            .engine
            .reset(
                ConversationId(request.conversation),
                Some(request.request_id)
                    .filter(|id| !id.is_empty())
                    .map(RequestId),
                actor.requester,
                Some(request.brief).filter(|brief| !brief.trim().is_empty()),
            )
            .await
            .map_err(not_admitted)?;
        Ok(wire::ResetResponse {
            submission: submitted.submission.id.0,
            state: convert::state(&submitted.submission.state).0.into(),
        })
    }

    pub(super) async fn compact(
        &self,
        actor: Actor,
        request: wire::CompactRequest,
    ) -> Result<wire::CompactResponse, Status> {
        may(&actor, Act::Reset).map_err(|text| status(Code::Forbidden, text))?;
        if request.instructions.len() > MAX_INSTRUCTIONS {
            let text = format!("instructions have at most {} KiB", MAX_INSTRUCTIONS >> 10);
            return Err(status(Code::Invalid, text));
        }
        let conversation = ConversationId(request.conversation);
        let asked = self
            .engine
            .compact(conversation, actor.requester, request.instructions)
            .await
            .map_err(session)?;
        Ok(match asked {
            Asked::Going(mode) => wire::CompactResponse {
                state: "going".into(),
                mode: mode.word().into(),
            },
            Asked::Skipped => wire::CompactResponse {
                state: "skipped".into(),
                mode: String::new(),
            },
            Asked::Refused(why) => {
                let text = format!("there is no budget for a summary: {why}");
                return Err(status(Code::Invalid, text));
            }
        })
    }

    pub(super) async fn fork(
        &self,
        actor: Actor,
        request: wire::ForkRequest,
    ) -> Result<wire::ForkResponse, Status> {
        may(&actor, Act::Fork).map_err(|text| status(Code::Forbidden, text))?;
        let parent = ConversationId(request.conversation);
        let title = match (request.title.as_str(), request.side_chat) {
            ("", false) => format!("{} (fork)", self.view_of(parent, 0).await?.title),
            (title, _) => title.to_owned(),
        };
        let at = (request.entry != 0).then_some(EntryId(request.entry));
        let from = at.map_or_else(|| "its newest entry".into(), |at| format!("entry {at}"));
        let own = self.source.current().spec.worktrees() == Worktrees::PerThread;
        let files = match own {
            false => {
                "The project's files are shared with it and are as they are now, not as they \
                 were then"
            }
            true => {
                "It has a worktree of its own, on a branch of its own, which began with the \
                 files of that conversation as they were when it was forked, also those that \
                 were not committed, not as they were then; from here on neither sees what \
                 the other changes"
            }
        };
        let note = format!(
            "This conversation is a fork of conversation {parent} at {from}. {files}: what the \
             history says of files may have changed."
        );
        let conversation = self
            .engine
            .fork(Fork {
                parent,
                at,
                shows: match request.side_chat {
                    true => Shows::Own,
                    false => Shows::All,
                },
                model: Some(request.model).filter(|model| !model.is_empty()),
                settings: match &request.thread {
                    Some(thread) => thread_settings(thread, &title),
                    None => json!({ "title": title }),
                },
                note: Some(note),
                extra: Vec::new(),
            })
            .await
            .map_err(session)?;
        // Its files are those of this moment. Where that cannot be, they are those of its
        // first call.
        if own && let Err(error) = self.hands.checkout(conversation).await {
            tracing::warn!(%conversation, %error, "the fork has no worktree yet");
        }
        Ok(wire::ForkResponse {
            conversation: conversation.0,
        })
    }
}
