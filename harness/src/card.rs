//! The approval card: what a person reads before they say yes.

use mooring_durable::{
    gate::{Approval, Question},
    id::Millis,
    tool::Call,
};
use mooring_policy::{Decision, GrantRule, escape_for_display};
use serde::{Deserialize, Serialize};

use crate::{tools::text, workspace::Loaded};

/// What the card shows. It is stored with the approval, so that the audit has
/// what was shown, not what would be shown today.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Card {
    /// One line: the exact command or path, control characters escaped.
    pub summary: String,
    /// All of it: the raw command, or what would be written. Escaped, never cut
    /// in silence.
    pub detail: String,
    /// Canonical facts, one a line.
    pub facts: Vec<String>,
    /// Table and pattern that asked.
    pub rule: String,
    /// A sentence for people.
    pub reason: String,
    /// The policy that asked.
    pub policy_digest: String,
    /// Where it would run: isolated, confined, not-isolated.
    pub grade: String,
    /// Whether who asked may also approve.
    pub requester_may_approve: bool,
    /// Exactly what a wider scope than this call would store.
    pub grant: Option<GrantRule>,
    /// Why nothing wider is offered.
    pub no_grant: String,
}

/// Characters of a card's detail; beyond it says how many more there are.
const DETAIL: usize = 8_000;
/// Characters of a line.
const LINE: usize = 400;
/// Facts of a card; beyond them it says how many more there are.
const FACTS: usize = 50;

impl Card {
    /// The card of `call`, on which `decision` asked.
    pub fn of(call: &Call, decision: &Decision, digest: &str, grade: &str) -> Card {
        let arguments = &call.arguments;
        let (summary, detail) = match call.tool.as_str() {
            "bash" => (
                text(arguments, "command").to_owned(),
                text(arguments, "command").to_owned(),
            ),
            "write" => (
                text(arguments, "path").to_owned(),
                text(arguments, "content").to_owned(),
            ),
            "edit" => (
                text(arguments, "path").to_owned(),
                similar::TextDiff::from_lines(text(arguments, "old"), text(arguments, "new"))
                    .unified_diff()
                    .to_string(),
            ),
            _ => (call.tool.clone(), arguments.to_string()),
        };
        Card {
            summary: one_line(&escape_for_display(&summary)),
            detail: bounded(&escape_for_display(&detail)),
            facts: facts(decision),
            rule: decision.rule.to_string(),
            reason: decision.reason.clone(),
            policy_digest: digest.to_owned(),
            grade: grade.to_owned(),
            requester_may_approve: false,
            grant: None,
            no_grant: String::new(),
        }
    }

    /// A card whose words are there already: what is asked about is no call of a tool.
    /// `detail` has to be escaped.
    pub fn written(decision: &Decision, summary: &str, detail: &str, digest: &str) -> Card {
        Card {
            summary: one_line(&escape_for_display(summary)),
            detail: bounded(detail),
            facts: facts(decision),
            rule: decision.rule.to_string(),
            reason: decision.reason.clone(),
            policy_digest: digest.to_owned(),
            ..Card::default()
        }
    }

    /// The question with this card, which ends when the Workspace says so.
    pub fn question(mut self, workspace: &Loaded, now: Millis) -> Question {
        self.requester_may_approve = workspace.spec.approvals.requester_may_approve;
        let timeout = workspace.approval_timeout();
        Question {
            rule: self.rule.clone(),
            expires_at: timeout.map(|timeout| Millis(now.0 + timeout.as_millis() as i64)),
            data: serde_json::to_value(self).expect("a card is always JSON"),
        }
    }

    /// The card of a stored approval.
    pub fn read(approval: &Approval) -> Card {
        serde_json::from_value(approval.question.data.clone()).unwrap_or_default()
    }
}

/// What was found of a call, a line each.
pub fn facts(decision: &Decision) -> Vec<String> {
    let mut lines: Vec<String> = decision
        .facts
        .iter()
        .take(FACTS)
        .map(|fact| {
            let text = one_line(&escape_for_display(&fact.text));
            format!("{}: {text} ({} by {})", fact.kind, fact.verdict, fact.rule)
        })
        .collect();
    if decision.facts.len() > FACTS {
        lines.push(format!("[{} more facts]", decision.facts.len() - FACTS));
    }
    lines
}

/// The first line of a text, cut where it is long; what is left out is told.
pub fn one_line(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let first = match first.char_indices().nth(LINE) {
        None => first.to_owned(),
        Some((cut, _)) => format!("{}… [+{} bytes]", &first[..cut], first.len() - cut),
    };
    match lines.count() {
        0 => first,
        more => format!("{first} [+{more} lines]"),
    }
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(DETAIL) {
        None => text.to_owned(),
        Some((cut, _)) => {
            format!(
                "{}\n[{} more bytes, not shown]",
                &text[..cut],
                text.len() - cut
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_is_said() {
        assert_eq!(one_line("ls"), "ls");
        assert_eq!(one_line("ls\nrm -rf build\n"), "ls [+1 lines]");
        let wide = "x".repeat(LINE + 9);
        assert!(one_line(&wide).ends_with("… [+9 bytes]"));
        let long = "é".repeat(DETAIL + 3);
        assert!(bounded(&long).ends_with("[6 more bytes, not shown]"));
        assert_eq!(bounded("short"), "short");
    }
}
