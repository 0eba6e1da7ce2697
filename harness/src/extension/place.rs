//! Where the model works: the project, the sandbox, what commands reach.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use mooring_crds::{Verdict, policy::Table};
use mooring_durable::{extension::Extension, id::ConversationId, prompt::Section};
use serde_json::Value;

use super::own;
use crate::{git::Gateway, tools::Hands};

/// How long a request waits for a sandbox that is not reached yet.
const PATIENCE: Duration = Duration::from_secs(3);

/// Tells the model where it is.
pub(super) struct Place {
    /// The sandbox, the Workspace, and which files a conversation works on.
    pub hands: Arc<Hands>,
    /// The repository, where commands reach one.
    pub git: Arc<Gateway>,
}

/// What commands reach, as a sentence.
fn network(egress: &Table) -> String {
    let hosts: Vec<String> = egress
        .iter()
        .filter(|(_, verdict)| **verdict != Verdict::Deny)
        .map(|(pattern, verdict)| {
            let pattern = if pattern == "*" {
                "every host at port 443"
            } else {
                pattern
            };
            match verdict {
                Verdict::Ask => format!("{pattern} (a person is asked first)"),
                _ => pattern.to_owned(),
            }
        })
        .collect();
    match hosts.is_empty() {
        true => {
            "it has no network and no credentials, so do not try to download or to push.".into()
        }
        false => format!(
            "it has no credentials, and its network is HTTPS to these, by a proxy that the \
             environment names: {}. Nothing else is reached.",
            hosts.join(", ")
        ),
    }
}

#[async_trait]
impl Extension for Place {
    async fn sections(
        &self,
        conversation: ConversationId,
        _settings: &Value,
    ) -> Result<Vec<Section>, String> {
        let hands = &self.hands;
        // A sandbox that is just starting is worth a moment: the first request of
        // a conversation should know where it is.
        let _ = tokio::time::timeout(PATIENCE, hands.link.reached()).await;
        let workspace = hands.source.current();
        let mut place = match hands.link.status() {
            // Not known yet: the section as it was stays.
            None => return Err("the sandbox has not been reached yet".into()),
            Some(status) => format!(
                "You are a coding agent. You work on the project in {} through your tools. \
                 Commands run in a sandbox on Linux: {} {}",
                status.project,
                network(&workspace.spec.policy.egress),
                match self.git.own() {
                    Some(address) => format!(
                        "git is let through: it fetches from {address} and pushes to it, with \
                         a credential that it does not see. Push your work to branches under \
                         mooring/; other pushes may wait for a person. "
                    ),
                    None => String::new(),
                }
            ),
        };
        // Where there is none its calls are told why.
        if let Ok(Some(checkout)) = hands.checkout(conversation).await {
            place.push_str(&format!(
                "This conversation has a git worktree of its own, {}, on the branch {}: commands \
                 begin there, and paths are relative to it. Commit there what shall stay. ",
                checkout.path, checkout.branch
            ));
        }
        place.push_str(
            "Some calls wait for a person to approve them; a call that is denied comes back as \
             an error with the reason: then go on without it or say what you need. When you are \
             done, answer briefly with what you did and what you verified.",
        );
        Ok(own(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_told_what_commands_reach() {
        let none = Table::from([("*".into(), Verdict::Deny)]);
        assert!(network(&none).contains("no network"));
        let some = Table::from([
            ("crates.io:443".into(), Verdict::Allow),
            ("evil.example:443".into(), Verdict::Deny),
            ("pypi.org:443".into(), Verdict::Ask),
        ]);
        let told = network(&some);
        assert!(told.contains("crates.io:443, pypi.org:443 (a person is asked first)."));
        assert!(!told.contains("evil"));
    }
}
