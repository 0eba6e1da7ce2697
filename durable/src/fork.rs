//! Forks: conversations that begin with the history of another one.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    context::Item,
    engine::Engine,
    error::SessionError,
    extension,
    id::{ConversationId, EntryId},
    ledger::{Change, Statement},
    message::Message,
    read::entry_view,
    sql::{
        batch::Batch,
        conversation::{ConversationRow, Origin},
        entry::{EntryRow, kind},
    },
    store::line::Request,
    view::{ChangeView, Shows},
};

/// A fork that is asked for. It has the parent's history through an entry, documents by
/// their policies, and else nothing of the parent.
#[derive(Clone, Debug)]
pub struct Fork {
    /// Of which conversation.
    pub parent: ConversationId,
    /// The last inherited entry; `None`: the newest.
    pub at: Option<EntryId>,
    /// What its views show.
    pub shows: Shows,
    /// Its model; `None`: the parent's.
    pub model: Option<String>,
    /// The host's settings, as of a new conversation.
    pub settings: Value,
    /// What its first system entry says.
    pub note: Option<String>,
    /// Statements of the caller's own tables, in the same commit.
    pub extra: Vec<Statement>,
}

impl Engine {
    /// Forks a conversation. The cost does not depend on the length of its history.
    pub async fn fork(&self, fork: Fork) -> Result<ConversationId, SessionError> {
        let session = self.session();
        let reader = &session.reader;
        let Some(parent) = reader.conversation(fork.parent).await? else {
            return Err(SessionError::NoConversation(fork.parent));
        };
        let place = reader.place_of(fork.parent, fork.at).await?;
        let place = place.ok_or(SessionError::NotVisible {
            conversation: fork.parent,
            entry: fork.at.unwrap_or(EntryId(0)),
        })?;
        let id = session.counters.conversation();
        let at = session.now();
        let settings = extension::narrowed(&parent.settings, fork.settings);
        let title = settings.get("title").and_then(Value::as_str);
        let mut batch = Batch::default();
        batch.insert_conversation(&ConversationRow {
            id,
            title: title.unwrap_or_default().to_owned(),
            settings: settings.clone(),
            model: fork.model.unwrap_or(parent.model),
            last_at: at,
            origin: Origin {
                parent: Some((fork.parent, place.entry)),
                owner: None,
                shows: fork.shows,
            },
        });
        for (depth, (source, through)) in place.sources.iter().enumerate() {
            batch.inherit(id, depth as i64 + 1, *source, *through);
        }
        let (source, _) = place.sources[0];
        batch.fork_documents(id, fork.parent, source, place.entry);
        let mut view = ChangeView::empty(id);
        if let Some(text) = fork.note {
            let row = EntryRow {
                id: session.counters.entry(),
                conversation: id,
                seq: 1,
                kind: kind::SYSTEM.into(),
                state: "",
                message: Some(Message::System { text }),
                data: Value::Null,
                head: None,
                edits: Vec::new(),
                writer: None,
                submission: None,
                at,
            };
            batch.insert_entry(&row);
            view.entries.push(entry_view(&Item {
                row: Arc::new(row),
                texts: Vec::new(),
            }));
        }
        let changes = vec![Change::ConversationCreated {
            conversation: id,
            settings,
        }];
        let mut extra = session.ports.ledger.statements(at, &changes);
        extra.extend(fork.extra);
        let request = Request {
            name: "fork",
            at,
            batch,
            extra,
            changes,
            view: Some(view),
        };
        session.line.commit(request).await?;
        Ok(id)
    }
}
