//! Findings, in the three forms of output.

use serde::Serialize;

use crate::display::escape_for_display;

/// The form of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// For people.
    #[default]
    Human,
    /// One JSON document.
    Json,
    /// Workflow commands of GitHub Actions, which become annotations.
    Github,
}

/// What a review prints, and whether it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The output, ending in a newline where it is not empty.
    pub text: String,
    /// True makes the exit code 1.
    pub failed: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Error,
    Warning,
    Notice,
}

/// One thing that a review found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub severity: Severity,
    /// A short name that does not change.
    pub code: &'static str,
    pub file: String,
    /// Line of the rule, from 1; 0 where it is not known.
    pub line: usize,
    pub table: String,
    pub pattern: String,
    pub message: String,
}

#[derive(Serialize)]
struct Document<'a> {
    passed: bool,
    findings: &'a [Finding],
    summary: &'a str,
}

/// Findings and a last line.
pub(crate) fn report(findings: &[Finding], summary: &str, failed: bool, output: Output) -> Report {
    let mut text = String::new();
    match output {
        Output::Human => {
            for finding in findings {
                text.push_str(&human(finding));
                text.push('\n');
            }
            text.push_str(summary);
        }
        Output::Json => {
            let document = Document {
                passed: !failed,
                findings,
                summary,
            };
            text = serde_json::to_string_pretty(&document).expect("findings hold only text");
        }
        Output::Github => {
            for finding in findings {
                text.push_str(&annotation(finding));
                text.push('\n');
            }
            text.push_str(summary);
        }
    }
    text.push('\n');
    Report { text, failed }
}

fn human(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Notice => "notice",
    };
    let place = match finding.line {
        0 => finding.file.clone(),
        line => format!("{}:{line}", finding.file),
    };
    format!(
        "{place}: {severity}[{}]: {}",
        finding.code,
        escape_for_display(&finding.message)
    )
}

fn annotation(finding: &Finding) -> String {
    let command = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Notice => "notice",
    };
    format!(
        "::{command} file={},line={},title={}::{}",
        property(&finding.file),
        finding.line.max(1),
        property(&format!("policy {}", finding.code)),
        data(&escape_for_display(&finding.message))
    )
}

/// Text of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Value of a property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
