//! From what is there to what the status says. Pure.

use k8s_controller::conditions::{self, ConditionStatus, DesiredCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mooring_crds::{Phase, Problem, RunState, UsageToday, WorkspaceStatus, condition};
use mooring_wire::harness::StatusResponse;

use crate::error::{Category, Error};
use crate::names::{Component, GRPC_PORT, Names};
use crate::observe::{PodState, Pods};

/// All that is concluded from.
#[derive(Debug)]
pub struct Findings<'a> {
    /// Whose status it is.
    pub names: &'a Names,
    /// The generation that was worked on.
    pub generation: Option<i64>,
    /// What is wrong with the spec; empty where nothing is.
    pub problems: &'a [Problem],
    /// Whether pods are wanted.
    pub run_state: RunState,
    /// Both pods.
    pub pods: &'a Pods,
    /// What stopped the pass.
    pub error: Option<&'a Error>,
    /// Approvals that wait; nothing where they could not be counted.
    pub pending_approvals: Option<u32>,
    /// What the harness says of itself.
    pub harness: &'a Harness,
    /// Whether a sandbox that is not proved to have no network is only told of.
    pub only_warn: bool,
    /// The digest of the policy that is wanted; nothing where the spec is not valid.
    pub policy_digest: Option<&'a str>,
}

/// What a harness says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Harness {
    /// Its pod is not ready, so nobody asked.
    #[default]
    NotAsked,
    /// Its pod is ready, and it does not answer.
    Silent,
    /// This.
    Told(Box<StatusResponse>),
}

/// The conditions that the operator owns. Others have owners of their own.
pub const OWNED: [&str; 8] = [
    condition::READY,
    condition::RECONCILING,
    condition::STALLED,
    condition::ACCEPTED,
    condition::HARNESS_READY,
    condition::SANDBOX_READY,
    condition::EGRESS_DENIED,
    condition::POLICY_LOADED,
];

struct Verdict {
    status: ConditionStatus,
    reason: &'static str,
    message: String,
}

fn verdict(holds: bool, reason: &'static str, message: impl Into<String>) -> Verdict {
    Verdict {
        status: holds.into(),
        reason,
        message: message.into(),
    }
}

fn pod(state: Option<&PodState>, run_state: RunState) -> Verdict {
    match (state, run_state) {
        (Some(state), RunState::Suspended) if state.present == 0 => {
            verdict(false, "Suspended", "scaled to zero by spec.runState")
        }
        (_, RunState::Suspended) => verdict(false, "Suspending", "its pod is ending"),
        (None, _) => verdict(false, "NotCreated", "there is no StatefulSet yet"),
        (Some(state), _) if !state.current => {
            verdict(false, "Progressing", "its StatefulSet has a new spec")
        }
        (Some(state), _) if state.ready < 1 => {
            verdict(false, "PodNotReady", "its pod is not ready")
        }
        (Some(_), _) => verdict(true, "PodReady", ""),
    }
}

fn unknown(reason: &'static str, message: impl Into<String>) -> Verdict {
    Verdict {
        status: ConditionStatus::Unknown,
        reason,
        message: message.into(),
    }
}

/// Whether the harness answers, and can call its models.
fn harness(pod: Verdict, told: &Harness, names: &Names) -> Verdict {
    match told {
        _ if pod.status != ConditionStatus::True => pod,
        Harness::NotAsked => pod,
        Harness::Silent => verdict(
            false,
            "NotReached",
            format!(
                "its pod is ready, and it does not answer at {}:{GRPC_PORT}",
                names.host(Component::Harness)
            ),
        ),
        Harness::Told(status) if !status.missing_keys.is_empty() => {
            let keys: Vec<String> = status
                .missing_keys
                .iter()
                .map(|name| match name.split_once('/') {
                    Some((secret, key)) => format!("Secret {secret} has no key {key}"),
                    None => format!("there is no key {name}"),
                })
                .collect();
            verdict(
                false,
                "KeyMissing",
                format!("{}; runs wait for it", keys.join("; ")),
            )
        }
        Harness::Told(_) => pod,
    }
}

/// Whether the harness reaches the sandbox, and the project is in it.
fn sandbox(pod: Verdict, told: &Harness) -> Verdict {
    match told {
        Harness::Told(status) if pod.status == ConditionStatus::True => match &status.sandbox {
            Some(sandbox) if sandbox.reachable && sandbox.checkout.is_empty() => pod,
            Some(sandbox) if sandbox.reachable => {
                verdict(false, "CheckingOut", sandbox.checkout.clone())
            }
            Some(sandbox) => verdict(
                false,
                "NotReached",
                format!("the harness does not reach it: {}", sandbox.error),
            ),
            None => unknown("NotTold", "the harness says nothing of it"),
        },
        _ => pod,
    }
}

/// Whether a probe has found that the sandbox reaches nothing.
fn egress(told: &Harness, only_warn: bool) -> Verdict {
    let Harness::Told(status) = told else {
        return unknown("NotAsked", "the harness does not answer");
    };
    let Some(sandbox) = status.sandbox.as_ref().filter(|sandbox| sandbox.reachable) else {
        return unknown("NotProbed", "the harness has not reached the sandbox");
    };
    let message = match (only_warn, sandbox.warning.as_str()) {
        (true, warning) if !warning.is_empty() => {
            format!("{warning}; tools run all the same, by egressVerification: Warn")
        }
        (false, warning) if !warning.is_empty() => format!("{warning}; tools are refused"),
        _ => format!("{}; tools are refused", sandbox.error),
    };
    match sandbox.egress.as_str() {
        "denied" => verdict(true, "Proved", ""),
        "reached" => verdict(false, "Reached", message),
        _ => unknown("NotProved", message),
    }
}

