//! Boundaries: which queued submissions enter the transcript now.

use serde::{Deserialize, Serialize};

use crate::{id::SubmissionId, submission::WhenBusy};

/// Where a run stands when its inbox is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Boundary {
    /// After a tool round: the run goes on.
    PostTools,
    /// After an answer, or while idle: what is placed starts a run.
    Final,
}

/// How many items of a queue one boundary places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueMode {
    /// The oldest.
    #[default]
    OneAtATime,
    /// All.
    All,
}

/// The modes of a conversation: `steerMode` and `followUpMode` of its settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueModes {
    /// Of steers.
    pub steer_mode: QueueMode,
    /// Of follow-ups.
    pub follow_up_mode: QueueMode,
}

impl QueueModes {
    /// As a conversation's settings have them; anything else is the default.
    pub fn of(settings: &serde_json::Value) -> QueueModes {
        let mode = |name: &str| match settings.get(name).and_then(|value| value.as_str()) {
            Some("all") => QueueMode::All,
            _ => QueueMode::OneAtATime,
        };
        QueueModes {
            steer_mode: mode("steerMode"),
            follow_up_mode: mode("followUpMode"),
        }
    }
}

/// A queued submission, as far as boundaries care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub id: SubmissionId,
    pub what: QueuedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuedKind {
    Write,
    Input(WhenBusy),
}

/// What to place, in this order: all writes, then user items, each by id.
///
/// Follow-ups wait while a steer does: each has a run of its own.
pub(crate) fn place(boundary: Boundary, queue: &[Queued], modes: QueueModes) -> Vec<SubmissionId> {
    let mut queue = queue.to_vec();
    queue.sort_by_key(|item| item.id);
    let ids = |wanted: &dyn Fn(QueuedKind) -> bool| {
        queue
            .iter()
            .filter(|item| wanted(item.what))
            .map(|item| item.id)
            .collect::<Vec<_>>()
    };
    let limit = |mut ids: Vec<SubmissionId>, mode| {
        if mode == QueueMode::OneAtATime {
            ids.truncate(1);
        }
        ids
    };
    let mut placed = ids(&|what| what == QueuedKind::Write);
    let steers = limit(
        ids(&|what| what == QueuedKind::Input(WhenBusy::Steer)),
        modes.steer_mode,
    );
    if !steers.is_empty() || boundary == Boundary::PostTools {
        placed.extend(steers);
    } else {
        placed.extend(limit(
            ids(&|what| {
                matches!(
                    what,
                    QueuedKind::Input(WhenBusy::FollowUp | WhenBusy::Reject)
                )
            }),
            modes.follow_up_mode,
        ));
    }
    placed
}

/// Idle: the oldest user item starts, whatever it is, after all writes.
pub(crate) fn place_idle(queue: &[Queued], modes: QueueModes) -> Vec<SubmissionId> {
    let oldest = queue
        .iter()
        .filter(|item| item.what != QueuedKind::Write)
        .min_by_key(|item| item.id);
    match oldest.map(|item| item.what) {
        Some(QueuedKind::Input(WhenBusy::FollowUp | WhenBusy::Reject)) => {
            let waiting: Vec<_> = queue
                .iter()
                .filter(|item| item.what != QueuedKind::Input(WhenBusy::Steer))
                .copied()
                .collect();
            place(Boundary::Final, &waiting, modes)
        }
        _ => place(Boundary::Final, queue, modes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(text: &str) -> Vec<Queued> {
        text.split_whitespace()
            .enumerate()
            .map(|(at, word)| Queued {
                id: SubmissionId(at as i64 + 1),
                what: match word {
                    "w" => QueuedKind::Write,
                    "s" => QueuedKind::Input(WhenBusy::Steer),
                    "f" => QueuedKind::Input(WhenBusy::FollowUp),
                    _ => QueuedKind::Input(WhenBusy::Reject),
                },
            })
            .collect()
    }

    #[test]
    fn boundaries_place_writes_then_steers_then_follow_ups() {
        let one = QueueModes::default();
        let all = QueueModes {
            steer_mode: QueueMode::All,
            follow_up_mode: QueueMode::All,
        };
        for (boundary, items, modes, expected) in [
            (Boundary::PostTools, "", one, vec![]),
            (Boundary::PostTools, "f", one, vec![]),
            (Boundary::PostTools, "s f w s w", one, vec![3, 5, 1]),
            (Boundary::PostTools, "s f w s w", all, vec![3, 5, 1, 4]),
            (Boundary::Final, "f w f", one, vec![2, 1]),
            (Boundary::Final, "f w f", all, vec![2, 1, 3]),
            (Boundary::Final, "f s", one, vec![2]),
            (Boundary::Final, "f r", one, vec![1]),
            (Boundary::Final, "w", one, vec![1]),
        ] {
            let placed: Vec<_> = place(boundary, &queue(items), modes)
                .iter()
                .map(|id| id.0)
                .collect();
            assert_eq!(placed, expected, "{boundary:?} {items}");
        }
    }

    #[test]
    fn an_idle_conversation_takes_the_oldest_first() {
        for (items, expected) in [
            ("f r", vec![1]),
            ("f s", vec![1]),
            ("s f", vec![1]),
            ("w f s", vec![1, 2]),
            ("r", vec![1]),
        ] {
            let placed: Vec<_> = place_idle(&queue(items), QueueModes::default())
                .iter()
                .map(|id| id.0)
                .collect();
            assert_eq!(placed, expected, "{items}");
        }
    }

    #[test]
    fn modes_come_from_the_settings() {
        let settings =
            serde_json::json!({"steerMode": "all", "followUpMode": "one-at-a-time", "title": "x"});
        assert_eq!(
            QueueModes::of(&settings),
            QueueModes {
                steer_mode: QueueMode::All,
                follow_up_mode: QueueMode::OneAtATime
            }
        );
        assert_eq!(
            QueueModes::of(&serde_json::Value::Null),
            QueueModes::default()
        );
    }
}
