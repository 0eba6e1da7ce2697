//! Reading a conversation in: rows arrive in small commits, hidden until the last one.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::atomic::Ordering;

use super::{
    Header, VERSION,
    renumber::{Kind, Renumber, width},
};
use crate::{
    engine::Engine,
    error::SessionError,
    id::{ConversationId, Hash, TaskId},
    ledger::{Bind, Statement},
    retention::ids,
    session::{Arriving, Session},
    sql::{
        batch::Batch,
        transfer::{ARRIVED, RESERVE, RESERVED, TABLES},
    },
    store::line::Request,
    view::ChangeView,
};

/// Bytes of rows in one commit, about.
const COMMIT: usize = 256 << 10;

/// Why lines cannot be imported; what arrived of them is removed again.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ImportError {
    /// Not an export, or a damaged one.
    #[error("line {line} cannot be imported: {reason}; nothing of it was kept")]
    Line { line: u64, reason: String },
    /// Written by a newer program.
    #[error(
        "it was exported by a newer version ({found}, this program knows {VERSION}); use that version or newer"
    )]
    Newer { found: u32 },
    /// The session.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A line that is no header.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    table: String,
    row: Map<String, Value>,
}

/// An import that is going on. Dropped before its end, it leaves nothing.
pub struct Import {
    session: Arc<Session>,
    header: Header,
    renumber: Renumber,
    rows: Vec<Vec<Value>>,
    extra: Vec<Statement>,
    bytes: usize,
    line: u64,
    /// All of them, by their new ids.
    arriving: Vec<i64>,
    /// The commit since when they are hidden.
    hidden: i64,
    /// Parts that nothing names yet are not removed meanwhile.
    _parts: tokio::sync::OwnedRwLockReadGuard<()>,
}

impl Engine {
    /// Begins an import with the first line of an export.
    pub async fn import(&self, header: &str) -> Result<Import, ImportError> {
        let session = self.session().clone();
        let wrong = |reason: String| ImportError::Line { line: 1, reason };
        let known: Value = serde_json::from_str(header)
            .map_err(|error| wrong(format!("no export begins so ({error})")))?;
        if let Some(found) = known.get("mooringExport").and_then(Value::as_u64)
            && found > u64::from(VERSION)
        {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            return Err(ImportError::Newer { found });
        }
        let header: Header = serde_json::from_value(known)
            .map_err(|error| wrong(format!("no export begins so ({error})")))?;
        let (counters, spans) = (&session.counters, &header.ids);
        let widths = [
            width(spans.conversation),
            width(spans.entry),
            width(spans.task),
            width(spans.submission),
            width(spans.document),
        ];
        let mut first = [0; 5];
        let all = [
            &counters.conversation,
            &counters.entry,
            &counters.task,
            &counters.submission,
        ];
        let mut sizes = [0; 5];
        for (size, width) in sizes.iter_mut().zip(widths) {
            *size = width.map_err(wrong)?;
        }
        for (at, counter) in all.into_iter().enumerate() {
            first[at] = counter.fetch_add(sizes[at], Ordering::Relaxed);
        }
        let mut import = Import {
            renumber: Renumber::new(&header, first, 0),
            header,
            rows: vec![Vec::new(); TABLES.len()],
            extra: Vec::new(),
            bytes: 0,
            line: 1,
            arriving: Vec::new(),
            hidden: 0,
            _parts: session.parts_stay.clone().read_owned().await,
            session,
        };
        import.begin(first, sizes[4]).await?;
        Ok(import)
    }
}

impl Import {
    /// Reserves the ids of documents, and notes where commits begin.
    async fn begin(&mut self, mut first: [i64; 5], documents: i64) -> Result<(), ImportError> {
        let old = self
            .header
            .conversations
            .iter()
            .chain(&self.header.ancestors);
        let new = old.map(|old| self.renumber.id(Kind::Conversation, *old));
        let new: Option<Vec<i64>> = new.collect();
        let root = self
            .renumber
            .id(Kind::Conversation, self.header.conversation);
        let (Some(new), Some(root)) = (new, root) else {
            return Err(self.wrong("its conversations are none of its ids".into()));
        };
        for id in &new {
            self.session
                .note_arriving(ConversationId(*id), Arriving::Yes);
        }
        self.arriving = new;
        let reserve = Statement {
            sql: RESERVE,
            binds: vec![Bind::Int(root), Bind::Int(documents)],
        };
        let commit = self.commit(vec![reserve], None).await?;
        let mark = self.session.reader.number(RESERVED, &[root]).await?;
        first[4] = mark.unwrap_or(0) - documents;
        self.renumber = Renumber::new(&self.header, first, commit);
        self.hidden = commit;
        Ok(())
    }

