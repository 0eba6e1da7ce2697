//! Approvals, grants and the audit.

use mooring_durable::{
    Approvals,
    gate::{Approval, ApprovalState, Decision},
    id::{ConversationId, Millis},
};
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use tonic::Status;

use super::{Service, session, storage};
use crate::{
    books::grant_statement,
    card::Card,
    members::{Act, Actor, may, may_be_approved, may_decide},
    record::{
        audit,
        grant::{self, Grant},
    },
};

/// A grant for the workspace without an end of its own lasts this long.
const WORKSPACE_GRANT_MS: i64 = 30 * 86_400_000;

impl Service {
    pub(super) async fn approvals(
        &self,
        request: wire::ApprovalsRequest,
    ) -> Result<wire::ApprovalsResponse, Status> {
        let conversation =
            (request.conversation != 0).then_some(ConversationId(request.conversation));
        let which = if request.all || !request.id.is_empty() {
            Approvals::All
        } else {
            Approvals::Pending
        };
        let found = self
            .engine
            .approvals(conversation, which)
            .await
            .map_err(session)?;
        let convert = self.convert();
        let approvals = found
            .iter()
            .map(|approval| convert.approval(approval))
            .filter(|approval| request.id.is_empty() || names(&approval.id, &request.id))
            .collect();
        Ok(wire::ApprovalsResponse { approvals })
    }

    /// Decides as `actor`, who did so at `at`.
    pub(crate) async fn decide(
        &self,
        actor: Actor,
        request: wire::DecideRequest,
        at: Millis,
    ) -> Result<wire::DecideResponse, Status> {
        let approval = self.find_approval(&request.id).await?;
        let convert = self.convert();
        if approval.state != ApprovalState::Pending {
            let approval = Some(convert.approval(&approval));
            return Ok(wire::DecideResponse {
                first: false,
                approval,
            });
        }
        let workspace = self.source.current();
        may_decide(
            &actor,
            &approval,
            workspace.spec.approvals.requester_may_approve,
        )
        .map_err(|text| status(Code::Forbidden, text))?;
        if request.approve {
            may_be_approved(&approval, workspace.spec.approvals.requester_may_approve)
                .map_err(|text| status(Code::Forbidden, text))?;
        }
        let scope = request.scope();
        if scope == wire::Scope::Workspace {
            may(&actor, Act::GrantWorkspace).map_err(|text| status(Code::Forbidden, text))?;
        }
        let wider =
            request.approve && matches!(scope, wire::Scope::Conversation | wire::Scope::Workspace);
        let mut extra = Vec::new();
        if wider {
            let card = Card::read(&approval);
            let rule = card.grant.ok_or_else(|| {
                let text = format!("this can be approved only once: {}", card.no_grant);
                status(Code::Invalid, text)
            })?;
            let until = (scope == wire::Scope::Workspace).then(|| match request.until_ms {
                0 => Millis(at.0 + WORKSPACE_GRANT_MS),
                given => Millis(given),
            });
            let by = actor.requester.to_string();
            extra.push(grant_statement(&approval, &rule, &by, at, until));
        }
        let decision = Decision {
            approved: request.approve,
            by: actor.requester,
            via: if request.via.is_empty() {
                "terminal".into()
            } else {
                request.via
            },
            reason: request.reason,
            scope: match scope {
                wire::Scope::Conversation => "conversation",
                wire::Scope::Workspace => "workspace",
                wire::Scope::Once | wire::Scope::Unspecified => "once",
            }
            .into(),
            at,
        };
        let (first, approval) = self
            .engine
            .decide(approval.task, decision, extra)
            .await
            .map_err(session)?
            .ok_or_else(|| not_found(&request.id))?;
        if first && wider {
            self.reload_grants().await?;
            // Other calls that wait may be covered now.
            self.engine.policy_changed();
        }
        Ok(wire::DecideResponse {
            first,
            approval: Some(convert.approval(&approval)),
        })
    }

