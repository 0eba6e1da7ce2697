//! What is wrong with a policy: a Workspace with such a policy is not accepted.

use mooring_crds::policy::Table as Entries;
use mooring_crds::{Policy, PolicyTest, Problem, Verdict};

use crate::environment::ReviewEnvironment;
use crate::review::calls::RecordedCall;
use crate::rules::{Rules, Table};

/// All that is wrong with `policy`; empty where nothing is. Each problem names the
/// table, the pattern and what is wrong, with a path below `spec.policy`.
pub fn validate(policy: &Policy) -> Vec<Problem> {
    let rules = Rules::new(policy);
    let mut problems = Vec::new();
    for (name, entries, table) in [
        ("tool", &policy.tool, rules.tool()),
        ("bash", &policy.bash, rules.bash()),
        ("path", &policy.path, rules.path()),
        ("mcp", &policy.mcp, rules.mcp()),
        ("git", &policy.git, rules.git()),
        ("egress", &policy.egress, rules.egress()),
    ] {
        patterns(name, entries, table, &mut problems);
    }
    for (index, test) in policy.tests.iter().enumerate() {
        if let Some(message) = failing(test, &rules) {
            problems.push(Problem {
                path: format!("tests[{index}]"),
                message,
            });
        }
    }
    problems
}

fn patterns(name: &str, entries: &Entries, table: &Table, problems: &mut Vec<Problem>) {
    for (pattern, verdict) in entries {
        let mut problem = |message: String| {
            problems.push(Problem {
                path: format!("{name}[{pattern:?}]"),
                message,
            });
        };
        if pattern.trim().is_empty() {
            problem(format!(
                "the {name} table has an empty pattern; write \"*\" for everything, or remove it"
            ));
        } else if name == "git"
            && !pattern.trim_matches('*').is_empty()
            && !pattern.starts_with("push ")
        {
            problem(format!(
                "the pattern {pattern:?} in the git table matches no ref update; write `push`, \
                 `push --force` or `push --delete`, a blank and a whole name, such as \
                 \"push refs/heads/main\""
            ));
        } else if name == "mcp" && !pattern.starts_with('*') && !pattern.starts_with("mcp__") {
            problem(format!(
                "the pattern {pattern:?} in the mcp table matches no server's tool; they are \
                 named mcp__SERVER__TOOL"
            ));
        } else if let Some(why) = (name == "egress")
            .then(|| mooring_crds::policy::egress_pattern(pattern).err())
            .flatten()
        {
            problem(format!("the pattern {pattern:?} in the egress table {why}"));
        } else if pattern.contains(crate::display::is_hidden) {
            problem(format!(
                "the pattern {pattern:?} in the {name} table has a character that cannot be seen"
            ));
        } else if *verdict == Verdict::Allow
            && let Some(deny) = shadowing(pattern, table, Verdict::Deny)
        {
            problem(format!(
                "the allow for {pattern:?} in the {name} table never counts: the deny for {deny:?} \
                 covers all of it; remove one of them, or name a single value without `*`"
            ));
        }
    }
}

/// The deny (or ask) that covers everything that an allow with wildcards matches.
pub(crate) fn shadowing<'a>(pattern: &str, table: &'a Table, by: Verdict) -> Option<&'a str> {
    if !pattern.contains('*') || pattern.trim_matches('*').is_empty() {
        return None; // equality wins over every wildcard, and `*` is the last resort
    }
    // A wildcard of the allow is a character that only a wildcard matches.
    let sample = pattern.replace('*', "\u{1}");
    let found = table.strict(&[&sample], None)?;
    (found.verdict == by).then(|| found.pattern.source())
}

