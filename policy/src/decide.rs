//! The decision: every fact by its table, the call by the strictest of them.

use mooring_crds::Verdict;
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::facts::{CommandFact, Direction, Facts, PathFact, Role, Source, Unresolved};
use crate::paths;
use crate::pattern::Pattern;
use crate::rules::{Found, RuleRef, Rules};

/// One fact with the rule that decided it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedFact {
    /// `tool`, `command`, `path`, `redirect`, `assignment`, `push`, `connection`, or `possible command`
    /// for text that is looked at for deny only.
    pub kind: String,
    /// The fact in canonical form: decoded words, or a path.
    pub text: String,
    /// What the rule says of it.
    pub verdict: Verdict,
    /// The rule.
    pub rule: RuleRef,
    /// Why, where the rule alone does not tell; else empty.
    pub note: String,
}

/// The answer for one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The strictest of all facts.
    pub verdict: Verdict,
    /// A sentence for people.
    pub reason: String,
    /// Each fact with its rule.
    pub facts: Vec<DecidedFact>,
    /// Places that could not be read for certain.
    pub unresolved: Vec<Unresolved>,
    /// The rule of the strictest fact.
    pub rule: RuleRef,
    /// Facts about the environment that were not known.
    pub lacked: Vec<String>,
}

/// Decides a call. A function of its arguments alone.
pub fn decide(rules: &Rules, facts: &Facts, environment: &dyn Environment) -> Decision {
    let mut judge = Judge {
        rules,
        tool: tool_rule(rules, facts),
        decided: Vec::with_capacity(
            facts.commands.len() + facts.paths.len() + facts.assignments.len() + 1,
        ),
    };
    let mut lacked = Vec::new();
    judge.tool(facts);
    for command in &facts.commands {
        judge.command(command);
    }
    for path in &facts.paths {
        judge.path(path, environment, &mut lacked);
    }
    for assignment in &facts.assignments {
        let (verdict, note) = if assignment.free {
            (Verdict::Allow, "")
        } else {
            (Verdict::Ask, "the variable may change what a command does")
        };
        let rule = RuleRef::built_in("assignment");
        judge.push("assignment", &assignment.text, verdict, rule, note);
    }
    for command in &facts.doubtful {
        judge.doubtful(command);
    }
    finish(judge.decided, facts, lacked)
}

/// The decision of what is no call of a tool: a push, a connection.
pub(crate) fn finish_alone(decided: Vec<DecidedFact>) -> Decision {
    finish(decided, &Facts::default(), Vec::new())
}

/// The rule for the tool's name and its table: of a server's tool that of the mcp table
/// where there is one, else that of the tool table; `None` where none names the tool.
fn tool_rule<'a>(rules: &'a Rules, facts: &Facts) -> Option<(Verdict, &'a Pattern, &'static str)> {
    let tool = facts.tool.as_str();
    let own = rules.tool().decide(&[tool], &[tool]);
    match rules.server_tool(tool, own.as_ref()) {
        Some(found) => Some((found.verdict, found.pattern, "mcp")),
        None => own.map(|found| (found.verdict, found.pattern, "tool")),
    }
}

fn finish(decided: Vec<DecidedFact>, facts: &Facts, lacked: Vec<String>) -> Decision {
    let strictest = decided.iter().rev().max_by_key(|fact| fact.verdict);
    let mut verdict = strictest.map_or(Verdict::Ask, |fact| fact.verdict);
    let mut rule = strictest.map_or_else(|| RuleRef::built_in("no fact"), |fact| fact.rule.clone());
    let mut reason = match strictest {
        None => "Nothing in the call can be decided.".to_owned(),
        Some(fact) if verdict == Verdict::Allow && decided.len() > 1 => {
            format!("Every part is allowed; the first by {}.", fact.rule)
        }
        Some(fact) => sentence(fact),
    };
    if verdict == Verdict::Allow
        && let Some(place) = facts.unresolved.first()
    {
        verdict = Verdict::Ask;
        rule = RuleRef::built_in("unresolved");
        reason = format!(
            "It cannot be read for certain what it does: {} (bytes {}–{}).",
            place.why, place.start, place.end
        );
    }
    Decision {
        verdict,
        reason,
        facts: decided,
        unresolved: facts.unresolved.clone(),
        rule,
        lacked,
    }
}

fn sentence(fact: &DecidedFact) -> String {
    let verb = match fact.verdict {
        Verdict::Allow => "is allowed",
        Verdict::Ask => "has to be asked for",
        Verdict::Deny => "is denied",
    };
    let mut text = format!(
        "The {} `{}` {verb} by {}",
        fact.kind,
        shorten(&fact.text),
        fact.rule
    );
    if !fact.note.is_empty() {
        text.push_str(": ");
        text.push_str(&fact.note);
    }
    text.push('.');
    text
}

