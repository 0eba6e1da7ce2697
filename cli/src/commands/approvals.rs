//! `mooring approvals`, `approve` and `deny`.

use std::path::Path;

use jiff::tz::TimeZone;
use mooring_wire::harness::{ApprovalsRequest, DecideRequest, Scope};

use super::{objects, say};
use crate::args::{ApprovalsArgs, ApproveArgs, DenyArgs, Output, ScopeArg};
use crate::error::Error;
use crate::exit::Exit;
use crate::{cards, format, json, setup, terminal};

/// Lists approvals.
pub async fn list(project: Option<&Path>, args: ApprovalsArgs) -> Result<Exit, Error> {
    if args.cluster.is_named() {
        return objects::list(&args.cluster, args.all, args.output.output == Output::Json).await;
    }
    let connection = setup::records(project).await?;
    let request = ApprovalsRequest {
        conversation: args.conversation.unwrap_or_default(),
        all: args.all,
        id: String::new(),
    };
    let approvals = connection
        .client()
        .approvals(request)
        .await?
        .into_inner()
        .approvals;
    if args.output.output == Output::Json {
        for approval in &approvals {
            say(json::approval(approval))?;
        }
        return Ok(Exit::Done);
    }
    if approvals.is_empty() {
        say(if args.all {
            "no approvals were asked"
        } else {
            "no approval waits"
        })?;
    }
    let screen = terminal::stdout();
    for approval in &approvals {
        let zone = TimeZone::system();
        for line in cards::approval_card(approval, format::now_ms(), &zone, screen.width) {
            say(line.render(screen.colours))?;
        }
        if approval.state != "pending" {
            say(cards::decision_line(approval, screen.width).render(screen.colours))?;
        }
    }
    Ok(Exit::Done)
}

/// Approves one.
pub async fn approve(project: Option<&Path>, args: ApproveArgs) -> Result<Exit, Error> {
    if args.cluster.is_named() {
        return objects::decide(
            &args.cluster,
            &args.id,
            "Approved",
            args.scope,
            &args.reason,
        )
        .await;
    }
    let scope = match args.scope {
        ScopeArg::Once => Scope::Once,
        ScopeArg::Conversation => Scope::Conversation,
        ScopeArg::Workspace => Scope::Workspace,
    };
    let until_ms = match args.scope {
        ScopeArg::Workspace => until(&args.r#for, format::now_ms())?,
        ScopeArg::Once | ScopeArg::Conversation => 0,
    };
    let request = DecideRequest {
        id: args.id,
        approve: true,
        scope: scope.into(),
        reason: args.reason,
        via: "terminal".into(),
        until_ms,
        author: None,
    };
    decide(project, request).await
}

/// The moment at which a grant of this length ends.
fn until(length: &str, now_ms: i64) -> Result<i64, Error> {
    match mooring_crds::duration::duration(length) {
        Ok(Some(length)) => {
            Ok(now_ms.saturating_add(i64::try_from(length.as_millis()).unwrap_or(i64::MAX)))
        }
        Ok(None) => Err(Error::Usage(
            "--for: a grant for the workspace must end; write 7d".into(),
        )),
        Err(error) => Err(Error::Usage(format!("--for: {error}"))),
    }
}

/// Denies one.
pub async fn deny(project: Option<&Path>, args: DenyArgs) -> Result<Exit, Error> {
    if args.cluster.is_named() {
        let once = ScopeArg::Once;
        return objects::decide(&args.cluster, &args.id, "Denied", once, &args.reason).await;
    }
    let request = DecideRequest {
        id: args.id,
        approve: false,
        reason: args.reason,
        via: "terminal".into(),
        ..DecideRequest::default()
    };
    decide(project, request).await
}

/// Decides; 5 where somebody had decided otherwise before.
async fn decide(project: Option<&Path>, request: DecideRequest) -> Result<Exit, Error> {
    let wanted = if request.approve {
        "approved"
    } else {
        "denied"
    };
    let connection = setup::records(project).await?;
    let response = connection.client().decide(request).await?.into_inner();
    let approval = response.approval.unwrap_or_default();
    let screen = terminal::stdout();
    if !response.first {
        say("somebody had decided before:")?;
    }
    say(cards::decision_line(&approval, screen.width).render(screen.colours))?;
    Ok(if response.first || approval.state == wanted {
        Exit::Done
    } else {
        Exit::Refused
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_grant_for_the_workspace_has_an_end() {
        assert_eq!(until("8h", 1000).unwrap(), 28_801_000);
        for wrong in ["never", "soon", ""] {
            assert!(
                until(wrong, 0)
                    .unwrap_err()
                    .to_string()
                    .starts_with("--for"),
                "{wrong}"
            );
        }
    }
}
