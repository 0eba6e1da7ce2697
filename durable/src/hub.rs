//! The hub: what commits changed, to those who watch.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;

use crate::{context::weight, id::ConversationId, view::ChangeView};

/// Most frames that wait for a watcher.
const FRAMES: usize = 100;
/// What is kept for watchers that come back: frames, and about their bytes.
const KEPT_FRAMES: usize = 1_024;
const KEPT_BYTES: usize = 1024 * 1024;

/// A frame on its way.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub sequence: u64,
    pub change: Arc<ChangeView>,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Sent>,
    /// Who needs a snapshot first.
    behind: BTreeSet<ConversationId>,
    /// Sequence of the last snapshot, until a later frame has come: a commit can be
    /// read from the file a moment before it is published.
    shown: BTreeMap<ConversationId, u64>,
    closed: bool,
    /// Conversations that are followed beside the follower's one.
    also: BTreeSet<ConversationId>,
}

/// One watcher's end.
#[derive(Debug)]
pub(crate) struct Follower {
    conversation: Option<ConversationId>,
    queue: Mutex<Queue>,
    notify: Notify,
}

/// What a watcher gets next.
#[derive(Debug)]
pub(crate) enum Next {
    Snapshot(ConversationId),
    Sent(Sent),
    Closed,
}

impl Follower {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows these beside its one conversation, and no others.
    pub fn also(&self, conversations: BTreeSet<ConversationId>) {
        self.lock().also = conversations;
    }

    /// Waits for the next thing.
    pub async fn next(&self) -> Next {
        loop {
            let notified = self.notify.notified();
            {
                let mut queue = self.lock();
                if let Some(conversation) = queue.behind.pop_first() {
                    return Next::Snapshot(conversation);
                }
                if let Some(sent) = queue.frames.pop_front() {
                    return Next::Sent(sent);
                }
                if queue.closed {
                    return Next::Closed;
                }
            }
            notified.await;
        }
    }

    /// A snapshot of `conversation` was taken at `sequence`: earlier frames are in it.
    pub fn caught_up(&self, conversation: ConversationId, sequence: u64) {
        let mut queue = self.lock();
        queue
            .frames
            .retain(|sent| sent.change.conversation != conversation || sent.sequence > sequence);
        queue.shown.insert(conversation, sequence);
    }

    fn send(&self, sent: &Sent) {
        let of = sent.change.conversation;
        let mut queue = self.lock();
        let is_other = |only| only != of && !queue.also.contains(&of);
        if self.conversation.is_some_and(is_other) {
            return;
        }
        if queue.behind.contains(&sent.change.conversation) && self.conversation.is_some() {
            // Its snapshot is not taken yet and will have this.
            drop(queue);
            self.notify.notify_one();
            return;
        }
        match queue.shown.get(&sent.change.conversation) {
            Some(shown) if sent.sequence <= *shown => return,
            Some(_) => {
                queue.shown.remove(&sent.change.conversation);
            }
            None => {}
        }
        queue.frames.push_back(sent.clone());
        if queue.frames.len() > FRAMES {
            let missed: Vec<_> = queue
                .frames
                .drain(..)
                .map(|sent| sent.change.conversation)
                .collect();
            queue.behind.extend(missed);
        }
        drop(queue);
        self.notify.notify_one();
    }

    fn close(&self) {
        self.lock().closed = true;
        self.notify.notify_one();
    }
}

#[derive(Debug, Default)]
struct State {
    followers: Vec<Weak<Follower>>,
    kept: VecDeque<(Sent, usize)>,
    kept_bytes: usize,
    /// Everything after this sequence is kept.
    kept_after: u64,
    closed: bool,
}

/// All watchers of a session.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    state: Mutex<State>,
}

