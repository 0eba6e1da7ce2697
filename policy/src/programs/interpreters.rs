//! Programs that run code, and where it comes from.

use std::sync::LazyLock;

use crate::bash::Word;

struct Row {
    shell: bool,
    stdin: bool,
    inline: Vec<&'static str>,
    values: Vec<&'static str>,
}

static TABLE: LazyLock<super::ByName<Row>> = LazyLock::new(|| {
    super::rows(include_str!("../../data/interpreters.tsv"), 5)
        .map(|row| {
            let list = |text: &'static str| text.split(' ').filter(|s| !s.is_empty()).collect();
            (
                row[0],
                Row {
                    shell: row[1] == "shell",
                    stdin: row[1] == "stdin",
                    inline: list(row[2]),
                    values: list(row[3]),
                },
            )
        })
        .collect()
});

/// What an interpreter is asked to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Only tells its version or its options.
    Nothing,
    /// A file, at this place of the words.
    File(usize),
    /// A module that is installed, at this place of the words.
    Module,
    /// Text in the words, at this place; or standard input.
    Inline { shell: bool, text: Option<usize> },
}

/// Whether `program` (a name without folder) is a shell or an interpreter.
pub(crate) fn is_one(program: &str) -> bool {
    row(program).is_some()
}

/// Versions (`python3.11`) are the program without it.
fn row(program: &str) -> Option<&'static Row> {
    TABLE.get(program).or_else(|| {
        let plain = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        (plain.len() < program.len())
            .then(|| TABLE.get(plain))
            .flatten()
    })
}

/// `None` for a program that is no interpreter.
pub(crate) fn code(program: &str, words: &[Word]) -> Option<Code> {
    let row = row(program)?;
    if row.stdin {
        return Some(from_stdin(program, row, words));
    }
    let inline = |text| Code::Inline {
        shell: row.shell,
        text,
    };
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        if text == "-" || text == "--" {
            at += usize::from(text == "--");
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or_default();
            if matches!(name, "version" | "help") {
                return Some(Code::Nothing);
            }
            if row
                .inline
                .iter()
                .any(|inline| inline.len() > 1 && inline.starts_with(name))
            {
                return Some(inline((!long.contains('=')).then_some(at + 1)));
            }
            at += 1;
            if row.values.contains(&name) && !long.contains('=') {
                at += 1;
            }
            continue;
        }
        let Some(letters) = text.strip_prefix(['-', '+']) else {
            if row.inline.contains(&text) && text.len() > 1 {
                return Some(inline(Some(at + 1))); // `deno eval code`
            }
            break;
        };
        if matches!(letters, "V" | "v" | "h") && words.len() == at + 1 {
            return Some(Code::Nothing);
        }
        if letters == "m" && program.starts_with(['p']) && !row.inline.contains(&"m") {
            let module = words.get(at + 1).map_or("", |word| word.text.as_str());
            return Some(match CODE_MODULES.contains(&module) {
                true => inline(None),
                false => Code::Module,
            });
        }
        let mut value = false;
        for letter in letters.chars() {
            let letter = letter.to_string();
            if row.inline.contains(&letter.as_str()) {
                return Some(inline(Some(at + 1).filter(|at| *at < words.len())));
            }
            value |= row.values.contains(&letter.as_str()) && letters.len() == 1;
        }
        at += 1 + usize::from(value);
    }
    Some(match words.get(at) {
        // A device, a descriptor or a substitution is a stream.
        Some(word) if word.text == "-" || word.text.starts_with("/dev/") || word.dynamic => {
            inline(None)
        }
        Some(_) => Code::File(at),
        None => inline(None),
    })
}

/// Modules of Python that take code in their words or from standard input.
const CODE_MODULES: [&str; 6] = ["timeit", "pdb", "code", "IPython", "ipdb", "bdb"];

/// A program whose commands come from standard input unless an option says where from.
/// To sqlite3 a second operand is its SQL.
fn from_stdin(program: &str, row: &Row, words: &[Word]) -> Code {
    let mut operands = 0;
    let mut value = false;
    for word in &words[1..] {
        let text = word.text.as_str();
        let Some(option) = text.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            operands += usize::from(!std::mem::take(&mut value));
            continue;
        };
        let name = option.trim_start_matches('-');
        let name = name.split('=').next().unwrap_or_default();
        value = program == "sqlite3"
            && matches!(
                name,
                "cmd" | "init" | "separator" | "newline" | "nullvalue" | "vfs"
            );
        let given = match option.starts_with('-') || name.len() > 1 && program == "sqlite3" {
            true => row.values.contains(&name),
            false => (row.values.iter()).any(|v| v.len() == 1 && name.starts_with(*v)),
        };
        if given {
            return Code::Nothing;
        }
    }
    if program == "sqlite3" && operands >= 2 {
        return Code::Nothing;
    }
    Code::Inline {
        shell: false,
        text: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(text: &str) -> Option<Code> {
        let words: Vec<Word> = text.split(' ').map(|word| Word::literal(word, 0)).collect();
        code(crate::programs::base_name(&words[0].text), &words)
    }

    #[test]
    fn code_is_found_where_it_comes_from() {
        let inline = |shell, text| Some(Code::Inline { shell, text });
        for (text, expected) in [
            ("bash -c x", inline(true, Some(2))),
            ("bash -lc x", inline(true, Some(2))),
            ("bash --noprofile -O extglob -xec x", inline(true, Some(5))),
            ("bash", inline(true, None)),
            ("bash -s", inline(true, None)),
            ("bash -", inline(true, None)),
            ("bash /dev/stdin", inline(true, None)),
            ("bash x.sh -c y", Some(Code::File(1))),
            ("bash --version", Some(Code::Nothing)),
            ("python3.11 -c x", inline(false, Some(2))),
            ("python3 -m pytest", Some(Code::Module)),
            ("python3 a.py -c", Some(Code::File(1))),
            ("python3 -W ignore a.py", Some(Code::File(3))),
            ("python3 -V", Some(Code::Nothing)),
            ("perl -ne x", inline(false, Some(2))),
            ("perl -MFoo a.pl", inline(false, Some(2))),
            ("node --eval=x", inline(false, None)),
            ("node a.js", Some(Code::File(1))),
            ("deno eval x", inline(false, Some(2))),
            ("python3 -m timeit x", inline(false, None)),
            ("psql", inline(false, None)),
            ("psql -d x", inline(false, None)),
            ("psql -l", Some(Code::Nothing)),
            ("psql -cx", Some(Code::Nothing)),
            ("psql --command=x", Some(Code::Nothing)),
            ("sqlite3 a.db", inline(false, None)),
            ("sqlite3 -separator , a.db", inline(false, None)),
            ("sqlite3 -header a.db .tables", Some(Code::Nothing)),
            ("ed f", inline(false, None)),
            ("bc -l", None),
            ("cat x", None),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }

    #[test]
    fn every_row_is_asked_about_code_in_its_words() {
        for row in crate::programs::rows(include_str!("../../data/interpreters.tsv"), 5) {
            for inline in row[2].split(' ').filter(|name| !name.is_empty()) {
                let dashes = if inline.len() == 1 { "-" } else { "--" };
                let text = format!("{} {dashes}{inline} x", row[0]);
                assert!(matches!(of(&text), Some(Code::Inline { .. })), "{text}");
            }
            assert!(matches!(of(row[0]), Some(Code::Inline { .. })), "{row:?}");
        }
    }
}
