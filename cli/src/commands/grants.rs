//! `mooring grants`: what was approved for more than once.

use std::path::Path;

use jiff::tz::TimeZone;
use mooring_wire::harness::{Grant, GrantsRequest, RevokeGrantRequest};

use super::say;
use crate::args::{GrantsArgs, Output};
use crate::error::Error;
use crate::exit::Exit;
use crate::text::one_line;
use crate::{format, json, setup};

/// Lists grants, or revokes one.
pub async fn run(project: Option<&Path>, args: GrantsArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let mut client = connection.client();
    let grants = match args.revoke {
        Some(id) => {
            let request = RevokeGrantRequest { id, author: None };
            Vec::from_iter(client.revoke_grant(request).await?.into_inner().grant)
        }
        None => {
            let conversation = args.conversation.unwrap_or_default();
            client
                .grants(GrantsRequest { conversation })
                .await?
                .into_inner()
                .grants
        }
    };
    if args.output.output == Output::Text && grants.is_empty() {
        say("nothing is granted for more than once")?;
    }
    for grant in &grants {
        match args.output.output {
            Output::Json => say(json::grant(grant))?,
            Output::Text => say(line(grant, format::now_ms(), &TimeZone::system()))?,
        }
    }
    Ok(Exit::Done)
}

/// One line of the list.
fn line(grant: &Grant, now_ms: i64, zone: &TimeZone) -> String {
    let mut text = format!(
        "{:>4}  {} {}  by {} {}",
        grant.id,
        one_line(&grant.tool, 40),
        one_line(&grant.rule, 200),
        one_line(&grant.given_by, 60),
        format::moment(now_ms, grant.given_ms, zone)
    );
    text.push_str(&match grant.conversation {
        0 => ", for the workspace".into(),
        id => format!(", for conversation {id}"),
    });
    if grant.revoked_ms > 0 {
        let when = format::moment(now_ms, grant.revoked_ms, zone);
        text.push_str(&format!(
            ", revoked by {} {when}",
            one_line(&grant.revoked_by, 60)
        ));
    } else if grant.expires_ms > 0 && grant.expires_ms <= now_ms {
        text.push_str(", expired");
    } else if grant.expires_ms > 0 {
        text.push_str(&format!(
            ", until {}",
            format::moment(now_ms, grant.expires_ms, zone)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_tells_reach_giver_and_end() {
        let grant = Grant {
            id: 4,
            tool: "bash".into(),
            rule: "rm -rf build".into(),
            given_by: "local:ann".into(),
            ..Grant::default()
        };
        let day = 86_400_000;
        for (grant, end) in [
            (
                Grant {
                    conversation: 7,
                    ..grant.clone()
                },
                ", for conversation 7",
            ),
            (
                Grant {
                    expires_ms: 3_600_000,
                    ..grant.clone()
                },
                ", for the workspace, until 01:00",
            ),
            (
                Grant {
                    expires_ms: 1,
                    ..grant.clone()
                },
                ", for the workspace, expired",
            ),
            (
                Grant {
                    revoked_ms: day,
                    revoked_by: "local:bo".into(),
                    ..grant.clone()
                },
                ", for the workspace, revoked by local:bo 1970-01-02 00:00",
            ),
        ] {
            assert_eq!(
                line(&grant, 1000, &TimeZone::UTC),
                format!("   4  bash rm -rf build  by local:ann 00:00{end}")
            );
        }
    }
}
