//! What is shown: snapshots and changes of committed state.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    compaction::Mode,
    gate::Approval,
    hub::{Follower, Next},
    id::{ConversationId, EntryId, Millis, SubmissionId, TaskId},
    ledger::Run,
    message::Message,
    read::Reader,
    submission::Submission,
    wait::Question,
};
use serde_json::Value;

/// One transcript item.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct EntryView {
    pub id: EntryId,
    pub conversation: ConversationId,
    /// `pi.user`, `pi.assistant`, …
    pub kind: String,
    pub at: Millis,
    pub message: Option<Message>,
    pub data: Value,
    /// "", "aborted", "error".
    pub state: String,
    /// The task that wrote it: of an answer its generation, whose request can be rebuilt.
    pub writer: Option<TaskId>,
}

/// A call of the current round.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct CallView {
    pub task: TaskId,
    pub conversation: ConversationId,
    pub tool: String,
    pub summary: String,
    pub arguments: Value,
    /// proposed, waiting-approval, running, asking, sleeping, delegated, unreachable, done, error, denied, interrupted, aborted
    pub state: &'static str,
    pub started_at: Option<Millis>,
    pub ended_at: Option<Millis>,
    /// "sandbox not reachable since …"
    pub note: String,
}

/// What a piece of a stream belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum StreamKind {
    Answer,
    Thinking,
    Output,
}

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct ChunkView {
    pub of: StreamKind,
    pub task: TaskId,
    /// Bytes of this stream before this piece.
    pub offset: u64,
    pub text: String,
}

/// What the views of a conversation show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shows {
    /// All of its history.
    #[default]
    All,
    /// Only its own entries: a side chat.
    Own,
}

/// A snapshot of one conversation.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct ConversationView {
    pub conversation: ConversationId,
    pub title: String,
    pub settings: Value,
    pub model: String,
    pub origin: crate::Origin,
    /// The sequence of the last commit that is in it.
    pub sequence: u64,
    pub entries: Vec<EntryView>,
    pub more: bool,
    pub run: Option<Run>,
    pub calls: Vec<CallView>,
    pub chunks: Vec<ChunkView>,
    pub inbox: Vec<Submission>,
    pub approvals: Vec<Approval>,
    /// Open questions.
    pub questions: Vec<Question>,
    /// A summary is being written.
    pub compaction: Option<Mode>,
}

/// What one commit changed in one conversation.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct ChangeView {
    pub conversation: ConversationId,
    pub entries: Vec<EntryView>,
    pub submissions: Vec<Submission>,
    /// `Some(None)`: the run ended.
    pub run: Option<Option<Run>>,
    /// The run that ended, with its last figures.
    pub ended: Option<Run>,
    pub calls: Vec<CallView>,
    pub chunks: Vec<ChunkView>,
    pub approvals: Vec<Approval>,
    /// Questions that were asked, or settled.
    pub questions: Vec<Question>,
    /// `Some(None)`: no summary is being written any more.
    pub compaction: Option<Option<Mode>>,
}

/// A line of the list of conversations.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct ConversationSummary {
    pub id: ConversationId,
    pub title: String,
    pub settings: Value,
    pub last_at: Millis,
    /// idle, running, waiting
    pub state: &'static str,
    pub pending_approvals: usize,
    pub queued: usize,
    pub entries: u64,
    pub first: Option<SubmissionId>,
}

/// A frame of a watch.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Frame {
    /// The whole of a conversation, at the start of a watch of one, or after falling behind.
    Snapshot(Box<ConversationView>),
    /// What a commit changed.
    Change {
        sequence: u64,
        change: Arc<ChangeView>,
    },
}

impl ChangeView {
    /// Nothing changed yet.
    pub(crate) fn empty(conversation: ConversationId) -> ChangeView {
        ChangeView {
            conversation,
            entries: Vec::new(),
            submissions: Vec::new(),
            run: None,
            ended: None,
            calls: Vec::new(),
            chunks: Vec::new(),
            approvals: Vec::new(),
            questions: Vec::new(),
            compaction: None,
        }
    }
}

/// Entries in a snapshot of a watch.
const SNAPSHOT_ENTRIES: usize = 50;

/// Follows commits. Holds at most 100 frames; who falls behind gets a snapshot, of
/// each conversation that it missed something of.
pub struct Watch {
    pub(crate) follower: Arc<Follower>,
    pub(crate) reader: Reader,
}

impl Watch {
    /// A watch of one conversation follows these beside it from now on, and no others.
    pub fn also(&self, conversations: BTreeSet<ConversationId>) {
        self.follower.also(conversations);
    }

    /// The next frame; `None` when the session is closed.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            match self.follower.next().await {
                Next::Closed => return None,
                Next::Sent(sent) => {
                    return Some(Frame::Change {
                        sequence: sent.sequence,
                        change: sent.change,
                    });
                }
                Next::Snapshot(conversation) => {
                    match self.reader.view(conversation, SNAPSHOT_ENTRIES, None).await {
                        Ok(Some(view)) => {
                            self.follower.caught_up(conversation, view.sequence);
                            return Some(Frame::Snapshot(Box::new(view)));
                        }
                        Ok(None) => {}
                        Err(error) => {
                            tracing::warn!(%conversation, %error, "a watch ends: its snapshot cannot be read");
                            return None;
                        }
                    }
                }
            }
        }
    }
}
