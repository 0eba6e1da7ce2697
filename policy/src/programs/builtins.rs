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

#[cfg(test)]
mod tests {
    use super::evaluates;
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
