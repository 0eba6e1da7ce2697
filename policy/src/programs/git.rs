//! Git's options stand before and after its sub-command.

use super::options::Uses;
use crate::bash::Word;

/// What stands between `git` and its sub-command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Globals {
    /// Where the sub-command is.
    pub sub: Option<usize>,
    /// Options that change which programs or which repository git uses.
    pub changing: Vec<usize>,
    /// Values of `-C`.
    pub folders: Vec<usize>,
}

/// Reads the options before the sub-command.
pub(crate) fn globals(words: &[Word]) -> Globals {
    let mut globals = Globals::default();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        if !text.starts_with('-') {
            globals.sub = Some(at);
            break;
        }
        let name = text.split('=').next().unwrap_or_default();
        match name {
            "-C" => {
                globals.folders.push(at + 1);
                at += 2;
            }
            "--no-pager"
            | "-P"
            | "--no-replace-objects"
            | "--literal-pathspecs"
            | "--glob-pathspecs"
            | "--noglob-pathspecs"
            | "--icase-pathspecs"
            | "--no-optional-locks"
            | "--no-lazy-fetch"
            | "--version"
            | "--help"
            | "-v"
            | "-h" => {
                at += 1;
            }
            "-c" | "--git-dir" | "--work-tree" | "--namespace" | "--config-env"
            | "--super-prefix" | "--exec-path" | "--attr-source" | "--list-cmds" => {
                globals.changing.push(at);
                let takes = !text.contains('=') && !matches!(name, "--exec-path" | "--list-cmds");
                at += 1 + usize::from(takes || text == "-c");
            }
            // `-p` runs the configured pager even without a terminal.
            _ => {
                globals.changing.push(at);
                at += 1;
            }
        }
    }
    globals
}

/// The sub-command of a git command, and where its words begin.
pub(crate) fn sub_command<'a>(program: &str, words: &'a [Word]) -> (Option<&'a str>, usize) {
    if program != "git" {
        return (None, 1);
    }
    match globals(words).sub {
        Some(at) => (Some(words[at].text.as_str()), at + 1),
        None => (None, words.len()),
    }
}

/// The name of a sub-command's rows in the table of options.
pub(crate) fn table_key(sub: &str) -> Option<String> {
    sub.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        .then(|| format!("git {sub}"))
}

/// Whether `git config …` only tells what is set.
pub(crate) fn only_asks(sub: Option<&str>, words: &[Word], uses: &Uses) -> bool {
    const ASKS: &[&str] = &["--get", "--get-all", "--get-regexp", "--list", "-l"];
    const ALSO: &[&str] = &[
        "--global",
        "--local",
        "--system",
        "--worktree",
        "--show-origin",
        "--show-scope",
        "--name-only",
        "-z",
        "--null",
        "--includes",
        "--bool",
        "--int",
        "--path",
    ];
    if sub != Some("config") || words.iter().any(|word| !word.is_static()) {
        return false;
    }
    let mut asks = false;
    for at in &uses.unlisted {
        let option = words[*at].text.as_str();
        asks |= ASKS.contains(&option);
        if !ASKS.contains(&option) && !ALSO.contains(&option) {
            return false;
        }
    }
    let first = uses.operands.first().map(|at| words[*at].text.as_str());
    asks || matches!(first, Some("get" | "list"))
        || (uses.operands.len() == 1 && first.is_some_and(|name| name.contains('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sub_command_is_found_behind_global_options() {
        for (text, sub, changing) in [
            ("git status", Some("status"), 0),
            ("git -C sub push origin", Some("push"), 0),
            ("git --no-pager log", Some("log"), 0),
            ("git -c a.b=c -p log", Some("log"), 2),
            ("git --git-dir=/x --work-tree . status", Some("status"), 2),
            ("git --exec-path=/x push", Some("push"), 1),
            ("git --weird push", Some("push"), 1),
            ("git", None, 0),
        ] {
            let words: Vec<Word> = text.split(' ').map(|word| Word::literal(word, 0)).collect();
            let found = globals(&words);
            assert_eq!(found.sub.map(|at| words[at].text.as_str()), sub, "{text}");
            assert_eq!(found.changing.len(), changing, "{text}");
        }
    }
}
