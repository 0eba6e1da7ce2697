//! `mooring policy diff`: which calls are decided differently now.

use std::collections::BTreeMap;

use mooring_crds::Policy;

use super::calls::RecordedCall;
use super::locate::Lines;
use super::output::{Finding, Output, Report, Severity, report};
use super::source::Source;
use crate::Rules;
use crate::decide::Decision;
use crate::environment::Environment;

/// Compares two policies over recorded calls; without any, over calls that are
/// made from the rules of both. Fails when something became more permissive.
pub fn diff(
    old: &Source,
    new: &Source,
    calls: Option<&[RecordedCall]>,
    environment: &(dyn Environment + Sync),
    output: Output,
) -> Report {
    let made;
    let calls = match calls {
        Some(calls) => calls,
        None => {
            made = made_from(&[&old.policy, &new.policy]);
            &made
        }
    };
    // The same call is decided the same way however often it was made.
    let mut counted: BTreeMap<String, (usize, &RecordedCall)> = BTreeMap::new();
    for call in calls {
        let key = format!(
            "{}\0{:?}\0{:?}\0{:?}",
            call.tool,
            call.call().action,
            call.git,
            call.egress
        );
        counted.entry(key).or_insert((0, call)).0 += 1;
    }
    let distinct: Vec<(usize, &RecordedCall)> = counted.into_values().collect();
    let (before, after) = (Rules::new(&old.policy), Rules::new(&new.policy));
    let changed = changes(&distinct, &before, &after, environment);
    let lines = Lines::of(&new.text);
    let mut permissive = 0;
    let mut findings = Vec::new();
    for Change {
        call,
        times,
        was,
        now,
    } in &changed
    {
        let opened = now.verdict < was.verdict;
        permissive += usize::from(opened);
        findings.push(Finding {
            severity: if opened {
                Severity::Error
            } else {
                Severity::Notice
            },
            code: if opened {
                "more-permissive"
            } else {
                "stricter"
            },
            file: new.name.clone(),
            line: lines.rule(&now.rule.table, &now.rule.pattern),
            table: now.rule.table.clone(),
            pattern: now.rule.pattern.clone(),
            message: format!(
                "{}: {} was {} ({}), is {} ({}){}",
                if opened {
                    "more permissive"
                } else {
                    "stricter"
                },
                call.shown(),
                was.verdict,
                was.rule,
                now.verdict,
                now.rule,
                if *times > 1 {
                    format!("; {times} calls")
                } else {
                    String::new()
                },
            ),
        });
    }
    let summary = format!(
        "{} calls, {} distinct; {} decided differently, {permissive} of them more permissive",
        calls.len(),
        distinct.len(),
        changed.len()
    );
    report(&findings, &summary, permissive > 0, output)
}

struct Change<'a> {
    call: &'a RecordedCall,
    times: usize,
    was: Decision,
    now: Decision,
}

fn changes<'a>(
    calls: &[(usize, &'a RecordedCall)],
    before: &Rules,
    after: &Rules,
    environment: &(dyn Environment + Sync),
) -> Vec<Change<'a>> {
    let part = |calls: &[(usize, &'a RecordedCall)]| -> Vec<Change<'a>> {
        calls
            .iter()
            .filter_map(|(times, call)| {
                let was = call.decide(before, environment);
                let now = call.decide(after, environment);
                (was.verdict != now.verdict).then_some(Change {
                    call,
                    times: *times,
                    was,
                    now,
                })
            })
            .collect()
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    if calls.len() < 1000 || workers == 1 {
        return part(calls);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = calls
            .chunks(calls.len().div_ceil(workers))
            .map(|chunk| scope.spawn(move || part(chunk)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("deciding does not panic"))
            .collect()
    })
}

/// A call for each rule and each test: the pattern with `x` for its wildcards.
fn made_from(policies: &[&Policy]) -> Vec<RecordedCall> {
    let mut calls = Vec::new();
    for policy in policies {
        for pattern in policy.bash.keys() {
            for filling in ["", "x"] {
                calls.push(RecordedCall::bash(pattern.replace('*', filling).trim_end()));
            }
        }
        for pattern in policy.path.keys() {
            let path = pattern.replace('*', "x");
            calls.push(RecordedCall::path("read", &path));
            calls.push(RecordedCall::path("write", &path));
        }
        for pattern in policy.tool.keys().chain(policy.mcp.keys()) {
            calls.push(RecordedCall::tool(&pattern.replace('*', "x")));
        }
        for pattern in policy.git.keys() {
            let text = pattern.replace('*', "x");
            let whole = text.replace("push x", "push refs/heads/x");
            let whole = whole.replace("--force x", "--force refs/heads/x");
            let whole = whole.replace("--delete x", "--delete refs/heads/x");
            calls.extend(RecordedCall::push(&whole));
        }
        for pattern in policy.egress.keys() {
            let text = pattern.replace('*', "x");
            let with_port = if pattern == "*" { "x:443".into() } else { text };
            calls.extend(RecordedCall::connection(&with_port));
        }
        for own in [
            "refs/heads/mooring/x",
            "refs/heads/unheard-of",
            "refs/tags/unheard-of",
        ] {
            for option in ["", "--force ", "--delete "] {
                calls.extend(RecordedCall::push(&format!("push {option}{own}")));
            }
        }
        for test in &policy.tests {
            calls.extend(test.git.as_deref().and_then(RecordedCall::push));
            calls.extend(test.egress.as_deref().and_then(RecordedCall::connection));
            calls.extend(test.bash.as_deref().map(RecordedCall::bash));
            calls.extend(
                test.path
                    .as_deref()
                    .map(|path| RecordedCall::path("write", path)),
            );
            calls.extend(test.tool.as_deref().map(RecordedCall::tool));
        }
        calls.push(RecordedCall::bash("unheard-of x"));
        for port in [22, 80, 443] {
            calls.extend(RecordedCall::connection(&format!("unheard.of:{port}")));
        }
        calls.push(RecordedCall::path("read", "/unheard/of"));
        calls.push(RecordedCall::path("write", "unheard/of"));
    }
    calls
}
