//! The gate: every call is decided by the policy, then by grants and approvals.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, RwLock},
};

use async_trait::async_trait;
use mooring_crds::Verdict;
use mooring_durable::{
    clock::Clock,
    gate::{Approval, ApprovalState, Gate, Question, Verdict as Gated},
    tool::{Call, ToolFailure},
};
use mooring_policy::{
    Action, Decision, Environment, Facts, ResolvedPath, decide, grant_covers, propose_grant,
};
use mooring_wire::sandbox::{ResolveRequest, StatRequest};
use serde_json::{Value, json};

use crate::{
    card::Card,
    mcp::server_of,
    record::grant::Grant,
    tools::{Hands, text},
    workspace::Loaded,
};

/// Paths that one call may have looked up; more are lacked, and the decision
/// says so.
const MAX_PATHS: usize = 200;

/// Decides calls for one harness.
pub struct PolicyGate {
    hands: Arc<Hands>,
    grants: RwLock<Vec<Grant>>,
    clock: Arc<dyn Clock>,
}

/// Why a call that the policy asks about may run all the same.
enum Standing {
    Approved,
    Refused(String),
    None,
}

impl PolicyGate {
    /// A gate that knows these grants.
    pub fn new(hands: Arc<Hands>, clock: Arc<dyn Clock>) -> Arc<PolicyGate> {
        Arc::new(PolicyGate {
            hands,
            grants: RwLock::default(),
            clock,
        })
    }

    /// The grants, as they now stand in the file.
    pub fn set_grants(&self, grants: Vec<Grant>) {
        *self
            .grants
            .write()
            .expect("never poisoned: no panic while held") = grants;
    }

    /// Decides a call as the policy does, without approvals and grants. `base` is the
    /// worktree that it works on in place of the project.
    async fn consider(
        &self,
        workspace: &Loaded,
        call: &Call,
        base: Option<&str>,
    ) -> (Facts, Decision, Known) {
        let facts = mooring_policy::read(&mooring_policy::Call {
            tool: &call.tool,
            action: action(call, workspace),
        });
        let known = self.look_up(&facts, base).await;
        let decision = decide(&workspace.rules, &facts, &known);
        (facts, decision, known)
    }

    /// What would be decided about a call, and the grant by which it would run all the
    /// same. Nothing runs, and nobody is asked.
    pub async fn explain(&self, workspace: &Loaded, call: &Call) -> (Decision, Option<i64>) {
        let checkout = self.hands.known_checkout(call.conversation);
        let checkout = checkout.as_ref().map(|checkout| checkout.path.as_str());
        let (facts, decision, known) = self.consider(workspace, call, checkout).await;
        let grant = (decision.verdict == Verdict::Ask)
            .then(|| self.granted(call, &facts, &decision, &known))
            .flatten();
        (decision, grant)
    }

    /// Looks up what the policy asks about paths. What the sandbox does not
    /// answer is lacked.
    async fn look_up(&self, facts: &Facts, base: Option<&str>) -> Known {
        let status = self.hands.link.status();
        let mut known = Known {
            project: base
                .or(status.as_ref().map(|s| s.project.as_str()))
                .unwrap_or_default()
                .to_owned(),
            home: status.as_ref().map(|s| s.home.clone()).unwrap_or_default(),
            ..Known::default()
        };
        let Ok(mut client) = self.hands.link.client() else {
            return known;
        };
        for path in facts.paths().take(MAX_PATHS) {
            if known.paths.contains_key(path) {
                continue;
            }
            let Ok(resolved) = client
                .resolve(ResolveRequest {
                    path: path.to_owned(),
                    base: base.unwrap_or_default().to_owned(),
                })
                .await
            else {
                continue;
            };
            let resolved = resolved.into_inner();
            known.paths.insert(
                path.to_owned(),
                ResolvedPath {
                    canonical: resolved.canonical,
                    exists: resolved.exists,
                    in_project: resolved.in_project,
                    kind: resolved.kind,
                    hard_links: resolved.hard_links,
                },
            );
        }
        for file in facts.runs().take(MAX_PATHS) {
            let Ok(found) = client
                .resolve(ResolveRequest {
                    path: file.to_owned(),
                    base: base.unwrap_or_default().to_owned(),
                })
                .await
            else {
                continue;
            };
            let path = found.into_inner().canonical;
            if let Ok(stat) = client.stat(StatRequest { path }).await {
                known
                    .contents
                    .insert(file.to_owned(), stat.into_inner().sha256);
            }
        }
        known
    }

