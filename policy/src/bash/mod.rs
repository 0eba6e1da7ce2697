//! Reads a bash script: which commands with which words, which redirects, which
//! assignments, and every place that cannot be read for certain.
//!
//! Two parsers read it and have to agree; the words themselves are decoded here.

mod braces;
mod closing;
mod decode;
mod guard;
mod known;
mod outline;
mod parameter;
mod rable_reader;
mod rough;
mod script;
mod tree_reader;

pub(crate) use script::{Command, Redirect, Script, read_script};

/// The two parsers alone, for the benchmark.
#[doc(hidden)]
pub fn parse_only(text: &str) -> bool {
    let rable = rable::parse(text, true).is_ok();
    rable & tree_reader::parses(text)
}

/// One word after quote removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// The value, with what is not known as it is written (`$x`).
    pub text: String,
    /// A part is only known when it runs.
    pub dynamic: bool,
    /// It may become several words, or none.
    pub splits: bool,
    /// Has unquoted `*`, `?` or `[`.
    pub glob: bool,
    /// Begins with the home folder (`~`, `$HOME`), shown as `~`.
    pub home: bool,
    /// Where it begins in the whole text, in bytes.
    pub at: usize,
}

impl Word {
    /// A word that is known.
    pub(crate) fn literal(text: &str, at: usize) -> Word {
        Word {
            text: text.to_owned(),
            at,
            ..Word::default()
        }
    }

    /// Its value is fixed before it runs.
    pub(crate) fn is_static(&self) -> bool {
        !self.dynamic && !self.glob
    }
}
