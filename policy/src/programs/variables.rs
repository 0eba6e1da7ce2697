//! Names of variables that change nothing of which code runs.

use std::collections::HashSet;
use std::sync::LazyLock;

static INERT: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    super::rows(include_str!("../../data/variables.tsv"), 2)
        .map(|row| row[0])
        .collect()
});

/// Whether `NAME=value` in front of a command is free.
pub(crate) fn is_inert(name: &str, value: &str) -> bool {
    INERT.contains(name) && !(is_locale(name) && changes_encoding(value))
}

fn is_locale(name: &str) -> bool {
    matches!(name, "LANG" | "LC_ALL" | "LC_CTYPE")
}

/// Whether a locale may read the bytes of a script as other characters than UTF-8 and
/// ASCII do: in some a letter ends in the byte of a backslash or a quote.
fn changes_encoding(value: &str) -> bool {
    let encoding = value.split('.').nth(1).unwrap_or_default();
    let encoding = encoding.split('@').next().unwrap_or_default();
    !(matches!(value, "" | "C" | "POSIX")
        || encoding.eq_ignore_ascii_case("utf-8")
        || encoding.eq_ignore_ascii_case("utf8"))
}

/// Whether a variable of the script alone is free: a name in lower case, which
/// no program reads, but for the proxies.
pub(crate) fn is_private(name: &str, value: &str) -> bool {
    is_inert(name, value)
        || (name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && !name.is_empty()
            && !name.ends_with("_proxy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_names_are_free() {
        for row in crate::programs::rows(include_str!("../../data/variables.tsv"), 2) {
            assert!(is_inert(row[0], "C"), "{row:?}");
        }
        for name in [
            "PATH",
            "LD_PRELOAD",
            "GIT_EXTERNAL_DIFF",
            "PAGER",
            "MANPAGER",
            "NODE_OPTIONS",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "BASH_ENV",
            "ENV",
            "IFS",
            "PS4",
            "PROMPT_COMMAND",
            "HOME",
            "SHELL",
            "EDITOR",
            "PERL5OPT",
            "RUBYOPT",
            "CC",
            "RUSTC_WRAPPER",
            "FOO",
            "http_proxy",
        ] {
            assert!(!is_inert(name, "1"), "{name}");
            assert!(!is_private(name, "1"), "{name}");
        }
        assert!(is_private("count", "1"));
        for (value, free) in [
            ("C", true),
            ("C.UTF-8", true),
            ("de_DE.utf8@euro", true),
            ("zh_CN.GBK", false),
            ("ja_JP", false),
            ("$x", false),
        ] {
            assert_eq!(is_inert("LC_ALL", value), free, "{value}");
        }
    }
}
