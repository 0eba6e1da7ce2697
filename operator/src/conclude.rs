//! From what is there to what the status says. Pure.

use k8s_controller::conditions::{self, ConditionStatus, DesiredCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mooring_crds::{Phase, Problem, RunState, WorkspaceStatus, condition};

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
}

/// The conditions that the operator owns. Others have owners of their own.
pub const OWNED: [&str; 6] = [
    condition::READY,
    condition::RECONCILING,
    condition::STALLED,
    condition::ACCEPTED,
    condition::HARNESS_READY,
    condition::SANDBOX_READY,
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
    let harness = pod(findings.pods.harness.as_ref(), findings.run_state);
    let sandbox = pod(findings.pods.sandbox.as_ref(), findings.run_state);
    let both_up =
        harness.status == ConditionStatus::True && sandbox.status == ConditionStatus::True;
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
    } else if both_up {
        verdict(true, "Ready", "")
    } else if harness.status != ConditionStatus::True {
        verdict(
            false,
            harness.reason,
            format!("harness: {}", harness.message),
        )
    } else {
        verdict(
            false,
            sandbox.reason,
            format!("sandbox: {}", sandbox.message),
        )
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
        endpoint: Some(format!(
            "{}:{GRPC_PORT}",
            findings.names.host(Component::Harness)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            workspace: "platform".into(),
            namespace: "agents".into(),
        }
    }

    fn up() -> Option<PodState> {
        Some(PodState {
            wanted: 1,
            ready: 1,
            present: 1,
            current: true,
        })
    }

    fn down() -> Option<PodState> {
        Some(PodState {
            wanted: 0,
            ready: 0,
            present: 0,
            current: true,
        })
    }

    fn find(status: &WorkspaceStatus, type_: &str) -> String {
        let found = conditions::find(&status.conditions, type_).expect("a condition of that type");
        format!("{}/{}", found.status, found.reason)
    }

    #[test]
    fn conditions_follow_from_what_is_there() {
        let invalid = [Problem {
            path: "spec.models".into(),
            message: "is empty".into(),
        }];
        let not_ours = Error::NotOurs {
            kind: "Service".into(),
            name: "platform-harness".into(),
        };
        let conflict = Error::Conflict {
            kind: "Service".into(),
            name: "platform-harness".into(),
        };
        let unready = Some(PodState {
            ready: 0,
            ..up().expect("it is up")
        });
        let stale = Some(PodState {
            current: false,
            ..up().expect("it is up")
        });
        let running = RunState::Running;
        for (
            what,
            problems,
            run_state,
            harness,
            sandbox,
            error,
            ready,
            reconciling,
            stalled,
            phase,
        ) in [
            (
                "nothing yet",
                &[][..],
                running,
                None,
                None,
                None,
                "False/NotCreated",
                "True/NotCreated",
                "False/NotStalled",
                Phase::Progressing,
            ),
            (
                "both up",
                &[],
                running,
                up(),
                up(),
                None,
                "True/Ready",
                "False/Settled",
                "False/NotStalled",
                Phase::Ready,
            ),
            (
                "no harness",
                &[],
                running,
                unready.clone(),
                up(),
                None,
                "False/PodNotReady",
                "True/PodNotReady",
                "False/NotStalled",
                Phase::Progressing,
            ),
            (
                "no sandbox",
                &[],
                running,
                up(),
                unready,
                None,
                "False/PodNotReady",
                "True/PodNotReady",
                "False/NotStalled",
                Phase::Progressing,
            ),
            (
                "a new spec",
                &[],
                running,
                up(),
                stale,
                None,
                "False/Progressing",
                "True/Progressing",
                "False/NotStalled",
                Phase::Progressing,
            ),
            (
                "invalid, running on",
                &invalid,
                running,
                up(),
                up(),
                None,
                "False/Invalid",
                "False/Settled",
                "True/Invalid",
                Phase::Stalled,
            ),
            (
                "a foreign object",
                &[],
                running,
                up(),
                up(),
                Some(&not_ours),
                "False/NotOurs",
                "False/Settled",
                "True/NotOurs",
                Phase::Stalled,
            ),
            (
                "a passing error",
                &[],
                running,
                up(),
                up(),
                Some(&conflict),
                "False/Conflict",
                "True/Conflict",
                "False/NotStalled",
                Phase::Progressing,
            ),
            (
                "suspending",
                &[],
                RunState::Suspended,
                up(),
                down(),
                None,
                "False/Suspending",
                "True/Suspending",
                "False/NotStalled",
                Phase::Progressing,
            ),
            (
                "suspended",
                &[],
                RunState::Suspended,
                down(),
                down(),
                None,
                "False/Suspended",
                "False/Settled",
                "False/NotStalled",
                Phase::Suspended,
            ),
        ] {
            let names = names();
            let pods = Pods { harness, sandbox };
            let findings = Findings {
                names: &names,
                generation: Some(3),
                problems,
                run_state,
                pods: &pods,
                error,
                pending_approvals: Some(2),
            };
            let status = conclude(&findings, &WorkspaceStatus::default());
            assert_eq!(find(&status, condition::READY), ready, "{what}");
            assert_eq!(find(&status, condition::RECONCILING), reconciling, "{what}");
            assert_eq!(find(&status, condition::STALLED), stalled, "{what}");
            assert_eq!(status.phase, Some(phase), "{what}");
            assert!(
                status
                    .conditions
                    .iter()
                    .all(|c| c.observed_generation == Some(3)),
                "{what}"
            );
            // Concluding again from the result changes nothing.
            assert_eq!(conclude(&findings, &status), status, "{what}");
        }
    }

    #[test]
    fn conditions_of_others_are_left_to_them() {
        let names = names();
        let mut before = WorkspaceStatus::default();
        let _ = conditions::set(
            &mut before.conditions,
            DesiredCondition::new("DiscordReady", ConditionStatus::True, "Connected", ""),
        );
        let pods = Pods {
            harness: up(),
            sandbox: up(),
        };
        let findings = Findings {
            names: &names,
            generation: Some(1),
            problems: &[],
            run_state: RunState::Running,
            pods: &pods,
            error: None,
            pending_approvals: None,
        };
        let status = conclude(&findings, &before);
        assert!(
            status
                .conditions
                .iter()
                .all(|c| OWNED.contains(&c.type_.as_str()))
        );
    }
}
