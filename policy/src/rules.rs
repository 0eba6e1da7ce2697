//! A policy, compiled: each table ready to be asked in the time one pass over
//! the text takes, whatever the number of its rules.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use mooring_crds::{Policy, Verdict};
use serde::{Deserialize, Serialize};

use crate::flags::{FlagPattern, GivenWords};
use crate::pattern::Pattern;

/// Which rule decided: a table and the pattern in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRef {
    /// `tool`, `bash`, `path`, `mcp`, `git`, `egress`, `externalDirectory`, or `built-in` for what no
    /// table can switch off.
    pub table: String,
    /// The pattern as it is written; for `built-in` a short name of the rule, and
    /// for a table without a matching rule the empty text.
    pub pattern: String,
}

impl RuleRef {
    pub(crate) fn new(table: &str, pattern: &str) -> RuleRef {
        RuleRef {
            table: table.to_owned(),
            pattern: pattern.to_owned(),
        }
    }

    pub(crate) fn built_in(name: &str) -> RuleRef {
        RuleRef::new("built-in", name)
    }
}

impl std::fmt::Display for RuleRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.table.as_str(), self.pattern.as_str()) {
            ("built-in", name) => write!(f, "built-in rule: {name}"),
            ("externalDirectory", _) => f.write_str("externalDirectory"),
            (table, "") => write!(f, "no rule in the {table} table"),
            (table, pattern) => write!(f, "{table} rule {pattern:?}"),
        }
    }
}

/// A compiled policy. Cheap to clone.
#[derive(Clone)]
pub struct Rules(Arc<Inner>);

struct Inner {
    tool: Table,
    bash: Table,
    path: Table,
    mcp: Table,
    git: Table,
    egress: Table,
    external_directory: Option<Verdict>,
    digest: String,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules")
            .field("digest", &self.0.digest)
            .finish_non_exhaustive()
    }
}

impl Rules {
    /// Compiles `policy`.
    pub fn new(policy: &Policy) -> Rules {
        Rules(Arc::new(Inner {
            tool: Table::new(&policy.tool, Folding::None),
            bash: Table::new(&policy.bash, Folding::None),
            path: Table::new(&policy.path, Folding::Strict),
            mcp: Table::new(&policy.mcp, Folding::None),
            git: Table::new(&policy.git, Folding::None),
            egress: Table::new(&policy.egress, Folding::None),
            external_directory: policy.external_directory,
            digest: policy.digest(),
        }))
    }

    /// SHA-256 (hex) of the policy's canonical JSON.
    pub fn digest(&self) -> &str {
        &self.0.digest
    }

    /// Whether the model should be told of `tool`: not when every call of it
    /// would be denied.
    pub fn tool_visible(&self, tool: &str) -> bool {
        let own = self.0.tool.decide(&[tool], &[tool]);
        match self.server_tool(tool, own.as_ref()).or(own) {
            Some(found) => found.verdict != Verdict::Deny,
            None => tool == "bash" && self.0.bash.allows_anything(),
        }
    }

    pub(crate) fn tool(&self) -> &Table {
        &self.0.tool
    }

    pub(crate) fn bash(&self) -> &Table {
        &self.0.bash
    }

    pub(crate) fn path(&self) -> &Table {
        &self.0.path
    }

    pub(crate) fn git(&self) -> &Table {
        &self.0.git
    }

    pub(crate) fn egress(&self) -> &Table {
        &self.0.egress
    }

    pub(crate) fn mcp(&self) -> &Table {
        &self.0.mcp
    }

    /// The rule of the mcp table for a server's tool; of `own`, what the tool table says,
    /// only a deny comes before it.
    pub(crate) fn server_tool(&self, tool: &str, own: Option<&Found<'_>>) -> Option<Found<'_>> {
        let denied = own.is_some_and(|found| found.verdict == Verdict::Deny);
        if denied || !tool.starts_with("mcp__") {
            return None;
        }
        self.0.mcp.decide(&[tool], &[tool])
    }

    pub(crate) fn external_directory(&self) -> Option<Verdict> {
        self.0.external_directory
    }
}

/// Whether deny and ask patterns are compared without case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folding {
    None,
    Strict,
}

/// One rule that matched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub verdict: Verdict,
    pub pattern: &'a Pattern,
    /// `*` alone, which every other pattern wins over.
    pub any: bool,
}

