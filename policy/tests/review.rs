//! What `mooring policy` prints.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use mooring_policy::ReviewEnvironment;
use mooring_policy::review::calls::{RecordedCall, read_calls};
use mooring_policy::review::{Output, Source, cases, check, diff, explain, test};

const WORKSPACE: &str = r#"apiVersion: mooring.dev/v1alpha1
kind: Workspace
metadata:
  name: web
spec:
  models: [{name: m, provider: rehearsal}]
  policy:
    tool:
      "*": allow
      bash: ask
    bash:
      "git push*": ask
      "git push origin*": allow
      "git push origin docs": allow
      "rm -rf *": deny
      "rm -rf /*": deny
      "env *": allow
    tests:
    - {bash: "git push", expect: ask}
    - {bash: "rm -r -f x", expect: allow}
"#;

fn source(text: &str) -> Source {
    Source::new("workspaces/web.yaml", text).unwrap()
}

#[test]
fn check_names_each_rule_at_its_line() {
    let report = check(&source(WORKSPACE), Output::Human);
    assert!(report.failed);
    for expected in [
        "workspaces/web.yaml:20: error[failing-test]",
        "workspaces/web.yaml:13: warning[shadowed-allow]",
        "workspaces/web.yaml:14: notice[re-opened]",
        "workspaces/web.yaml:16: notice[unreachable]",
        "workspaces/web.yaml:17: notice[covers-little]",
    ] {
        assert!(
            report.text.contains(expected),
            "{expected} is not in\n{}",
            report.text
        );
    }
    assert_eq!(report.text.lines().count(), 6, "{}", report.text);
}

#[test]
fn annotations_stand_at_the_line_and_are_escaped() {
    let report = check(&source(WORKSPACE), Output::Github);
    let first = report.text.lines().next().unwrap();
    assert!(
        first.starts_with(
            "::error file=workspaces/web.yaml,line=20,title=policy failing-test::the test of bash"
        ),
        "{first}"
    );
    let text = "bash: {\"100%\\n*\": ask, \"100%\\nx*\": allow}\n";
    let report = check(&Source::new("a,b:c.yaml", text).unwrap(), Output::Github);
    assert!(
        report.text.contains("file=a%2Cb%3Ac.yaml"),
        "{}",
        report.text
    );
    assert!(report.text.contains("100%25"), "{}", report.text);
}

#[test]
fn a_good_policy_passes_in_each_form() {
    let good = "tool: {bash: ask}\nbash: {\"ls*\": allow}\ntests: [{bash: ls, expect: allow}]\n";
    for output in [Output::Human, Output::Json, Output::Github] {
        assert!(!check(&source(good), output).failed);
        assert!(!test(&source(good), output).failed);
    }
    let document: serde_json::Value =
        serde_json::from_str(&check(&source(good), Output::Json).text).unwrap();
    assert_eq!(document["passed"], true);
    assert_eq!(
        test(&source(good), Output::Human).text,
        "1 passed, 0 failed\n"
    );
}

#[test]
fn explain_shows_each_fact_with_its_rule() {
    let place = ReviewEnvironment::new("/work", "/home/agent");
    let call = RecordedCall::bash("timeout 5 rm -fr x > a.txt; git push $X");
    let json = explain(&source(WORKSPACE), &call, &place, Output::Json);
    let document: serde_json::Value = serde_json::from_str(&json.text).unwrap();
    assert_eq!(document["verdict"], "deny");
    assert!(document["reason"].as_str().unwrap().contains("rm -rf *"));
    let facts = document["facts"].as_array().unwrap();
    assert!(
        facts
            .iter()
            .any(|fact| fact["text"] == "rm -fr x" && fact["verdict"] == "deny")
    );
    assert!(
        facts
            .iter()
            .any(|fact| fact["kind"] == "redirect" && fact["text"] == "a.txt")
    );
    assert_eq!(document["unresolved"].as_array().unwrap().len(), 1);
    assert_eq!(document["policy_digest"].as_str().unwrap().len(), 64);
    let human = explain(&source(WORKSPACE), &call, &place, Output::Human);
    assert!(human.text.starts_with("deny: "), "{}", human.text);
    assert!(
        human.text.contains("not known here: where a.txt leads"),
        "{}",
        human.text
    );
    assert!(!human.failed);
}

