//! Rows as they are exported and imported: one JSON object each, by column.

/// A table whose rows are carried over.
pub(crate) struct Table {
    pub name: &'static str,
    /// One row as JSON.
    pub row: &'static str,
    /// Inserts the rows of a JSON list.
    pub put: &'static str,
    pub columns: &'static [&'static str],
}

macro_rules! table {
    ($name:literal: $first:literal $(, $column:literal)*; $($hex:literal),*) => {
        Table {
            name: $name,
            row: concat!(
                "json_object('", $first, "', ", $first,
                $(", '", $column, "', ", $column,)*
                $(", '", $hex, "', nullif(hex(", $hex, "), '')",)*
                ")"
            ),
            put: concat!(
                "INSERT INTO ", $name, " (", $first, $(", ", $column,)* $(", ", $hex,)*
                ") SELECT value->>'$.", $first, "'",
                $(", value->>'$.", $column, "'",)*
                $(", unhex(value->>'$.", $hex, "')",)*
                " FROM json_each(?1)"
            ),
            columns: &[$first, $($column,)* $($hex),*],
        }
    };
}

pub(crate) const CONVERSATION: Table = table!("conversation": "id", "parent", "parent_entry", "owner_task",
    "side_chat", "title", "settings", "model", "created_at", "last_at", "created_commit", "deleted_commit",
    "owner_conversation", "background";);
pub(crate) const INHERITED: Table =
    table!("inherited": "conversation", "depth", "source", "through_seq";);
pub(crate) const ENTRY: Table = table!("entry": "id", "conversation", "seq", "kind", "state", "message", "data",
    "head", "edits", "writer", "submission", "at", "commit_no";);
pub(crate) const SUBMISSION: Table = table!("submission": "id", "conversation", "type", "request_id", "requester",
    "content", "when_busy", "autonomous", "data", "state", "reason", "detail", "entry", "answer", "at",
    "created_commit", "settled_commit";);
pub(crate) const TASK: Table = table!("task": "id", "conversation", "owner_task", "kind", "version", "background",
    "status", "blocked", "abort_mark", "waits", "input", "checkpoint", "outcome", "created_at", "ended_at",
    "created_commit", "changed_commit";);
pub(crate) const CALL: Table = table!("call": "task", "conversation", "generation", "ordinal", "call_id", "tool",
    "arguments", "replay", "binding", "record", "state", "note", "offset", "started_at", "ended_at", "released",
    "owed_kill"; "hash");
pub(crate) const ATTEMPT: Table = table!("attempt": "task", "attempt", "model", "adapter", "cutoff", "estimate",
    "recoveries", "started_at", "ended_at", "ended", "usage"; "options", "tools", "request");
pub(crate) const DOCUMENT: Table = table!("document": "id", "scope", "owner", "name", "version", "history",
    "fork_policy", "created_commit", "retired_commit";);
pub(crate) const REVISION: Table =
    table!("document_revision": "document", "revision", "version", "value", "commit_no";);
pub(crate) const OPEN: Table = table!("open_work": "conversation", "what", "id", "wake_at";);
/// Texts and schemas by their hash; what is there is the same.
pub(crate) const PART: Table = Table {
    name: "part",
    row: "json_object('body', body, 'hash', hex(hash))",
    put: "INSERT INTO part (body, hash) SELECT value->>'$.body', unhex(value->>'$.hash') FROM json_each(?1)
 WHERE true ON CONFLICT DO NOTHING",
    columns: &["body", "hash"],
};

/// All of them, in the order in which they are written.
pub(crate) static TABLES: [Table; 11] = [
    CONVERSATION,
    INHERITED,
    PART,
    ENTRY,
    SUBMISSION,
    TASK,
    CALL,
    ATTEMPT,
    DOCUMENT,
    REVISION,
    OPEN,
];

/// A conversation, and those that its tasks own.
pub(crate) const OWNED: &str = "WITH RECURSIVE owned(id) AS (VALUES (?1) UNION
 SELECT c.id FROM conversation c JOIN owned o ON c.owner_conversation = o.id WHERE c.deleted_commit IS NULL)
 SELECT id FROM owned ORDER BY id";
/// Of a list of conversations one that works, or owes its end to another.
pub(crate) const WORKS: &str = "SELECT conversation FROM open_work
 WHERE conversation IN (SELECT value FROM json_each(?1)) AND what <> 3 LIMIT 1";
/// What conversations see of others, through which sequence.
pub(crate) const ANCESTORS: &str = "SELECT source, max(through_seq) FROM inherited
 WHERE conversation IN (SELECT value FROM json_each(?1)) AND source NOT IN (SELECT value FROM json_each(?1))
 GROUP BY source ORDER BY source";
