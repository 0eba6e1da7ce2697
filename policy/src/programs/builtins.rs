//! Builtins of bash that evaluate what looks like data.

use std::sync::LazyLock;

use crate::bash::Word;

enum Rule {
    Always,
    Option(char),
    Subscript,
    Word(&'static str),
}

type Rows = super::ByName<Vec<(Rule, &'static str)>>;

static TABLE: LazyLock<Rows> = LazyLock::new(|| {
    let mut table = Rows::default();
    for row in super::rows(include_str!("../../data/builtins.tsv"), 4) {
        let rule = match row[1].split_once(' ') {
            Some(("option", name)) => Rule::Option(name.chars().nth(1).unwrap_or('?')),
            Some(("word", prefix)) => Rule::Word(prefix),
            None if row[1] == "subscript" => Rule::Subscript,
            _ => Rule::Always,
        };
        table.entry(row[0]).or_default().push((rule, row[3]));
    }
    table
});

/// Why a call of a builtin is unresolved, if it is.
pub(crate) fn evaluates(words: &[Word]) -> Option<String> {
    let (name, rest) = words.split_first()?;
    let rules = TABLE.get(name.text.as_str())?;
    let has = |rule: &Rule| match rule {
        Rule::Always => true,
        Rule::Option(letter) => rest.iter().any(|word| {
            word.text
                .strip_prefix(['-', '+'])
                .is_some_and(|letters| !letters.starts_with('-') && letters.contains(*letter))
        }),
        Rule::Subscript => rest.iter().any(|word| {
            let name = word.text.split('=').next().unwrap_or_default();
            name.contains('[')
        }),
        Rule::Word(prefix) => rest.iter().any(|word| word.text.starts_with(prefix)),
    };
    let (_, why) = rules.iter().find(|(rule, _)| has(rule))?;
    Some(format!("{}: {why}", name.text))
}

/// Variables that a builtin sets or removes by the names in its words.
pub(crate) fn named_variables(words: &[Word]) -> Vec<usize> {
    // Letters of options that take a value which is no name.
    let values = match words[0].text.as_str() {
        "read" => "pdintNu",
        "mapfile" | "readarray" => "dnOsuCc",
        "getopts" | "unset" => "",
        _ => return Vec::new(),
    };
    let mut names = Vec::new();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match word.text.strip_prefix('-') {
            Some(letters) => {
                let value = letters.find(|letter| values.contains(letter));
                at += usize::from(value.is_some_and(|value| value + 1 == letters.len()));
            }
            None => names.push(at),
        }
        at += 1;
    }
    if words[0].text == "getopts" && !names.is_empty() {
        names.remove(0); // the letters of the options
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{evaluates, named_variables};
    use crate::bash::read_script;

    #[test]
    fn every_row_holds_for_its_example() {
        for row in crate::programs::rows(include_str!("../../data/builtins.tsv"), 4) {
            let script = read_script(row[2]);
            let found = script
                .commands
                .iter()
                .any(|command| evaluates(&command.words).is_some());
            assert!(found || !script.unresolved.is_empty(), "{row:?}");
        }
    }

    #[test]
    fn names_that_are_set_are_told_from_values_of_options() {
        for (text, names) in [
            ("read -r a B", vec!["a", "B"]),
            ("read -p PATH x", vec!["x"]),
            ("read -pd PATH", vec!["PATH"]),
            ("read -rn 1 -a PATH", vec!["PATH"]),
            ("mapfile -t -n 3 PATH", vec!["PATH"]),
            ("getopts AB: PATH", vec!["PATH"]),
            ("unset -v PATH", vec!["PATH"]),
            ("ls PATH", vec![]),
        ] {
            let words = read_script(text).commands[0].words.clone();
            let found: Vec<&str> = named_variables(&words)
                .into_iter()
                .map(|at| words[at].text.as_str())
                .collect();
            assert_eq!(found, names, "{text}");
        }
    }

    #[test]
    fn ordinary_uses_are_free() {
        for text in [
            "read -r line",
            "printf %s x",
            "test -f a",
            "set -e",
            "export A=b[1]",
            "wait",
        ] {
            for command in read_script(text).commands {
                assert_eq!(evaluates(&command.words), None, "{text}");
            }
        }
    }
}
