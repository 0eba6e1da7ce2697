//! `mooring policy explain`: one call, each fact with the rule that decided it.

use serde::Serialize;

use super::calls::RecordedCall;
use super::output::{Output, Report};
use super::source::Source;
use crate::decide::Decision;
use crate::environment::Environment;
use crate::{Rules, escape_for_display};

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    decision: &'a Decision,
    policy_digest: &'a str,
}

/// Explains one call. Never fails: a deny is an answer.
pub fn explain(
    source: &Source,
    call: &RecordedCall,
    environment: &dyn Environment,
    output: Output,
) -> Report {
    let rules = Rules::new(&source.policy);
    let decision = call.decide(&rules, environment);
    let text = match output {
        Output::Json => {
            let document = Document {
                decision: &decision,
                policy_digest: rules.digest(),
            };
            serde_json::to_string_pretty(&document).expect("a decision holds only text") + "\n"
        }
        Output::Github => {
            let line = super::locate::Lines::of(&source.text)
                .rule(&decision.rule.table, &decision.rule.pattern);
            let message = format!("{}: {}", decision.verdict, decision.reason);
            let finding = super::output::Finding {
                severity: super::output::Severity::Notice,
                code: "explain",
                file: source.name.clone(),
                line,
                table: decision.rule.table.clone(),
                pattern: decision.rule.pattern.clone(),
                message,
            };
            super::output::report(&[finding], &decision.verdict.to_string(), false, output).text
        }
        Output::Human => human(&decision),
    };
    Report {
        text,
        failed: false,
    }
}

fn human(decision: &Decision) -> String {
    let mut text = format!(
        "{}: {}\n",
        decision.verdict,
        escape_for_display(&decision.reason)
    );
    for fact in &decision.facts {
        text.push_str(&format!(
            "  {:<5} {} `{}` by {}",
            fact.verdict.to_string(),
            fact.kind,
            escape_for_display(&fact.text),
            fact.rule
        ));
        if !fact.note.is_empty() {
            text.push_str(&format!(" ({})", escape_for_display(&fact.note)));
        }
        text.push('\n');
    }
    for place in &decision.unresolved {
        text.push_str(&format!(
            "  unresolved, bytes {}–{}: {}\n",
            place.start,
            place.end,
            escape_for_display(&place.why)
        ));
    }
    for fact in &decision.lacked {
        text.push_str(&format!("  not known here: {}\n", escape_for_display(fact)));
    }
    text
}
