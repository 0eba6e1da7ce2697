//! Random operations against the rules in memory. `SEED=` repeats a sequence.

mod comparing;
mod driver;
mod held;
mod history;
mod inbox;
mod operation;
mod performing;
mod resolving;
mod rules;
mod runs;
mod shown;

use std::time::{Duration, Instant};

use driver::Driver;
use operation::{Op, sequence};

/// Sequences, and operations of each.
const SEEDS: u64 = 16;
const LENGTH: usize = 160;
/// The longest that a failing sequence is made shorter for.
const SHRINKING: Duration = Duration::from_secs(90);

/// What differs from the rules, and after how many operations.
struct Difference {
    at: usize,
    how: String,
}

fn run(operations: &[Op], bound: Duration) -> Result<(), Difference> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let outcome = runtime.block_on(async {
        let mut driver = Driver::begin(bound).await;
        for (at, op) in operations.iter().enumerate() {
            driver
                .step(op)
                .await
                .map_err(|how| Difference { at, how })?;
        }
        let at = operations.len();
        driver.end().await.map_err(|how| Difference { at, how })
    });
    runtime.shutdown_background();
    outcome
}

/// A shorter sequence that differs too: without parts of it, smaller and smaller ones.
fn shrink(mut operations: Vec<Op>, mut difference: Difference) -> (Vec<Op>, Difference) {
    let until = Instant::now() + SHRINKING;
    operations.truncate(difference.at + 1);
    let mut part = operations.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from < operations.len() {
            if Instant::now() > until {
                return (operations, difference);
            }
            let mut fewer = operations.clone();
            fewer.drain(from..(from + part).min(operations.len()));
            match run(&fewer, Duration::from_secs(2)) {
                Ok(()) => from += part,
                Err(found) => {
                    fewer.truncate(found.at + 1);
                    (operations, difference) = (fewer, found);
                }
            }
        }
        part /= 2;
    }
    (operations, difference)
}

fn check(seed: u64) {
    let operations = sequence(seed, LENGTH);
    let Err(difference) = run(&operations, crate::support::BOUND) else {
        return;
    };
    let how = difference.how.clone();
    let (shorter, last) = shrink(operations, difference);
    let list: Vec<_> = shorter.iter().map(|op| format!("  {op:?}\n")).collect();
    panic!(
        "SEED={seed} differs from the rules: {how}\nso do these {} operations: {}\n{}",
        shorter.len(),
        last.how,
        list.concat()
    );
}

#[test]
fn random_operations_come_out_as_the_rules_say() {
    if let Ok(seed) = std::env::var("SEED") {
        return check(seed.parse().expect("SEED is a number"));
    }
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || (1..=SEEDS).filter(|seed| seed % 2 == half).for_each(check));
        }
    });
}
