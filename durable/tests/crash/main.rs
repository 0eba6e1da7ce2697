//! The crash walk: a scripted run is ended around every commit, reopened and resumed,
//! and has to come out as the undisturbed one.
#![allow(clippy::unwrap_used)]
#![allow(dead_code)] // the support is shared with the other tests

mod child;
mod outcome;
#[path = "../engine/support/mod.rs"]
mod support;

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
};

use outcome::Outcome;

/// Runs the script in a process of its own; whether it came to its end.
fn run(folder: &Path, crash_at: Option<&str>, log: Option<&Path>) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "child::the_scripted_run_comes_to_its_end",
            "--nocapture",
        ])
        .env("MOORING_CHILD", folder)
        .env_remove("MOORING_CRASH_AT")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(at) = crash_at {
        command.env("MOORING_CRASH_AT", at);
    }
    if let Some(log) = log {
        command.env("MOORING_COMMIT_LOG", log);
    }
    let output = command.output().unwrap();
    if !output.status.success() {
        use std::os::unix::process::ExitStatusExt;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.signal(),
            Some(6),
            "only the crash point may end it ({crash_at:?}):\n{errors}"
        );
        assert!(
            crash_at.is_some() && !errors.contains("panicked"),
            "{crash_at:?}:\n{errors}"
        );
    }
    output.status.success()
}

/// Crashes at each point in turn, resumes, and gives what came out.
fn crash_and_resume(points: &[String]) -> (Vec<bool>, Outcome) {
    let folder = tempfile::tempdir().unwrap();
    let hit = points
        .iter()
        .map(|point| !run(folder.path(), Some(point), None))
        .collect();
    assert!(run(folder.path(), None, None), "resumed after {points:?}");
    (hit, Outcome::read(folder.path()))
}

#[test]
fn every_commit_can_be_the_last_one_before_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("commits");
    assert!(run(folder.path(), None, Some(&log)));
    let undisturbed = Outcome::read(folder.path());
    let commits = std::fs::read_to_string(log).unwrap();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in commits.lines() {
        *counts.entry(name).or_default() += 1;
    }
    println!("commits of the undisturbed run: {counts:?}");

    let mut walked: BTreeMap<String, usize> = BTreeMap::new();
    for (name, count) in &counts {
        for k in 1..=*count {
            for side in ["before", "after"] {
                let point = format!("{name}#{k}:{side}");
                let (hit, outcome) = crash_and_resume(std::slice::from_ref(&point));
                outcome.compare(&undisturbed, &point);
                if hit[0] {
                    *walked.entry(format!("{name}:{side}")).or_default() += 1;
                }
            }
        }
    }
    // What only a second process commits: a lost request, and a call that runs again.
    for first in ["answer#1:before", "intent#1:after"] {
        for side in ["before", "after"] {
            let points = [first.to_owned(), format!("recover#1:{side}")];
            let (hit, outcome) = crash_and_resume(&points);
            outcome.compare(&undisturbed, &points.join(" then "));
            if hit.iter().all(|hit| *hit) {
                *walked.entry(format!("recover:{side}")).or_default() += 1;
            }
        }
    }
    println!("walked: {walked:?}");
    for name in mooring_durable::COMMITS {
        for side in ["before", "after"] {
            assert!(
                walked.contains_key(&format!("{name}:{side}")),
                "no crash {side} a commit {name} was walked"
            );
        }
    }
}

#[test]
fn d085_a_flush_that_fails_ends_the_session_and_the_next_process_finishes() {
    let undisturbed_folder = tempfile::tempdir().unwrap();
    assert!(run(undisturbed_folder.path(), None, None));
    let undisturbed = Outcome::read(undisturbed_folder.path());
    for point in ["answer#1", "intent#1", "round#1", "submit#1"] {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "child::the_scripted_run_comes_to_its_end",
                "--nocapture",
            ])
            .env("MOORING_CHILD", folder.path())
            .env("MOORING_FAIL_AT", point)
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(child::SESSION_FAILED),
            "{point}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(run(folder.path(), None, None), "resumed after {point}");
        Outcome::read(folder.path()).compare(&undisturbed, point);
    }
}
