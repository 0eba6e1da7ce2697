//! Who may do what: one table for the terminal, Discord and kubectl alike,
//! asked at the moment of the act.

use mooring_crds::{Member, Role};
use mooring_durable::{gate::Approval, submission::Requester};

/// Somebody who acts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Who, as it is stored.
    pub requester: Requester,
    /// What they may do; `None` is nobody's member.
    pub role: Option<Role>,
    /// Who else they are, by the Workspace's members.
    pub also: Vec<Requester>,
}

/// Whoever speaks through a terminal that is attached to the cluster: all of them
/// share one certificate.
pub const ATTACHED: &str = "attached";

/// An act that needs a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Submit, steer, look.
    Talk,
    /// Fork a conversation, or ask beside it.
    Fork,
    /// Let a conversation begin anew, or compact it.
    Reset,
    /// Let a conversation go on in another thread.
    Resume,
    /// Give a conversation another model.
    Model,
    /// Export, import or delete a conversation.
    Transfer,
    /// Stop a run or withdraw an input of one's own.
    StopOwn,
    /// Stop somebody else's.
    StopOthers,
    /// Decide an approval, once or for the conversation.
    Decide,
    /// Grant for the workspace, revoke grants.
    GrantWorkspace,
}

impl Act {
    fn needs(self) -> Role {
        match self {
            Act::Talk | Act::Fork | Act::StopOwn => Role::User,
            Act::Decide => Role::Approver,
            Act::StopOthers
            | Act::Reset
            | Act::Resume
            | Act::Model
            | Act::Transfer
            | Act::GrantWorkspace => Role::Maintainer,
        }
    }
}

/// The role of a Discord user who holds `roles`; the highest that any entry gives.
pub fn discord_role(members: &[Member], user: &str, roles: &[String]) -> Option<Role> {
    members
        .iter()
        .filter(|member| {
            member.discord_user_id.as_deref() == Some(user)
                || member
                    .discord_role_id
                    .as_ref()
                    .is_some_and(|role| roles.contains(role))
        })
        .map(|member| member.role)
        .max()
}

/// A Kubernetes user, with the role and the Discord id that their member entries
/// give them.
pub fn kubernetes_actor(members: &[Member], user: &str) -> Actor {
    let own = || {
        members
            .iter()
            .filter(|member| member.kubernetes_user.as_deref() == Some(user))
    };
    Actor {
        requester: Requester::Kubernetes { user: user.into() },
        role: own().map(|member| member.role).max(),
        also: own()
            .filter_map(|member| member.discord_user_id.clone())
            .map(|id| Requester::Discord {
                id,
                name: user.into(),
            })
            .collect(),
    }
}

/// May `actor` do `act`? The error is for people.
pub fn may(actor: &Actor, act: Act) -> Result<(), String> {
    let needs = act.needs();
    match actor.role {
        Some(role) if role >= needs => Ok(()),
        Some(role) => Err(format!(
            "this needs the role {needs:?}; {} has {role:?}",
            actor.requester
        )),
        None => Err(format!(
            "{} is no member of this workspace",
            actor.requester
        )),
    }
}

/// May `actor` decide `approval`, where the one who asked may or may not approve?
pub fn may_decide(
    actor: &Actor,
    approval: &Approval,
    requester_may_approve: bool,
) -> Result<(), String> {
    may(actor, Act::Decide)?;
    let asked = approval.requesters.iter().any(|requester| {
        same(requester, &actor.requester) || actor.also.iter().any(|me| same(requester, me))
    });
    if asked && !requester_may_approve {
        return Err(
            "who asked for a call may not approve it here (approvals.requesterMayApprove)".into(),
        );
    }
    Ok(())
}

/// May `approval` be approved, where somebody asked for it whom nobody can tell
/// apart from whoever decides?
pub fn may_be_approved(approval: &Approval, requester_may_approve: bool) -> Result<(), String> {
    let unknown = approval
        .requesters
        .iter()
        .any(|requester| matches!(requester, Requester::Local { name } if name == ATTACHED));
    if unknown && !requester_may_approve {
        return Err(
            "this was asked for through an attached terminal, so nobody knows by whom, and who asked may not approve it here (approvals.requesterMayApprove); deny it, or ask again on Discord"
                .into(),
        );
    }
    Ok(())
}

/// The same person: display names do not count.
pub fn same(a: &Requester, b: &Requester) -> bool {
    match (a, b) {
        (Requester::Discord { id: a, .. }, Requester::Discord { id: b, .. }) => a == b,
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(user: Option<&str>, role_id: Option<&str>, role: Role) -> Member {
        Member {
            discord_user_id: user.map(Into::into),
            discord_role_id: role_id.map(Into::into),
            kubernetes_user: None,
            role,
        }
    }

    #[test]
    fn the_highest_role_that_any_entry_gives_counts() {
        let members = [
            member(None, Some("staff"), Role::User),
            member(Some("ada"), None, Role::Approver),
        ];
        let staff = ["staff".to_owned()];
        assert_eq!(discord_role(&members, "bob", &staff), Some(Role::User));
        assert_eq!(discord_role(&members, "ada", &staff), Some(Role::Approver));
        assert_eq!(discord_role(&members, "eve", &[]), None);
    }

    #[test]
    fn each_act_needs_its_role() {
        let actor = |role| Actor {
            requester: Requester::Local { name: "ada".into() },
            role,
            also: Vec::new(),
        };
        for (role, act, allowed) in [
            (None, Act::Talk, false),
            (Some(Role::User), Act::Talk, true),
            (Some(Role::User), Act::StopOwn, true),
            (Some(Role::User), Act::Decide, false),
            (Some(Role::Approver), Act::Decide, true),
            (Some(Role::Approver), Act::StopOthers, false),
            (Some(Role::Approver), Act::GrantWorkspace, false),
            (Some(Role::Approver), Act::Resume, false),
            (Some(Role::Approver), Act::Model, false),
            (Some(Role::Approver), Act::Transfer, false),
            (Some(Role::Maintainer), Act::Transfer, true),
            (Some(Role::Maintainer), Act::GrantWorkspace, true),
            (Some(Role::Maintainer), Act::Resume, true),
        ] {
            assert_eq!(may(&actor(role), act).is_ok(), allowed, "{role:?} {act:?}");
        }
    }

    #[test]
    fn a_kubernetes_user_has_the_role_and_the_discord_id_of_their_entry() {
        let mut ada = member(Some("1"), None, Role::Approver);
        ada.kubernetes_user = Some("ada@example.com".into());
        let members = [ada, member(Some("2"), None, Role::Maintainer)];
        let actor = kubernetes_actor(&members, "ada@example.com");
        assert_eq!(actor.role, Some(Role::Approver));
        assert!(matches!(&actor.also[..], [Requester::Discord { id, .. }] if id == "1"));
        let stranger = kubernetes_actor(&members, "eve@example.com");
        assert_eq!((stranger.role, stranger.also.len()), (None, 0));
    }

    #[test]
    fn a_changed_display_name_is_the_same_person() {
        let named = |name: &str| Requester::Discord {
            id: "1".into(),
            name: name.into(),
        };
        assert!(same(&named("ada"), &named("Ada L.")));
        assert!(!same(
            &named("ada"),
            &Requester::Discord {
                id: "2".into(),
                name: "ada".into()
            }
        ));
    }
}
