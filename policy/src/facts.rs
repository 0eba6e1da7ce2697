//! What a call would do, before anyone decides whether it may.

use serde::{Deserialize, Serialize};

use crate::call::{Action, Call};
use crate::commands;

/// A place that cannot be read for certain. It turns an allow into an ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unresolved {
    /// Byte range in the script.
    pub start: usize,
    /// Its end, exclusive.
    pub end: usize,
    /// What is not known there.
    pub why: String,
}

/// How a fact about a command is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// By every rule.
    Plain,
    /// Runs another command and does nothing else: only a deny or an ask counts.
    Wrapper,
    /// As a wrapper, with rights of its own: needs an allow that names it.
    Elevated,
}

/// One command.
#[derive(Clone, Debug)]
pub(crate) struct CommandFact {
    /// Decoded words, joined by one blank.
    pub text: String,
    /// Spellings that an allow may match, beside the text.
    pub allow: Vec<String>,
    /// Spellings that a deny or an ask may match, beside the text.
    pub strict: Vec<String>,
    /// Words for rules that name options; the first is the program's bare name.
    pub words: Vec<String>,
    pub role: Role,
    /// Options that an allow covers only when its pattern names them, with the reason.
    pub needs: Vec<(String, String)>,
    /// The files that it runs, as for `make`, `npm run` and `./script`.
    pub runs: Vec<String>,
}

impl CommandFact {
    /// All spellings that an allow may match.
    pub(crate) fn allowed_as(&self) -> Vec<&str> {
        spellings(&self.text, &self.allow)
    }

    /// All spellings that a deny or an ask may match.
    pub(crate) fn restricted_as(&self) -> Vec<&str> {
        spellings(&self.text, &self.strict)
    }
}

fn spellings<'a>(text: &'a str, more: &'a [String]) -> Vec<&'a str> {
    std::iter::once(text)
        .chain(more.iter().map(String::as_str))
        .collect()
}

/// Which way a file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
    /// The program may do either.
    Unknown,
}

/// Where a path comes from, which says what decides when no path rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The tool's own argument.
    Tool,
    /// A redirect.
    Redirect,
    /// A word of a command; the command's own rule covers it.
    Operand,
}

/// One path.
#[derive(Clone, Debug)]
pub(crate) struct PathFact {
    /// As it is written. `~/` is the home folder, `./~/` is not.
    pub given: String,
    /// Joined to each folder that it may be relative to.
    pub located: Vec<String>,
    pub direction: Direction,
    pub source: Source,
    /// Has wildcards of the shell.
    pub glob: bool,
}

/// One variable that is set.
#[derive(Clone, Debug)]
pub(crate) struct AssignmentFact {
    pub text: String,
    pub free: bool,
}

/// What a call would do.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub(crate) tool: String,
    pub(crate) script: bool,
    pub(crate) commands: Vec<CommandFact>,
    /// Looked at for deny only.
    pub(crate) doubtful: Vec<CommandFact>,
    pub(crate) paths: Vec<PathFact>,
    pub(crate) assignments: Vec<AssignmentFact>,
    pub(crate) unresolved: Vec<Unresolved>,
}

impl Facts {
    /// The paths that the environment is asked to resolve: absolute, beginning
    /// with `~/`, or relative to the project.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths
            .iter()
            .filter(|path| !path.glob)
            .flat_map(|path| path.located.iter().map(String::as_str))
            .chain(
                self.commands
                    .iter()
                    .flat_map(|command| command.runs.iter().map(String::as_str)),
            )
    }

    /// Files whose content the call runs (`Makefile`, `package.json`, `./script`), or would
    /// run if they were there: a grant is bound to what they hold.
    pub fn runs(&self) -> impl Iterator<Item = &str> {
        self.commands
            .iter()
            .flat_map(|command| command.runs.iter().map(String::as_str))
    }

    /// The places that cannot be read for certain.
    pub fn unresolved(&self) -> &[Unresolved] {
        &self.unresolved
    }

    /// The commands that were found, each as its words joined by one blank.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        self.commands.iter().map(|command| command.text.as_str())
    }

    /// As `commands`, for what may be a command (a script in a word of a shell,
    /// text that did not parse).
    pub fn doubtful_commands(&self) -> impl Iterator<Item = &str> {
        self.doubtful.iter().map(|command| command.text.as_str())
    }
}

/// Reads a call. Never fails: what cannot be read is unresolved.
pub fn read(call: &Call<'_>) -> Facts {
    let mut facts = Facts {
        tool: call.tool.to_owned(),
        ..Facts::default()
    };
    let mut path = |given: &str, direction| {
        let given = if given.is_empty() { "." } else { given };
        facts.paths.push(PathFact {
            given: given.to_owned(),
            located: vec![given.to_owned()],
            direction,
            source: Source::Tool,
            glob: false,
        });
    };
    match call.action {
        Action::Bash { text, cwd } => commands::read(&mut facts, text, cwd),
        Action::Read { path: given } | Action::Search { path: given } => {
            path(given, Direction::Read);
        }
        Action::Write { path: given } => path(given, Direction::Write),
        Action::Other => {}
    }
    facts
}