    /// Takes the next line. `Some`: it is of a table of a component, whose row is given.
    pub async fn take(
        &mut self,
        line: &str,
    ) -> Result<Option<(String, Map<String, Value>)>, ImportError> {
        self.line += 1;
        let parsed: Line =
            serde_json::from_str(line).map_err(|error| self.wrong(error.to_string()))?;
        let Line { table, mut row } = parsed;
        let Some(at) = TABLES.iter().position(|known| known.name == table) else {
            return Ok(Some((table, row)));
        };
        let columns = TABLES[at].columns;
        if row.len() != columns.len() || !columns.iter().all(|column| row.contains_key(*column)) {
            return Err(self.wrong(format!(
                "a row of {table} has the columns {}",
                columns.join(", ")
            )));
        }
        self.renumber
            .row(&table, &mut row)
            .and_then(|()| check(&table, &row))
            .map_err(|reason| self.wrong(format!("a row of {table}: {reason}")))?;
        if table == "conversation" {
            row.insert("deleted_commit".into(), self.hidden.into());
        }
        self.bytes += line.len();
        self.rows[at].push(Value::Object(row));
        if self.bytes > COMMIT {
            self.flush().await?;
        }
        Ok(None)
    }

    /// The new id of a conversation.
    pub fn conversation(&self, old: ConversationId) -> Option<ConversationId> {
        self.renumber
            .id(Kind::Conversation, old.0)
            .map(ConversationId)
    }

    /// The new id of a task.
    pub fn task(&self, old: TaskId) -> Option<TaskId> {
        self.renumber.id(Kind::Task, old.0).map(TaskId)
    }

    /// Adds statements of a component, in one of the next commits.
    pub async fn extra(&mut self, statement: Statement) -> Result<(), ImportError> {
        self.bytes += 1024;
        self.extra.push(statement);
        if self.bytes > COMMIT || self.extra.len() >= 32 {
            self.flush().await?;
        }
        Ok(())
    }

    /// What was imported is there; its id.
    pub async fn finish(mut self) -> Result<ConversationId, ImportError> {
        self.flush().await?;
        let own = self.header.conversations.iter();
        let own = own.filter_map(|old| self.renumber.id(Kind::Conversation, *old));
        let own: Vec<i64> = own.collect();
        let root = self
            .renumber
            .id(Kind::Conversation, self.header.conversation);
        let root = ConversationId(root.unwrap_or(0));
        // Asked before anything of it can be seen.
        let there = "SELECT id FROM conversation WHERE id = ?";
        let there = self.session.reader.number(there, &[root.0]).await?;
        if there.is_none() {
            return Err(self.wrong(format!(
                "there is no conversation {} in it",
                self.header.conversation
            )));
        }
        let arrived = Statement {
            sql: ARRIVED,
            binds: vec![Bind::Text(ids(&own))],
        };
        self.commit(vec![arrived], Some(ChangeView::empty(root)))
            .await?;
        Ok(root)
    }

    fn wrong(&self, reason: String) -> ImportError {
        let line = self.line;
        ImportError::Line { line, reason }
    }

    async fn flush(&mut self) -> Result<(), ImportError> {
        let mut statements = Vec::new();
        for (table, rows) in TABLES.iter().zip(&mut self.rows) {
            if !rows.is_empty() {
                let rows = Value::Array(std::mem::take(rows));
                statements.push(Statement {
                    sql: table.put,
                    binds: vec![Bind::Text(rows.to_string())],
                });
            }
        }
        statements.append(&mut self.extra);
        self.bytes = 0;
        if statements.is_empty() {
            return Ok(());
        }
        match self.commit(statements, None).await {
            Ok(_) => Ok(()),
            Err(ImportError::Session(SessionError::Constraint(reason))) => Err(self.wrong(reason)),
            Err(error) => Err(error),
        }
    }

    async fn commit(
        &self,
        extra: Vec<Statement>,
        view: Option<ChangeView>,
    ) -> Result<i64, ImportError> {
        let request = Request {
            name: "import",
            at: self.session.now(),
            batch: Batch::default(),
            extra,
            changes: Vec::new(),
            view,
        };
        let commit = self.session.line.commit(request).await;
        Ok(commit.map_err(SessionError::from)?.0)
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        for id in &self.arriving {
            self.session
                .note_arriving(ConversationId(*id), Arriving::No);
        }
        // What did not arrive whole is deleted, and removed with what is.
        self.session.deleted.notify_one();
    }
}

/// What no export has: work that is open, and executions that something is owed of.
fn check(table: &str, row: &Map<String, Value>) -> Result<(), String> {
    let open = match table {
        "task" | "call" => row["ended_at"].is_null(),
        "open_work" => row["what"] != 3,
        _ => false,
    };
    let owed = table == "call" && (row["released"] != 1 || row["owed_kill"] != 0);
    if open || owed {
        return Err("it is of work that goes on".into());
    }
    if table == "part" {
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let (body, hash) = (text("body"), text("hash").to_ascii_lowercase());
        // Of a text of a section the text itself is hashed, of all else the JSON.
        let inner = serde_json::from_str::<String>(body).unwrap_or_default();
        if ![body, &inner]
            .iter()
            .any(|text| Hash::of(text.as_bytes()).0 == hash)
        {
            return Err("its hash is that of another text".into());
        }
    }
    Ok(())
}
