//! Views of what is committed.

use std::collections::HashMap;

use mooring_durable::id::{ConversationId, EntryId, TaskId};
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use tonic::Status;

use super::{Service, convert, graph::Graph, session, storage};
use crate::record::{egress, thread};

/// Entries of a page where the caller does not say.
const PAGE: usize = 100;
/// The largest page.
const MAX_PAGE: u32 = 1_000;

fn page(asked: u32) -> usize {
    if asked == 0 {
        PAGE
    } else {
        asked.min(MAX_PAGE) as usize
    }
}

impl Service {
    pub(super) async fn view(
        &self,
        request: wire::ViewRequest,
    ) -> Result<wire::ConversationView, Status> {
        let conversation = ConversationId(request.conversation);
        let before = (request.entries_before != 0).then_some(EntryId(request.entries_before));
        let view = self
            .engine
            .view(conversation, page(request.entries), before)
            .await
            .map_err(session)?
            .ok_or_else(|| {
                status(
                    Code::NotFound,
                    format!("there is no conversation {conversation}"),
                )
            })?;
        let mut graph = Graph::default();
        graph.read_again(&self.engine, conversation).await?;
        let mut shown = self.convert().view(&view);
        (shown.tasks, shown.children) = (Some(graph.tasks()), graph.children());
        Ok(shown)
    }

    pub(super) async fn conversations(
        &self,
        request: wire::ConversationsRequest,
    ) -> Result<wire::ConversationsResponse, Status> {
        let before = (request.before != 0).then_some(ConversationId(request.before));
        let found = self
            .engine
            .conversations(page(request.limit), before)
            .await
            .map_err(session)?;
        let threads: HashMap<ConversationId, String> = thread::list(self.engine.reader())
            .await
            .map_err(|error| storage(&error))?
            .into_iter()
            .filter_map(|row| Some((row.conversation?, row.thread_id)))
            .collect();
        let conversations = found
            .into_iter()
            // Made for an input that a crash kept from arriving; it comes again.
            .filter(|one| one.entries > 0 || one.queued > 0 || one.state != "idle")
            .map(|one| wire::conversations_response::Conversation {
                id: one.id.0,
                thread_id: threads.get(&one.id).cloned().unwrap_or_default(),
                title: one.title,
                last_at_ms: one.last_at.0,
                state: one.state.into(),
                pending_approvals: one.pending_approvals as u32,
                queued: one.queued as u32,
                entries: one.entries,
            })
            .collect();
        Ok(wire::ConversationsResponse { conversations })
    }

    pub(super) async fn entries(
        &self,
        request: wire::EntriesRequest,
    ) -> Result<wire::EntriesResponse, Status> {
        let conversation = ConversationId(request.conversation);
        if request.request != 0 {
            return self.request(conversation, TaskId(request.request)).await;
        }
        let limit = page(request.limit);
        let before = (request.before != 0).then_some(EntryId(request.before));
        // One more than asked tells whether there are older ones.
        let mut found = self
            .engine
            .entries(conversation, before, limit + 1)
            .await
            .map_err(session)?;
        let more = found.len() > limit;
        if more {
            found.remove(0);
        }
        Ok(wire::EntriesResponse {
            entries: found.iter().map(convert::entry).collect(),
            more,
            ..wire::EntriesResponse::default()
        })
    }

    pub(super) async fn egress(
        &self,
        request: wire::EgressRequest,
    ) -> Result<wire::EgressResponse, Status> {
        let conversation =
            (request.conversation != 0).then_some(ConversationId(request.conversation));
        let limit = u32::try_from(page(request.limit)).unwrap_or(MAX_PAGE);
        let rows = egress::list(self.engine.reader(), conversation, request.after, limit)
            .await
            .map_err(|error| storage(&error))?;
        let rows = rows
            .into_iter()
            .map(|(id, json)| wire::egress_response::Row {
                id,
                json: json.to_string(),
            })
            .collect();
        Ok(wire::EgressResponse { rows })
    }

    /// The exact request of the last attempt of a generation.
    async fn request(
        &self,
        conversation: ConversationId,
        generation: TaskId,
    ) -> Result<wire::EntriesResponse, Status> {
        let mut last = None;
        for number in 1.. {
            match self
                .engine
                .attempt(generation, number)
                .await
                .map_err(session)?
            {
                Some(attempt) => last = Some(attempt),
                None => break,
            }
        }
        let attempt = last
            .ok_or_else(|| status(Code::NotFound, format!("there is no request {generation}")))?;
        let rebuilt = self
            .engine
            .rebuild(conversation, &attempt)
            .await
            .map_err(session)?;
        Ok(wire::EntriesResponse {
            request_json: serde_json::to_string(&rebuilt.request)
                .map_err(|error| status(Code::Corrupt, error.to_string()))?,
            request_note: match rebuilt.exact {
                true => String::new(),
                false => format!("not as it was sent: it was made by {}", attempt.adapter),
            },
            ..wire::EntriesResponse::default()
        })
    }
}
