//! Programs whose words, behind a sub-command or at once, are a command of a project
//! or of another place: an allow for them covers it, and a deny is looked for in it.

use std::sync::LazyLock;

use crate::bash::Word;

static TABLE: LazyLock<super::ByName<Vec<&'static str>>> = LazyLock::new(|| {
    let mut table: super::ByName<Vec<_>> = Default::default();
    for row in super::rows(include_str!("../../data/runners.tsv"), 4) {
        table.entry(row[0]).or_default().push(row[1]);
    }
    table
});

/// Where a command may begin, if the program runs one.
pub(crate) fn command(program: &str, words: &[Word]) -> Option<usize> {
    let subs = TABLE.get(program)?;
    if subs.contains(&"*") {
        return Some(1);
    }
    let at = words
        .iter()
        .skip(1)
        .take(6)
        .position(|word| subs.contains(&word.text.as_str()))?;
    Some(at + 2)
}

#[cfg(test)]
mod tests {
    use super::command;
    use crate::bash::read_script;

    #[test]
    fn every_row_finds_the_command_of_its_example() {
        for row in crate::programs::rows(include_str!("../../data/runners.tsv"), 4) {
            let words = read_script(row[2]).commands[0].words.clone();
            let rest = command(row[0], &words).and_then(|at| words.get(at..));
            assert!(
                rest.is_some_and(|rest| rest.iter().any(|word| word.text.starts_with("rm"))),
                "{row:?}"
            );
        }
    }
}
