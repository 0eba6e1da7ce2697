//! Documents: typed JSON beside the transcript, changed only inside commits.

use serde_json::Value;

use crate::{
    engine::Engine,
    error::SessionError,
    id::{CommitNo, ConversationId, TaskId},
    ledger::Statement,
    session::Session,
    sql::{batch::Batch, document::DocumentRow},
    store::line::Request,
};

/// Whose a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The file's.
    Session,
    /// A conversation's.
    Conversation(ConversationId),
    /// A task's; it retires with the task.
    Task(TaskId),
}

/// How much of a document's past is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// Its last revision.
    Latest,
    /// All.
    Rewindable,
}

/// What a fork of its conversation begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkPolicy {
    /// Nothing.
    Initial,
    /// The parent's value at the time of the fork.
    Current,
    /// The value at the end of the commit that wrote the fork's entry.
    AsOf,
}

/// A kind of document, as the program knows it.
#[derive(Clone, Copy, Debug)]
pub struct DocumentKind {
    name: &'static str,
    version: u32,
    history: History,
    fork: ForkPolicy,
    migrate: fn(u32, Value) -> Result<Value, String>,
}

impl DocumentKind {
    /// A kind; `migrate` turns a value of an older version, which it is given, into
    /// one of this version.
    ///
    /// # Panics
    /// Where a fork would need a past that is not kept; in a constant that is an error
    /// of the build.
    pub const fn new(
        name: &'static str,
        version: u32,
        history: History,
        fork: ForkPolicy,
        migrate: fn(u32, Value) -> Result<Value, String>,
    ) -> DocumentKind {
        assert!(
            !matches!((history, fork), (History::Latest, ForkPolicy::AsOf)),
            "asOf needs a rewindable history"
        );
        DocumentKind {
            name,
            version,
            history,
            fork,
            migrate,
        }
    }

    /// Its name, for ever.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A stored value in this version.
    fn read(&self, version: u32, value: Value) -> Result<Value, DocumentError> {
        if version > self.version {
            return Err(DocumentError::Newer {
                name: self.name.into(),
                found: version,
                known: self.version,
            });
        }
        if version == self.version {
            return Ok(value);
        }
        (self.migrate)(version, value).map_err(|reason| DocumentError::Migration {
            name: self.name.into(),
            from: version,
            reason,
        })
    }
}

impl PartialEq for DocumentKind {
    fn eq(&self, other: &DocumentKind) -> bool {
        (self.name, self.version) == (other.name, other.version)
    }
}

/// A document as it stands, in the program's version of its kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Names this incarnation of its address; another one after it was retired.
    pub id: i64,
    /// Counts its changes, from 1.
    pub revision: u64,
    /// Its value.
    pub value: Value,
}

/// A change of one document.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentChange {
    /// Whose.
    pub scope: Scope,
    /// Which.
    pub kind: &'static DocumentKind,
    /// What becomes of it.
    pub op: Op,
}

/// What becomes of a document; all but `Retire` make it where there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// This is its value.
    Set(Value),
    /// A merge patch (RFC 7396), applied to what is there when it is committed.
    Merge(Value),
    /// A merge patch that loses against what is there.
    Keep(Value),
    /// It ends; the same address may begin anew.
    Retire,
}

/// Why a document cannot be read or changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DocumentError {
    /// Written by a newer program.
    #[error(
        "document {name} is of version {found}, this program knows {known}; use the version that wrote it, or newer"
    )]
    #[allow(missing_docs)]
    Newer {
        name: String,
        found: u32,
        known: u32,
    },
    /// Its value cannot be brought to this version; it was left as it is.
    #[error("document {name} of version {from} cannot be migrated: {reason}")]
    #[allow(missing_docs)]
    Migration {
        name: String,
        from: u32,
        reason: String,
    },
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Session {
    /// The rows of changes; a value of an older version that is patched is migrated first.
    pub(crate) async fn document_rows(
        &self,
        changes: &[DocumentChange],
    ) -> Result<Vec<DocumentRow>, DocumentError> {
        let mut rows = Vec::with_capacity(changes.len());
        for change in changes {
            let kind = change.kind;
            let stored = self.reader.document(change.scope, kind.name, None).await?;
            if let Some(stored) = stored.filter(|stored| stored.version != kind.version) {
                let value = kind.read(stored.version, stored.document.value)?;
                rows.push(DocumentRow::new(change.scope, kind, &Op::Set(value)));
            }
            rows.push(DocumentRow::new(change.scope, kind, &change.op));
        }
        Ok(rows)
    }
}

impl DocumentRow {
    fn new(scope: Scope, kind: &DocumentKind, op: &Op) -> DocumentRow {
        let (word, value) = match op {
            Op::Set(value) => ("set", value.to_string()),
            Op::Merge(value) => ("merge", value.to_string()),
            Op::Keep(value) => ("keep", value.to_string()),
            Op::Retire => ("retire", String::new()),
        };
        DocumentRow {
            scope,
            name: kind.name,
            version: kind.version,
            history: match kind.history {
                History::Latest => "latest",
                History::Rewindable => "rewindable",
            },
            fork: match kind.fork {
                ForkPolicy::Initial => "initial",
                ForkPolicy::Current => "current",
                ForkPolicy::AsOf => "asOf",
            },
            op: word,
            value,
        }
    }
}

impl Engine {
    /// A document as it stands, or as it stood at the end of a commit; never makes one.
    pub async fn document(
        &self,
        scope: Scope,
        kind: &DocumentKind,
        at: Option<CommitNo>,
    ) -> Result<Option<Document>, DocumentError> {
        let reader = &self.session().reader;
        let Some(stored) = reader.document(scope, kind.name, at).await? else {
            return Ok(None);
        };
        let value = kind.read(stored.version, stored.document.value)?;
        Ok(Some(Document {
            value,
            ..stored.document
        }))
    }

    /// Changes documents, in order and in one commit with a component's own rows.
    pub async fn change_documents(
        &self,
        changes: &[DocumentChange],
        extra: Vec<Statement>,
    ) -> Result<CommitNo, DocumentError> {
        let session = self.session();
        let mut batch = Batch::default();
        for row in session.document_rows(changes).await? {
            batch.change_document(&row);
        }
        let request = Request {
            name: "documents",
            at: session.now(),
            batch,
            extra,
            changes: Vec::new(),
            view: None,
        };
        Ok(session
            .line
            .commit(request)
            .await
            .map_err(SessionError::from)?)
    }
}
