//! What is removed, in small commits: lists of ids are found by reads, and removed by
//! statements that look at nothing else.

/// Ids that one commit removes, at most.
pub(crate) const PAGE: i64 = 200;

/// Tasks that ended before a time, where nothing goes on: neither in their conversation
/// nor in the one that it works for; after an id.
pub(crate) const TASKS: &str = "SELECT t.id FROM task t WHERE t.id > ?1 AND t.ended_at < ?2
 AND NOT EXISTS (SELECT 1 FROM open_work o WHERE o.conversation = t.conversation AND o.what <> 3)
 AND NOT EXISTS (SELECT 1 FROM conversation c JOIN open_work o ON o.conversation = c.owner_conversation
  WHERE c.id = t.conversation AND o.what <> 3)
 AND NOT EXISTS (SELECT 1 FROM call c WHERE c.task = t.id AND (c.released = 0 OR c.owed_kill = 1))
 ORDER BY t.id LIMIT ?3";
/// Settled submissions that were handed in before a time; after an id.
pub(crate) const SUBMISSIONS: &str = "SELECT s.id FROM submission s WHERE s.id > ?1 AND s.at < ?2
 AND s.state IN ('done', 'unanswered')
 AND NOT EXISTS (SELECT 1 FROM conversation c JOIN open_work o ON o.conversation = c.owner_conversation
  WHERE c.id = s.conversation AND o.what <> 3)
 ORDER BY s.id LIMIT ?3";
/// The last commit before a time.
pub(crate) const COMMIT_BEFORE: &str =
    "SELECT commit_no FROM entry WHERE at < ?1 ORDER BY id DESC LIMIT 1";
/// Revisions that came to their end before a commit and that no entry's span needs.
pub(crate) const REVISIONS: &str = "SELECT r.rowed FROM (
  SELECT json_array(document, revision) AS rowed, document, commit_no,
   lead(commit_no) OVER (PARTITION BY document ORDER BY revision) AS next FROM document_revision) r
 JOIN document d ON d.id = r.document
 WHERE coalesce(r.next, d.retired_commit) <= ?1 AND NOT EXISTS (SELECT 1 FROM entry e
  WHERE d.scope = 'conversation' AND e.conversation = d.owner AND e.commit_no >= r.commit_no
   AND e.commit_no < coalesce(r.next, d.retired_commit)) LIMIT ?2";

/// Bounds of what can come to name a part later: the newest entry, and the oldest task that
/// may still ask.
pub(crate) const PARTS_SINCE: &str =
    "SELECT json_array(coalesce((SELECT max(id) FROM entry), 0), coalesce(
  (SELECT min(id) FROM open_work WHERE what IN (0, 4)), (SELECT max(id) FROM task), 0))";
/// Parts that neither a request nor a told section names.
pub(crate) const PARTS: &str = "SELECT lower(hex(hash)) FROM part WHERE hash NOT IN (
  SELECT options FROM attempt UNION SELECT tools FROM attempt
  UNION SELECT unhex(told.value->>'hash') FROM entry e, json_each(e.data, '$.sections') told
   WHERE e.kind = 'pi.system' AND told.value->>'hash' IS NOT NULL)";
