//! Deny and ask rules that name options, matched by what the options mean:
//! `rm -rf *` is also `rm -r -f x`, `rm -fr x` and `rm x --recursive --force`.

use crate::pattern::Pattern;
use crate::programs::synonyms;

/// A rule such as `git push --force *`, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct FlagPattern {
    flags: Vec<Flag>,
    /// What is no option, in order; a trailing `*` stands for any rest.
    operands: Vec<Pattern>,
    open: bool,
}

#[derive(Clone, Debug)]
enum Flag {
    /// Letters of a short bundle.
    Letters(String),
    /// A long option, or a word with one dash that is no bundle.
    Word(String),
}

impl FlagPattern {
    /// The program and the rest; `None` where no option is named.
    pub(crate) fn new(source: &str) -> Option<(String, FlagPattern)> {
        let mut words = source.split(' ').filter(|word| !word.is_empty());
        let program = words.next().filter(|program| !program.contains('*'))?;
        let rest: Vec<&str> = words.collect();
        let open = rest.last().is_some_and(|last| last.ends_with('*'));
        let mut flags = Vec::new();
        let mut operands = Vec::new();
        for (index, word) in rest.iter().enumerate() {
            let last = index + 1 == rest.len();
            let word = if last {
                word.trim_end_matches('*')
            } else {
                word
            };
            if word.starts_with('-') && word.len() > 1 && word != "--" {
                flags.push(Flag::of(program, word));
            } else if !(last && word.is_empty()) {
                operands.push(Pattern::new(rest[index]));
            }
        }
        (!flags.is_empty()).then(|| {
            (
                program.to_owned(),
                FlagPattern {
                    flags,
                    operands,
                    open,
                },
            )
        })
    }

    /// Whether a command does it.
    pub(crate) fn matches(&self, given: &GivenWords<'_>) -> bool {
        let GivenWords {
            program,
            operands,
            options,
        } = given;
        if operands.len() < self.operands.len()
            || (!self.open && operands.len() > self.operands.len())
        {
            return false;
        }
        self.operands
            .iter()
            .zip(operands)
            .all(|(pattern, word)| pattern.matches(word))
            && self.flags.iter().all(|flag| flag.is_in(program, options))
    }
}

/// The words of a command, taken apart once for all rules.
#[derive(Debug, Default)]
pub(crate) struct GivenWords<'a> {
    program: &'a str,
    operands: Vec<&'a str>,
    options: Vec<&'a str>,
}

impl<'a> GivenWords<'a> {
    /// The first word is the program.
    pub(crate) fn new(words: &[&'a str]) -> GivenWords<'a> {
        let Some((program, rest)) = words.split_first() else {
            return GivenWords::default();
        };
        let mut operands = Vec::new();
        let mut options = Vec::new();
        let mut ended = false;
        for word in rest {
            if ended || !word.starts_with('-') || *word == "-" {
                operands.push(*word);
            } else if *word == "--" {
                ended = true;
            } else {
                options.push(*word);
            }
        }
        GivenWords {
            program,
            operands,
            options,
        }
    }
}

impl Flag {
    fn of(program: &str, word: &str) -> Flag {
        if let Some(letters) = bundle(word) {
            let mut canonical = String::new();
            for letter in letters.chars() {
                canonical.push(synonyms::letter(program, letter));
            }
            return Flag::Letters(canonical);
        }
        match synonyms::short(program, word) {
            Some(letter) => Flag::Letters(letter.to_string()),
            None => Flag::Word(word.to_owned()),
        }
    }

    fn is_in(&self, program: &str, options: &[&str]) -> bool {
        match self {
            Flag::Letters(letters) => letters.chars().all(|letter| {
                options.iter().any(|option| match bundle(option) {
                    Some(given) => given
                        .chars()
                        .any(|given| synonyms::letter(program, given) == letter),
                    None => synonyms::short_of_prefix(program, option) == Some(letter),
                })
            }),
            Flag::Word(word) => options.iter().any(|option| {
                let name = option.split_once('=').map_or(*option, |(name, _)| name);
                // Programs take unique prefixes of long options.
                option == word
                    || name == word
                    || (name.len() > 3 && word.starts_with("--") && word.starts_with(name))
            }),
        }
    }
}

/// The letters of `-rf`; longer words with one dash (`-delete`) are no bundle.
fn bundle(word: &str) -> Option<&str> {
    let letters = word.strip_prefix('-')?;
    (!letters.is_empty()
        && letters.len() <= 5
        && letters.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    .then_some(letters)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{FlagPattern, GivenWords};

    #[test]
    fn options_are_found_in_any_order_and_spelling() {
        for (pattern, command, expected) in [
            ("rm -rf *", "rm -rf build", true),
            ("rm -rf *", "rm -r -f build", true),
            ("rm -rf *", "rm -fr build", true),
            ("rm -rf *", "rm -Rfv build", true),
            ("rm -rf *", "rm build -rf", true),
            ("rm -rf *", "rm --recursive --force build", true),
            ("rm -rf *", "rm --recurs --for build", true),
            ("rm -rf *", "rm -r build", false),
            ("rm -rf *", "rm -- -rf", false),
            ("git push --force *", "git push origin main --force", true),
            ("git push --force *", "git push -f origin main", true),
            ("git push --force *", "git push origin main", false),
            ("git push --force *", "git pull --force", false),
            ("find * -delete", "find build -name x -delete", false),
            ("find * -delete", "find build -delete", true),
            ("find * -delete *", "find build -type f -delete", true),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            let (_, flags) = FlagPattern::new(pattern).unwrap();
            assert_eq!(
                flags.matches(&GivenWords::new(&words)),
                expected,
                "{pattern:?} on {command:?}"
            );
        }
    }
}
