//! Whole decisions against the two parsers alone, over the benign commands of the cases.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::time::Instant;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use mooring_policy::{Action, Call, NoEnvironment, Policy, Rules, Verdict, decide, read};

fn benign() -> Vec<(String, Policy)> {
    include_str!("../tests/cases/policy.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|case| case["tool"] == "bash" && case["expect"] == "allow")
        .map(|case| {
            let policy = serde_json::from_value(case["policy"].clone()).unwrap();
            (case["input"].as_str().unwrap().to_owned(), policy)
        })
        .collect()
}

/// The policy with rules added until there are `count`.
fn grown(policy: &Policy, count: usize) -> Rules {
    let mut policy = policy.clone();
    for index in policy.bash.len()..count {
        policy
            .bash
            .insert(format!("tool{index} sub{} *", index % 7), Verdict::Ask);
    }
    Rules::new(&policy)
}

fn call(text: &str) -> Call<'_> {
    Call {
        tool: "bash",
        action: Action::Bash { text, cwd: "" },
    }
}

fn whole(rules: &Rules, text: &str, place: &NoEnvironment) -> Verdict {
    decide(rules, &read(&call(black_box(text))), place).verdict
}

fn decisions(criterion: &mut Criterion) {
    let cases = benign();
    let place = NoEnvironment::default();
    let mut group = criterion.benchmark_group("policy");
    group.bench_function("two parsers alone", |bench| {
        bench.iter(|| {
            for (text, _) in &cases {
                black_box(mooring_policy::bash::parse_only(black_box(text)));
            }
        });
    });
    for count in [0, 50, 10_000] {
        let rules: Vec<Rules> = cases
            .iter()
            .map(|(_, policy)| grown(policy, count))
            .collect();
        let name = if count == 0 {
            "decide".to_owned()
        } else {
            format!("decide, {count} rules")
        };
        group.bench_function(name, |bench| {
            bench.iter_batched(
                || (),
                |()| {
                    for ((text, _), rules) in cases.iter().zip(&rules) {
                        black_box(whole(rules, text, &place));
                    }
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
    quantiles(&cases, &place);
}

/// Rounds over all commands.
const ROUNDS: usize = 2_000;

/// Nanoseconds of one run.
fn nanos(mut run: impl FnMut()) -> u64 {
    let start = Instant::now();
    run();
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Single decisions, the things that are compared right after each other, so that
/// a busy machine slows all of them: the fastest of each command, and quantiles.
fn quantiles(cases: &[(String, Policy)], place: &NoEnvironment) {
    let rules: Vec<[Rules; 3]> = cases
        .iter()
        .map(|(_, policy)| [0, 50, 10_000].map(|count| grown(policy, count)))
        .collect();
    let names = [
        "two parsers alone",
        "decide",
        "decide, 50 rules",
        "decide, 10,000 rules",
    ];
    let mut fastest = vec![[u64::MAX; 4]; cases.len()];
    let mut all: [Vec<u64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        for (at, (text, _)) in cases.iter().enumerate() {
            let parsers = nanos(|| {
                black_box(mooring_policy::bash::parse_only(black_box(text)));
            });
            let mut times = [parsers, 0, 0, 0];
            for (rules, time) in rules[at].iter().zip(&mut times[1..]) {
                *time = nanos(|| {
                    black_box(whole(rules, text, place));
                });
            }
            for (index, time) in times.into_iter().enumerate() {
                fastest[at][index] = fastest[at][index].min(time);
                all[index].push(time);
            }
        }
    }
    let sum = |index: usize| fastest.iter().map(|row| row[index]).sum::<u64>() as f64;
    println!("{} commands, {ROUNDS} rounds; µs a command", cases.len());
    for (index, name) in names.iter().enumerate() {
        all[index].sort_unstable();
        let quantile = |part: usize| all[index][all[index].len() * part / 100] as f64 / 1e3;
        println!(
            "{name:22} fastest {:6.2} ({:.2} of the parsers)  p50 {:6.2}  p99 {:6.2}",
            sum(index) / cases.len() as f64 / 1e3,
            sum(index) / sum(0),
            quantile(50),
            quantile(99),
        );
    }
    let mut ratios: Vec<(f64, &str)> = fastest
        .iter()
        .zip(cases)
        .map(|(row, (text, _))| (row[1] as f64 / row[0] as f64, text.as_str()))
        .collect();
    ratios.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (ratio, text) in ratios.iter().take(3) {
        println!("largest ratio of one command {ratio:.2}: {text}");
    }
    println!("10,000 rules take {:.2} of 50 rules' time", sum(3) / sum(2));
}

criterion_group! {
    name = benches;
    config = Criterion::default().without_plots();
    targets = decisions
}
criterion_main!(benches);
