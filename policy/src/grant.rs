//! "Always": the narrowest rule that would have allowed a call that was asked for.

use mooring_crds::Verdict;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::decide::{DecidedFact, Decision};
use crate::environment::Environment;
use crate::facts::Facts;
use crate::programs::granting;
use crate::rules::{RuleRef, Rules};

/// A fact that a person said yes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantedFact {
    /// As in [`DecidedFact`].
    pub kind: String,
    /// The fact in canonical form.
    pub text: String,
    /// SHA-256 (hex) of the rule that asked for it.
    pub rule_digest: String,
}

/// What a grant covers: these facts of this tool, asked for by these rules, with
/// files of this content. Never more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantRule {
    /// The tool's name.
    pub tool: String,
    /// Digest of the policy under which it was given.
    pub policy_digest: String,
    /// The facts that were asked for.
    pub facts: Vec<GrantedFact>,
    /// Files that the call runs, with the SHA-256 (hex) of their content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<(String, String)>,
}

fn rule_digest(rule: &RuleRef, verdict: Verdict) -> String {
    let text = format!("{}\0{}\0{verdict}", rule.table, rule.pattern);
    hex::encode(Sha256::digest(text))
}

fn granted(fact: &DecidedFact) -> GrantedFact {
    GrantedFact {
        kind: fact.kind.clone(),
        text: fact.text.clone(),
        rule_digest: rule_digest(&fact.rule, fact.verdict),
    }
}

/// The narrowest lasting grant for a call that was asked for, or why there is none.
///
/// # Errors
/// A sentence for people: what about the call is too wide or not known.
pub fn propose_grant(
    rules: &Rules,
    facts: &Facts,
    decision: &Decision,
    environment: &dyn Environment,
) -> Result<GrantRule, String> {
    match decision.verdict {
        Verdict::Allow => return Err("the policy allows it already".to_owned()),
        Verdict::Deny => return Err("the policy denies it, and no grant changes that".to_owned()),
        Verdict::Ask => {}
    }
    if let Some(place) = facts.unresolved.first() {
        return Err(format!(
            "it cannot be read for certain what it does: {}",
            place.why
        ));
    }
    for command in &facts.commands {
        if let Some(why) = granting::refused(&command.words) {
            return Err(format!("{why}; it is asked for every time"));
        }
        if let Some((option, why)) = command.needs.first() {
            return Err(format!("{option} {why}; it is asked for every time"));
        }
    }
    let asked: Vec<&DecidedFact> = decision
        .facts
        .iter()
        .filter(|fact| fact.verdict == Verdict::Ask)
        .collect();
    if let Some(fact) = asked.iter().find(|fact| fact.rule.table == "built-in") {
        return Err(format!(
            "{} is asked for every time ({})",
            fact.text, fact.rule
        ));
    }
    if asked.is_empty() {
        return Err("no part of it is asked for by a rule".to_owned());
    }
    Ok(GrantRule {
        tool: facts.tool.clone(),
        policy_digest: rules.digest().to_owned(),
        facts: asked.into_iter().map(granted).collect(),
        contents: contents(facts, environment)?,
    })
}

/// What stands for the content of a file that is not there.
const MISSING: &str = "missing";

/// The content of each file that the call runs; of a command one has to be there.
fn contents(facts: &Facts, environment: &dyn Environment) -> Result<Vec<(String, String)>, String> {
    let mut contents = Vec::new();
    for command in facts
        .commands
        .iter()
        .filter(|command| !command.runs.is_empty())
    {
        let mut any = false;
        for file in &command.runs {
            let missing = || {
                let found = environment
                    .resolve(file)
                    .filter(|_| command.runs.len() > 1)?;
                (!found.exists).then(|| MISSING.to_owned())
            };
            let known = environment.content_hash(file);
            any |= known.is_some();
            match known.or_else(missing) {
                Some(hash) => contents.push((file.clone(), hash)),
                None => return Err(unknown(file)),
            }
        }
        if !any {
            return Err(unknown(&command.runs[0]));
        }
    }
    Ok(contents)
}

fn unknown(file: &str) -> String {
    match file {
        "" => "which file it runs is not known".to_owned(),
        file => format!("the content of {file}, which it runs, is not known"),
    }
}

/// Whether a grant answers everything that a call is asked for.
pub fn grant_covers(
    grant: &GrantRule,
    facts: &Facts,
    decision: &Decision,
    environment: &dyn Environment,
) -> bool {
    decision.verdict == Verdict::Ask
        && facts.unresolved.is_empty()
        && grant.tool == facts.tool
        && decision
            .facts
            .iter()
            .filter(|fact| fact.verdict != Verdict::Allow)
            .all(|fact| fact.verdict == Verdict::Ask && grant.facts.contains(&granted(fact)))
        && contents(facts, environment).is_ok_and(|contents| contents == grant.contents)
}
