//! A host that has to be asked for: the first connection of a conversation to it
//! makes an approval, and waits.

use std::sync::Arc;

use bytes::BytesMut;
use mooring_crds::Verdict;
use mooring_durable::{
    clock::{Clock, SystemClock},
    gate::{Approval, ApprovalState, Question},
    id::Hash,
    on_the_way::OnTheWay,
};
use mooring_policy::{Decision, decide_connection};
use mooring_wire::tunnel::Connection;

use super::{Boundary, credential::Origin, proxy::denied};
use crate::{card::Card, workspace::Loaded};

/// Bytes that a client may send before it is answered.
const MOST_EARLY: usize = 64 << 10;

/// What came of it.
pub enum Asked {
    /// It may connect, by this decision.
    Allowed(Decision),
    /// It may not: what the client is told.
    Refused(Decision, String),
}

/// Asks, and waits for the answer as long as the client does. What the client sends
/// meanwhile goes to `early`. The policy is asked again whenever it changes.
pub async fn ask(
    boundary: &Arc<Boundary>,
    origin: &Origin,
    (host, port): (&str, u16),
    early: &mut BytesMut,
    connection: &Connection,
) -> Asked {
    let name = format!("{host}:{port}");
    let mut changes = boundary.source.changes();
    loop {
        let workspace = changes.borrow_and_update().clone();
        let decision = decide_connection(&workspace.rules, host, port);
        match decision.verdict {
            Verdict::Allow => return Asked::Allowed(decision),
            Verdict::Deny => {
                let text = denied(&decision, host, port);
                return Asked::Refused(decision, text);
            }
            Verdict::Ask => {}
        }
        let refused = |text: String| Asked::Refused(decision.clone(), text);
        if origin.autonomous {
            return refused(format!(
                "{name} has to be asked for by {}, and nobody can be asked in this run",
                decision.rule
            ));
        }
        let Some(engine) = boundary.engine.get() else {
            return refused("the harness is starting; try again".into());
        };
        let asked = engine
            .ask_on_the_way(OnTheWay {
                conversation: origin.conversation,
                call: origin.task,
                what: "egress".into(),
                hash: Hash::of(format!("egress {name}").as_bytes()),
                question: question(&workspace, &decision, &name),
            })
            .await;
        let mut passing = match asked {
            Ok(Some(passing)) => passing,
            Ok(None) => return refused(format!("{name}: the call has ended, so nobody is asked")),
            Err(error) => return refused(format!("{name} could not be asked for: {error}")),
        };
        let rule = decision.rule.to_string();
        let approval = passing.approval().clone();
        let waited = boundary
            .git
            .hold
            .during(&origin.execution, passing.settled());
        tokio::pin!(waited);
        let settled = loop {
            tokio::select! {
                settled = &mut waited => break Some(settled),
                changed = changes.changed() => {
                    let now = changes.borrow().clone();
                    let again = decide_connection(&now.rules, host, port);
                    let same = again.verdict == Verdict::Ask && again.rule.to_string() == rule;
                    if changed.is_ok() && same {
                        continue;
                    }
                    if let Err(error) = engine.supersede(&approval).await {
                        tracing::warn!(%error, "a question stays though the policy has changed");
                    }
                    break None;
                }
                piece = connection.piece(), if early.len() < MOST_EARLY => match piece {
                    Ok(Some(piece)) => early.extend_from_slice(&piece),
                    // The question stays: the command may come again.
                    Ok(None) | Err(_) => {
                        return refused(format!("{name}: the client went away while it was asked for"));
                    }
                },
            }
        };
        match settled {
            None => {}
            Some(Err(error)) => return refused(format!("{name} could not be asked for: {error}")),
            Some(Ok(approval)) => match approval.state {
                ApprovalState::Approved => {
                    let now = boundary.source.current();
                    let again = decide_connection(&now.rules, host, port);
                    return match again.verdict {
                        Verdict::Deny => {
                            let text = denied(&again, host, port);
                            Asked::Refused(again, text)
                        }
                        Verdict::Allow | Verdict::Ask => Asked::Allowed(again),
                    };
                }
                ApprovalState::Superseded => {}
                _ => return refused(told(&name, &approval)),
            },
        }
    }
}

fn told(name: &str, approval: &Approval) -> String {
    match (approval.state, &approval.decision) {
        (ApprovalState::Denied, Some(decision)) if decision.reason.is_empty() => {
            format!("{name} was asked for, and {} denied it", decision.by)
        }
        (ApprovalState::Denied, Some(decision)) => format!(
            "{name} was asked for, and {} denied it: {}",
            decision.by, decision.reason
        ),
        (ApprovalState::Expired, _) => {
            format!("{name} was asked for, and nobody decided in time, so it is denied")
        }
        _ => format!("{name} was asked for, and the run ended before anybody decided"),
    }
}

fn question(workspace: &Loaded, decision: &Decision, name: &str) -> Question {
    let card = Card {
        summary: format!("connect to {name}"),
        detail: format!(
            "A command wants to connect to {name}, by TLS. Approved, commands of this \
             conversation may do so as long as the rule stands."
        ),
        facts: vec![format!("connection: {name} (ask by {})", decision.rule)],
        rule: decision.rule.to_string(),
        reason: decision.reason.clone(),
        policy_digest: workspace.rules.digest().to_owned(),
        no_grant: "it holds for the conversation by itself; for all, write a rule".into(),
        ..Card::default()
    };
    card.question(workspace, SystemClock.now())
}
