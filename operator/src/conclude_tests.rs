//! What is concluded from what was found, case by case.

use super::*;
use mooring_wire::harness::status_response::Sandbox;

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

fn good() -> StatusResponse {
    StatusResponse {
        policy_digest: "d".into(),
        conversations: 2,
        cost_today_micros: 1_234_567,
        tokens_today: 99,
        sandbox: Some(Sandbox {
            reachable: true,
            egress: "denied".into(),
            ..Sandbox::default()
        }),
        ..StatusResponse::default()
    }
}

fn told(status: StatusResponse) -> Harness {
    Harness::Told(Box::new(status))
}

/// What is found of a Workspace that runs; a test names what it has otherwise.
fn findings<'a>(names: &'a Names, pods: &'a Pods, harness: &'a Harness) -> Findings<'a> {
    Findings {
        names,
        generation: Some(1),
        problems: &[],
        run_state: RunState::Running,
        pods,
        error: None,
        pending_approvals: Some(0),
        harness,
        only_warn: false,
        policy_digest: Some("d"),
    }
}

#[test]
fn what_the_harness_says_decides_where_both_pods_are_up() {
    let names = names();
    let pods = Pods {
        harness: up(),
        sandbox: up(),
    };
    let of_sandbox = |reachable, egress: &str, error: &str| {
        told(StatusResponse {
            sandbox: Some(Sandbox {
                reachable,
                egress: egress.into(),
                error: error.into(),
                ..Sandbox::default()
            }),
            ..good()
        })
    };
    let checkout =
        "checkout of https://git.example.com/x failed: git.example.com wants a credential";
    let fetching = told(StatusResponse {
        sandbox: Some(Sandbox {
            checkout: checkout.into(),
            error: checkout.into(),
            ..good().sandbox.unwrap_or_default()
        }),
        ..good()
    });
    let missing = told(StatusResponse {
        missing_keys: vec!["model/apiKey".into()],
        ..good()
    });
    let old = told(StatusResponse {
        policy_digest: "older".into(),
        ..good()
    });
    for (harness, type_, expected, ready, message) in [
        (
            told(good()),
            condition::EGRESS_DENIED,
            "True/Proved",
            "True/Ready",
            "",
        ),
        (
            told(good()),
            condition::POLICY_LOADED,
            "True/Loaded",
            "True/Ready",
            "",
        ),
        (
            Harness::Silent,
            condition::HARNESS_READY,
            "False/NotReached",
            "False/NotReached",
            "platform-harness.agents.svc:7443",
        ),
        (
            missing,
            condition::HARNESS_READY,
            "False/KeyMissing",
            "False/KeyMissing",
            "Secret model has no key apiKey",
        ),
        (
            of_sandbox(false, "", "gone"),
            condition::SANDBOX_READY,
            "False/NotReached",
            "False/NotReached",
            "gone",
        ),
        (
            fetching,
            condition::SANDBOX_READY,
            "False/CheckingOut",
            "False/CheckingOut",
            "git.example.com wants a credential",
        ),
        (
            of_sandbox(true, "reached", "api-server answered"),
            condition::EGRESS_DENIED,
            "False/Reached",
            "False/Reached",
            "api-server answered",
        ),
        (
            of_sandbox(true, "unknown", "too few"),
            condition::EGRESS_DENIED,
            "Unknown/NotProved",
            "False/NotProved",
            "too few",
        ),
        (
            old,
            condition::POLICY_LOADED,
            "False/Loading",
            "False/Loading",
            "older",
        ),
    ] {
        let findings = findings(&names, &pods, &harness);
        let status = conclude(&findings, &WorkspaceStatus::default());
        assert_eq!(find(&status, type_), expected);
        assert_eq!(find(&status, condition::READY), ready);
        let found = conditions::find(&status.conditions, type_).expect("it is there");
        assert!(found.message.contains(message), "{}", found.message);
        assert_eq!(conclude(&findings, &status), status, "{expected}");
    }
}

#[test]
fn a_network_that_only_warns_is_told_of_and_the_workspace_is_ready() {
    let names = names();
    let pods = Pods {
        harness: up(),
        sandbox: up(),
    };
    let found = |warning: &str, error: &str| {
        told(StatusResponse {
            sandbox: Some(Sandbox {
                reachable: true,
                egress: "reached".into(),
                warning: warning.into(),
                error: error.into(),
                ..Sandbox::default()
            }),
            ..good()
        })
    };
    let answered = "the sandbox has a network: api-server answered";
    for (harness, only_warn, ready, message) in [
        (
            found(answered, ""),
            true,
            "True/Ready",
            "tools run all the same",
        ),
        // The harness has not seen the change of the spec yet, either way.
        (
            found("", answered),
            true,
            "False/Reached",
            "tools are refused",
        ),
        (
            found(answered, ""),
            false,
            "False/Reached",
            "tools are refused",
        ),
    ] {
        let findings = Findings {
            only_warn,
            ..findings(&names, &pods, &harness)
        };
        let status = conclude(&findings, &WorkspaceStatus::default());
        assert_eq!(find(&status, condition::READY), ready);
        assert_eq!(find(&status, condition::EGRESS_DENIED), "False/Reached");
        let egress = conditions::find(&status.conditions, condition::EGRESS_DENIED);
        assert!(egress.expect("it is there").message.contains(message));
    }
}

#[test]
fn what_was_told_last_stays_while_the_harness_is_silent() {
    let names = names();
    let pods = Pods {
        harness: up(),
        sandbox: up(),
    };
    let mut status = WorkspaceStatus::default();
    for harness in [told(good()), Harness::Silent] {
        let findings = findings(&names, &pods, &harness);
        status = conclude(&findings, &status);
        assert_eq!(status.conversations, Some(2));
        let usage = status.usage.clone().expect("it was told");
        assert_eq!((usage.cost_usd.as_str(), usage.tokens), ("1.23", 99));
    }
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
    for (what, problems, run_state, harness, sandbox, error, ready, reconciling, stalled, phase) in [
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
        let harness = told(good());
        let findings = Findings {
            generation: Some(3),
            problems,
            run_state,
            error,
            pending_approvals: Some(2),
            ..findings(&names, &pods, &harness)
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
        pending_approvals: None,
        policy_digest: None,
        ..findings(&names, &pods, &Harness::NotAsked)
    };
    let status = conclude(&findings, &before);
    assert!(
        status
            .conditions
            .iter()
            .all(|c| OWNED.contains(&c.type_.as_str()))
    );
}
