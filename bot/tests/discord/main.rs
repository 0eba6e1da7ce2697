//! The real bot program between the Discord stand-in and the real harness (`office`),
//! or a double of it where a fault cannot be made otherwise (`stage`), over real sockets. Cases are those of `tests/cases/discord.md`, by their ids.
#![allow(clippy::unwrap_used, missing_docs)]

mod cards;
mod cluster;
mod commands;
mod delivery;
mod dev;
mod double;
mod gateway;
mod intake;
mod office;
mod questions;
mod queue;
mod service;
mod settings;
mod soak;
mod stage;
mod whole;

/// Every case is a test by its id, or is listed with the reason why it cannot be.
#[test]
fn every_case_has_a_test_by_its_id() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let cases = include_str!("../../../tests/cases/discord.md");
    let excused = include_str!("../../../tests/cases/not-applicable.md");
    let mut sources = String::new();
    for folder in ["src", "tests/discord"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let ids: Vec<&str> = cases
        .lines()
        .filter_map(|line| line.strip_prefix("| F")?.split(' ').next())
        .collect();
    assert!(ids.len() > 40, "{ids:?}");
    for id in ids {
        let named = sources.lines().any(|line| {
            let Some((_, name)) = line.split_once("fn ") else {
                return false;
            };
            name.contains(&format!("f{id}_"))
        });
        assert!(
            named || excused.contains(&format!("| F{id} |")),
            "F{id} has no test"
        );
    }
}
