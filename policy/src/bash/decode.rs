//! Decodes one word: quote removal, and the places whose value is not known.

use std::rc::Rc;

use super::Word;
use super::closing::{closing_bracket, closing_parenthesis};
use super::known::Known;
use super::outline::Trouble;
use super::parameter;

/// A script inside a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nested {
    pub text: String,
    /// Where its text begins in the whole text; for back-quotes, whose text has
    /// escapes removed, where the back-quote stands.
    pub at: usize,
    /// It may also be no script: read for deny only.
    pub doubtful: bool,
}

/// What decoding finds beside the words' values.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub nested: Vec<Nested>,
    pub troubles: Vec<Trouble>,
    /// What the script's own variables can hold.
    pub known: Rc<Known>,
    /// Values of loops' variables, for the words that are decoded now.
    pub bound: Vec<(String, String)>,
}

impl Findings {
    pub(crate) fn of(known: &Rc<Known>) -> Findings {
        Findings {
            known: known.clone(),
            ..Findings::default()
        }
    }

    pub(crate) fn trouble(&mut self, start: usize, end: usize, why: &str) {
        self.troubles.push(Trouble::new(start, end, why));
    }
}

/// Where the text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A word of a command.
    Word,
    /// Inside double quotes.
    Double,
    /// In the body of a here-document whose delimiter is not quoted.
    HereDoc,
}

/// Parameter expansions nest at most this deeply.
pub(super) const MAX_NESTING: usize = 20;

/// Decodes `raw`, which stands at byte `at` of the whole text.
pub(crate) fn decode(raw: &str, at: usize, mode: Mode, findings: &mut Findings) -> Word {
    let mut decoder = Decoder {
        raw,
        at,
        pos: 0,
        word: Word {
            at,
            ..Word::default()
        },
        findings,
        depth: 0,
    };
    if mode == Mode::Word
        && !raw.bytes().any(|byte| {
            matches!(
                byte,
                b'\\'
                    | b'\''
                    | b'"'
                    | b'$'
                    | b'`'
                    | b'*'
                    | b'?'
                    | b'['
                    | b'('
                    | b'<'
                    | b'>'
                    | b'~'
                    | b'{'
            )
        })
    {
        decoder.word.text.push_str(raw);
        return decoder.word;
    }
    if mode == Mode::Word {
        decoder.tilde();
    }
    decoder.run(mode);
    decoder.word
}

pub(super) struct Decoder<'a, 'f> {
    pub raw: &'a str,
    pub at: usize,
    pub pos: usize,
    pub word: Word,
    pub findings: &'f mut Findings,
    pub depth: usize,
}

impl Decoder<'_, '_> {
    pub(super) fn rest(&self) -> &str {
        &self.raw[self.pos..]
    }

    fn peek(&self) -> Option<u8> {
        self.raw.as_bytes().get(self.pos).copied()
    }

    pub(super) fn trouble(&mut self, start: usize, why: &str) {
        self.findings
            .trouble(self.at + start, self.at + self.pos.max(start + 1), why);
    }

