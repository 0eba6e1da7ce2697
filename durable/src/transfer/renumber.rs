//! New ids for old ones: moved as a whole, so that their order stays. Where ids stand is
//! known for each column; within JSON, by its path.

use serde_json::{Map, Value};

use super::{Header, Spans, WIDEST};

/// What an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Conversation,
    Entry,
    Task,
    Submission,
    Document,
}

/// How far each kind is moved, and where it has to lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Renumber {
    from: Spans,
    /// The first new id of each kind.
    first: [i64; 5],
    /// How far commits are moved.
    commits: i64,
}

/// How many ids a span has.
pub(super) fn width([low, high]: [i64; 2]) -> Result<i64, String> {
    match (low, high) {
        (0, 0) => Ok(0),
        (1.., _) if high >= low && high - low < WIDEST => Ok(high - low + 1),
        _ => Err(format!("its header has no span of ids in [{low}, {high}]")),
    }
}

impl Renumber {
    pub fn new(header: &Header, first: [i64; 5], commit: i64) -> Renumber {
        Renumber {
            from: header.ids,
            first,
            commits: commit.saturating_sub(header.commit),
        }
    }

    fn span(&self, kind: Kind) -> ([i64; 2], i64) {
        let from = &self.from;
        match kind {
            Kind::Conversation => (from.conversation, self.first[0]),
            Kind::Entry => (from.entry, self.first[1]),
            Kind::Task => (from.task, self.first[2]),
            Kind::Submission => (from.submission, self.first[3]),
            Kind::Document => (from.document, self.first[4]),
        }
    }

    /// The new id; `None`: the old one lies outside of what is imported.
    pub fn id(&self, kind: Kind, old: i64) -> Option<i64> {
        let ([low, high], first) = self.span(kind);
        (low..=high).contains(&old).then(|| first + (old - low))
    }

    fn value(&self, kind: Kind, value: &mut Value) {
        if let Some(old) = value.as_i64() {
            // What was not exported has no name here.
            *value = self.id(kind, old).into();
        }
    }

    /// A person stays who they are; a task is named by its new id.
    fn requester(&self, value: &mut Value) {
        if value.get("type").is_some_and(|kind| kind == "task") {
            self.at(Kind::Task, value, "/id");
        }
    }

    fn at(&self, kind: Kind, value: &mut Value, path: &str) {
        if let Some(found) = value.pointer_mut(path) {
            self.value(kind, found);
        }
    }

    fn edits(&self, edits: &mut Value) {
        for edit in edits.as_array_mut().into_iter().flatten() {
            self.at(Kind::Entry, edit, "/target");
        }
    }

    /// A request id that names a task.
    fn request(&self, value: &mut Value) {
        let old = value.as_str().and_then(|id| id.strip_prefix("task:"));
        if let Some(old) = old.and_then(|id| id.parse().ok())
            && let Some(new) = self.id(Kind::Task, old)
        {
            *value = format!("task:{new}").into();
        }
    }

    /// A row with its new ids; the error says what is wrong with it.
    pub fn row(&self, table: &str, row: &mut Map<String, Value>) -> Result<(), String> {
        for (name, value) in row.iter_mut() {
            if let Some(kind) = id_of(table, name) {
                let Some(old) = value.as_i64() else { continue };
                *value = match self.id(kind, old) {
                    Some(new) => new.into(),
                    // What it points to was not exported: a parent, an owner, a task that
                    // retention has removed.
                    None if may_point_outside(table, name) => Value::Null,
                    None => return Err(format!("{name} {old} is none of its ids")),
                };
            } else if (name.ends_with("commit") || name == "commit_no")
                && let Some(old) = value.as_i64()
            {
                *value = old.saturating_add(self.commits).into();
            }
        }
        if table == "document" {
            let kind = match row["scope"].as_str() {
                Some("task") => Kind::Task,
                _ => Kind::Conversation,
            };
            let old = row["owner"].as_i64().unwrap_or(0);
            let new = self.id(kind, old);
            let new = new.ok_or_else(|| format!("owner {old} is none of its ids"))?;
            row.insert("owner".into(), new.into());
        }
        if table == "submission"
            && let Some(request) = row.get_mut("request_id")
        {
            self.request(request);
        }
        for (name, value) in row.iter_mut() {
            let Value::String(text) = value else { continue };
            if !is_json(table, name) {
                continue;
            }
            let mut inner: Value = serde_json::from_str(text)
                .map_err(|error| format!("{name} is no JSON: {error}"))?;
            let before = inner.clone();
            self.inner(table, name, &mut inner);
            // A text without ids stays as it is, to the byte.
            if inner != before {
                *text = inner.to_string();
            }
        }
        Ok(())
    }