    async fn find_approval(&self, id: &str) -> Result<Approval, Status> {
        let all = self
            .engine
            .approvals(None, Approvals::All)
            .await
            .map_err(session)?;
        let mut found = all
            .into_iter()
            .filter(|approval| names(&self.books.approval_id(approval), id));
        match (found.next(), found.next()) {
            (Some(approval), None) => Ok(approval),
            (Some(_), Some(_)) => Err(status(
                Code::Invalid,
                format!("{id:?} names more than one approval"),
            )),
            _ => Err(not_found(id)),
        }
    }

    /// Reads the grants from the file into the gate.
    pub(crate) async fn reload_grants(&self) -> Result<Vec<Grant>, Status> {
        let grants = grant::list(self.engine.reader())
            .await
            .map_err(|error| storage(&error))?;
        self.gate.set_grants(grants.clone());
        Ok(grants)
    }

    pub(super) async fn grants(
        &self,
        request: wire::GrantsRequest,
    ) -> Result<wire::GrantsResponse, Status> {
        let grants = self.reload_grants().await?;
        let grants = grants
            .iter()
            .filter(|grant| {
                request.conversation == 0
                    || grant
                        .conversation
                        .is_none_or(|c| c.0 == request.conversation)
            })
            .map(shown)
            .collect();
        Ok(wire::GrantsResponse { grants })
    }

    pub(super) async fn revoke_grant(
        &self,
        actor: Actor,
        request: wire::RevokeGrantRequest,
    ) -> Result<wire::RevokeGrantResponse, Status> {
        may(&actor, Act::GrantWorkspace).map_err(|text| status(Code::Forbidden, text))?;
        let statement = grant::revoked(request.id, self.clock.now(), &actor.requester.to_string());
        self.engine
            .commit("grant", vec![statement])
            .await
            .map_err(session)?;
        let grants = self.reload_grants().await?;
        let found = grants
            .iter()
            .find(|grant| grant.id == request.id)
            .ok_or_else(|| status(Code::NotFound, format!("there is no grant {}", request.id)))?;
        Ok(wire::RevokeGrantResponse {
            grant: Some(shown(found)),
        })
    }

    pub(super) async fn audit(
        &self,
        request: wire::AuditRequest,
    ) -> Result<wire::AuditResponse, Status> {
        let conversation =
            (request.conversation != 0).then_some(ConversationId(request.conversation));
        let limit = if request.limit == 0 {
            100
        } else {
            request.limit.min(10_000)
        };
        let rows = audit::list(self.engine.reader(), conversation, request.after, limit)
            .await
            .map_err(|error| storage(&error))?;
        let rows = rows
            .into_iter()
            .map(|row| wire::audit_response::Row {
                id: row.id,
                json: row.json.to_string(),
            })
            .collect();
        Ok(wire::AuditResponse { rows })
    }
}

/// `given` names the approval `id`: whole, or by the part after the incarnation.
fn names(id: &str, given: &str) -> bool {
    id == given || id.rsplit('-').next() == Some(given)
}

fn not_found(id: &str) -> Status {
    status(
        Code::NotFound,
        format!("there is no approval {id:?}; list them with `mooring approvals`"),
    )
}

fn shown(grant: &Grant) -> wire::Grant {
    wire::Grant {
        id: grant.id,
        conversation: grant.conversation.map_or(0, |c| c.0),
        tool: grant.tool.clone(),
        rule: covered(&grant.rule),
        asked_by_rule: grant.asked_by.clone(),
        given_by: grant.given_by.clone(),
        given_ms: grant.given_at.0,
        expires_ms: grant.expires_at.map_or(0, |at| at.0),
        revoked_ms: grant.revoked_at.map_or(0, |at| at.0),
        revoked_by: grant.revoked_by.clone().unwrap_or_default(),
    }
}

/// What a grant covers, in words.
fn covered(rule: &mooring_policy::GrantRule) -> String {
    let facts: Vec<&str> = rule.facts.iter().map(|fact| fact.text.as_str()).collect();
    mooring_policy::escape_for_display(&facts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_is_named_whole_or_by_its_number() {
        assert!(names("k3f9-12", "k3f9-12"));
        assert!(names("k3f9-12", "12"));
        assert!(!names("k3f9-12", "2"));
        assert!(!names("k3f9-12", ""));
    }
}
