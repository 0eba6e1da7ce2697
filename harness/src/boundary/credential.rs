//! Whose connection it is: each execution has a credential of its own.
//!
//! The secret is derived from the execution's id by a key that lies in the
//! database, so that commands which outlive the harness go on with theirs. It
//! holds as long as the execution is not released.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use mooring_durable::{
    id::{ConversationId, TaskId},
    tool::Call,
};
use ring::hmac;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// How long a good secret waits for its execution: after a restart of the harness
/// commands may speak before their calls are attached again.
const PATIENCE: Duration = Duration::from_secs(10);
/// What one execution is told of at its end.
const MOST_NOTES: usize = 20;

/// Where a connection comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The conversation whose call runs the command.
    pub conversation: ConversationId,
    /// The call's task.
    pub task: TaskId,
    /// The execution's id.
    pub execution: String,
    /// Nobody can be asked.
    pub autonomous: bool,
}

struct Known {
    origin: Origin,
    notes: BTreeSet<String>,
    ended: CancellationToken,
}

/// The executions that may speak.
#[derive(Default)]
pub struct Credentials {
    key: OnceLock<[u8; 32]>,
    known: Mutex<HashMap<String, Known>>,
    changed: Notify,
}

impl Credentials {
    /// The key of the database is there.
    pub fn opened(&self, key: [u8; 32]) {
        let _ = self.key.set(key);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call's execution may speak from now on; returns its secret, and none
    /// before the database is open.
    pub fn admit(&self, call: &Call) -> Option<String> {
        let secret = self.secret(&call.execution)?;
        self.known()
            .entry(call.execution.clone())
            .or_insert_with(|| Known {
                origin: Origin {
                    conversation: call.conversation,
                    task: call.task,
                    execution: call.execution.clone(),
                    autonomous: call.autonomous,
                },
                notes: BTreeSet::new(),
                ended: CancellationToken::new(),
            });
        self.changed.notify_waiters();
        Some(secret)
    }

    /// The execution was released: its connections end, whoever holds them by now.
    pub fn end(&self, execution: &str) {
        if let Some(known) = self.known().remove(execution) {
            known.ended.cancel();
        }
    }

    /// Returns once the execution has been released.
    pub fn ended(&self, origin: &Origin) -> WaitForCancellationFutureOwned {
        let known = self.known();
        let ended = known.get(&origin.execution).map(|it| it.ended.clone());
        ended
            .unwrap_or_else(|| {
                let ended = CancellationToken::new();
                ended.cancel();
                ended
            })
            .cancelled_owned()
    }

    /// Remembers what the model is to be told when the command has ended.
    pub fn note(&self, origin: &Origin, text: String) {
        if let Some(known) = self.known().get_mut(&origin.execution)
            && known.notes.len() < MOST_NOTES
        {
            known.notes.insert(text);
        }
    }

    /// What was noted, once.
    pub fn notes(&self, execution: &str) -> Vec<String> {
        let mut known = self.known();
        let notes = known.get_mut(execution).map(|it| &mut it.notes);
        notes.map(std::mem::take).into_iter().flatten().collect()
    }

    /// Whose credential this is.
    pub async fn check(&self, execution: &str, secret: &str) -> Option<Origin> {
        // Compared in a time that tells nothing.
        let given = hex::decode(secret).ok()?;
        hmac::verify(&self.signing()?, execution.as_bytes(), &given).ok()?;
        let waiting = async {
            loop {
                // Armed before the look, so that nothing falls between.
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some(known) = self.known().get(execution) {
                    return known.origin.clone();
                }
                changed.await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.ok()
    }

    fn secret(&self, execution: &str) -> Option<String> {
        let code = hmac::sign(&self.signing()?, execution.as_bytes());
        Some(hex::encode(code))
    }

    fn signing(&self) -> Option<hmac::Key> {
        Some(hmac::Key::new(hmac::HMAC_SHA256, self.key.get()?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use mooring_durable::id::{Hash, SubmissionId};

    fn call(task: i64) -> Call {
        Call {
            conversation: ConversationId(3),
            run: SubmissionId(1),
            task: TaskId(task),
            execution: format!("abc-{task}"),
            call_id: String::new(),
            tool: "bash".into(),
            arguments: serde_json::Value::Null,
            arguments_hash: Hash::of(b""),
            requesters: Vec::new(),
            autonomous: false,
            binding: serde_json::Value::Null,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_credential_holds_for_its_own_execution_until_that_is_released() {
        let credentials = Credentials::default();
        assert_eq!(credentials.admit(&call(1)), None);
        credentials.opened([7; 32]);
        let secret = credentials.admit(&call(1)).unwrap();
        let other = credentials.admit(&call(2)).unwrap();
        let origin = credentials.check("abc-1", &secret).await.unwrap();
        assert_eq!((origin.conversation.0, origin.task.0), (3, 1));
        for (execution, secret) in [
            ("abc-1", other.as_str()),
            ("abc-1", ""),
            ("abc-1", &secret[1..]),
            ("abc-3", &secret),
            ("", &secret),
        ] {
            assert_eq!(
                credentials.check(execution, secret).await,
                None,
                "{execution}"
            );
        }
        credentials.end("abc-1");
        assert_eq!(credentials.check("abc-1", &secret).await, None);
        // The next process has the same key, and attaches the call a little later.
        let next = Credentials::default();
        next.opened([7; 32]);
        let (found, _) = tokio::join!(next.check("abc-2", &other), async {
            tokio::task::yield_now().await;
            next.admit(&call(2))
        });
        assert_eq!(found.unwrap().execution, "abc-2");
    }

    #[test]
    fn what_was_noted_is_told_once_and_is_bounded() {
        let credentials = Credentials::default();
        credentials.opened([7; 32]);
        credentials.admit(&call(1));
        let origin = Origin {
            conversation: ConversationId(3),
            task: TaskId(1),
            execution: "abc-1".into(),
            autonomous: false,
        };
        for number in 0..100 {
            credentials.note(&origin, format!("{:02}", number / 2));
        }
        assert_eq!(credentials.notes("abc-1").len(), MOST_NOTES);
        assert!(credentials.notes("abc-1").is_empty());
    }
}