/// The lowest and the highest ids of what is exported – conversations `?1`, of which `?2`
/// with all that is theirs; entries, tasks, submissions, documents –, the last of its
/// commits, and the file's incarnation.
pub(crate) const SPANS: &str = "WITH c(id) AS (SELECT value FROM json_each(?1)), own(id) AS (SELECT value FROM json_each(?2)),
 e AS (SELECT entry.id, entry.commit_no FROM entry JOIN c ON entry.conversation = c.id),
 t AS (SELECT task.id, task.changed_commit FROM task JOIN own ON task.conversation = own.id),
 s AS (SELECT submission.id, coalesce(settled_commit, created_commit) AS last FROM submission
  JOIN own ON submission.conversation = own.id),
 d AS (SELECT document.id, max(created_commit, coalesce(retired_commit, created_commit)) AS last FROM document
  WHERE scope = 'conversation' AND owner IN (SELECT id FROM c) OR scope = 'task' AND owner IN (SELECT id FROM t))
 SELECT (SELECT min(id) FROM c), (SELECT max(id) FROM c), (SELECT min(id) FROM e), (SELECT max(id) FROM e),
  (SELECT min(id) FROM t), (SELECT max(id) FROM t), (SELECT min(id) FROM s), (SELECT max(id) FROM s),
  (SELECT min(id) FROM d), (SELECT max(id) FROM d),
  max((SELECT max(created_commit) FROM conversation JOIN c USING (id)),
   coalesce((SELECT max(commit_no) FROM e), -4611686018427387904), coalesce((SELECT max(changed_commit) FROM t), -4611686018427387904),
   coalesce((SELECT max(last) FROM s), -4611686018427387904), coalesce((SELECT max(last) FROM d), -4611686018427387904),
   coalesce((SELECT max(commit_no) FROM document_revision WHERE document IN (SELECT id FROM d)), -4611686018427387904)),
  (SELECT incarnation FROM session)";

/// Which rows of each of [`TABLES`], in their order, belong to the conversation `?1`, of its entries those through
/// the sequence `?2`.
pub(crate) const OF_CONVERSATION: [&str; 11] = [
    "WHERE id = ?1 AND ?2 = ?2",
    "WHERE conversation = ?1 AND ?2 = ?2 ORDER BY depth",
    "WHERE hash IN (SELECT unhex(s.value->>'$.hash') FROM entry e, json_each(e.data, '$.sections') s
      WHERE e.conversation = ?1 AND e.seq <= ?2 AND e.kind = 'pi.system' AND e.message IS NULL
      UNION SELECT options FROM attempt WHERE task IN (SELECT id FROM task WHERE conversation = ?1)
      UNION SELECT tools FROM attempt WHERE task IN (SELECT id FROM task WHERE conversation = ?1)) ORDER BY hash",
    "WHERE conversation = ?1 AND seq <= ?2 ORDER BY seq",
    "WHERE conversation = ?1 AND ?2 = ?2 ORDER BY id",
    "WHERE conversation = ?1 AND ?2 = ?2 ORDER BY id",
    "WHERE conversation = ?1 AND ?2 = ?2 ORDER BY task",
    "WHERE task IN (SELECT id FROM task WHERE conversation = ?1) AND ?2 = ?2 ORDER BY task, attempt",
    "WHERE ((scope = 'conversation' AND owner = ?1)
      OR (scope = 'task' AND owner IN (SELECT id FROM task WHERE conversation = ?1)))
      AND created_commit <= coalesce((SELECT commit_no FROM entry WHERE conversation = ?1 AND seq = ?2), created_commit)
      ORDER BY id",
    "WHERE document IN (SELECT id FROM document WHERE (scope = 'conversation' AND owner = ?1)
      OR (scope = 'task' AND owner IN (SELECT id FROM task WHERE conversation = ?1)))
      AND commit_no <= coalesce((SELECT commit_no FROM entry WHERE conversation = ?1 AND seq = ?2), commit_no)
      ORDER BY document, revision",
    "WHERE conversation = ?1 AND what = 3 AND ?2 = ?2 ORDER BY id",
];

/// Of one that others only see, which of these tables.
pub(crate) const OF_ANCESTOR: [&str; 5] = [
    "conversation",
    "part",
    "entry",
    "document",
    "document_revision",
];

/// Above this document, which marks the end of a span, ids are others'.
pub(crate) const RESERVE: &str = "INSERT INTO document (id, scope, owner, name, version, history, fork_policy,
 created_commit, retired_commit)
 SELECT (SELECT coalesce(max(id), 0) FROM document) + ?2 + 1, 'session', ?1, 'mooring.import', 1, 'latest',
 'initial', commit_no, commit_no FROM session";
pub(crate) const RESERVED: &str = "SELECT id FROM document
 WHERE scope = 'session' AND owner = ?1 AND name = 'mooring.import' ORDER BY id DESC LIMIT 1";
/// What arrived is there.
pub(crate) const ARRIVED: &str =
    "UPDATE conversation SET deleted_commit = NULL WHERE id IN (SELECT value FROM json_each(?1))";
