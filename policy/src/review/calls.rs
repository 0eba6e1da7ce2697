//! Calls as they are recorded: audit rows, cases, and calls made from a policy's rules.

use serde::Deserialize;

use super::source::ReviewError;
use crate::call::{Action, Call};
use crate::decide::Decision;
use crate::egress::decide_connection;
use crate::environment::Environment;
use crate::push::{Push, decide_push};
use crate::{Rules, decide, read};

/// One recorded call. A line of an audit file has `tool` and one of `bash`,
/// `path` and `input`, or `arguments` as the model gave them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct RecordedCall {
    /// The tool's name.
    pub tool: String,
    /// A script.
    #[serde(default)]
    pub bash: Option<String>,
    /// A path.
    #[serde(default)]
    pub path: Option<String>,
    /// The folder that a script starts in.
    #[serde(default)]
    pub cwd: Option<String>,
    /// The script or the path, by the tool's name.
    #[serde(default)]
    pub input: Option<String>,
    /// The tool's arguments.
    #[serde(default)]
    pub arguments: Option<serde_json::Map<String, serde_json::Value>>,
    /// Ref updates of a push, as the `git` table has them.
    #[serde(default)]
    pub git: Option<Vec<String>>,
    /// `host:port` of a connection.
    #[serde(default)]
    pub egress: Option<String>,
}

impl RecordedCall {
    /// A call of `tool` with nothing known but its name.
    pub fn tool(tool: &str) -> RecordedCall {
        RecordedCall {
            tool: tool.to_owned(),
            bash: None,
            path: None,
            cwd: None,
            input: None,
            arguments: None,
            git: None,
            egress: None,
        }
    }

    /// A push of one ref, as the `git` table has it; `None` where the text is none.
    pub fn push(text: &str) -> Option<RecordedCall> {
        update(text)?;
        Some(RecordedCall {
            git: Some(vec![text.to_owned()]),
            ..RecordedCall::tool("git push")
        })
    }

    /// A connection to `host:port`; `None` where the text is none.
    pub fn connection(text: &str) -> Option<RecordedCall> {
        destination(text)?;
        Some(RecordedCall {
            egress: Some(text.to_owned()),
            ..RecordedCall::tool("egress")
        })
    }

    /// Decides it: a push by the `git` table, a connection by the `egress` table, all
    /// else by its facts.
    pub fn decide(&self, rules: &Rules, environment: &dyn Environment) -> Decision {
        if let Some((host, port)) = self.egress.as_deref().and_then(destination) {
            return decide_connection(rules, host, port);
        }
        match &self.git {
            Some(texts) => {
                let updates: Vec<_> = texts.iter().filter_map(|text| update(text)).collect();
                decide_push(rules, &updates)
            }
            None => decide(rules, &read(&self.call()), environment),
        }
    }

    /// A call of the `bash` tool.
    pub fn bash(text: &str) -> RecordedCall {
        RecordedCall {
            bash: Some(text.to_owned()),
            ..RecordedCall::tool("bash")
        }
    }

    /// A call of a tool with a path.
    pub fn path(tool: &str, path: &str) -> RecordedCall {
        RecordedCall {
            path: Some(path.to_owned()),
            ..RecordedCall::tool(tool)
        }
    }

    fn argument(&self, names: &[&str]) -> Option<&str> {
        let arguments = self.arguments.as_ref()?;
        names.iter().find_map(|name| arguments.get(*name)?.as_str())
    }

    /// The script, if it is a call of `bash`.
    pub fn script(&self) -> Option<&str> {
        if self.tool != "bash" {
            return None;
        }
        self.bash
            .as_deref()
            .or(self.input.as_deref())
            .or_else(|| self.argument(&["command", "script", "text"]))
    }

    fn file(&self) -> Option<&str> {
        self.path
            .as_deref()
            .or_else(|| self.argument(&["path", "file", "file_path"]))
            .or_else(|| {
                let known = matches!(
                    self.tool.as_str(),
                    "read" | "write" | "edit" | "grep" | "find" | "ls" | "glob"
                );
                self.input.as_deref().filter(|_| known)
            })
    }

    /// As it is decided.
    pub fn call(&self) -> Call<'_> {
        let action = match (self.script(), self.file()) {
            (Some(text), _) => Action::Bash {
                text,
                cwd: self.cwd.as_deref().unwrap_or(""),
            },
            (None, Some(path)) => match self.tool.as_str() {
                "read" => Action::Read { path },
                "grep" | "find" | "ls" | "glob" => Action::Search { path },
                _ => Action::Write { path },
            },
            (None, None) => Action::Other,
        };
        Call {
            tool: &self.tool,
            action,
        }
    }

    /// For people.
    pub fn shown(&self) -> String {
        if let Some(updates) = &self.git {
            return updates.join(", ");
        }
        if let Some(destination) = &self.egress {
            return format!("egress {destination}");
        }
        match self.call().action {
            Action::Bash { text, .. } => format!("{} {text:?}", self.tool),
            Action::Read { path } | Action::Write { path } | Action::Search { path } => {
                format!("{} {path:?}", self.tool)
            }
            Action::Other => self.tool.clone(),
        }
    }
}

/// Host and port as their text has them.
fn destination(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!host.is_empty() && !host.contains([' ', ':', '/', '@'])).then_some((host, port))
}

/// A ref update as its text has it.
fn update(text: &str) -> Option<Push<'_>> {
    let rest = text.strip_prefix("push ")?;
    let (force, rest) = match rest.strip_prefix("--force ") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (delete, reference) = match rest.strip_prefix("--delete ") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let whole = reference.starts_with("refs/") && !reference.contains(char::is_whitespace);
    (whole && !(force && delete)).then_some(Push {
        reference,
        force,
        delete,
    })
}

/// Reads recorded calls, one a line; empty lines are skipped.
///
/// # Errors
/// [`ReviewError::BadLine`] for the first line that is not a call.
pub fn read_calls(name: &str, text: &str) -> Result<Vec<RecordedCall>, ReviewError> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| ReviewError::BadLine {
                name: name.to_owned(),
                line: index + 1,
                message: format!("not a recorded call: {error}"),
            })
        })
        .collect()
}