/// Whether the harness decides by the policy of this generation.
fn policy(told: &Harness, wanted: Option<&str>) -> Verdict {
    let Harness::Told(status) = told else {
        return unknown("NotAsked", "the harness does not answer");
    };
    let short = |digest: &str| digest.chars().take(12).collect::<String>();
    match wanted {
        None => unknown("Invalid", "the harness decides by the last valid policy"),
        Some(wanted) if status.policy_digest == wanted => verdict(true, "Loaded", ""),
        Some(_) if !status.workspace_error.is_empty() => {
            verdict(false, "Refused", status.workspace_error.clone())
        }
        Some(wanted) => verdict(
            false,
            "Loading",
            format!(
                "the harness still decides by {}, not by {}",
                short(&status.policy_digest),
                short(wanted)
            ),
        ),
    }
}

/// Millionths of a US dollar as a decimal.
fn dollars(micros: i64) -> String {
    let cents = (micros.max(0) + 5_000) / 10_000;
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// The status as it should be, from the one there is.
pub fn conclude(findings: &Findings<'_>, before: &WorkspaceStatus) -> WorkspaceStatus {
    let accepted = match findings.problems {
        [] => verdict(true, "Valid", ""),
        problems => {
            let all: Vec<_> = problems.iter().map(Problem::to_string).collect();
            verdict(
                false,
                "Invalid",
                format!("{}; what ran before keeps running", all.join("; ")),
            )
        }
    };
    let told = findings.harness;
    let harness = harness(
        pod(findings.pods.harness.as_ref(), findings.run_state),
        told,
        findings.names,
    );
    let sandbox = sandbox(
        pod(findings.pods.sandbox.as_ref(), findings.run_state),
        told,
    );
    let egress = egress(told, findings.only_warn);
    // Told, and no more, by egressVerification: Warn.
    let warned = matches!(told, Harness::Told(status)
        if findings.only_warn && status.sandbox.as_ref().is_some_and(|it| !it.warning.is_empty()));
    let policy = policy(told, findings.policy_digest);
    let invalid = accepted.status != ConditionStatus::True;
    let suspended = findings.run_state == RunState::Suspended;
    let gone = harness.reason == "Suspended" && sandbox.reason == "Suspended";

    let stalled = if invalid {
        verdict(true, "Invalid", accepted.message.clone())
    } else if let Some(error) = findings
        .error
        .filter(|e| e.category() == Category::Terminal)
    {
        verdict(true, error.reason(), error.to_string())
    } else {
        verdict(false, "NotStalled", "")
    };
    let is_stalled = stalled.status == ConditionStatus::True;
    let ready = if is_stalled {
        verdict(false, stalled.reason, stalled.message.clone())
    } else if let Some(error) = findings.error {
        verdict(false, error.reason(), error.to_string())
    } else if suspended {
        verdict(
            false,
            if gone { "Suspended" } else { "Suspending" },
            "spec.runState is Suspended",
        )
    } else {
        let parts = [
            ("harness", &harness),
            ("sandbox", &sandbox),
            ("egress", &egress),
            ("policy", &policy),
        ];
        match parts.into_iter().find(|(name, part)| {
            part.status != ConditionStatus::True && !(warned && *name == "egress")
        }) {
            None => verdict(true, "Ready", ""),
            Some((name, part)) => verdict(false, part.reason, format!("{name}: {}", part.message)),
        }
    };
    let settled = ready.status == ConditionStatus::True || is_stalled || (suspended && gone);
    let reconciling = if settled {
        verdict(false, "Settled", "")
    } else {
        verdict(true, ready.reason, ready.message.clone())
    };
    let phase = if is_stalled {
        Phase::Stalled
    } else if suspended && gone {
        Phase::Suspended
    } else if ready.status == ConditionStatus::True {
        Phase::Ready
    } else {
        Phase::Progressing
    };

    let mut all: Vec<Condition> = before
        .conditions
        .iter()
        .filter(|condition| OWNED.contains(&condition.type_.as_str()))
        .cloned()
        .collect();
    for (type_, verdict) in [
        (condition::READY, ready),
        (condition::RECONCILING, reconciling),
        (condition::STALLED, stalled),
        (condition::ACCEPTED, accepted),
        (condition::HARNESS_READY, harness),
        (condition::SANDBOX_READY, sandbox),
        (condition::EGRESS_DENIED, egress),
        (condition::POLICY_LOADED, policy),
    ] {
        let desired = DesiredCondition::new(type_, verdict.status, verdict.reason, verdict.message)
            .observed_generation(findings.generation);
        let _ = conditions::set(&mut all, desired);
    }
    all.sort_by_key(|condition| OWNED.iter().position(|owned| *owned == condition.type_));
    WorkspaceStatus {
        observed_generation: findings.generation,
        phase: Some(phase),
        conditions: all,
        pending_approvals: findings.pending_approvals.or(before.pending_approvals),
        policy_digest: match told {
            Harness::Told(status) => Some(status.policy_digest.clone()),
            _ => before.policy_digest.clone(),
        },
        conversations: match told {
            Harness::Told(status) => Some(status.conversations),
            _ => before.conversations,
        },
        usage: match told {
            Harness::Told(status) => Some(UsageToday {
                cost_usd: dollars(status.cost_today_micros),
                tokens: status.tokens_today,
            }),
            _ => before.usage.clone(),
        },
        endpoint: Some(format!(
            "{}:{GRPC_PORT}",
            findings.names.host(Component::Harness)
        )),
    }
}

#[cfg(test)]
#[path = "conclude_tests.rs"]
mod tests;
