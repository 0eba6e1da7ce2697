//! Options that run, write or read something, and options whose value is text.

use std::sync::LazyLock;

use super::git;
use crate::bash::Word;

/// What an option means for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Runs what its value says.
    Run,
    /// Writes the file that its value names.
    Write,
    /// Changes what the program does to its operands.
    Change,
    /// Reads the file that its value names.
    Read,
    /// Its value is an operand like any other.
    File,
    /// Its value is only text.
    Text,
    /// Known to be harmless.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    None,
    One,
    Optional,
    Two,
    /// A command up to `;` or `+`.
    Command,
    Rest,
}

struct Row {
    option: &'static str,
    takes: Takes,
    effect: Effect,
    why: &'static str,
}

static TABLE: LazyLock<super::ByName<Vec<Row>>> = LazyLock::new(|| {
    let mut table: super::ByName<Vec<Row>> = Default::default();
    for row in super::rows(include_str!("../../data/options.tsv"), 6) {
        let takes = match row[2] {
            "one" => Takes::One,
            "opt" => Takes::Optional,
            "two" => Takes::Two,
            "cmd" => Takes::Command,
            "rest" => Takes::Rest,
            _ => Takes::None,
        };
        let effect = match row[3] {
            "run" => Effect::Run,
            "write" => Effect::Write,
            "change" => Effect::Change,
            "read" => Effect::Read,
            "file" => Effect::File,
            "text" => Effect::Text,
            _ => Effect::Plain,
        };
        table.entry(row[0]).or_default().push(Row {
            option: row[1],
            takes,
            effect,
            why: row[5],
        });
    }
    table
});

/// One use of a listed option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// The option as the table spells it.
    pub option: &'static str,
    /// The word that it stands in.
    pub at: usize,
    pub effect: Effect,
    /// Its value, where it has one in the words.
    pub value: Option<String>,
    /// Words that belong to it, after its own.
    pub words: std::ops::Range<usize>,
    /// The value is the rest of the option's own word.
    pub attached: bool,
    /// Its words are a command.
    pub command: bool,
    pub why: &'static str,
}

/// Uses of listed options in a command, and the words that no option took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    pub options: Vec<Use>,
    /// Words that are no option and no option's value.
    pub operands: Vec<usize>,
    /// Words that begin with a dash and are not listed.
    pub unlisted: Vec<usize>,
}

struct Scan<'a> {
    rows: Vec<&'static Row>,
    words: &'a [Word],
    uses: Uses,
}

/// Looks at the words after `start`; `program` is a name without folder, and
/// `sub` a sub-command of git.
pub(crate) fn uses(program: &str, sub: Option<&str>, words: &[Word], start: usize) -> Uses {
    let mut rows: Vec<&'static Row> = Vec::new();
    if program == "git" {
        if let Some(found) = sub
            .and_then(git::table_key)
            .and_then(|key| TABLE.get(key.as_str()))
        {
            rows.extend(found);
        }
        rows.extend(TABLE.get("git *").into_iter().flatten());
    } else {
        rows.extend(TABLE.get(program).into_iter().flatten());
    }
    let mut scan = Scan {
        rows,
        words,
        uses: Uses::default(),
    };
    scan.run(program, start);
    scan.special(sub);
    scan.uses
}

