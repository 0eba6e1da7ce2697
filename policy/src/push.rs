//! A push, decided where the credential is: each ref update by the `git` table.

use mooring_crds::Verdict;

use crate::decide::{DecidedFact, Decision, finish_alone};
use crate::rules::{RuleRef, Rules};

/// What stands for a ref that the table does not name: the agent's own branches are
/// allowed, all else is asked for.
const OWN: &str = "refs/heads/mooring/";

/// One ref update of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push<'a> {
    /// The whole name (`refs/heads/main`).
    pub reference: &'a str,
    /// It is not a fast-forward, moves a tag, or may be one of both.
    pub force: bool,
    /// It removes the ref.
    pub delete: bool,
}

impl Push<'_> {
    /// As rules name it: `push refs/heads/main`, `push --force …`, `push --delete …`.
    pub fn text(&self) -> String {
        let option = match (self.delete, self.force) {
            (true, _) => "--delete ",
            (false, true) => "--force ",
            (false, false) => "",
        };
        format!("push {option}{}", self.reference)
    }
}

/// Decides a push. One update that is denied denies them all, since none goes without
/// the others.
///
/// An allow covers what it spells out: `push refs/heads/x` is no allow for
/// `push --force refs/heads/x`. An ask or a deny without an option is about both.
pub fn decide_push(rules: &Rules, updates: &[Push<'_>]) -> Decision {
    let facts = updates.iter().map(|update| fact(rules, update));
    finish_alone(facts.collect())
}

fn fact(rules: &Rules, update: &Push<'_>) -> DecidedFact {
    let text = update.text();
    let plain = format!("push {}", update.reference);
    let found = rules.git().decide(&[&text], &[&text, &plain]);
    let (verdict, rule, note) = match found {
        Some(found) => (
            found.verdict,
            RuleRef::new("git", found.pattern.source()),
            String::new(),
        ),
        None => by_default(update),
    };
    DecidedFact {
        kind: "push".into(),
        text,
        verdict,
        rule,
        note,
    }
}

fn by_default(update: &Push<'_>) -> (Verdict, RuleRef, String) {
    let own = update.reference.starts_with(OWN) && update.reference.len() > OWN.len();
    let (verdict, name) = match own && !update.force && !update.delete {
        true => (Verdict::Allow, "pushes to refs/heads/mooring/*"),
        false => (Verdict::Ask, "pushes"),
    };
    let note = "no rule of the git table names it".to_owned();
    (verdict, RuleRef::built_in(name), note)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ref_updates_are_decided_by_the_git_table_and_the_strictest_counts() {
        let rules = |table: &str| {
            let policy = serde_json::from_str(&format!(r#"{{"git": {table}}}"#)).unwrap();
            Rules::new(&policy)
        };
        let none = "{}";
        let some = r#"{"push refs/heads/mooring/*": "allow", "push --force *": "deny",
            "push --delete refs/heads/mooring/*": "allow", "push refs/heads/release": "deny", "*": "ask"}"#;
        for (table, updates, expected) in [
            (none, vec!["push refs/heads/mooring/x"], Verdict::Allow),
            (none, vec!["push refs/heads/mooring/"], Verdict::Ask),
            (none, vec!["push refs/heads/main"], Verdict::Ask),
            (
                none,
                vec!["push --force refs/heads/mooring/x"],
                Verdict::Ask,
            ),
            (
                none,
                vec!["push --delete refs/heads/mooring/x"],
                Verdict::Ask,
            ),
            (none, vec!["push refs/tags/v1"], Verdict::Ask),
            (some, vec!["push refs/heads/mooring/x"], Verdict::Allow),
            (some, vec!["push refs/heads/main"], Verdict::Ask),
            (
                some,
                vec!["push --force refs/heads/mooring/x"],
                Verdict::Deny,
            ),
            (
                some,
                vec!["push --delete refs/heads/mooring/x"],
                Verdict::Allow,
            ),
            (some, vec!["push refs/heads/release"], Verdict::Deny),
            (
                some,
                vec!["push --delete refs/heads/release"],
                Verdict::Deny,
            ),
            (
                some,
                vec!["push refs/heads/mooring/x", "push refs/heads/main"],
                Verdict::Ask,
            ),
            (
                some,
                vec!["push refs/heads/release", "push refs/heads/mooring/x"],
                Verdict::Deny,
            ),
            (
                r#"{"*": "allow"}"#,
                vec!["push --force refs/heads/main"],
                Verdict::Allow,
            ),
            (
                r#"{"push refs/heads/main": "deny"}"#,
                vec!["push refs/heads/mooring/x"],
                Verdict::Allow,
            ),
        ] {
            let updates: Vec<Push<'_>> = updates
                .iter()
                .map(|text| Push {
                    reference: text.rsplit(' ').next().unwrap(),
                    force: text.contains("--force"),
                    delete: text.contains("--delete"),
                })
                .collect();
            let decision = decide_push(&rules(table), &updates);
            assert_eq!(decision.verdict, expected, "{table} {updates:?}");
            assert_eq!(decision.facts.len(), updates.len());
        }
    }

    #[test]
    fn the_reason_names_the_update_and_its_rule() {
        let update = Push {
            reference: "refs/heads/main",
            force: true,
            delete: false,
        };
        let decision = decide_push(&Rules::new(&Default::default()), &[update]);
        assert_eq!(
            decision.reason,
            "The push `push --force refs/heads/main` has to be asked for by built-in rule: pushes: \
             no rule of the git table names it."
        );
    }
}