/// Removes parts that still nothing names: `[[entry, task], [hash, …]]`.
pub(crate) const DROP_PARTS: [&str; 1] = ["DELETE FROM part WHERE hash IN
  (SELECT unhex(value) FROM json_each(?1, '$[1]'))
 AND hash NOT IN (SELECT options FROM attempt WHERE task >= (?1->>'$[0][1]')
  UNION SELECT tools FROM attempt WHERE task >= (?1->>'$[0][1]')
  UNION SELECT unhex(told.value->>'hash') FROM entry e, json_each(e.data, '$.sections') told
   WHERE e.id > (?1->>'$[0][0]') AND e.kind = 'pi.system' AND told.value->>'hash' IS NOT NULL)"];

/// Removes revisions by their pairs, and documents that ended and have none; the newest
/// document stays, so that its id does not return.
pub(crate) const DROP_REVISIONS: [&str; 2] = [
    "DELETE FROM document_revision WHERE (document, revision) IN (SELECT value->>0, value->>1 FROM json_each(?1))",
    "DELETE FROM document WHERE retired_commit IS NOT NULL AND id < (SELECT max(id) FROM document)
     AND id IN (SELECT value->>0 FROM json_each(?1))
     AND NOT EXISTS (SELECT 1 FROM document_revision r WHERE r.document = document.id)",
];
/// Removes tasks by their ids, with all that is theirs.
pub(crate) const DROP_TASKS: [&str; 6] = [
    "DELETE FROM call WHERE task IN (SELECT value FROM json_each(?1))",
    "DELETE FROM attempt WHERE task IN (SELECT value FROM json_each(?1))",
    "DELETE FROM chunk WHERE task IN (SELECT value FROM json_each(?1))",
    "DELETE FROM document_revision WHERE document IN
     (SELECT id FROM document WHERE scope = 'task' AND owner IN (SELECT value FROM json_each(?1)))",
    "DELETE FROM document WHERE scope = 'task' AND owner IN (SELECT value FROM json_each(?1))
     AND id < (SELECT max(id) FROM document)",
    "DELETE FROM task WHERE id IN (SELECT value FROM json_each(?1))",
];
pub(crate) const DROP_SUBMISSIONS: [&str; 1] =
    ["DELETE FROM submission WHERE id IN (SELECT value FROM json_each(?1))"];

/// A conversation is deleted; what it has of others' history is not seen by it any more.
pub(crate) const DELETE: [&str; 3] = [
    "UPDATE conversation SET deleted_commit = (SELECT commit_no FROM session) WHERE id = ?1",
    "DELETE FROM inherited WHERE conversation = ?1",
    "DELETE FROM open_work WHERE conversation = ?1",
];
/// Deleted conversations, of which something may be left.
pub(crate) const DELETED: &str =
    "SELECT id FROM conversation WHERE deleted_commit IS NOT NULL ORDER BY id";
pub(crate) const TASKS_OF: &str = "SELECT id FROM task WHERE conversation = ?1 AND NOT EXISTS
 (SELECT 1 FROM call c WHERE c.task = task.id AND (c.released = 0 OR c.owed_kill = 1)) ORDER BY id LIMIT ?2";
pub(crate) const SUBMISSIONS_OF: &str =
    "SELECT id FROM submission WHERE conversation = ?1 ORDER BY id LIMIT ?2";
/// Entries that nobody sees any more, the newest first.
pub(crate) const ENTRIES_OF: &str = "SELECT id FROM entry WHERE conversation = ?1
 AND seq > coalesce((SELECT max(through_seq) FROM inherited WHERE source = ?1), 0) ORDER BY seq DESC LIMIT ?2";
pub(crate) const DROP_ENTRIES: [&str; 1] =
    ["DELETE FROM entry WHERE id IN (SELECT value FROM json_each(?1))"];
/// Whether entries, calls that owe something or the like are left of it.
pub(crate) const LEFT_OF: &str = "SELECT 1 FROM entry WHERE conversation = ?1
 UNION ALL SELECT 1 FROM task WHERE conversation = ?1 LIMIT 1";
/// The last of it.
pub(crate) const DROP_CONVERSATION: [&str; 4] = [
    "DELETE FROM document_revision WHERE document IN
     (SELECT id FROM document WHERE scope = 'conversation' AND owner = ?1)",
    "UPDATE document SET retired_commit = coalesce(retired_commit, (SELECT commit_no FROM session))
     WHERE scope = 'conversation' AND owner = ?1",
    "DELETE FROM document WHERE scope = 'conversation' AND owner = ?1 AND id < (SELECT max(id) FROM document)",
    "DELETE FROM conversation WHERE id = ?1",
];
