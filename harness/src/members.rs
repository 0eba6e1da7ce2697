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
}

/// An act that needs a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Submit, steer, look.
    Talk,
    /// Fork a conversation, or ask beside it.
    Fork,
    /// Let a conversation begin anew.
    Reset,
    /// Let a conversation go on in another thread.
    Resume,
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
            Act::StopOthers | Act::Reset | Act::Resume | Act::GrantWorkspace => Role::Maintainer,
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
    let asked = approval
        .requesters
        .iter()
        .any(|requester| same(requester, &actor.requester));
    if asked && !requester_may_approve {
        return Err(
            "who asked for a call may not approve it here (approvals.requesterMayApprove)".into(),
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
            (Some(Role::Maintainer), Act::GrantWorkspace, true),
            (Some(Role::Maintainer), Act::Resume, true),
        ] {
            assert_eq!(may(&actor(role), act).is_ok(), allowed, "{role:?} {act:?}");
        }
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
