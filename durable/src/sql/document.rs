//! Documents and their revisions, changed through one view.

use sqlx::{Row as _, sqlite::SqliteRow};

use super::{batch::Batch, entry::parse};
use crate::{
    document::{Document, Scope},
    id::{ConversationId, EntryId},
};

/// Changes, each in the order of the list.
pub(crate) const CHANGE: &str = "INSERT INTO document_change
 (scope, owner, name, version, history, fork_policy, op, value, commit_no)
 VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?1)";

/// What forks take along.
pub(crate) const FORK: &str = "INSERT INTO document_fork (child, parent, source, as_of, commit_no)
 VALUES (?2, ?3, ?4, (SELECT commit_no FROM entry WHERE id = ?5), ?1)";

/// A document at the end of a commit.
pub(crate) const READ: &str = "SELECT d.id, r.revision, r.version, r.value
 FROM document d JOIN document_revision r ON r.document = d.id
 WHERE d.scope = ?1 AND d.owner = ?2 AND d.name = ?3
  AND (d.retired_commit IS NULL OR d.retired_commit > ?4) AND r.commit_no <= ?4
 ORDER BY d.id DESC, r.revision DESC LIMIT 1";

/// A change on its way to the database.
#[derive(Debug, Clone)]
pub(crate) struct DocumentRow {
    pub scope: Scope,
    pub name: &'static str,
    pub version: u32,
    pub history: &'static str,
    pub fork: &'static str,
    pub op: &'static str,
    pub value: String,
}

/// A document as stored, in the version in which it was written.
#[derive(Debug, Clone)]
pub(crate) struct StoredDocument {
    pub document: Document,
    pub version: u32,
}

impl StoredDocument {
    pub fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(StoredDocument {
            document: Document {
                id: row.try_get(0)?,
                revision: row.try_get::<i64, _>(1)? as u64,
                value: parse(row.try_get::<&str, _>(3)?)?,
            },
            version: row.try_get(2)?,
        })
    }
}

/// The word and the owner of a scope.
pub(crate) fn address(scope: Scope) -> (&'static str, i64) {
    match scope {
        Scope::Session => ("session", 0),
        Scope::Conversation(id) => ("conversation", id.0),
        Scope::Task(id) => ("task", id.0),
    }
}

impl Batch {
    /// A change.
    pub fn change_document(&mut self, row: &DocumentRow) {
        let (scope, owner) = address(row.scope);
        self.document_changes
            .row()
            .text(scope)
            .int(owner)
            .text(row.name)
            .int(i64::from(row.version))
            .text(row.history)
            .text(row.fork)
            .text(row.op)
            .text(&row.value);
    }

    /// A fork of `parent` at an entry of `source`.
    pub fn fork_documents(
        &mut self,
        child: ConversationId,
        parent: ConversationId,
        source: ConversationId,
        entry: EntryId,
    ) {
        self.document_forks
            .row()
            .int(child.0)
            .int(parent.0)
            .int(source.0)
            .int(entry.0);
    }
}
