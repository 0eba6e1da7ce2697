//! `mooring policy check`: what is wrong with a policy, and what cannot have been meant.

use std::collections::HashMap;

use mooring_crds::Verdict;
use mooring_crds::policy::Table as Entries;

use super::locate::Lines;
use super::output::{Finding, Output, Report, Severity, report};
use super::source::Source;
use crate::programs::{base_name, interpreters, wrappers};
use crate::rules::{Rules, Table};
use crate::validate::{failing, shadowing, validate};

/// Checks a policy. Fails on an error, not on a warning or a notice.
pub fn check(source: &Source, output: Output) -> Report {
    let findings = findings(source);
    let errors = count(&findings, Severity::Error);
    let summary = format!(
        "{}: {} rules, {errors} errors, {} warnings, {} notices",
        source.name,
        source.policy.tool.len()
            + source.policy.bash.len()
            + source.policy.path.len()
            + source.policy.mcp.len()
            + source.policy.git.len()
            + source.policy.egress.len(),
        count(&findings, Severity::Warning),
        count(&findings, Severity::Notice),
    );
    report(&findings, &summary, errors > 0, output)
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings
        .iter()
        .filter(|finding| finding.severity == severity)
        .count()
}

fn findings(source: &Source) -> Vec<Finding> {
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
    for (name, entries, table) in [
        ("tool", &source.policy.tool, rules.tool()),
        ("bash", &source.policy.bash, rules.bash()),
        ("path", &source.policy.path, rules.path()),
        ("mcp", &source.policy.mcp, rules.mcp()),
        ("git", &source.policy.git, rules.git()),
        ("egress", &source.policy.egress, rules.egress()),
    ] {
        table_findings(source, &lines, name, entries, table, &mut findings);
    }
    findings
}

fn table_findings(
    source: &Source,
    lines: &Lines,
    name: &str,
    entries: &Entries,
    table: &Table,
    findings: &mut Vec<Finding>,
) {
    let mut add = |severity, code, pattern: &str, message: String| {
        findings.push(Finding {
            severity,
            code,
            file: source.name.clone(),
            line: lines.rule(name, pattern),
            table: name.to_owned(),
            pattern: pattern.to_owned(),
            message,
        });
    };
    let problems = match name {
        "tool" => validate(&only(entries, |policy| &mut policy.tool)),
        "bash" => validate(&only(entries, |policy| &mut policy.bash)),
        "mcp" => validate(&only(entries, |policy| &mut policy.mcp)),
        "git" => validate(&only(entries, |policy| &mut policy.git)),
        "egress" => validate(&only(entries, |policy| &mut policy.egress)),
        _ => validate(&only(entries, |policy| &mut policy.path)),
    };
    let patterns: HashMap<String, &String> = match problems.is_empty() {
        true => HashMap::new(),
        false => (entries.keys())
            .map(|pattern| (format!("{name}[{pattern:?}]"), pattern))
            .collect(),
    };
    for problem in problems {
        let pattern = patterns.get(&problem.path).map_or("", |pattern| pattern);
        add(Severity::Error, "invalid-rule", pattern, problem.message);
    }
    for (pattern, verdict) in entries {
        match verdict {
            Verdict::Allow => {
                if let Some(ask) = shadowing(pattern, table, Verdict::Ask) {
                    let message = format!(
                        "the allow for {pattern:?} in the {name} table never counts: the ask for \
                         {ask:?} covers all of it"
                    );
                    add(Severity::Warning, "shadowed-allow", pattern, message);
                }
                if !pattern.contains('*')
                    && let Some(found) = table.strict(&[pattern], None)
                {
                    let message = format!(
                        "the allow for {pattern:?} re-opens one value of the {} for {:?}",
                        found.verdict,
                        found.pattern.source()
                    );
                    add(Severity::Notice, "re-opened", pattern, message);
                }
                if name == "bash"
                    && let Some(message) = ineffective(pattern)
                {
                    add(Severity::Notice, "covers-little", pattern, message);
                }
            }
            Verdict::Ask | Verdict::Deny => {
                if let Some(other) = broader(pattern, *verdict, table) {
                    let message = format!(
                        "the {verdict} for {pattern:?} in the {name} table is never reached: \
                         {other:?} is as strict and covers all of it"
                    );
                    add(Severity::Notice, "unreachable", pattern, message);
                }
            }
        }
    }
}

/// A policy with one table.
fn only(
    entries: &Entries,
    table: impl FnOnce(&mut mooring_crds::Policy) -> &mut Entries,
) -> mooring_crds::Policy {
    let mut policy = mooring_crds::Policy::default();
    *table(&mut policy) = entries.clone();
    policy
}

/// Another deny or ask, at least as strict, that covers the pattern.
fn broader<'a>(pattern: &str, verdict: Verdict, table: &'a Table) -> Option<&'a str> {
    if pattern.trim_matches('*').is_empty() {
        return None;
    }
    let sample = pattern.replace('*', "\u{1}");
    let found = table.strict_besides(&sample, pattern)?;
    (found.verdict >= verdict).then(|| found.pattern.source())
}

/// Why an allow does less than it seems to.
fn ineffective(pattern: &str) -> Option<String> {
    let program = base_name(pattern.split([' ', '*']).next()?);
    if wrappers::is_one(program) {
        return Some(format!(
            "the allow for {pattern:?} does not cover the command that {program} runs; that command \
             is decided on its own"
        ));
    }
    interpreters::is_one(program).then(|| {
        format!(
            "the allow for {pattern:?} does not cover code in the words or on standard input of \
             {program}: that is always asked for"
        )
    })
}