/// One table.
pub(crate) struct Table {
    rules: Vec<(Pattern, Verdict)>,
    exact: HashMap<String, usize>,
    /// Deny and ask equalities without case.
    exact_folded: HashMap<String, usize>,
    any: Option<usize>,
    allow: Index,
    strict: Index,
    /// Deny and ask rules with options, by program: matched by meaning.
    flags: HashMap<String, Vec<(usize, FlagPattern)>>,
    folding: Folding,
}

impl Table {
    fn new(table: &mooring_crds::policy::Table, folding: Folding) -> Table {
        let mut rules = Vec::with_capacity(table.len());
        let mut exact = HashMap::new();
        let mut exact_folded = HashMap::new();
        let mut any = None;
        let (mut allow, mut strict) = (Vec::new(), Vec::new());
        let mut flags: HashMap<String, Vec<(usize, FlagPattern)>> = HashMap::new();
        for (source, verdict) in table {
            let at = rules.len();
            let is_strict = *verdict != Verdict::Allow;
            let pattern = if is_strict && folding == Folding::Strict {
                Pattern::strict_path(source)
            } else {
                Pattern::new(source)
            };
            if pattern.is_any() {
                // `*` and `**` may both be there.
                if any.is_none_or(|other: usize| {
                    let (_, other): &(Pattern, Verdict) = &rules[other];
                    verdict > other
                }) {
                    any = Some(at);
                }
            } else if pattern.is_exact() {
                exact.insert(source.clone(), at);
                if is_strict && folding == Folding::Strict {
                    exact_folded.insert(source.to_lowercase(), at);
                }
            } else if is_strict {
                strict.push(at);
                if let Some((program, flag)) = FlagPattern::new(source) {
                    flags.entry(program).or_default().push((at, flag));
                }
            } else {
                allow.push(at);
            }
            rules.push((pattern, *verdict));
        }
        let allow = Index::new(&rules, allow);
        let strict = Index::new(&rules, strict);
        Table {
            rules,
            exact,
            exact_folded,
            any,
            allow,
            strict,
            flags,
            folding,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn allows_anything(&self) -> bool {
        self.rules
            .iter()
            .any(|(_, verdict)| *verdict != Verdict::Deny)
    }

    fn found(&self, at: usize, any: bool) -> Found<'_> {
        let (pattern, verdict) = &self.rules[at];
        Found {
            verdict: *verdict,
            pattern,
            any,
        }
    }

    /// The rule for a value that has several spellings: `allow` are those that an
    /// allow may match, `strict` those that a deny or an ask may match.
    pub(crate) fn decide(&self, allow: &[&str], strict: &[&str]) -> Option<Found<'_>> {
        self.decide_where(allow, strict, |_| true, None)
    }

