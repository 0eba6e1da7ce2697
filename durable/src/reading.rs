//! What a host reads of an open file: snapshots, pages of what was said, requests.

use crate::{
    engine::Engine,
    error::SessionError,
    id::{ConversationId, EntryId, TaskId},
    sql::{attempt::Attempt, conversation, submission},
    view::{ConversationSummary, ConversationView, EntryView, Watch},
};

impl Engine {
    /// A snapshot; `None` where there is no such conversation.
    pub async fn view(
        &self,
        conversation: ConversationId,
        entries: usize,
        before: Option<EntryId>,
    ) -> Result<Option<ConversationView>, SessionError> {
        self.session()
            .reader
            .view(conversation, entries, before)
            .await
    }

    /// Follows one conversation, or all. `after` is the last sequence that the watcher
    /// saw: it gets what it missed since, or snapshots if that is too long ago.
    pub async fn watch(
        &self,
        conversation: Option<ConversationId>,
        after: Option<u64>,
    ) -> Result<Watch, SessionError> {
        let session = self.session();
        let mut all = Vec::new();
        match (conversation, after) {
            (Some(id), _) => {
                if session.reader.conversation(id).await?.is_none() {
                    return Err(SessionError::NoConversation(id));
                }
            }
            (None, Some(after)) if session.hub.forgot(after) => {
                let recent = session.reader.conversations(100, None).await?;
                all.extend(recent.into_iter().map(|summary| summary.id));
            }
            (None, _) => {}
        }
        let follower = session.hub.follow(conversation, after, &all);
        Ok(Watch {
            follower,
            reader: session.reader.clone(),
        })
    }

    /// Newest activity first.
    pub async fn conversations(
        &self,
        limit: usize,
        before: Option<ConversationId>,
    ) -> Result<Vec<ConversationSummary>, SessionError> {
        self.session().reader.conversations(limit, before).await
    }

    /// Raw entries, newest page first asked, oldest first returned.
    pub async fn entries(
        &self,
        conversation: ConversationId,
        before: Option<EntryId>,
        limit: usize,
    ) -> Result<Vec<EntryView>, SessionError> {
        Ok(self
            .session()
            .reader
            .entries(conversation, before, limit)
            .await?
            .0)
    }

    /// An attempt as it was pinned; `None` where there is none.
    pub async fn attempt(
        &self,
        generation: TaskId,
        attempt: u32,
    ) -> Result<Option<Attempt>, SessionError> {
        self.session().reader.attempt(generation, attempt).await
    }

    /// The request of an attempt, rebuilt from the file.
    pub async fn rebuild(
        &self,
        conversation: ConversationId,
        attempt: &Attempt,
    ) -> Result<Rebuilt, SessionError> {
        self.session().reader.rebuild(conversation, attempt).await
    }

    /// Inputs that wait for their turn.
    pub async fn queued(&self) -> Result<u64, SessionError> {
        let count = self
            .session()
            .reader
            .number(submission::QUEUED, &[])
            .await?;
        Ok(u64::try_from(count.unwrap_or(0)).unwrap_or(0))
    }

    /// Conversations in which inputs wait for their turn.
    pub async fn queued_in(&self) -> Result<Vec<ConversationId>, SessionError> {
        let reader = &self.session().reader;
        let found: Vec<i64> = reader.column(submission::QUEUED_IN, &[]).await?;
        Ok(found.into_iter().map(ConversationId).collect())
    }

    /// Conversations there are.
    pub async fn conversation_count(&self) -> Result<u64, SessionError> {
        let count = self
            .session()
            .reader
            .number(conversation::COUNT, &[])
            .await?;
        Ok(u64::try_from(count.unwrap_or(0)).unwrap_or(0))
    }
}

/// A request as the file still has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rebuilt {
    /// The request.
    pub request: crate::model::ModelRequest,
    /// Its canonical JSON has the hash that was stored with the attempt.
    pub exact: bool,
}
