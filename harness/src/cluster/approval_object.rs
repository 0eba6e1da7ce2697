//! An approval of the database as an object of the cluster. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use mooring_crds::{
    Approval, ApprovalPhase, ApprovalRequest, ApprovalSpec, ApprovalStatus, Decider, DeciderKind,
    Member, Requester as Shown, WorkspaceRef,
};
use mooring_durable::{
    gate::{self, ApprovalState},
    id::Millis,
    submission::Requester,
};

use crate::card::{Card, one_line};

/// How a decision came that was written into the object.
pub const VIA: &str = "kubernetes";
/// Characters of the arguments; a card shows no more either.
const ARGUMENTS: usize = 16_000;
/// Characters of a line.
const LINE: usize = 1_000;
/// Requesters that are named.
const REQUESTERS: usize = 100;

/// The object of an approval.
pub fn of(
    workspace: &str,
    owner: &OwnerReference,
    name: &str,
    approval: &gate::Approval,
    members: &[Member],
) -> Approval {
    let card = Card::read(approval);
    Approval {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: ApprovalSpec {
            request: ApprovalRequest {
                workspace_ref: WorkspaceRef {
                    name: workspace.to_owned(),
                },
                conversation: approval.conversation.0,
                task: approval.call.0,
                tool: approval.tool.chars().take(256).collect(),
                summary: cut(&one_line(&card.summary), LINE),
                arguments: cut(&card.detail, ARGUMENTS),
                arguments_sha256: approval.arguments_hash.0.clone(),
                policy_digest: card.policy_digest,
                rule: cut(&approval.question.rule, LINE),
                requesters: approval
                    .requesters
                    .iter()
                    .take(REQUESTERS)
                    .map(|requester| shown(requester, members))
                    .collect(),
                requester_may_approve: card.requester_may_approve,
                expires_at: approval.question.expires_at.map(time),
            },
            decision: None,
        },
        status: None,
    }
}

/// Where an approval stands, and what became of the call.
pub fn status(approval: &gate::Approval, executed: Option<bool>) -> ApprovalStatus {
    let decision = approval.decision.as_ref();
    ApprovalStatus {
        phase: Some(match approval.state {
            ApprovalState::Pending => ApprovalPhase::Pending,
            ApprovalState::Approved => ApprovalPhase::Approved,
            ApprovalState::Denied => ApprovalPhase::Denied,
            ApprovalState::Expired => ApprovalPhase::Expired,
            ApprovalState::Superseded | ApprovalState::Aborted => ApprovalPhase::Superseded,
        }),
        decided_by: decision.map(|decision| decider(&decision.by)),
        via: decision.map(|decision| decision.via.chars().take(64).collect()),
        decided_at: decision.map(|decision| time(decision.at)),
        executed,
    }
}

/// When the API server took the decision that stands in an object.
pub fn decided_at(shown: &Approval) -> Option<Millis> {
    let managers = shown.metadata.managed_fields.as_ref()?;
    let wrote = managers.iter().find(|manager| {
        manager.fields_v1.as_ref().is_some_and(|fields| {
            fields.0["f:spec"]["f:decision"].is_object()
                && manager
                    .subresource
                    .as_deref()
                    .unwrap_or_default()
                    .is_empty()
        })
    })?;
    Some(Millis(wrote.time.as_ref()?.0.as_millisecond()))
}

fn shown(requester: &Requester, members: &[Member]) -> Shown {
    let named = |name: &str| cut(name, 200);
    match requester {
        Requester::Discord { id, name } => Shown {
            name: named(name),
            discord_user_id: Some(id.clone()),
            kubernetes_user: members
                .iter()
                .find(|member| member.discord_user_id.as_ref() == Some(id))
                .and_then(|member| member.kubernetes_user.clone()),
        },
        Requester::Kubernetes { user } => Shown {
            name: named(user),
            discord_user_id: None,
            kubernetes_user: Some(user.clone()),
        },
        Requester::Local { .. } | Requester::Task { .. } => Shown {
            name: named(&requester.to_string()),
            discord_user_id: None,
            kubernetes_user: None,
        },
    }
}

