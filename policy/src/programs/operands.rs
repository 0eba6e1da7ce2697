//! Which words of a command name files.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How the operands of a program are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None is a file.
    Text,
    /// The first is a pattern, unless an option gives one.
    Pattern,
    /// The first is a sed script, unless an option gives one.
    Sed,
    /// The first is an awk program.
    Awk,
    /// Each may be a file.
    Files,
}

/// What is known of a program's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operands {
    pub kind: Kind,
    /// It may write them.
    pub changes: bool,
}

static TABLE: LazyLock<HashMap<&'static str, Operands>> = LazyLock::new(|| {
    super::rows(include_str!("../../data/programs.tsv"), 4)
        .map(|row| {
            let kind = match row[1] {
                "text" => Kind::Text,
                "pattern" => Kind::Pattern,
                "sed" => Kind::Sed,
                "awk" => Kind::Awk,
                _ => Kind::Files,
            };
            (
                row[0],
                Operands {
                    kind,
                    changes: !matches!(row[2], "read" | "none"),
                },
            )
        })
        .collect()
});

/// Sub-commands of git that write no file of the work tree that their words name.
const GIT_READS: [&str; 20] = [
    "status",
    "diff",
    "log",
    "show",
    "blame",
    "grep",
    "ls-files",
    "ls-tree",
    "cat-file",
    "rev-parse",
    "rev-list",
    "describe",
    "branch",
    "tag",
    "shortlog",
    "reflog",
    "ls-remote",
    "merge-base",
    "add",
    "commit",
];

/// A program that is not listed may read and write every operand.
pub(crate) fn of(program: &str, git_sub: Option<&str>) -> Operands {
    if let Some(sub) = git_sub {
        return Operands {
            kind: Kind::Files,
            changes: !GIT_READS.contains(&sub),
        };
    }
    TABLE.get(program).copied().unwrap_or(Operands {
        kind: Kind::Files,
        changes: true,
    })
}

/// What of a word may name a file: the word, the value of `--option=value` and of
/// `name=value`, what is attached to a short option, and after git's `rev:`.
pub(crate) fn candidates(text: &str, git: bool) -> Vec<&str> {
    let mut found = Vec::new();
    if text.is_empty() || text == "-" {
        return found;
    }
    if let Some(rest) = text.strip_prefix("file://") {
        return vec![rest];
    }
    if text.contains("://") {
        return found; // an address
    }
    if let Some(option) = text.strip_prefix('-') {
        if let Some((_, value)) = option.split_once('=') {
            found.push(value);
        } else if !option.starts_with('-')
            && let Some(letter) = option.chars().next()
        {
            let value = &option[letter.len_utf8()..];
            // `-f.env`, `-I/usr/include`: only what looks like a path.
            if value.contains(['/', '.', '~']) {
                found.push(value);
            }
        }
        found.retain(|value| !value.is_empty());
        return found;
    }
    found.push(text);
    if let Some((name, value)) = text.split_once('=')
        && !name.contains('/')
        && !value.is_empty()
    {
        found.push(value);
    }
    if let Some(rest) = text.strip_prefix('@').filter(|rest| !rest.is_empty()) {
        found.push(rest); // curl, gcc: words from a file
    }
    if let Some((_, rest)) = text.split_once(':').filter(|(_, rest)| !rest.is_empty()) {
        // `HEAD:.env`, `:/x`, `host:file`, `./a:/b` of container mounts.
        if git || rest.starts_with(['/', '~', '.']) {
            found.push(rest);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_words_that_may_name_files_are_found() {
        for (text, git, expected) in [
            ("src/a.rs", false, vec!["src/a.rs"]),
            ("-", false, vec![]),
            ("-la", false, vec![]),
            ("-f.env", false, vec![".env"]),
            ("--file=.env", false, vec![".env"]),
            ("--all", false, vec![]),
            ("if=.env", false, vec!["if=.env", ".env"]),
            ("HEAD:prod.env", true, vec!["HEAD:prod.env", "prod.env"]),
            ("a:b", false, vec!["a:b"]),
            ("/etc:/mnt", false, vec!["/etc:/mnt", "/mnt"]),
            ("@.env", false, vec!["@.env", ".env"]),
            ("https://a/.env", false, vec![]),
            ("file:///etc/passwd", false, vec!["/etc/passwd"]),
        ] {
            assert_eq!(candidates(text, git), expected, "{text}");
        }
    }

    #[test]
    fn every_row_is_found() {
        for row in crate::programs::rows(include_str!("../../data/programs.tsv"), 4) {
            let found = of(row[0], None);
            assert_eq!(found.kind == Kind::Text, row[1] == "text", "{row:?}");
            assert_eq!(found.changes, !matches!(row[2], "read" | "none"), "{row:?}");
        }
        assert!(of("unheard-of", None).changes);
    }
}
