//! A rough reading of text that a parser refused, only to look for denied
//! commands: split at everything that may separate commands, quotes respected.

use std::collections::HashSet;

use super::Word;

/// Bytes of a text that are looked at; it is asked for whatever is behind them.
const MAX_BYTES: usize = 2 << 20;

/// Each list is what may be the words of a command.
pub(crate) fn commands(text: &str) -> Vec<Vec<Word>> {
    let end = (0..=text.len().min(MAX_BYTES))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    let mut scan = Scan {
        commands: Vec::new(),
        seen: HashSet::new(),
        words: Vec::new(),
        word: None,
        at: 0,
    };
    scan.run(&text[..end.unwrap_or(0)]);
    scan.end_command();
    scan.commands
}

struct Scan {
    commands: Vec<Vec<Word>>,
    /// Each command once: a long text mostly repeats itself.
    seen: HashSet<Vec<String>>,
    words: Vec<Word>,
    word: Option<String>,
    at: usize,
}

/// Words that stand in front of a command.
fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "if" | "then"
            | "else"
            | "elif"
            | "fi"
            | "while"
            | "until"
            | "do"
            | "done"
            | "case"
            | "esac"
            | "in"
            | "!"
            | "{"
            | "}"
            | "time"
            | "coproc"
            | "function"
            | "&&"
            | "||"
    )
}

impl Scan {
    fn push(&mut self, character: char) {
        self.word.get_or_insert_default().push(character);
    }

    fn end_word(&mut self) {
        if let Some(text) = self.word.take()
            && !(self.words.is_empty() && is_keyword(&text))
        {
            self.words.push(Word::literal(&text, self.at));
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        let words = std::mem::take(&mut self.words);
        if words.is_empty() {
            return;
        }
        let texts: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
        if self.seen.insert(texts) {
            self.commands.push(words);
        }
    }

    fn run(&mut self, text: &str) {
        let mut characters = text.char_indices().peekable();
        let mut double = false;
        while let Some((at, character)) = characters.next() {
            self.at = at;
            match character {
                '\0' => {} // bash drops it
                '\\' => match characters.next() {
                    Some((_, '\n')) | None => {}
                    Some((_, next)) => self.push(next),
                },
                '"' => {
                    double = !double;
                    self.word.get_or_insert_default();
                }
                '`' => self.end_command(),
                '$' if matches!(characters.peek(), Some((_, '('))) => {
                    characters.next();
                    self.end_command();
                    double = false;
                }
                _ if double => self.push(character),
                '\'' => {
                    self.word.get_or_insert_default();
                    for (_, next) in characters.by_ref() {
                        if next == '\'' {
                            break;
                        }
                        self.push(next);
                    }
                }
                '\n' | ';' | '&' | '|' | '(' | ')' => self.end_command(),
                '#' if self.word.is_none() => {
                    while characters.next_if(|(_, next)| *next != '\n').is_some() {}
                }
                ' ' | '\t' | '\r' => self.end_word(),
                _ => self.push(character),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::commands;

    #[test]
    fn commands_are_found_in_text_that_does_not_parse() {
        let shown = |text: &str| -> Vec<String> {
            commands(text)
                .iter()
                .map(|words| {
                    words
                        .iter()
                        .map(|w| w.text.as_str())
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .collect()
        };
        for (text, expected) in [
            (
                "git status; if then rm -rf x",
                vec!["git status", "rm -rf x"],
            ),
            ("((((rm -rf x", vec!["rm -rf x"]),
            ("echo \"a; b\" 'c; d' e\\;f", vec!["echo a; b c; d e;f"]),
            ("echo \"$(rm -rf x", vec!["echo ", "rm -rf x"]),
            ("ls # rm\nr\0m -rf x", vec!["ls", "rm -rf x"]),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }
}
