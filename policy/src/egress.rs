//! Connections to the world: the `egress` table alone decides them.

use mooring_crds::Verdict;

use crate::decide::{DecidedFact, Decision, finish_alone};
use crate::rules::{RuleRef, Rules};

/// The port that `*` is about.
const HTTPS: u16 = 443;

/// Decides a connection to `host`, a name in lower case. What no rule names is denied.
pub fn decide_connection(rules: &Rules, host: &str, port: u16) -> Decision {
    finish_alone(vec![fact(rules, host, port)])
}

fn fact(rules: &Rules, host: &str, port: u16) -> DecidedFact {
    let text = format!("{host}:{port}");
    let none = |note: &str| (Verdict::Deny, RuleRef::new("egress", ""), note.to_owned());
    let (verdict, rule, note) = match rules.egress().decide(&[&text], &[&text]) {
        None => none("what it does not name is not reached"),
        // `*` speaks of HTTPS; another port has to be meant.
        Some(found)
            if found.verdict != Verdict::Deny
                && port != HTTPS
                && !names(found.pattern.source(), port) =>
        {
            none("a port other than 443 is reached only by a rule that names it")
        }
        Some(found) => {
            let rule = RuleRef::new("egress", found.pattern.source());
            (found.verdict, rule, String::new())
        }
    };
    DecidedFact {
        kind: "connection".to_owned(),
        text,
        verdict,
        rule,
        note,
    }
}

fn names(pattern: &str, port: u16) -> bool {
    pattern
        .rsplit_once(':')
        .is_some_and(|(_, named)| named == port.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_egress_table_decides_each_connection() {
        let policy = r#"{"tool": {"*": "deny"}, "egress": {
            "crates.io:443": "allow", "*.crates.io:443": "allow", "evil.crates.io:443": "deny",
            "*.internal:8443": "ask"}}"#;
        let rules = Rules::new(&serde_json::from_str(policy).unwrap());
        for (host, port, verdict, pattern) in [
            ("crates.io", 443, Verdict::Allow, "crates.io:443"),
            ("crates.io", 80, Verdict::Deny, ""),
            ("crates.io", 22, Verdict::Deny, ""),
            ("static.crates.io", 443, Verdict::Allow, "*.crates.io:443"),
            ("evil.crates.io", 443, Verdict::Deny, "evil.crates.io:443"),
            ("notcrates.io", 443, Verdict::Deny, ""),
            ("crates.io.evil.com", 443, Verdict::Deny, ""),
            ("a.internal", 8443, Verdict::Ask, "*.internal:8443"),
            ("a.internal", 443, Verdict::Deny, ""),
        ] {
            let decided = decide_connection(&rules, host, port);
            let found = (decided.verdict, decided.rule.pattern.as_str());
            assert_eq!(found, (verdict, pattern), "{host}:{port}");
        }
    }

    #[test]
    fn a_rule_for_all_hosts_opens_no_other_port() {
        for (table, port, verdict) in [
            (r#"{"*": "allow"}"#, 443, Verdict::Allow),
            (r#"{"*": "allow"}"#, 22, Verdict::Deny),
            (r#"{"*": "ask"}"#, 8443, Verdict::Deny),
            (r#"{"*:22": "ask"}"#, 22, Verdict::Ask),
            (
                r#"{"*": "deny", "a.example:443": "allow"}"#,
                443,
                Verdict::Allow,
            ),
            ("{}", 443, Verdict::Deny),
        ] {
            let policy = format!(r#"{{"egress": {table}}}"#);
            let rules = Rules::new(&serde_json::from_str(&policy).unwrap());
            let decided = decide_connection(&rules, "a.example", port);
            assert_eq!(decided.verdict, verdict, "{table} {port}");
        }
    }
}