    /// The canonical path of a file of the project that the model may read without a
    /// question; `None` where there is none. An error where the sandbox does not answer.
    pub(crate) async fn readable(
        &self,
        path: &str,
        base: Option<&str>,
    ) -> Result<Option<String>, String> {
        let workspace = self.hands.source.current();
        let facts = mooring_policy::read(&mooring_policy::Call {
            tool: "read",
            action: Action::Read { path },
        });
        let known = self.look_up(&facts, base).await;
        let Some(found) = known.paths.get(path) else {
            return Err("the sandbox does not answer".into());
        };
        let is_file = found.exists && found.in_project && found.kind == "file";
        let allowed = decide(&workspace.rules, &facts, &known).verdict == Verdict::Allow;
        Ok((is_file && allowed).then(|| found.canonical.clone()))
    }

    fn granted(
        &self,
        call: &Call,
        facts: &Facts,
        decision: &Decision,
        known: &Known,
    ) -> Option<i64> {
        let now = self.clock.now();
        let grants = self
            .grants
            .read()
            .expect("never poisoned: no panic while held");
        grants
            .iter()
            .filter(|grant| grant.holds(now) && grant.tool == call.tool)
            .filter(|grant| grant.conversation.is_none_or(|c| c == call.conversation))
            .find(|grant| grant_covers(&grant.rule, facts, decision, known))
            .map(|grant| grant.id)
    }
}

#[async_trait]
impl Gate for PolicyGate {
    async fn decide(&self, call: &Call, approvals: &[Approval]) -> Gated {
        let workspace = self.hands.source.current();
        let checkout = match action(call, &workspace) {
            Action::Other => None,
            // One server works for all conversations, on the one checkout.
            _ if server_of(&call.tool).is_some() => None,
            _ => match self.hands.checkout(call.conversation).await {
                Ok(checkout) => checkout.map(|checkout| checkout.path),
                Err(ToolFailure::Failed(reason)) => {
                    let record = json!({ "policyDigest": workspace.rules.digest() });
                    return Gated::Deny { reason, record };
                }
                // Nothing can be looked up either; the call waits for the sandbox.
                Err(_) => None,
            },
        };
        let (facts, decision, known) = self.consider(&workspace, call, checkout.as_deref()).await;
        if let Some(path) = call.arguments.get("path").and_then(Value::as_str)
            && let Some(found) = known.paths.get(path)
        {
            self.hands.decided_on(call.task, found.canonical.clone());
        }
        let record = json!({
            "decision": decision,
            "policyDigest": workspace.rules.digest(),
        });
        match decision.verdict {
            Verdict::Deny => Gated::Deny {
                reason: decision.reason.clone(),
                record,
            },
            Verdict::Allow => Gated::Allow { record },
            Verdict::Ask => match standing(approvals) {
                Standing::Approved => Gated::Allow { record },
                Standing::Refused(reason) => Gated::Deny { reason, record },
                Standing::None => {
                    if let Some(grant) = self.granted(call, &facts, &decision, &known) {
                        return Gated::Allow {
                            record: json!({
                                "decision": decision,
                                "policyDigest": workspace.rules.digest(),
                                "grant": grant,
                            }),
                        };
                    }
                    if call.autonomous {
                        let reason = format!(
                            "{} Nobody can be asked in this run, so it is denied.",
                            decision.reason
                        );
                        return Gated::Deny { reason, record };
                    }
                    Gated::Ask(
                        self.question(&workspace, call, &facts, &decision, &known, approvals),
                    )
                }
            },
        }
    }
}