    fn tilde(&mut self) {
        let Some(rest) = self.raw.strip_prefix('~') else {
            return;
        };
        let name = &rest[..rest.find('/').unwrap_or(rest.len())];
        self.pos = 1;
        self.word.text.push('~');
        if name.is_empty() {
            self.word.home = true;
        } else if name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte))
        {
            // Another user's home, or a former folder.
            self.word.dynamic = true;
        }
    }

    pub(super) fn run(&mut self, mode: Mode) {
        while let Some(byte) = self.peek() {
            let start = self.pos;
            match (byte, mode) {
                (b'\\', _) => self.backslash(mode),
                (b'\'', Mode::Word) => self.single_quotes(),
                (b'"', Mode::Word) => self.double_quotes(),
                (b'"', Mode::Double) => self.pos += 1,
                (b'$', _) => self.dollar(mode),
                (b'`', _) => self.back_quotes(mode),
                (b'<' | b'>', Mode::Word) if self.rest()[1..].starts_with('(') => {
                    self.pos += 2;
                    self.command_substitution(start);
                    self.word.text.push_str("/dev/fd/63");
                }
                (b'*' | b'?' | b'[', Mode::Word) => {
                    self.word.glob |= byte != b'[' || self.rest().contains(']');
                    self.pos += 1;
                    self.word.text.push(char::from(byte));
                }
                (b'(' | b')' | b'<' | b'>' | b'&' | b'|' | b';', Mode::Word) => {
                    self.pos += 1;
                    self.word.text.push(char::from(byte));
                    self.word.dynamic = true;
                    self.trouble(start, "an operator inside a word");
                }
                _ => self.copy_plain(mode),
            }
        }
    }

    /// Copies up to the next character that means something.
    fn copy_plain(&mut self, mode: Mode) {
        let special = |byte: u8| match mode {
            Mode::Word => b"\\'\"$`<>*?[()&|;".contains(&byte),
            _ => b"\\\"$`".contains(&byte),
        };
        let rest = self.rest();
        let first = rest.chars().next().map_or(1, char::len_utf8);
        let length = rest
            .bytes()
            .skip(first)
            .position(special)
            .map_or(rest.len(), |at| at + first);
        let text = rest[..length].to_owned();
        self.word.text.push_str(&text);
        self.pos += length;
    }

    fn backslash(&mut self, mode: Mode) {
        self.pos += 1;
        let Some(next) = self.rest().chars().next() else {
            self.word.text.push('\\');
            return;
        };
        self.pos += next.len_utf8();
        let escaped = match mode {
            Mode::Word => true,
            Mode::Double => matches!(next, '$' | '`' | '"' | '\\' | '\n'),
            Mode::HereDoc => matches!(next, '$' | '`' | '\\' | '\n'),
        };
        if !escaped {
            self.word.text.push('\\');
        }
        if !(escaped && next == '\n') {
            self.word.text.push(next);
        }
    }

    fn single_quotes(&mut self) {
        let start = self.pos;
        self.pos += 1;
        let rest = self.rest();
        match rest.find('\'') {
            Some(end) => {
                let text = rest[..end].to_owned();
                self.word.text.push_str(&text);
                self.pos += end + 1;
            }
            None => {
                let text = rest.to_owned();
                self.word.text.push_str(&text);
                self.pos = self.raw.len();
                self.trouble(start, "a quote that is not closed");
            }
        }
    }

    fn double_quotes(&mut self) {
        let start = self.pos;
        self.pos += 1;
        loop {
            match self.peek() {
                None => {
                    self.trouble(start, "a quote that is not closed");
                    return;
                }
                Some(b'"') => {
                    self.pos += 1;
                    return;
                }
                Some(b'\\') => self.backslash(Mode::Double),
                Some(b'$') => self.dollar(Mode::Double),
                Some(b'`') => self.back_quotes(Mode::Double),
                Some(_) => self.copy_plain(Mode::Double),
            }
        }
    }

    fn back_quotes(&mut self, mode: Mode) {
        let start = self.pos;
        self.pos += 1;
        let mut text = String::new();
        loop {
            let Some(next) = self.rest().chars().next() else {
                self.trouble(start, "a back-quote that is not closed");
                break;
            };
            self.pos += next.len_utf8();
            match next {
                '`' => break,
                '\\' => {
                    let Some(escaped) = self.rest().chars().next() else {
                        continue;
                    };
                    let removed = matches!(escaped, '`' | '$' | '\\')
                        || (mode != Mode::Word && escaped == '"');
                    if !removed {
                        text.push('\\');
                    }
                    text.push(escaped);
                    self.pos += escaped.len_utf8();
                }
                _ => text.push(next),
            }
        }
        self.word.text.push_str("`…`");
        self.unknown(mode);
        let at = self.at + start;
        self.findings.nested.push(Nested {
            text,
            at,
            doubtful: false,
        });
    }

    /// After `$(`, `<(` or `>(`: takes the script up to its `)`.
    fn command_substitution(&mut self, start: usize) {
        let body = self.pos;
        let end = closing_parenthesis(self.rest());
        if !end.certain {
            self.pos += end.length;
            self.trouble(start, "a substitution whose end is not certain");
            self.pos = body;
        }
        let text = self.rest()[..end.length].to_owned();
        self.pos += end.length;
        if self.peek() == Some(b')') {
            self.pos += 1;
        } else {
            self.trouble(start, "a substitution that is not closed");
        }
        let at = self.at + body;
        self.findings.nested.push(Nested {
            text,
            at,
            doubtful: false,
        });
    }

    fn dollar(&mut self, mode: Mode) {
        let start = self.pos;
        self.pos += 1;
        let rest = self.rest();
        let Some(next) = rest.chars().next() else {
            self.word.text.push('$');
            return;
        };
        match next {
            '(' if rest.starts_with("((") => self.arithmetic(start),
            '(' => {
                self.pos += 1;
                self.command_substitution(start);
                self.word.text.push_str("$(…)");
                self.unknown(mode);
            }
            '[' => {
                let length = rest.find(']').map_or(rest.len(), |at| at + 1);
                let inside = rest[..closing_bracket(rest)].to_owned();
                self.pos += length;
                self.word.text.push_str("$[…]");
                self.word.dynamic = true;
                self.trouble(start, "arithmetic in the old form $[ ]");
                parameter::nested_in(&inside, self.at + start + 1, self.findings);
            }
            '{' => {
                if self.depth >= MAX_NESTING {
                    self.pos = self.raw.len();
                    self.word.dynamic = true;
                    self.trouble(start, "expansions nested too deeply");
                } else {
                    parameter::braced(self, start, mode);
                }
            }
            '\'' if mode == Mode::Word => self.ansi_c(start),
            '"' if mode == Mode::Word => {
                // Translated by the locale's catalogue, which is a file.
                self.word.dynamic = true;
                self.double_quotes();
            }
            _ if next == '_' || next.is_ascii_alphabetic() => {
                let length = rest
                    .bytes()
                    .position(|byte| !(byte == b'_' || byte.is_ascii_alphanumeric()))
                    .unwrap_or(rest.len());
                let name = rest[..length].to_owned();
                self.pos += length;
                self.variable(&name, mode);
            }
            _ if next.is_ascii_digit() || "@*#?-$!".contains(next) => {
                self.pos += 1;
                self.word.text.push('$');
                self.word.text.push(next);
                match next {
                    '#' | '?' | '$' => self.word.dynamic = true, // always a number
                    '@' => self.unknown(Mode::Word),
                    _ => self.unknown(mode),
                }
            }
            _ => self.word.text.push('$'),
        }
    }

    /// `$NAME` or `${NAME}`. Two names are known: the home folder and, as long
    /// as the script does not change it, the folder it runs in.
    pub(super) fn variable(&mut self, name: &str, mode: Mode) {
        let rest = self.rest();
        let ends =
            rest.is_empty() || rest.starts_with('/') || rest.starts_with("\"/") || rest == "\"";
        if self.word.text.is_empty() && ends {
            match name {
                "HOME" => {
                    self.word.home = true;
                    self.word.text.push('~');
                    return;
                }
                "PWD" => {
                    self.word.text.push('.');
                    return;
                }
                _ => {}
            }
        }
        let bound = self.findings.bound.iter().find(|(bound, _)| bound == name);
        if let Some((_, value)) = bound {
            let glob = value.contains(['*', '?']);
            // Without quotes a file's name may become several words.
            if !(glob && mode == Mode::Word) {
                self.word.text.push_str(value);
                self.word.glob |= glob;
                return;
            }
        }
        self.word.text.push('$');
        self.word.text.push_str(name);
        self.word.dynamic = true;
        self.word.splits |= mode == Mode::Word && !self.findings.known.is_counter(name);
    }

    /// The value is not known; outside double quotes it may be several words.
    pub(super) fn unknown(&mut self, mode: Mode) {
        self.word.dynamic = true;
        self.word.splits |= mode == Mode::Word;
    }

    /// `$((…))`, which may also be a substitution that begins with a subshell.
    fn arithmetic(&mut self, start: usize) {
        let end = closing_parenthesis(&self.rest()[1..]);
        let inner = self.rest()[1..1 + end.length].to_owned();
        let at = self.at + self.pos + 1;
        self.pos += 1 + end.length;
        let closed = self.peek() == Some(b')');
        if closed {
            self.pos += 1;
        }
        self.word.text.push_str("$((…))");
        self.word.dynamic = true;
        let expression = inner
            .strip_prefix('(')
            .and_then(|inner| inner.strip_suffix(')'));
        let plain = |text: &str| is_constant(text) || self.findings.known.is_plain_arithmetic(text);
        if !closed || !expression.is_some_and(plain) {
            self.trouble(start, "arithmetic evaluates the text of variables");
            parameter::nested_in(&inner, at, self.findings);
            self.findings.nested.push(Nested {
                text: inner,
                at,
                doubtful: true,
            });
        }
    }

    fn ansi_c(&mut self, start: usize) {
        self.pos += 1;
        while let Some(next) = self.rest().chars().next() {
            self.pos += next.len_utf8();
            match next {
                '\'' => return,
                '\\' => self.ansi_escape(start),
                _ => self.word.text.push(next),
            }
        }
        self.trouble(start, "a quote that is not closed");
    }

    fn ansi_escape(&mut self, start: usize) {
        let Some(kind) = self.rest().chars().next() else {
            return;
        };
        self.pos += kind.len_utf8();
        let simple = match kind {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'e' | 'E' => '\u{1b}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '\\' | '\'' | '"' | '?' => kind,
            'x' => return self.numbered(start, 16, 2, "\\x"),
            'u' => return self.numbered(start, 16, 4, "\\u"),
            'U' => return self.numbered(start, 16, 8, "\\U"),
            '0'..='7' => {
                self.pos -= 1;
                return self.numbered(start, 8, 3, "\\");
            }
            'c' => {
                self.word.dynamic = true;
                self.trouble(start, "a control character");
                return;
            }
            _ => {
                self.word.text.push('\\');
                kind
            }
        };
        self.word.text.push(simple);
    }

    fn numbered(&mut self, start: usize, radix: u32, most: usize, written: &str) {
        let digits: String = self
            .rest()
            .chars()
            .take(most)
            .take_while(|digit| digit.is_digit(radix))
            .collect();
        self.pos += digits.len();
        if digits.is_empty() {
            self.word.text.push_str(written);
            return;
        }
        let value = u32::from_str_radix(&digits, radix).unwrap_or(0);
        // A byte above 127 is not a character, and a NUL ends the word in bash.
        let byte = written != "\\u" && written != "\\U" && value > 127;
        match char::from_u32(value) {
            Some(character) if value != 0 && !byte => self.word.text.push(character),
            _ => {
                self.word.dynamic = true;
                self.trouble(start, "a byte that is no character");
            }
        }
    }
}

/// Whether arithmetic has no names in it, so that nothing is evaluated.
pub(super) fn is_constant(expression: &str) -> bool {
    expression
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b" \t\n+-*/%()<>=!&|^~?:,".contains(&byte))
}
