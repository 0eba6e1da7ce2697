//! Names of variables that change nothing of which code runs.

use std::collections::HashSet;
use std::sync::LazyLock;

static INERT: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    super::rows(include_str!("../../data/variables.tsv"), 2)
        .map(|row| row[0])
        .collect()
});

/// Whether `NAME=value` in front of a command is free.
pub(crate) fn is_inert(name: &str) -> bool {
    INERT.contains(name)
}

/// Whether a variable of the script alone is free: a name in lower case, which
/// no program reads, but for the proxies.
pub(crate) fn is_private(name: &str) -> bool {
    is_inert(name)
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
            assert!(is_inert(row[0]), "{row:?}");
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
            assert!(!is_inert(name), "{name}");
            assert!(!is_private(name), "{name}");
        }
        assert!(is_private("count"));
    }
}