impl PolicyGate {
    fn question(
        &self,
        workspace: &Loaded,
        call: &Call,
        facts: &Facts,
        decision: &Decision,
        known: &Known,
        approvals: &[Approval],
    ) -> Question {
        let rule = decision.rule.to_string();
        // Asked again, the same question keeps its time.
        let pending = approvals
            .iter()
            .find(|a| a.state == ApprovalState::Pending && a.question.rule == rule);
        if let Some(pending) = pending {
            return pending.question.clone();
        }
        let grade = self
            .hands
            .link
            .status()
            .map(|s| s.grade.clone())
            .unwrap_or_default();
        let mut card = Card::of(call, decision, workspace.rules.digest(), &grade);
        match propose_grant(&workspace.rules, facts, decision, known) {
            Ok(rule) => card.grant = Some(rule),
            Err(why) => card.no_grant = why,
        }
        card.question(workspace, self.clock.now())
    }
}

/// Of a given approval only a deny of the policy takes it back.
fn standing(approvals: &[Approval]) -> Standing {
    for approval in approvals.iter().rev() {
        match approval.state {
            ApprovalState::Approved => return Standing::Approved,
            ApprovalState::Denied => {
                let by = approval.decision.as_ref();
                let who = by
                    .map(|d| d.by.to_string())
                    .unwrap_or_else(|| "somebody".into());
                let why = by.map(|d| d.reason.as_str()).unwrap_or_default();
                return Standing::Refused(if why.is_empty() {
                    format!("{who} denied this call.")
                } else {
                    format!("{who} denied this call: {why}")
                });
            }
            ApprovalState::Expired => {
                return Standing::Refused("Nobody decided in time, so it is denied.".into());
            }
            ApprovalState::Pending | ApprovalState::Superseded | ApprovalState::Aborted => {}
        }
    }
    Standing::None
}

/// What a call does, as the policy sees it.
fn action<'a>(call: &'a Call, workspace: &Loaded) -> Action<'a> {
    let arguments = &call.arguments;
    match call.tool.as_str() {
        "bash" => Action::Bash {
            text: text(arguments, "command"),
            cwd: "",
        },
        "read" => Action::Read {
            path: text(arguments, "path"),
        },
        "write" | "edit" => Action::Write {
            path: text(arguments, "path"),
        },
        "grep" | "find" | "ls" => Action::Search {
            path: text(arguments, "path"),
        },
        tool => match path_of(tool, arguments, workspace) {
            Some(path) => Action::Write { path },
            None => Action::Other,
        },
    }
}

/// The path that a call of a server's tool names, where that server works on the project's
/// files: one that runs in the sandbox.
fn path_of<'a>(tool: &str, arguments: &'a Value, workspace: &Loaded) -> Option<&'a str> {
    let server = server_of(tool)?;
    let mut servers = workspace.spec.mcp.iter();
    servers.find(|spec| spec.name == server && spec.url.is_none())?;
    ["path", "file", "file_path"]
        .iter()
        .find_map(|name| arguments.get(name)?.as_str())
}

/// Facts about the environment, looked up in the sandbox.
#[derive(Clone, Debug, Default)]
pub struct Known {
    project: String,
    home: String,
    paths: HashMap<String, ResolvedPath>,
    contents: BTreeMap<String, String>,
}

impl Environment for Known {
    fn project(&self) -> &str {
        &self.project
    }

    fn home(&self) -> &str {
        &self.home
    }

    fn resolve(&self, path: &str) -> Option<ResolvedPath> {
        self.paths.get(path).cloned()
    }

    fn content_hash(&self, path: &str) -> Option<String> {
        self.contents
            .get(path)
            .filter(|hash| !hash.is_empty())
            .cloned()
    }
}