fn decider(by: &Requester) -> Decider {
    let (kind, name, id) = match by {
        Requester::Discord { id, name } => (DeciderKind::Discord, name.clone(), id.clone()),
        Requester::Kubernetes { user } => (DeciderKind::Kubernetes, user.clone(), user.clone()),
        Requester::Local { name } => (DeciderKind::Cli, name.clone(), name.clone()),
        Requester::Task { id } => (DeciderKind::Cli, by.to_string(), id.to_string()),
    };
    Decider {
        kind,
        name: cut(&name, 200),
        id: cut(&id, 200),
    }
}

fn time(at: Millis) -> String {
    Timestamp::from_millisecond(at.0)
        .unwrap_or(Timestamp::MAX)
        .to_string()
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}… [+{} bytes]", &text[..at], text.len() - at),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use mooring_durable::{
        gate::{Decision, Question},
        id::{ConversationId, Hash, TaskId},
    };
    use serde_json::json;

    fn approval() -> gate::Approval {
        gate::Approval {
            task: TaskId(9),
            conversation: ConversationId(1),
            call: TaskId(8),
            tool: "bash".into(),
            arguments_hash: Hash("a".repeat(64)),
            requesters: vec![
                Requester::Discord {
                    id: "1".into(),
                    name: "ada".into(),
                },
                Requester::Local {
                    name: "attached".into(),
                },
            ],
            question: Question {
                rule: "bash \"git push*\"".into(),
                expires_at: Some(Millis(1_000)),
                data: json!({"summary": "git push", "detail": "x".repeat(20_000),
                    "policyDigest": "b".repeat(64)}),
            },
            asked_at: Millis(0),
            state: ApprovalState::Pending,
            decision: None,
            on_the_way: false,
            used_at: None,
        }
    }

    #[test]
    fn requesters_carry_their_kubernetes_names_and_long_arguments_say_what_is_cut() {
        let members: Vec<Member> = serde_json::from_value(json!([
            {"discordUserId": "1", "kubernetesUser": "ada@example.com", "role": "Approver"},
        ]))
        .unwrap();
        let made = of(
            "platform",
            &OwnerReference::default(),
            "n-9",
            &approval(),
            &members,
        );
        let request = &made.spec.request;
        assert_eq!(
            request.requesters[0].kubernetes_user.as_deref(),
            Some("ada@example.com")
        );
        assert_eq!(request.requesters[1].name, "local:attached");
        assert!(request.arguments.ends_with("… [+4000 bytes]"));
        assert_eq!(request.expires_at.as_deref(), Some("1970-01-01T00:00:01Z"));
        assert_eq!(
            status(&approval(), None).phase,
            Some(ApprovalPhase::Pending)
        );
    }

    #[test]
    fn the_status_names_who_decided_and_by_which_way() {
        let mut decided = approval();
        decided.state = ApprovalState::Denied;
        decided.decision = Some(Decision {
            approved: false,
            by: Requester::Kubernetes {
                user: "ada@example.com".into(),
            },
            via: VIA.into(),
            reason: String::new(),
            scope: "once".into(),
            at: Millis(2_000),
        });
        let status = serde_json::to_value(status(&decided, None)).unwrap();
        assert_eq!(
            status,
            json!({"phase": "Denied", "via": "kubernetes", "decidedAt": "1970-01-01T00:00:02Z",
                "decidedBy": {"kind": "Kubernetes", "name": "ada@example.com", "id": "ada@example.com"}})
        );
    }

    #[test]
    fn the_time_of_a_decision_is_the_api_servers() {
        let mut object = of(
            "platform",
            &OwnerReference::default(),
            "n-9",
            &approval(),
            &[],
        );
        object.metadata.managed_fields = serde_json::from_value(json!([
            {"manager": "harness", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:request": {}}}},
            {"manager": "kubectl", "time": "2026-01-01T00:00:05Z",
                "fieldsV1": {"f:spec": {"f:decision": {".": {}, "f:verdict": {}}}}},
        ]))
        .unwrap();
        assert_eq!(decided_at(&object), Some(Millis(1_767_225_605_000)));
    }
}