/// Why an expectation does not hold; `None` where it does.
pub(crate) fn failing(test: &PolicyTest, rules: &Rules) -> Option<String> {
    let given = [&test.tool, &test.bash, &test.path, &test.git, &test.egress];
    if given.iter().filter(|value| value.is_some()).count() != 1 {
        return Some("a test has exactly one of tool, bash, path, git and egress".to_owned());
    }
    let (what, call) = match test {
        PolicyTest {
            git: Some(text), ..
        } => match RecordedCall::push(text) {
            Some(call) => (format!("git {text:?}"), call),
            None => {
                return Some(format!(
                    "a test of git is `push`, with --force or --delete or neither, and a whole \
                     name, not {text:?}"
                ));
            }
        },
        PolicyTest {
            egress: Some(text), ..
        } => match RecordedCall::connection(text) {
            Some(call) => (format!("egress {text:?}"), call),
            None => {
                return Some(format!("a test of egress is host:port, not {text:?}"));
            }
        },
        PolicyTest {
            bash: Some(text), ..
        } => (format!("bash {text:?}"), RecordedCall::bash(text)),
        PolicyTest {
            path: Some(path), ..
        } => (format!("path {path:?}"), RecordedCall::path("write", path)),
        PolicyTest {
            tool: Some(tool), ..
        } => (format!("tool {tool:?}"), RecordedCall::tool(tool)),
        PolicyTest { .. } => return None,
    };
    let decision = call.decide(rules, &ReviewEnvironment::default());
    (decision.verdict != test.expect).then(|| {
        format!(
            "the test of {what} expects {}, and the policy answers {}: {}",
            test.expect, decision.verdict, decision.reason
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::validate;

    fn problems(policy: &str) -> Vec<String> {
        let policy = serde_json::from_str(policy).unwrap();
        validate(&policy)
            .iter()
            .map(|problem| problem.path.clone())
            .collect()
    }

    #[test]
    fn what_is_wrong_is_named_with_its_table_and_pattern() {
        for (policy, expected) in [
            (r#"{"bash": {"git *": "allow", "*": "ask"}}"#, vec![]),
            (r#"{"bash": {"": "allow"}}"#, vec![r#"bash[""]"#]),
            (r#"{"mcp": {"mcp__*": "ask", "*": "ask"}}"#, vec![]),
            (
                r#"{"mcp": {"tracker__*": "ask"}}"#,
                vec![r#"mcp["tracker__*"]"#],
            ),
            (r#"{"path": {" ": "deny"}}"#, vec![r#"path[" "]"#]),
            (
                r#"{"tool": {"re\u200bad": "allow"}}"#,
                vec![r#"tool["re\u{200b}ad"]"#],
            ),
            (
                r#"{"bash": {"git push *": "deny", "git push origin *": "allow"}}"#,
                vec![r#"bash["git push origin *"]"#],
            ),
            // One value is an exception on purpose, and `*` is the rest.
            (
                r#"{"bash": {"git push*": "deny", "git push origin main": "allow"}}"#,
                vec![],
            ),
            (r#"{"path": {"*.env": "deny", "*": "allow"}}"#, vec![]),
            (
                r#"{"bash": {"ls*": "allow"}, "tests": [{"bash": "ls", "expect": "deny"}]}"#,
                vec!["tests[0]"],
            ),
            (
                r#"{"tests": [{"bash": "ls", "tool": "read", "expect": "deny"}]}"#,
                vec!["tests[0]"],
            ),
            (r#"{"tests": [{"expect": "deny"}]}"#, vec!["tests[0]"]),
            (
                r#"{"git": {"push refs/heads/*": "ask", "*": "deny", "refs/heads/main": "allow"}}"#,
                vec![r#"git["refs/heads/main"]"#],
            ),
            (
                r#"{"egress": {"a.example:443": "allow", "*.a.example:443": "ask", "*": "deny",
                    "a.example": "allow", "A.example:443": "allow", "10.0.0.1:443": "allow",
                    "https://a.example:443": "allow", "a.example:*": "allow", "*:22": "ask"},
                    "tests": [{"egress": "a.example:443", "expect": "allow"},
                    {"egress": "a.example:22", "expect": "ask"},
                    {"egress": "a.example", "expect": "deny"}]}"#,
                vec![
                    r#"egress["10.0.0.1:443"]"#,
                    r#"egress["A.example:443"]"#,
                    r#"egress["a.example"]"#,
                    r#"egress["a.example:*"]"#,
                    r#"egress["https://a.example:443"]"#,
                    "tests[2]",
                ],
            ),
            (
                r#"{"git": {"push --force *": "deny"}, "tests": [
                    {"git": "push --force refs/heads/mooring/x", "expect": "deny"},
                    {"git": "push refs/heads/mooring/x", "expect": "allow"},
                    {"git": "push main", "expect": "ask"}]}"#,
                vec!["tests[2]"],
            ),
            (
                r#"{"tool": {"bash": "ask"}, "tests": [{"bash": "git push", "expect": "ask"}]}"#,
                vec![],
            ),
        ] {
            assert_eq!(problems(policy), expected, "{policy}");
        }
    }
}
