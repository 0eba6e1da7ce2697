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

/// Single decisions: criterion gives means, the page asks for the slowest too.
fn quantiles(cases: &[(String, Policy)], place: &NoEnvironment) {
    let time = |run: &mut dyn FnMut(usize)| {
        let mut nanos: Vec<u128> = (0..20_000)
            .map(|index| {
                let start = Instant::now();
                run(index % cases.len());
                start.elapsed().as_nanos()
            })
            .collect();
        nanos.sort_unstable();
        (
            nanos[nanos.len() / 2] as f64 / 1e3,
            nanos[nanos.len() * 99 / 100] as f64 / 1e3,
        )
    };
    let rules: Vec<Rules> = cases.iter().map(|(_, policy)| Rules::new(policy)).collect();
    let parsers = time(&mut |at| {
        black_box(mooring_policy::bash::parse_only(&cases[at].0));
    });
    let whole = time(&mut |at| {
        black_box(whole(&rules[at], &cases[at].0, place));
    });
    println!(
        "per command: parsers p50 {:.1} µs, p99 {:.1} µs; decision p50 {:.1} µs ({:.2} of the parsers), p99 {:.1} µs ({:.2} of the parsers' p50)",
        parsers.0,
        parsers.1,
        whole.0,
        whole.0 / parsers.0,
        whole.1,
        whole.1 / parsers.0
    );
}

criterion_group! {
    name = benches;
    config = Criterion::default().without_plots();
    targets = decisions
}
criterion_main!(benches);