    fn inner(&self, table: &str, name: &str, value: &mut Value) {
        match (table, name) {
            ("entry", "data") => {
                self.at(Kind::Submission, value, "/submission");
                self.at(Kind::Task, value, "/task");
                if let Some(who) = value.pointer_mut("/requester") {
                    self.requester(who);
                }
            }
            ("entry", "edits") => self.edits(value),
            ("submission", "requester") => self.requester(value),
            ("submission", "data") => self.at(Kind::Conversation, value, "/subagent"),
            ("submission", "content") => {
                self.at(Kind::Entry, value, "/head/from");
                self.at(Kind::Task, value, "/data/task");
                if let Some(edits) = value.pointer_mut("/edits") {
                    self.edits(edits);
                }
            }
            ("task", _) => {
                for (kind, path) in [
                    (Kind::Entry, "/entry"),
                    (Kind::Entry, "/cut"),
                    (Kind::Entry, "/cutoff"),
                    (Kind::Task, "/task"),
                    (Kind::Task, "/call"),
                    (Kind::Task, "/work/task"),
                    (Kind::Conversation, "/conversation"),
                ] {
                    self.at(kind, value, path);
                }
                for path in ["/by", "/decision/by"] {
                    if let Some(who) = value.pointer_mut(path) {
                        self.requester(who);
                    }
                }
                let requesters = value.pointer_mut("/requesters");
                let requesters = requesters.and_then(Value::as_array_mut);
                requesters
                    .into_iter()
                    .flatten()
                    .for_each(|who| self.requester(who));
            }
            _ => {}
        }
    }
}

/// What the ids of a column name.
fn id_of(table: &str, name: &str) -> Option<Kind> {
    Some(match (table, name) {
        ("conversation", "id")
        | ("conversation", "parent" | "owner_conversation")
        | (_, "conversation")
        | ("inherited", "source") => Kind::Conversation,
        ("entry", "id") | ("conversation", "parent_entry") => Kind::Entry,
        ("entry", "head") | ("submission", "entry" | "answer") | ("attempt", "cutoff") => {
            Kind::Entry
        }
        ("task", "id" | "owner_task") | ("conversation", "owner_task") => Kind::Task,
        ("entry", "writer") | ("call", "task" | "generation") | ("attempt", "task") => Kind::Task,
        ("submission", "id") | ("open_work", "id") => Kind::Submission,
        ("entry", "submission") | ("task", "abort_mark") => Kind::Submission,
        ("document", "id") | ("document_revision", "document") => Kind::Document,
        _ => return None,
    })
}

fn may_point_outside(table: &str, name: &str) -> bool {
    matches!(
        (table, name),
        (
            "conversation",
            "parent" | "parent_entry" | "owner_task" | "owner_conversation"
        ) | ("entry", "writer" | "submission")
            | ("task", "owner_task" | "abort_mark")
            | ("submission", "entry" | "answer")
    )
}

fn is_json(table: &str, name: &str) -> bool {
    matches!(
        (table, name),
        ("conversation", "settings")
            | ("entry", "message" | "data" | "edits")
            | ("submission", "requester" | "content" | "data")
            | ("task", "waits" | "input" | "checkpoint" | "outcome")
            | ("call", "arguments" | "binding" | "record")
            | ("attempt", "usage")
            | ("document_revision", "value")
            | ("part", "body")
    )
}
