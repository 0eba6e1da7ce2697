//! `spec.policy`: what the agent may do, as tables of patterns.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The answer to one call.
///
/// Ordered by strictness: `Allow < Ask < Deny`, so that the strictest of several
/// is their maximum.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Runs at once.
    Allow,
    /// Waits for a person.
    Ask,
    /// Never runs; the model is told why.
    Deny,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask",
            Verdict::Deny => "deny",
        })
    }
}

/// A table: pattern to verdict. The order of keys means nothing.
pub type Table = BTreeMap<String, Verdict>;

/// The rules of a Workspace. A missing table has no rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    /// By tool name. Without `"*"` a tool that no pattern names is denied, and
    /// hidden from the model.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tool: Table,
    /// By command: decoded words joined by one blank (`git push*`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bash: Table,
    /// By path, in its canonical form and in the form given.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub path: Table,
    /// By destination of a TLS connection, `host:port` (`crates.io:443`); `*` is every
    /// host at port 443. What no pattern names is denied.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub egress: Table,
    /// For paths outside the project.
    #[serde(alias = "external_directory", skip_serializing_if = "Option::is_none")]
    pub external_directory: Option<Verdict>,
    /// By ref update of a push: `push refs/heads/main`, `push --force …`,
    /// `push --delete …`, each with the ref's whole name. What no pattern names is
    /// allowed for `refs/heads/mooring/*`, and asked for everywhere else.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub git: Table,
    /// By name of a server's tool (`mcp__tracker__search`). What none of its patterns
    /// names is decided by the tool table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: Table,
    /// Expectations that are checked whenever the policy is loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<PolicyTest>,
}

impl Policy {
    /// SHA-256 (hex) of its canonical JSON: by it operator and harness tell whether
    /// they speak of the same policy.
    pub fn digest(&self) -> String {
        // A struct of ordered maps has one JSON form.
        let canonical = serde_json::to_vec(self).expect("a policy holds only text keys");
        hex::encode(Sha256::digest(canonical))
    }
}

/// Checks a key of the egress table: `*`, or `host:port` with a name in lower case,
/// in which `*` stands for any text, and a port from 1 to 65535.
///
/// # Errors
/// What is wrong with it, as the end of a sentence.
pub fn egress_pattern(pattern: &str) -> Result<(), &'static str> {
    if pattern == "*" {
        return Ok(());
    }
    let Some((host, port)) = pattern.rsplit_once(':') else {
        return Err("has no port; write host:port, such as \"crates.io:443\"");
    };
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if !digits || port.starts_with('0') || port.parse::<u16>().is_err() {
        return Err("needs a port from 1 to 65535; write host:port, such as \"crates.io:443\"");
    }
    let known = |b: u8| {
        b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_' | b'*')
    };
    if host.is_empty() || !host.bytes().all(known) || host.ends_with('.') {
        return Err("needs the name of a host in lower case before its port");
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) {
        return Err("names an address; only names of hosts are reached");
    }
    Ok(())
}

/// One expectation: exactly one of `tool`, `bash`, `path`, `git`, `egress`, and the verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyTest {
    /// A tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// A command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bash: Option<String>,
    /// A path that is written, relative to the project or absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A ref update, as the `git` table has it (`push refs/heads/main`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<String>,
    /// A connection, `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<String>,
    /// What the policy must answer.
    pub expect: Verdict,
}
