//! What a parser says of a script, in a form in which two parsers can be compared.

use std::borrow::Cow;

/// One word as it is written, and where.
#[derive(Clone, Debug)]
pub(crate) struct RawWord<'a> {
    pub text: Cow<'a, str>,
    /// Byte offset; 0 from a parser that does not tell.
    pub at: usize,
}

/// Words are equal when they are written equally, wherever.
impl PartialEq for RawWord<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawRedirect<'a> {
    /// `>`, `<<<`, …
    pub op: Cow<'a, str>,
    /// The descriptor in front, or -1.
    pub fd: i32,
    pub target: RawWord<'a>,
}

#[derive(Clone, Debug)]
pub(crate) struct RawHereDoc<'a> {
    pub body: Cow<'a, str>,
    pub at: usize,
    pub quoted: bool,
}

/// Bodies are compared without the leading tabs that `<<-` removes.
impl PartialEq for RawHereDoc<'_> {
    fn eq(&self, other: &Self) -> bool {
        let lines = |text: &str| -> Vec<String> {
            text.trim_end_matches('\n')
                .split('\n')
                .map(|line| line.trim_start_matches('\t').to_owned())
                .collect()
        };
        self.quoted == other.quoted
            && (self.body == other.body || lines(&self.body) == lines(&other.body))
    }
}

/// A script as lists in order of appearance. Command substitutions are not in
/// it: they are part of a word's text and are read on their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outline<'a> {
    /// Words of each simple command.
    pub commands: Vec<Vec<RawWord<'a>>>,
    /// `NAME=value` in front of a command or alone.
    pub assignments: Vec<RawWord<'a>>,
    pub redirects: Vec<RawRedirect<'a>>,
    pub here_docs: Vec<RawHereDoc<'a>>,
    /// Words that are expanded and are no command: of `for`, `case`, `[[`.
    pub data: Vec<RawWord<'a>>,
    /// Text of `(( … ))`.
    pub arithmetic: Vec<String>,
    /// Names of defined functions.
    pub functions: Vec<String>,
    /// Names that a `for` or `select` sets.
    pub variables: Vec<String>,
    /// Operators of `[[ … ]]`.
    pub tests: Vec<String>,
}

/// A place that a reader cannot read, as a byte range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub start: usize,
    pub end: usize,
    pub why: String,
}

impl Trouble {
    pub(crate) fn new(start: usize, end: usize, why: impl Into<String>) -> Trouble {
        Trouble {
            start,
            end,
            why: why.into(),
        }
    }
}

/// What one parser made of a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading<'a> {
    pub outline: Outline<'a>,
    pub troubles: Vec<Trouble>,
}

/// Removes line continuations outside single quotes, as bash does before it
/// reads words. One of the parsers does it, the other does not.
pub(crate) fn join_lines(text: &str) -> Cow<'_, str> {
    if !text.contains("\\\n") {
        return Cow::Borrowed(text);
    }
    let mut joined = String::with_capacity(text.len());
    let mut rest = text;
    let (mut single, mut double) = (false, false);
    while let Some(character) = rest.chars().next() {
        let mut taken = character.len_utf8();
        match character {
            '\'' if !double => single = !single,
            '"' if !single => double = !double,
            '\\' if !single => {
                if rest[1..].starts_with('\n') {
                    rest = &rest[2..];
                    continue;
                }
                taken += rest[1..].chars().next().map_or(0, char::len_utf8);
            }
            _ => {}
        }
        joined.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    Cow::Owned(joined)
}
