//! No input panics, hangs or needs time that grows faster than the input.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mooring_policy::{
    Action, Call, NoEnvironment, Policy, Rules, Verdict, decide, escape_for_display, read,
};

fn policy(bash: &[(&str, Verdict)]) -> Policy {
    let table: BTreeMap<String, Verdict> = bash
        .iter()
        .map(|(pattern, verdict)| ((*pattern).to_owned(), *verdict))
        .collect();
    Policy {
        tool: BTreeMap::from([("*".to_owned(), Verdict::Allow)]),
        bash: table,
        ..Policy::default()
    }
}

fn verdict(rules: &Rules, text: &str) -> Verdict {
    let call = Call {
        tool: "bash",
        action: Action::Bash { text, cwd: "" },
    };
    decide(rules, &read(&call), &NoEnvironment::default()).verdict
}

/// Far above what any of them takes, far below what quadratic work would take.
const BOUND: Duration = Duration::from_secs(20);

#[test]
fn any_script_is_answered_in_bounded_time() {
    let rules = Rules::new(&policy(&[
        ("*", Verdict::Allow),
        ("rm -rf *", Verdict::Deny),
    ]));
    let megabyte = 1 << 20;
    let mut scripts: Vec<(String, String)> = Vec::new();
    for piece in [
        "a",
        " ",
        "a ",
        "ls;",
        "ls|",
        "ls&&",
        "ls\n",
        "'",
        "\"",
        "`",
        "\\",
        "(",
        ")",
        "$(",
        "{",
        "}",
        "${x:-",
        "[",
        "[[ ",
        "((",
        "$((",
        "<(",
        "<<E\n",
        "#",
        "!",
        "! ",
        "if ",
        "if a; then ",
        "while ",
        "case x in ",
        "f() ",
        "f() { ",
        "time ",
        "coproc ",
        "x=",
        "> ",
        "{a,",
        "$x",
        "*",
        "\u{202e}",
        "\0",
        "é",
        "\u{1f600}",
        "1+",
        "a[",
        "-- ",
        "env ",
        "sudo ",
        "\\`",
        "$'\\x",
        "&& (",
    ] {
        scripts.push((
            format!("{piece:?} for a megabyte"),
            piece.repeat(megabyte / piece.len()),
        ));
        scripts.push((
            format!("{piece:?} below the limit"),
            piece.repeat(60_000 / piece.len()),
        ));
        scripts.push((
            format!("{piece:?} 10,000 times"),
            piece.repeat(10_000.min(60_000 / piece.len())),
        ));
    }
    for (open, close) in [
        ("(", ")"),
        ("$(", ")"),
        ("{ ", ";}"),
        ("\"$(", ")\""),
        ("if a; then ", "; fi"),
    ] {
        for levels in [20, 40, 100, 1_000, 10_000] {
            let text = format!("{}ls{}", open.repeat(levels), close.repeat(levels));
            scripts.push((format!("{levels} levels of {open:?}"), text));
        }
    }
    let mut slow = Vec::new();
    for (name, script) in scripts {
        let start = Instant::now();
        let answer = verdict(&rules, &script);
        if start.elapsed() > BOUND {
            slow.push(format!("{name} took {:?}", start.elapsed()));
        }
        if script.len() > (64 << 10) {
            assert_ne!(answer, Verdict::Allow, "{name}");
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

#[test]
fn a_deny_is_found_in_text_that_is_not_parsed() {
    let rules = Rules::new(&policy(&[
        ("*", Verdict::Allow),
        ("rm -rf *", Verdict::Deny),
    ]));
    for script in [
        format!("{}\nrm -rf build", "ls\n".repeat(100_000)),
        format!("{}rm -rf build", "(".repeat(10_000)),
        "ls; if then; rm -rf build".to_owned(),
        "ls\0; r\0m -rf build".to_owned(),
        String::from_utf8_lossy(b"ls \xff\xfe; rm -rf build").into_owned(),
    ] {
        assert_eq!(
            verdict(&rules, &script),
            Verdict::Deny,
            "{:.60}",
            escape_for_display(&script)
        );
    }
}

#[test]
fn bytes_that_are_no_text_are_asked_for() {
    let rules = Rules::new(&policy(&[("*", Verdict::Allow)]));
    let script = String::from_utf8_lossy(b"ls \xff").into_owned();
    assert_eq!(verdict(&rules, &script), Verdict::Ask);
    assert_eq!(verdict(&rules, "ls \0"), Verdict::Ask);
}

#[test]
fn a_hundred_thousand_rules_are_asked_at_once() {
    let mut table: Vec<(String, Verdict)> = Vec::new();
    for index in 0..100_000 {
        let verdict = [Verdict::Allow, Verdict::Ask, Verdict::Deny][index % 3];
        table.push((format!("tool{index} *"), verdict));
    }
    table.push(("git status*".to_owned(), Verdict::Allow));
    let entries: Vec<(&str, Verdict)> = table
        .iter()
        .map(|(pattern, verdict)| (pattern.as_str(), *verdict))
        .collect();
    let start = Instant::now();
    let rules = Rules::new(&policy(&entries));
    assert!(
        start.elapsed() < BOUND,
        "compiling took {:?}",
        start.elapsed()
    );
    let start = Instant::now();
    for _ in 0..100 {
        assert_eq!(verdict(&rules, "git status -s"), Verdict::Allow);
        assert_eq!(verdict(&rules, "tool99999 x"), Verdict::Allow);
        assert_eq!(verdict(&rules, "tool5 x"), Verdict::Deny);
    }
    assert!(
        start.elapsed() < BOUND,
        "300 decisions took {:?}",
        start.elapsed()
    );
}

#[test]
fn time_grows_with_the_text_and_no_faster() {
    let rules = Rules::new(&policy(&[("*", Verdict::Allow)]));
    let time = |count: usize| {
        let script = "ls -la src && git status; ".repeat(count);
        (0..5)
            .map(|_| {
                let start = Instant::now();
                verdict(&rules, &script);
                start.elapsed()
            })
            .min()
            .unwrap()
    };
    let (small, large) = (time(150), time(2_400));
    // 16 times the text; quadratic work would take 256 times the time.
    assert!(large < small * 130, "{small:?} and {large:?}");
}