/// For a sentence; the whole text is in the fact.
fn shorten(text: &str) -> String {
    const MOST: usize = 120;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start}… ({} characters)", text.chars().count())
}

struct Judge<'a> {
    rules: &'a Rules,
    tool: Option<(Verdict, &'a Pattern, &'static str)>,
    decided: Vec<DecidedFact>,
}

impl Judge<'_> {
    fn push(&mut self, kind: &str, text: &str, verdict: Verdict, rule: RuleRef, note: &str) {
        self.decided.push(DecidedFact {
            kind: kind.to_owned(),
            text: text.to_owned(),
            verdict,
            rule,
            note: note.to_owned(),
        });
    }

    /// What decides when no rule of a table does.
    fn fallback(&self) -> (Verdict, RuleRef) {
        match self.tool {
            Some((verdict, pattern, table)) => (verdict, RuleRef::new(table, pattern.source())),
            None => (Verdict::Deny, RuleRef::new("tool", "")),
        }
    }

    /// The tool's identity. For a script its entry is what decides commands that
    /// no rule names; only a deny counts for all.
    fn tool(&mut self, facts: &Facts) {
        if facts.script
            && self
                .tool
                .is_some_and(|(verdict, ..)| verdict != Verdict::Deny)
        {
            return;
        }
        let (verdict, rule) = self.fallback();
        if facts.script {
            let named = self.tool.is_some() || self.rules.bash().is_empty();
            if verdict == Verdict::Deny && named {
                self.push("tool", &facts.tool, verdict, rule, "");
            }
            return;
        }
        self.push("tool", &facts.tool, verdict, rule, "");
    }

    fn command(&mut self, command: &CommandFact) {
        let table = self.rules.bash();
        let (allow, strict) = (command.allowed_as(), command.restricted_as());
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        if command.role == Role::Wrapper {
            // The wrapper itself does nothing: what it runs is decided on its own.
            let found = table
                .strict_exact(&strict)
                .or_else(|| table.strict(&strict, Some(&words)));
            if let Some(found) = found {
                self.found(command, &found, "");
            }
            return;
        }
        let elevated = command.role == Role::Elevated;
        let covers = |pattern: &Pattern| {
            // `*` in place of the program says nothing of `sudo`.
            (!elevated || pattern.names(&command.words[0]))
                && command
                    .needs
                    .iter()
                    .all(|(option, _)| pattern.names(option))
        };
        let found = table.decide_where(&allow, &strict, covers, Some(&words));
        match found {
            Some(found) if found.verdict == Verdict::Allow && !covers(found.pattern) => {
                let note = match command.needs.iter().find(|(o, _)| !found.pattern.names(o)) {
                    Some((option, why)) => {
                        format!("{option} {why}, and no allow rule names it")
                    }
                    None => format!(
                        "{} gives other rights, and no allow rule names it",
                        words[0]
                    ),
                };
                let rule = RuleRef::built_in("option that runs or writes");
                self.push("command", &command.text, Verdict::Ask, rule, &note);
            }
            Some(found) => self.found(command, &found, ""),
            None => {
                let (verdict, rule) = self.fallback();
                let verdict = match command.needs.first() {
                    Some(_) => verdict.max(Verdict::Ask),
                    None => verdict,
                };
                self.push(
                    "command",
                    &command.text,
                    verdict,
                    rule,
                    "no rule of the bash table names it",
                );
            }
        }
    }

    fn found(&mut self, command: &CommandFact, found: &Found<'_>, note: &str) {
        let rule = RuleRef::new("bash", found.pattern.source());
        self.push("command", &command.text, found.verdict, rule, note);
    }

    fn doubtful(&mut self, command: &CommandFact) {
        let strict = command.restricted_as();
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        let table = self.rules.bash();
        let found = table
            .strict_exact(&strict)
            .or_else(|| table.strict(&strict, Some(&words)));
        if let Some(found) = found.filter(|found| found.verdict == Verdict::Deny) {
            let rule = RuleRef::new("bash", found.pattern.source());
            let note = "it may run, and a deny is looked for in everything visible";
            self.push("possible command", &command.text, Verdict::Deny, rule, note);
        }
    }

    fn path(&mut self, path: &PathFact, environment: &dyn Environment, lacked: &mut Vec<String>) {
        let kind = match (path.source, path.direction) {
            (Source::Redirect, _) => "redirect",
            (_, Direction::Write) => "written path",
            _ => "path",
        };
        match paths::decide(self.rules, path, environment, lacked) {
            Some(answer) => {
                self.push(kind, &path.given, answer.verdict, answer.rule, &answer.note);
            }
            None if path.source == Source::Operand => {}
            None => {
                let (verdict, rule) = self.fallback();
                self.push(
                    kind,
                    &path.given,
                    verdict,
                    rule,
                    "no rule of the path table names it",
                );
            }
        }
    }
}
