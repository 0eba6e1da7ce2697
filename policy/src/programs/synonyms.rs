//! Two spellings of one option.

use std::sync::LazyLock;

static TABLE: LazyLock<super::ByName<Vec<(&'static str, char)>>> = LazyLock::new(|| {
    let mut table: super::ByName<Vec<_>> = Default::default();
    for row in super::rows(include_str!("../../data/synonyms.tsv"), 4) {
        if let Some(letter) = row[2].chars().next() {
            table.entry(row[0]).or_default().push((row[1], letter));
        }
    }
    table
});

/// The letter that `letter` is another spelling of, or itself.
pub(crate) fn letter(program: &str, letter: char) -> char {
    let Some(rows) = TABLE.get(program) else {
        return letter;
    };
    rows.iter()
        .find(|(spelling, _)| {
            spelling.len() == 2 && spelling.starts_with('-') && spelling.ends_with(letter)
        })
        .map_or(letter, |(_, other)| *other)
}

/// The letter of a long option.
pub(crate) fn short(program: &str, long: &str) -> Option<char> {
    TABLE
        .get(program)?
        .iter()
        .find(|(spelling, _)| *spelling == long)
        .map(|(_, letter)| *letter)
}

/// The letter of a long option that is given by a prefix of its name.
pub(crate) fn short_of_prefix(program: &str, long: &str) -> Option<char> {
    if let Some(letter) = short(program, long) {
        return Some(letter);
    }
    if long.len() < 4 || !long.starts_with("--") {
        return None;
    }
    TABLE
        .get(program)?
        .iter()
        .find(|(spelling, _)| spelling.starts_with(long))
        .map(|(_, letter)| *letter)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_row_is_found_by_its_spelling() {
        for row in crate::programs::rows(include_str!("../../data/synonyms.tsv"), 4) {
            let letter = row[2].chars().next();
            if row[1].starts_with("--") {
                assert_eq!(super::short(row[0], row[1]), letter, "{row:?}");
                assert_eq!(
                    super::short_of_prefix(row[0], &row[1][..5.min(row[1].len())]),
                    letter
                );
            } else {
                let given = row[1].chars().nth(1).map(|c| super::letter(row[0], c));
                assert_eq!(given, letter, "{row:?}");
            }
        }
    }
}
