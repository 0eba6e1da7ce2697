//! Open work: unfinished tasks and unsettled submissions, in a small table of its own.

use super::batch::Batch;
use crate::id::ConversationId;

pub(crate) const PUT: &str = "INSERT INTO open_work (conversation, what, id, wake_at)
 VALUES (?2, ?3, ?4, ?5)
 ON CONFLICT DO UPDATE SET wake_at = excluded.wake_at";

pub(crate) const DROP: &str =
    "DELETE FROM open_work WHERE conversation = ?2 AND what = ?3 AND id = ?4";

/// Conversations with runnable or due work, a page at a time; from 0 on runnable work counts.
pub(crate) const DUE: &str = "SELECT DISTINCT conversation FROM open_work
 WHERE wake_at BETWEEN ? AND ? AND conversation > ? ORDER BY conversation LIMIT ?";
/// The next time at which something is due.
pub(crate) const NEXT_WAKE: &str = "SELECT min(wake_at) FROM open_work WHERE wake_at > ?";
/// Conversations with an open approval, a page at a time.
pub(crate) const WAITING: &str = "SELECT DISTINCT conversation FROM open_work
 WHERE what = 2 AND conversation > ? ORDER BY conversation LIMIT ?";
/// Conversations whose run waits for a key, a page at a time.
pub(crate) const KEYLESS: &str = "SELECT o.conversation FROM open_work o JOIN task t ON t.id = o.id
 WHERE o.what = 0 AND t.checkpoint->>'$.phase.at' = 'needs-key' AND o.conversation > ? ORDER BY o.conversation LIMIT ?";
/// The end that a conversation owes its owner.
pub(crate) const REPORT: &str = "SELECT id FROM open_work WHERE conversation = ? AND what = 6";
/// How many runs are open.
pub(crate) const COUNT_RUNS: &str = "SELECT count(*) FROM open_work WHERE what = 0";

/// What kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Generation = 0,
    Call = 1,
    Approval = 2,
    Submission = 3,
    Compaction = 4,
    /// What a call waits for.
    Child = 5,
    /// The end of a conversation in the background, not told to its owner yet.
    Report = 6,
}

/// When it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Now, and at once after a reopen.
    Runnable,
    /// When something happens.
    OnEvent,
    /// At a time.
    At(i64),
}

impl Batch {
    pub fn put_open(&mut self, conversation: ConversationId, what: What, id: i64, wake: Wake) {
        let row = self
            .open_puts
            .row()
            .int(conversation.0)
            .int(what as i64)
            .int(id);
        match wake {
            Wake::Runnable => row.int(0),
            Wake::OnEvent => row.null(),
            Wake::At(at) => row.int(at.max(1)),
        };
    }

    pub fn drop_open(&mut self, conversation: ConversationId, what: What, id: i64) {
        self.open_drops
            .row()
            .int(conversation.0)
            .int(what as i64)
            .int(id);
    }
}