impl Scan<'_> {
    fn run(&mut self, program: &str, start: usize) {
        let mut at = start;
        let mut ended = false;
        // `tar xfC a.tar dir`: the first word is a bundle, its values follow in order.
        if program == "tar"
            && let Some(word) = self.words.get(at)
            && !word.text.starts_with('-')
        {
            at = self.old_style(at);
        }
        while at < self.words.len() {
            let text = self.words[at].text.as_str();
            if ended || !text.starts_with('-') || text == "-" {
                self.uses.operands.push(at);
                at += 1;
            } else if text == "--" {
                ended = true;
                at += 1;
            } else {
                at += self.option(at);
            }
        }
    }

    fn old_style(&mut self, at: usize) -> usize {
        let letters = self.words[at].text.clone();
        let mut next = at + 1;
        for letter in letters.chars() {
            let name = format!("-{letter}");
            if let Some(row) = self.rows.iter().find(|row| row.option == name).copied() {
                if row.takes == Takes::One {
                    self.push(row, at, None, next..next + 1, false);
                    next += 1;
                } else {
                    self.push(row, at, None, next..next, false);
                }
            }
        }
        next.min(self.words.len())
    }

    fn push(
        &mut self,
        row: &'static Row,
        at: usize,
        value: Option<String>,
        words: std::ops::Range<usize>,
        attached: bool,
    ) {
        let words = words.start.min(self.words.len())..words.end.min(self.words.len());
        let value = value.or_else(|| {
            matches!(row.takes, Takes::One)
                .then(|| self.words.get(words.start).map(|word| word.text.clone()))
                .flatten()
        });
        self.uses.options.push(Use {
            option: row.option,
            at,
            effect: row.effect,
            value,
            words,
            attached,
            command: matches!(row.takes, Takes::Command | Takes::Rest),
            why: row.why,
        });
    }

    /// Takes one option; returns how many words it is.
    fn option(&mut self, at: usize) -> usize {
        let text = self.words[at].text.clone();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), None),
        };
        if let Some(row) = self.row(name) {
            return self.take(row, at, value);
        }
        if !text.starts_with("--") && text.len() > 1 && self.bundle(at, &text[1..]) {
            return self.uses.options.last().map_or(1, |used| {
                if used.at == at {
                    1 + used.words.len()
                } else {
                    1
                }
            });
        }
        self.uses.unlisted.push(at);
        1
    }

    /// A row by its name, or by a prefix of a long name.
    fn row(&self, name: &str) -> Option<&'static Row> {
        if let Some(row) = self.rows.iter().find(|row| row.option == name) {
            return Some(row);
        }
        if name.len() < 4 || !name.starts_with("--") {
            return None;
        }
        self.rows
            .iter()
            .find(|row| row.option.starts_with(name) && row.effect != Effect::Plain)
            .copied()
    }

    fn take(&mut self, row: &'static Row, at: usize, value: Option<String>) -> usize {
        let next = at + 1;
        let attached = value.is_some();
        let words = match row.takes {
            _ if attached => next..next,
            Takes::None | Takes::Optional => next..next,
            Takes::One => next..next + 1,
            Takes::Two => next..next + 2,
            Takes::Rest => next..self.words.len(),
            Takes::Command => {
                let end = (next..self.words.len())
                    .find(|at| match self.words[*at].text.as_str() {
                        ";" => true,
                        "+" => *at > next && self.words[at - 1].text == "{}",
                        _ => false,
                    })
                    .unwrap_or(self.words.len());
                next..end
            }
        };
        let length = 1 + words.len() + usize::from(row.takes == Takes::Command);
        self.push(row, at, value, words, attached);
        length
    }

    /// Letters in one word; true when a listed one was among them.
    fn bundle(&mut self, at: usize, letters: &str) -> bool {
        let mut any = false;
        for (index, letter) in letters.char_indices() {
            let name = format!("-{letter}");
            let Some(row) = self.rows.iter().find(|row| row.option == name).copied() else {
                if !letter.is_ascii_alphanumeric() {
                    return any;
                }
                continue;
            };
            any = true;
            let rest = &letters[index + letter.len_utf8()..];
            let value = (!rest.is_empty() && row.takes != Takes::None).then(|| rest.to_owned());
            let stop = row.takes != Takes::None;
            self.take(row, at, value);
            if stop {
                return true;
            }
        }
        any
    }

    /// Rows that are no options.
    fn special(&mut self, sub: Option<&str>) {
        for at in 0..self.rows.len() {
            let row = self.rows[at];
            let Some(rule) = row.option.strip_prefix('@') else {
                continue;
            };
            let operands = self.uses.operands.clone();
            match rule.split_once('=') {
                None if rule == "always" && git::only_asks(sub, self.words, &self.uses) => {}
                None if rule == "always" => {
                    self.push(row, 0, sub.map(str::to_owned), 0..0, true);
                }
                None if rule == "second" => {
                    if let Some(at) = operands.get(1) {
                        let value = self.words[*at].text.clone();
                        self.push(row, *at, Some(value), 0..0, true);
                    }
                }
                Some(("sub", name))
                    if operands
                        .first()
                        .is_some_and(|at| self.words[*at].text == name) =>
                {
                    self.push(row, operands[0], Some(name.to_owned()), 0..0, true);
                }
                Some(("prefix", prefix)) => {
                    for at in operands {
                        if let Some(value) = self.words[at].text.strip_prefix(prefix) {
                            let value = value.to_owned();
                            self.push(row, at, Some(value), 0..0, true);
                        }
                    }
                }
                None if rule == "variable" => {
                    for at in operands {
                        if make_variable(&self.words[at].text) {
                            let value = self.words[at].text.clone();
                            self.push(row, at, Some(value), 0..0, true);
                        }
                    }
                }
                Some(("key", key)) => {
                    for at in operands {
                        let text = &self.words[at].text;
                        if let Some(value) =
                            text.strip_prefix(key).and_then(|v| v.strip_prefix('='))
                        {
                            let value = value.to_owned();
                            self.push(row, at, Some(value), 0..0, true);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Whether `NAME=value` on the line of make may run something: the name is one that
/// make or its rules run, or the value is taken apart by make or by a shell.
fn make_variable(text: &str) -> bool {
    const NAMES: [&str; 22] = [
        "SHELL",
        ".SHELLFLAGS",
        "MAKE",
        "MAKEFLAGS",
        "MAKEFILES",
        "MAKEFILE_LIST",
        "CC",
        "CXX",
        "CPP",
        "LD",
        "AR",
        "AS",
        "RM",
        "INSTALL",
        "PYTHON",
        "NODE",
        "GO",
        "CARGO",
        "NPM",
        "GIT",
        "DOCKER",
        "PATH",
    ];
    let Some((name, value)) = text.split_once('=') else {
        return false;
    };
    let name = name.trim_end_matches([':', '?', '+', '!', ' ']);
    // A compiler by its plain name is what people mean by `CC=clang`.
    let plain_tool = matches!(value, "gcc" | "clang" | "cc" | "g++" | "clang++" | "c++");
    (NAMES.contains(&name) && !plain_tool)
        || value.contains([
            '$', '`', ';', '&', '|', '<', '>', '(', ')', '\'', '"', '\\', '\n',
        ])
}

/// Whether a program has options that run, write or change: then a word that is
/// not known may be one of them.
pub(crate) fn has_dangerous(program: &str) -> bool {
    program == "git"
        || TABLE.get(program).is_some_and(|rows| {
            rows.iter()
                .any(|row| matches!(row.effect, Effect::Run | Effect::Write | Effect::Change))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_make_that_run_something_are_known() {
        for (text, runs) in [
            ("SHELL=./x", true),
            ("SHELL:=./x", true),
            ("CC=./x", true),
            ("CC=clang", false),
            ("V=1", false),
            ("CFLAGS=-O2", false),
            ("ARGS=--filter a", false),
            ("ARGS=;id", true),
            ("X=$(shell id)", true),
            ("test", false),
        ] {
            assert_eq!(make_variable(text), runs, "{text}");
        }
    }

    #[test]
    fn every_row_holds_for_its_example() {
        for row in crate::programs::rows(include_str!("../../data/options.tsv"), 6) {
            let words: Vec<Word> = row[4]
                .split(' ')
                .map(|word| Word::literal(word, 0))
                .collect();
            let program = words[0].text.clone();
            let (sub, start) = git::sub_command(&program, &words);
            let found = uses(&program, sub, &words, start);
            let expected = match row[3] {
                "run" => Effect::Run,
                "write" => Effect::Write,
                "change" => Effect::Change,
                "read" => Effect::Read,
                "file" => Effect::File,
                "text" => Effect::Text,
                "plain" => Effect::Plain,
                other => panic!("an effect that is not known: {other}"),
            };
            assert!(
                found
                    .options
                    .iter()
                    .any(|used| used.option == row[1] && used.effect == expected),
                "{row:?}: {found:?}"
            );
        }
    }

    #[test]
    fn prefixes_of_long_names_and_values_in_one_word_are_seen() {
        for (text, option, value) in [
            ("git ls-remote --upload-pa=x y", "--upload-pack", Some("x")),
            ("git diff --ext", "--ext-diff", None),
            ("sort -oout a", "-o", Some("out")),
            ("sort -uo out a", "-o", Some("out")),
            ("grep -f.env a", "-f", Some(".env")),
            ("tar xfC a.tar dir", "-C", Some("dir")),
            ("dd if=a of=b", "@key=of", Some("b")),
        ] {
            let words: Vec<Word> = text.split(' ').map(|word| Word::literal(word, 0)).collect();
            let program = words[0].text.clone();
            let (sub, start) = git::sub_command(&program, &words);
            let found = uses(&program, sub, &words, start);
            let used = found.options.iter().find(|used| used.option == option);
            assert_eq!(
                used.map(|used| used.value.as_deref()),
                Some(value),
                "{text}: {found:?}"
            );
        }
    }
}
