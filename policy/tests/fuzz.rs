//! Mutated scripts are run by a real bash, in a namespace without network and
//! with nothing in it but canary commands. Whatever bash ran has to be in the
//! facts, or explained by an unresolved mark.
//!
//! `MOORING_FUZZ_MINUTES=20` runs until the time is over, `SEED=` sets the seed.
#![allow(clippy::unwrap_used)]

#[path = "fuzz/cage.rs"]
mod cage;
#[path = "fuzz/mutate.rs"]
mod mutate;

use std::time::{Duration, Instant};

use mooring_policy::{Action, Call, Facts, read};

const SEED: u64 = 20_260_704;
const SCRIPTS: usize = 10_000;
/// Scripts in one namespace.
const BATCH: usize = 500;
/// Of a hundred scripts, how many have to run a canary at least.
const LEAST_SHARE: usize = 30;

fn seed() -> u64 {
    std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(SEED)
}

fn facts(script: &str) -> Facts {
    read(&Call {
        tool: "bash",
        action: Action::Bash {
            text: script,
            cwd: "",
        },
    })
}

/// Whether the facts show a command that ran, or say that they do not know.
fn explains(facts: &Facts, ran: &[String]) -> bool {
    if !facts.unresolved().is_empty() {
        return true;
    }
    // Facts show the home folder as `~`.
    let line = ran.join(" ").replace(cage::HOME, "~");
    // Descriptors of process substitutions count down from 63; facts show the first.
    let line = ["62", "61", "60"].iter().fold(line, |line, fd| {
        line.replace(&format!("/dev/fd/{fd}"), "/dev/fd/63")
    });
    facts.commands().any(|command| {
        command == line
            // `bash c1 x` runs the file, which is a canary too.
            || ((command.starts_with("bash ") || command.starts_with("sh "))
                && command.ends_with(&line))
            || (command.contains(['*', '?', '[']) && {
                // What a glob becomes is known to the shell alone.
                command.split(' ').next() == ran.first().map(String::as_str)
            })
    })
}

/// Runs scripts; returns how many ran a canary, and those that are not explained.
fn check(scripts: &[String]) -> (usize, Vec<String>) {
    let runs = cage::run(scripts).unwrap();
    let mut hits = 0;
    let mut slipped = Vec::new();
    for (script, ran) in scripts.iter().zip(runs) {
        hits += usize::from(!ran.is_empty());
        let facts = facts(script);
        if let Some(command) = ran.iter().find(|command| !explains(&facts, command)) {
            let shown: Vec<&str> = facts.commands().collect();
            slipped.push(format!("{script:?}\n  ran {command:?}\n  facts {shown:?}"));
        }
    }
    (hits, slipped)
}

/// The scripts of one run, in two cages at a time.
fn batch(random: &mut mutate::Random) -> (usize, usize, Vec<String>) {
    let scripts: Vec<String> = (0..2 * BATCH).map(|_| mutate::script(random)).collect();
    let (left, right) = scripts.split_at(BATCH);
    let (left, right) = std::thread::scope(|scope| {
        let left = scope.spawn(|| check(left));
        (check(right), left.join().unwrap())
    });
    let mut slipped = left.1;
    slipped.extend(right.1);
    (scripts.len(), left.0 + right.0, slipped)
}

#[test]
fn whatever_bash_runs_is_in_the_facts_or_explained() {
    if let Err(why) = cage::possible() {
        assert!(
            std::env::var_os("CI").is_none(),
            "no namespace to fuzz in: {why}"
        );
        println!("skipped: no namespace to fuzz in: {why}");
        return;
    }
    let minutes: Option<u64> = std::env::var("MOORING_FUZZ_MINUTES")
        .ok()
        .and_then(|minutes| minutes.parse().ok());
    let end = minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let seed = seed();
    let mut random = mutate::Random::new(seed);
    let (mut total, mut hits) = (0, 0);
    let mut slipped = Vec::new();
    loop {
        let (ran, hit, mut found) = batch(&mut random);
        total += ran;
        hits += hit;
        if minutes.is_some() {
            for script in &found {
                println!("SLIPPED {script}");
            }
        }
        slipped.append(&mut found);
        match end {
            Some(end) if Instant::now() < end => {}
            None if total < SCRIPTS => {}
            _ => break,
        }
    }
    let share = 100 * hits / total;
    println!(
        "seed {seed}: {total} scripts, {hits} ran a canary ({share} %), {} slipped",
        slipped.len()
    );
    assert!(
        slipped.is_empty(),
        "{} scripts slipped:\n{}",
        slipped.len(),
        slipped.join("\n")
    );
    assert!(
        share >= LEAST_SHARE,
        "only {share} % of the scripts ran a canary"
    );
}
