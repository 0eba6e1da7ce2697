//! Every case file, each line a case.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use mooring_policy::{Action, Call, Policy, ReviewEnvironment, Rules, Verdict, decide, read};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    #[serde(default)]
    symlink: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    tool: String,
    input: String,
    policy: Policy,
    expect: Verdict,
    #[serde(default)]
    also_ok: Vec<Verdict>,
    fixture: Option<Fixture>,
    why: String,
}

fn run(case: &Case) -> (Verdict, String) {
    let mut place = ReviewEnvironment::new("/work", "/home/agent");
    if let Some(fixture) = &case.fixture {
        place = place.with_links(fixture.symlink.clone());
    }
    let path = serde_json::from_str::<serde_json::Value>(&case.input)
        .ok()
        .and_then(|input| input.get("path")?.as_str().map(str::to_owned));
    let action = match case.tool.as_str() {
        "bash" => Action::Bash { text: &case.input, cwd: "" },
        "read" => Action::Read { path: &case.input },
        "write" | "edit" => Action::Write { path: &case.input },
        "grep" | "find" | "ls" => Action::Search { path: &case.input },
        _ => match &path {
            Some(path) => Action::Write { path },
            None => Action::Other,
        },
    };
    let call = Call { tool: &case.tool, action };
    let decision = decide(&Rules::new(&case.policy), &read(&call), &place);
    (decision.verdict, format!("{:?} {:?}", decision.reason, decision.unresolved))
}

#[test]
fn every_case_is_decided_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let (mut passed, mut failed) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let case: Case = serde_json::from_str(line).unwrap();
            let (verdict, reason) = run(&case);
            if verdict == case.expect || case.also_ok.contains(&verdict) {
                passed += 1;
            } else {
                let input: String = case.input.chars().take(200).collect();
                failed.push(format!(
                    "{}: {verdict}, not {}: {input:?}\n    why: {}\n    got: {reason}",
                    case.id, case.expect, case.why
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), failed.len() + passed, failed.join("\n"));
}