#[test]
fn diff_fails_only_when_something_became_more_permissive() {
    let place = ReviewEnvironment::default();
    let old = source("tool: {bash: ask}\nbash: {\"git push*\": ask, \"ls*\": allow}\n");
    let open = source("tool: {bash: ask}\nbash: {\"git push*\": allow, \"ls*\": allow}\n");
    let calls = read_calls(
        "audit.jsonl",
        "{\"tool\": \"bash\", \"bash\": \"git push origin main\"}\n\
         {\"tool\": \"bash\", \"arguments\": {\"command\": \"git push origin main\"}}\n\
         {\"tool\": \"bash\", \"bash\": \"ls\"}\n",
    )
    .unwrap();
    let opened = diff(&old, &open, Some(&calls), &place, Output::Human);
    assert!(opened.failed);
    assert!(
        opened.text.contains("was ask") && opened.text.contains("is allow"),
        "{}",
        opened.text
    );
    assert!(
        opened.text.contains("workspaces/web.yaml:2: "),
        "{}",
        opened.text
    );
    assert!(opened.text.contains("2 calls"), "{}", opened.text);
    let closed = diff(&open, &old, Some(&calls), &place, Output::Human);
    assert!(!closed.failed);
    assert!(closed.text.contains("stricter"), "{}", closed.text);
    assert!(diff(&old, &open, None, &place, Output::Human).failed);
    assert!(!diff(&old, &old, None, &place, Output::Json).failed);
}

#[test]
fn a_hundred_thousand_recorded_calls_are_compared() {
    let mut lines = String::new();
    for index in 0..100_000 {
        let _ = writeln!(
            lines,
            "{{\"tool\": \"bash\", \"bash\": \"git log -{index} && grep x src/{index}.rs\"}}"
        );
    }
    let calls = read_calls("audit.jsonl", &lines).unwrap();
    let old = source("tool: {bash: ask}\nbash: {\"git log*\": allow, \"grep *\": allow}\n");
    let new = source("tool: {bash: ask}\nbash: {\"git log*\": allow, \"grep *\": ask}\n");
    let start = Instant::now();
    let report = diff(
        &old,
        &new,
        Some(&calls),
        &ReviewEnvironment::default(),
        Output::Human,
    );
    println!("100,000 calls in {:?}", start.elapsed());
    assert!(!report.failed);
    assert!(
        report
            .text
            .ends_with("100000 decided differently, 0 of them more permissive\n")
    );
    // Seconds where it is optimised; the bound is for builds that are not.
    assert!(start.elapsed() < Duration::from_secs(240));
}

#[test]
fn files_that_cannot_be_read_are_named_with_the_line() {
    for (text, expected) in [
        ("bash: {ls: maybe}\n", "workspaces/web.yaml"),
        ("kind: Pod\n", "kind Pod has no policy"),
        ("bsah: {ls: allow}\n", "bsah"),
        ("bash: [", "workspaces/web.yaml"),
    ] {
        let error = Source::new("workspaces/web.yaml", text)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = read_calls("audit.jsonl", "{\"tool\": \"x\"}\n{")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("audit.jsonl:2: not a recorded call"),
        "{error}"
    );
    let error = cases("c.jsonl", "{}", "/work", "/home/agent", Output::Human).unwrap_err();
    assert!(
        error.to_string().starts_with("c.jsonl:1: not a case"),
        "{error}"
    );
}

#[test]
fn a_case_that_is_decided_otherwise_is_printed() {
    let line = r#"{"id": "x", "tool": "bash", "input": "ls", "policy": {"bash": {"ls": "deny"}}, "expect": "allow", "why": "because"}"#;
    let report = cases("c.jsonl", line, "/work", "/home/agent", Output::Human).unwrap();
    assert!(report.failed);
    assert!(
        report
            .text
            .contains("c.jsonl:1: error[failing-case]: x: bash \"ls\" is deny, not allow")
    );
    assert!(
        report.text.ends_with("0 passed, 1 failed\n"),
        "{}",
        report.text
    );
}

#[test]
fn a_finding_for_each_of_thirty_thousand_rules_is_at_its_line() {
    let mut text = String::from("{\n\"bash\": {\n");
    for index in 0..30_000 {
        text.push_str(&format!("\"rm -rf data{index}/*\": \"deny\",\n"));
    }
    text.push_str("\"rm -rf data*\": \"deny\"\n}\n}\n");
    let report = check(&Source::new("p.json", &text).unwrap(), Output::Human);
    assert!(!report.failed);
    assert!(
        report
            .text
            .contains("p.json:30002: notice[unreachable]: the deny for \"rm -rf data29999/*\""),
        "{}",
        &report.text[report.text.len() - 400..]
    );
    assert!(
        report
            .text
            .ends_with("p.json: 30001 rules, 0 errors, 0 warnings, 30000 notices\n")
    );
}
