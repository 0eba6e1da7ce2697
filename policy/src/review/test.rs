//! `mooring policy test`: a policy's own expectations, or a file of cases.

use std::collections::BTreeMap;

use mooring_crds::{Policy, Verdict};
use serde::Deserialize;

use super::calls::RecordedCall;
use super::locate::Lines;
use super::output::{Finding, Output, Report, Severity, report};
use super::source::{ReviewError, Source};
use crate::environment::ReviewEnvironment;
use crate::validate::failing;
use crate::{Rules, decide, read};

/// Checks the expectations that a policy carries.
pub fn test(source: &Source, output: Output) -> Report {
    let rules = Rules::new(&source.policy);
    let lines = Lines::of(&source.text);
    let mut findings = Vec::new();
    for (index, test) in source.policy.tests.iter().enumerate() {
        if let Some(message) = failing(test, &rules) {
            findings.push(Finding {
                severity: Severity::Error,
                code: "failing-test",
                file: source.name.clone(),
                line: lines.test(index),
                table: "tests".to_owned(),
                pattern: index.to_string(),
                message,
            });
        }
    }
    finish(&findings, source.policy.tests.len(), output)
}

fn finish(findings: &[Finding], total: usize, output: Output) -> Report {
    let failed = findings.len();
    let summary = format!("{} passed, {failed} failed", total - failed);
    report(findings, &summary, failed > 0, output)
}

#[derive(Deserialize)]
struct Fixture {
    #[serde(default)]
    symlink: BTreeMap<String, String>,
}

/// One case: a call, the policy it is decided by, and the answers that are right.
#[derive(Deserialize)]
struct Case {
    id: String,
    tool: String,
    input: String,
    policy: Policy,
    expect: Verdict,
    #[serde(default)]
    also_ok: Vec<Verdict>,
    #[serde(default)]
    fixture: Option<Fixture>,
    #[serde(default)]
    why: String,
}

impl Case {
    fn call(&self) -> RecordedCall {
        let mut call = RecordedCall::tool(&self.tool);
        // Tools of servers have their arguments as JSON.
        match serde_json::from_str(&self.input) {
            Ok(serde_json::Value::Object(arguments)) if self.tool != "bash" => {
                call.arguments = Some(arguments);
            }
            _ => call.input = Some(self.input.clone()),
        }
        call
    }
}

/// Decides each case of a file, one JSON object a line, in a place with the given
/// project and home folders.
///
/// # Errors
/// [`ReviewError::BadLine`] for the first line that is not a case.
pub fn cases(
    name: &str,
    text: &str,
    project: &str,
    home: &str,
    output: Output,
) -> Result<Report, ReviewError> {
    let mut findings = Vec::new();
    let mut total = 0;
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let case: Case = serde_json::from_str(line).map_err(|error| ReviewError::BadLine {
            name: name.to_owned(),
            line: index + 1,
            message: format!("not a case: {error}"),
        })?;
        total += 1;
        let mut place = ReviewEnvironment::new(project, home);
        if let Some(fixture) = &case.fixture {
            place = place.with_links(fixture.symlink.clone());
        }
        let decision = decide(
            &Rules::new(&case.policy),
            &read(&case.call().call()),
            &place,
        );
        if decision.verdict == case.expect || case.also_ok.contains(&decision.verdict) {
            continue;
        }
        let input: String = case.input.chars().take(200).collect();
        findings.push(Finding {
            severity: Severity::Error,
            code: "failing-case",
            file: name.to_owned(),
            line: index + 1,
            table: decision.rule.table.clone(),
            pattern: decision.rule.pattern.clone(),
            message: format!(
                "{}: {} {input:?} is {}, not {}. {} Unresolved: {:?}. The case says: {}",
                case.id,
                case.tool,
                decision.verdict,
                case.expect,
                decision.reason,
                decision
                    .unresolved
                    .iter()
                    .map(|place| &place.why)
                    .collect::<Vec<_>>(),
                case.why
            ),
        });
    }
    Ok(finish(&findings, total, output))
}