impl Hub {
    /// A hub of a file whose last commit is `sequence`.
    pub fn new(sequence: u64) -> Hub {
        Hub {
            state: Mutex::new(State {
                kept_after: sequence,
                ..State::default()
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everyone. In the order of commits. Gives back what is kept no longer.
    pub fn publish(&self, sequence: u64, change: ChangeView) -> Vec<Sent> {
        let bytes = bytes(&change);
        let sent = Sent {
            sequence,
            change: Arc::new(change),
        };
        let mut state = self.lock();
        state.followers.retain(|follower| match follower.upgrade() {
            Some(follower) => {
                follower.send(&sent);
                true
            }
            None => false,
        });
        state.kept.push_back((sent, bytes));
        state.kept_bytes += bytes;
        let mut forgotten = Vec::new();
        while state.kept.len() > KEPT_FRAMES || state.kept_bytes > KEPT_BYTES {
            let Some((oldest, bytes)) = state.kept.pop_front() else {
                break;
            };
            state.kept_bytes -= bytes;
            state.kept_after = oldest.sequence;
            forgotten.push(oldest);
        }
        forgotten
    }

    /// Begins to follow. `after`: the last sequence that the watcher saw.
    pub fn follow(
        &self,
        conversation: Option<ConversationId>,
        after: Option<u64>,
        all: &[ConversationId],
    ) -> Arc<Follower> {
        let mut state = self.lock();
        let mut queue = Queue {
            closed: state.closed,
            ..Queue::default()
        };
        match after {
            Some(after) if after >= state.kept_after => {
                let missed = state.kept.iter().filter(|(sent, _)| {
                    sent.sequence > after
                        && conversation.is_none_or(|only| only == sent.change.conversation)
                });
                queue.frames.extend(missed.map(|(sent, _)| sent.clone()));
                if queue.frames.len() > FRAMES {
                    let missed: Vec<_> = queue
                        .frames
                        .drain(..)
                        .map(|sent| sent.change.conversation)
                        .collect();
                    queue.behind.extend(missed);
                }
            }
            None if conversation.is_none() => {}
            _ => queue
                .behind
                .extend(conversation.as_ref().map_or(all, std::slice::from_ref)),
        }
        let follower = Arc::new(Follower {
            conversation,
            queue: Mutex::new(queue),
            notify: Notify::new(),
        });
        state.followers.push(Arc::downgrade(&follower));
        follower
    }

    /// Whether a sequence is too old to go on from.
    pub fn forgot(&self, after: u64) -> bool {
        after < self.lock().kept_after
    }

    /// Nothing more comes.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state
            .followers
            .drain(..)
            .filter_map(|follower| follower.upgrade())
            .for_each(|follower| follower.close());
    }
}

/// About the memory of a change.
fn bytes(change: &ChangeView) -> usize {
    let entries: usize = change
        .entries
        .iter()
        .map(|entry| 128 + entry.message.as_ref().map_or(0, weight))
        .sum();
    let chunks: usize = change
        .chunks
        .iter()
        .map(|chunk| 64 + chunk.text.len())
        .sum();
    256 + entries
        + chunks
        + 512 * (change.calls.len() + change.approvals.len() + change.submissions.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn publish(hub: &Hub, sequences: std::ops::RangeInclusive<u64>, conversation: i64) {
        for sequence in sequences {
            hub.publish(sequence, ChangeView::empty(ConversationId(conversation)));
        }
    }

    fn drain(follower: &Follower) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(next) = follower.next().now_or_never() {
            match next {
                Next::Snapshot(conversation) => found.push(format!("snapshot {conversation}")),
                Next::Sent(sent) => found.push(sent.sequence.to_string()),
                Next::Closed => {
                    found.push("closed".into());
                    break;
                }
            }
        }
        found
    }

    #[test]
    fn d099_the_101st_undelivered_frame_becomes_one_snapshot_and_later_frames_follow() {
        let hub = Hub::new(0);
        let follower = hub.follow(Some(ConversationId(1)), Some(0), &[]);
        publish(&hub, 1..=100, 1);
        publish(&hub, 101..=101, 2);
        assert_eq!(drain(&follower).len(), 100);
        publish(&hub, 102..=202, 1);
        assert_eq!(drain(&follower), ["snapshot 1"]);
        publish(&hub, 203..=204, 1);
        assert_eq!(drain(&follower), ["203", "204"]);
    }

    #[test]
    fn a_commit_that_a_snapshot_has_is_not_shown_again_when_it_is_published() {
        let hub = Hub::new(5);
        let follower = hub.follow(Some(ConversationId(1)), None, &[]);
        assert_eq!(drain(&follower), ["snapshot 1"]);
        // The file was read after commit 7, before it was published.
        follower.caught_up(ConversationId(1), 7);
        publish(&hub, 6..=9, 1);
        assert_eq!(drain(&follower), ["8", "9"]);
    }

    #[test]
    fn a_watcher_of_one_conversation_follows_those_that_work_for_it_as_long_as_they_do() {
        let hub = Hub::new(0);
        let follower = hub.follow(Some(ConversationId(1)), Some(0), &[]);
        follower.also(BTreeSet::from([ConversationId(2)]));
        publish(&hub, 1..=1, 1);
        publish(&hub, 2..=2, 2);
        publish(&hub, 3..=3, 3);
        assert_eq!(drain(&follower), ["1", "2"]);
        // Who falls behind gets a snapshot of each.
        publish(&hub, 4..=80, 1);
        publish(&hub, 81..=110, 2);
        assert_eq!(drain(&follower)[..2], ["snapshot 1", "snapshot 2"]);
        follower.also(BTreeSet::new());
        publish(&hub, 111..=111, 2);
        publish(&hub, 112..=112, 1);
        assert_eq!(drain(&follower), ["112"]);
    }

    #[test]
    fn a_watcher_that_comes_back_gets_what_it_missed_or_a_snapshot() {
        let hub = Hub::new(10);
        publish(&hub, 11..=14, 1);
        publish(&hub, 15..=15, 2);
        for (conversation, after, expected) in [
            (Some(1), Some(12), vec!["13", "14"]),
            (Some(1), Some(15), vec![]),
            (Some(1), Some(9), vec!["snapshot 1"]),
            (Some(1), None, vec!["snapshot 1"]),
            (None, Some(13), vec!["14", "15"]),
            (None, Some(3), vec!["snapshot 1", "snapshot 2"]),
            (None, None, vec![]),
        ] {
            let all = [ConversationId(1), ConversationId(2)];
            let follower = hub.follow(conversation.map(ConversationId), after, &all);
            assert_eq!(drain(&follower), expected, "{conversation:?} {after:?}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let hub = Hub::new(0);
        publish(&hub, 1..=5_000, 1);
        assert!(hub.forgot(3_900) && !hub.forgot(4_100));
    }

    #[test]
    fn a_closed_hub_ends_its_watchers_after_what_they_have() {
        let hub = Hub::new(0);
        let follower = hub.follow(None, None, &[]);
        publish(&hub, 1..=1, 1);
        hub.close();
        assert_eq!(drain(&follower), ["1", "closed"]);
        assert_eq!(drain(&hub.follow(None, None, &[])), ["closed"]);
    }
}