    /// As `decide`, with a condition on allow rules and the words of a command
    /// for rules that name options.
    pub(crate) fn decide_where(
        &self,
        allow: &[&str],
        strict: &[&str],
        covers: impl Fn(&Pattern) -> bool,
        words: Option<&[&str]>,
    ) -> Option<Found<'_>> {
        if let Some(found) = self.exact(allow, strict, &covers) {
            return Some(found);
        }
        if let Some(found) = self.strict(strict, words) {
            return Some(found);
        }
        let mut best = None;
        for text in allow {
            self.allow.each_match(&self.rules, text, |at| {
                if covers(&self.rules[at].0) {
                    best = Some(at);
                }
                best.is_none()
            });
            if let Some(at) = best {
                return Some(self.found(at, false));
            }
        }
        self.any.map(|at| self.found(at, true))
    }

    fn exact(
        &self,
        allow: &[&str],
        strict: &[&str],
        covers: &impl Fn(&Pattern) -> bool,
    ) -> Option<Found<'_>> {
        let mut best: Option<Found<'_>> = None;
        let mut consider = |at: usize| {
            let found = self.found(at, false);
            if best.is_none_or(|best| found.verdict > best.verdict) {
                best = Some(found);
            }
        };
        for text in allow {
            if let Some(at) = self.exact.get(*text)
                && (self.rules[*at].1 != Verdict::Allow || covers(&self.rules[*at].0))
            {
                consider(*at);
            }
        }
        for text in strict {
            if let Some(at) = self.exact.get(*text)
                && self.rules[*at].1 != Verdict::Allow
            {
                consider(*at);
            }
            if !self.exact_folded.is_empty()
                && let Some(at) = self.exact_folded.get(self.fold(text).as_ref())
            {
                consider(*at);
            }
        }
        best
    }

    fn fold<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let lower = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase();
        if self.folding == Folding::None || text.bytes().all(lower) {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(text.to_lowercase())
        }
    }

    /// The strictest deny or ask with a wildcard; also asked alone, for text that
    /// no allow may match.
    pub(crate) fn strict(&self, texts: &[&str], words: Option<&[&str]>) -> Option<Found<'_>> {
        let mut best: Option<usize> = None;
        let better = |at: usize, best: Option<usize>| {
            best.is_none_or(|best| self.rules[at].1 > self.rules[best].1)
        };
        for text in texts {
            let text = self.fold(text);
            self.strict.each_match(&self.rules, &text, |at| {
                if better(at, best) {
                    best = Some(at);
                }
                true
            });
        }
        if let Some(words) = words
            && let Some(program) = words.first()
            && let Some(flags) = self.flags.get(*program)
        {
            let given = GivenWords::new(words);
            for (at, flag) in flags {
                if better(*at, best) && flag.matches(&given) {
                    best = Some(*at);
                }
            }
        }
        best.map(|at| self.found(at, false))
    }

    /// The strictest deny or ask with a wildcard that matches, other than `source`.
    pub(crate) fn strict_besides(&self, text: &str, source: &str) -> Option<Found<'_>> {
        let mut best: Option<usize> = None;
        self.strict.each_match(&self.rules, text, |at| {
            let (pattern, verdict) = &self.rules[at];
            if pattern.source() != source && best.is_none_or(|best| *verdict > self.rules[best].1) {
                best = Some(at);
            }
            true
        });
        best.map(|at| self.found(at, false))
    }

    /// A deny or ask that equals one of the texts.
    pub(crate) fn strict_exact(&self, texts: &[&str]) -> Option<Found<'_>> {
        self.exact(&[], texts, &|_| false)
    }

    /// Deny and ask patterns, for globs that may meet them.
    pub(crate) fn strict_patterns(&self) -> impl Iterator<Item = (&Pattern, Verdict)> {
        self.rules
            .iter()
            .filter(|(pattern, verdict)| *verdict != Verdict::Allow && !pattern.is_any())
            .map(|(pattern, verdict)| (pattern, *verdict))
    }
}

/// Finds the patterns whose literal text occurs in a text.
struct Index {
    automaton: Option<AhoCorasick>,
    /// By the automaton's pattern number.
    rules: Vec<usize>,
    /// Patterns without literal text, or all when there are only a few.
    always: Vec<usize>,
}

/// Below this, trying each pattern is faster than one automaton.
const FEW: usize = 12;

impl Index {
    fn new(rules: &[(Pattern, Verdict)], members: Vec<usize>) -> Index {
        if members.len() <= FEW {
            return Index {
                automaton: None,
                rules: Vec::new(),
                always: members,
            };
        }
        let (mut indexed, mut always) = (Vec::new(), Vec::new());
        for at in members {
            if rules[at].0.longest_literal().is_empty() {
                always.push(at)
            } else {
                indexed.push(at)
            }
        }
        let automaton =
            AhoCorasick::new(indexed.iter().map(|at| rules[*at].0.longest_literal())).ok();
        if automaton.is_none() {
            // Too large for the automaton's state numbers: slower, never wrong.
            always.append(&mut indexed);
        }
        Index {
            automaton,
            rules: indexed,
            always,
        }
    }

    /// Calls `each` for every matching rule, until it returns false.
    fn each_match(
        &self,
        rules: &[(Pattern, Verdict)],
        text: &str,
        mut each: impl FnMut(usize) -> bool,
    ) {
        for at in &self.always {
            if rules[*at].0.matches(text) && !each(*at) {
                return;
            }
        }
        let Some(automaton) = &self.automaton else {
            return;
        };
        for hit in automaton.find_overlapping_iter(text) {
            let at = self.rules[hit.pattern().as_usize()];
            if rules[at].0.matches(text) && !each(at) {
                return;
            }
        }
    }
}
