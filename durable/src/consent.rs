//! What follows from the gate's verdict and from the approvals that a call has.

use serde_json::Value;

use crate::{
    gate::{Approval, ApprovalState, Question, Verdict},
    id::Hash,
};

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Consent {
    /// It runs; a pending approval is superseded.
    Run { record: Value },
    /// It does not; a pending approval is superseded.
    Deny { reason: String, record: Value },
    /// It goes on waiting for the approval that it has.
    Keep,
    /// It waits for a new approval; a pending one is superseded.
    Ask(Question),
}

/// Decides. `approvals` are those of the call, oldest first.
pub(crate) fn consent(verdict: Verdict, hash: &Hash, approvals: &[Approval]) -> Consent {
    // A person's no, or nobody's yes in time, is final for this call.
    let refused = approvals
        .iter()
        .rev()
        .find(|approval| {
            matches!(
                approval.state,
                ApprovalState::Denied | ApprovalState::Expired
            )
        })
        .map(refusal);
    match (verdict, refused) {
        (Verdict::Deny { reason, record }, _) => Consent::Deny { reason, record },
        (Verdict::Allow { record }, Some(reason)) => Consent::Deny { reason, record },
        (Verdict::Ask(_), Some(reason)) => Consent::Deny {
            reason,
            record: Value::Null,
        },
        (Verdict::Allow { record }, None) => Consent::Run { record },
        (Verdict::Ask(question), None) => {
            // One approval per arguments' hash and rule that asked.
            let same = approvals.iter().rev().find(|approval| {
                approval.arguments_hash == *hash && approval.question.rule == question.rule
            });
            match same.map(|approval| approval.state) {
                Some(ApprovalState::Pending) => Consent::Keep,
                Some(ApprovalState::Approved) => Consent::Run {
                    record: Value::Null,
                },
                _ => Consent::Ask(question),
            }
        }
    }
}

/// A refusal, for the model.
fn refusal(approval: &Approval) -> String {
    match (&approval.decision, approval.state) {
        (Some(decision), ApprovalState::Denied) if !decision.reason.is_empty() => {
            format!("Denied by {}: {}", decision.by, decision.reason)
        }
        (Some(decision), ApprovalState::Denied) => format!("Denied by {}.", decision.by),
        _ => "Denied: nobody approved the call in time.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gate::Decision,
        id::{ConversationId, Millis, TaskId},
        submission::Requester,
    };

    fn question(rule: &str) -> Question {
        Question {
            rule: rule.into(),
            expires_at: None,
            data: Value::Null,
        }
    }

    fn approval(rule: &str, hash: &str, state: ApprovalState) -> Approval {
        let decided = matches!(state, ApprovalState::Approved | ApprovalState::Denied);
        Approval {
            task: TaskId(1),
            conversation: ConversationId(1),
            call: TaskId(1),
            tool: "bash".into(),
            arguments_hash: Hash(hash.into()),
            requesters: Vec::new(),
            question: question(rule),
            asked_at: Millis(0),
            state,
            decision: decided.then(|| Decision {
                approved: state == ApprovalState::Approved,
                by: Requester::Local {
                    name: "anna".into(),
                },
                via: "terminal".into(),
                reason: "not now".into(),
                scope: "once".into(),
                at: Millis(1),
            }),
            on_the_way: false,
            used_at: None,
        }
    }

    #[test]
    fn verdicts_meet_approvals() {
        use ApprovalState::{Approved, Denied, Expired, Pending, Superseded};
        let allow = || Verdict::Allow {
            record: Value::Null,
        };
        let deny = || Verdict::Deny {
            reason: "policy".into(),
            record: Value::Null,
        };
        let ask = || Verdict::Ask(question("r"));
        for (verdict, approvals, expected) in [
            (allow(), vec![], "run"),
            (deny(), vec![], "deny policy"),
            (ask(), vec![], "ask"),
            (ask(), vec![("r", "h", Pending)], "keep"),
            (ask(), vec![("other", "h", Pending)], "ask"),
            (ask(), vec![("r", "other", Pending)], "ask"),
            (ask(), vec![("r", "h", Superseded)], "ask"),
            (ask(), vec![("r", "h", Approved)], "run"),
            (allow(), vec![("r", "h", Approved)], "run"),
            (allow(), vec![("r", "h", Pending)], "run"),
            (deny(), vec![("r", "h", Approved)], "deny policy"),
            (
                allow(),
                vec![("r", "h", Denied)],
                "deny Denied by local:anna: not now",
            ),
            (
                ask(),
                vec![("r", "h", Denied)],
                "deny Denied by local:anna: not now",
            ),
            (deny(), vec![("r", "h", Denied)], "deny policy"),
            (
                ask(),
                vec![("r", "h", Expired)],
                "deny Denied: nobody approved the call in time.",
            ),
        ] {
            let approvals: Vec<_> = approvals
                .into_iter()
                .map(|(rule, hash, state)| approval(rule, hash, state))
                .collect();
            let found = match consent(verdict.clone(), &Hash("h".into()), &approvals) {
                Consent::Run { .. } => "run".into(),
                Consent::Deny { reason, .. } => format!("deny {reason}"),
                Consent::Keep => "keep".into(),
                Consent::Ask(_) => "ask".into(),
            };
            assert_eq!(found, expected, "{verdict:?} {approvals:?}");
        }
    }
}
