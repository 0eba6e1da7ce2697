//! Which words of a command name files.

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
    /// The first is a filter of yq.
    Yq,
    /// All but the first are SQL.
    Sql,
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

static TABLE: LazyLock<super::ByName<Operands>> = LazyLock::new(|| {
    super::rows(include_str!("../../data/programs.tsv"), 4)
        .map(|row| {
            let kind = match row[1] {
                "text" => Kind::Text,
                "pattern" => Kind::Pattern,
                "sed" => Kind::Sed,
                "awk" => Kind::Awk,
                "yq" => Kind::Yq,
                "sql" => Kind::Sql,
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

/// The file of an address, whatever it says of the host.
fn file_address(text: &str) -> Option<&str> {
    let rest = text
        .get(5..)
        .filter(|_| text[..5].eq_ignore_ascii_case("file:"))?;
    Some(match rest.strip_prefix("//") {
        Some(host) => &host[host.find('/').unwrap_or(host.len())..],
        None => rest,
    })
}

/// Whether a word is the address of a file, written so that the file's name is not.
pub(crate) fn is_hidden_file(text: &str) -> bool {
    file_address(text).is_some_and(|file| file.contains(['%', '{', '[']))
}

/// Whether a word is an address that git hands to a program (`ext::sh -c …`).
pub(crate) fn is_remote_helper(git_sub: Option<&str>, text: &str) -> bool {
    let remote = matches!(
        git_sub,
        Some("fetch" | "pull" | "push" | "clone" | "remote" | "ls-remote" | "submodule")
    );
    remote
        && text.split_once("::").is_some_and(|(helper, _)| {
            !helper.is_empty()
                && helper
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
}

/// What of a word may name a file: the word, the value of `--option=value` and of
/// `name=value`, what is attached to a short option, and after git's `rev:`.
pub(crate) fn candidates<'a>(text: &'a str, program: &str) -> Vec<&'a str> {
    let git = program == "git";
    let mut found = Vec::new();
    if text.is_empty() || text == "-" {
        return found;
    }
    if let Some(file) = file_address(text) {
        return vec![file];
    }
    if text.contains("://") {
        return found; // an address
    }
    // A file whose content is meant, and not its name.
    let content = |text: &'a str| text.trim_start_matches(['@', '<']);
    if let Some(option) = text.strip_prefix('-') {
        if let Some((_, value)) = option.split_once('=') {
            found.push(value);
            found.push(content(value));
        } else if !option.starts_with('-')
            && let Some(letter) = option.chars().next()
        {
            let value = &option[letter.len_utf8()..];
            // `-f.env`, `-I/usr/include`: only what looks like a path.
            if value.contains(['/', '.', '~']) {
                found.push(value);
                found.push(content(value));
            }
        }
        if git && let Some((_, file)) = text.rsplit_once(':') {
            found.push(file); // `-L1,5:file`
        }
        found.retain(|value| !value.is_empty());
        found.dedup();
        return found;
    }
    found.push(text);
    if let Some((name, value)) = text.split_once('=')
        && !name.contains('/')
        && !value.is_empty()
    {
        found.push(value);
        found.push(content(value));
    }
    if text.starts_with(['@', '<']) {
        found.push(content(text)); // curl, gcc: words from a file
    }
    if program == "curl" {
        // `-F 'a=@one,two;type=x'`, `--data-urlencode name@file`.
        if let Some((_, files)) = text.split_once(['@', '<']) {
            let files = files.split(';').next().unwrap_or_default();
            found.extend(files.split(','));
        }
    }
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(':') {
        // `HEAD:.env`, `:0:.env`, `:/x`, `host:file`, `./a:/b` of container mounts.
        if git || after.starts_with(['/', '~', '.']) {
            found.push(after);
        }
        rest = after;
        if found.len() > MAX_CANDIDATES {
            break;
        }
    }
    found.retain(|value| !value.is_empty());
    found.dedup();
    found
}

/// Parts of one word that are looked at.
const MAX_CANDIDATES: usize = 16;

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
            (":0:a.env", true, vec![":0:a.env", "0:a.env", "a.env"]),
            ("-L1,5:a.env", true, vec!["1,5:a.env", "a.env"]),
            ("f=@.env", false, vec!["f=@.env", "@.env", ".env"]),
            ("f=<.env", false, vec!["f=<.env", "<.env", ".env"]),
            (
                "f=@a,.env;type=x",
                false,
                vec![
                    "f=@a,.env;type=x",
                    "@a,.env;type=x",
                    "a,.env;type=x",
                    "a",
                    ".env",
                ],
            ),
            ("name@.env", false, vec!["name@.env", ".env"]),
            ("FILE:///etc/passwd", false, vec!["/etc/passwd"]),
            ("file://localhost/etc/passwd", false, vec!["/etc/passwd"]),
            ("file:/etc/passwd", false, vec!["/etc/passwd"]),
            ("file:///etc/passwd", false, vec!["/etc/passwd"]),
        ] {
            assert_eq!(
                candidates(text, if git { "git" } else { "curl" }),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn addresses_that_hide_what_they_open_are_found() {
        for text in ["file:///a/%2eenv", "File:///a/{.env,b}", "file:///a/.[e]nv"] {
            assert!(is_hidden_file(text), "{text}");
        }
        assert!(!is_hidden_file("file:///a/b.env"));
        assert!(is_remote_helper(Some("fetch"), "ext::sh -c id"));
        assert!(!is_remote_helper(Some("grep"), "std::io"));
        assert!(!is_remote_helper(Some("fetch"), "origin"));
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
