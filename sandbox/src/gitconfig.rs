//! Which lines of a git configuration make git run nothing.
//!
//! Only plainly written lines are understood: what is not plain is dropped, so
//! that git cannot read in it what this module did not.

/// A configuration without what git would act on.
#[derive(Debug, PartialEq, Eq)]
pub struct Reduced {
    pub text: String,
    /// Names of what is gone, for people.
    pub dropped: Vec<String>,
}

/// Names told of, at most.
const MAX_NAMES: usize = 8;

/// `None` where every line may stay.
pub fn reduce(bytes: &[u8]) -> Option<Reduced> {
    let mut text = String::new();
    let mut dropped = Vec::new();
    let mut section = None;
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    for line in bytes.split(|byte| *byte == b'\n') {
        let kept = match std::str::from_utf8(line) {
            Ok(line) => keeps(line, &mut section).map(|()| line),
            Err(_) => {
                section = None;
                Err(NOT_PLAIN.to_owned())
            }
        };
        match kept {
            Ok(line) => {
                text.push_str(line);
                text.push('\n');
            }
            Err(name) => {
                if !dropped.contains(&name) {
                    dropped.push(name);
                }
            }
        }
    }
    if dropped.is_empty() {
        return None;
    }
    if dropped.len() > MAX_NAMES {
        dropped.truncate(MAX_NAMES);
        dropped.push("and more".into());
    }
    Some(Reduced { text, dropped })
}

const NOT_PLAIN: &str = "lines that are not plain";

/// Section and subsection.
type Section = Option<(String, String)>;

fn keeps(line: &str, section: &mut Section) -> Result<(), String> {
    let trimmed = line.trim_matches([' ', '\t']);
    if trimmed.starts_with('[') {
        *section = header(trimmed);
        return section
            .as_ref()
            .map(|_| ())
            .ok_or_else(|| NOT_PLAIN.to_owned());
    }
    if line.chars().any(|c| c.is_control() && c != '\t') {
        return Err(NOT_PLAIN.into());
    }
    if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
        return Ok(());
    }
    let plain = trimmed
        .split_once('=')
        .map(|(key, value)| {
            (
                key.trim_end_matches([' ', '\t']),
                value.trim_matches([' ', '\t']),
            )
        })
        .filter(|(key, value)| {
            !key.is_empty()
                && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
                && !value.contains(['"', '\\', '#', ';'])
        });
    let (Some((key, value)), Some((name, below))) = (plain, section.as_ref()) else {
        return Err(NOT_PLAIN.into());
    };
    let key = key.to_ascii_lowercase();
    if is_harmless(name, below, &key, value) {
        return Ok(());
    }
    Err(if below.is_empty() {
        format!("{name}.{key}")
    } else {
        format!("{name}.{below}.{key}")
    })
}

/// `[name]` or `[name "below"]`, and nothing else on the line.
fn header(text: &str) -> Section {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    let (name, below) = match inside.split_once(" \"") {
        Some((name, rest)) => (name, rest.strip_suffix('"')?),
        None => (inside, ""),
    };
    let plain = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !below.contains(['"', '\\'])
        && !below.chars().any(char::is_control);
    plain.then(|| (name.to_ascii_lowercase(), below.to_owned()))
}

fn is_harmless(section: &str, below: &str, key: &str, value: &str) -> bool {
    match (section, below.is_empty(), key) {
        (
            "core",
            true,
            "repositoryformatversion"
            | "filemode"
            | "bare"
            | "logallrefupdates"
            | "ignorecase"
            | "precomposeunicode"
            | "symlinks"
            | "sparsecheckout"
            | "sparsecheckoutcone",
        )
        | ("extensions", true, "objectformat" | "refstorage" | "worktreeconfig" | "partialclone")
        | ("user", true, "name" | "email")
        | ("init", true, "defaultbranch")
        | ("remote", false, "fetch" | "promisor" | "partialclonefilter")
        | ("branch", false, "remote" | "merge")
        | ("submodule", false, "active") => true,
        ("remote" | "submodule", false, "url") => is_harmless_url(value),
        _ => false,
    }
}

/// `helper::address` would run a program, and a dash would be taken for an option.
fn is_harmless_url(url: &str) -> bool {
    !url.contains("::") && !url.starts_with('-')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_git_itself_writes_stays_byte_for_byte() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
                    # a comment\n[remote \"origin\"]\n\turl = https://example.com/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
                    [branch \"a/b.c\"]\n\tremote = origin\n\tmerge = refs/heads/main\n[user]\n\tname = A B\n";
        assert_eq!(reduce(text.as_bytes()), None);
    }

    #[test]
    fn what_git_would_run_is_dropped_however_it_is_written() {
        let table: &[&[u8]] = &[
            b"[core]\n\tfsmonitor = id",
            b"[CORE]\nFsMonitor=id",
            b"[core] fsmonitor = id",
            b"[core]bare=false\\\n\n[core] fsmonitor = id",
            b"[core]\n\tbare = false\r\tfsmonitor = id",
            b"[user]\n\tname = a\\\n\tname = b",
            b"[user]\n\tname = \"a\\\n[core]\n",
            b"[include]\n\tpath = ../evil",
            b"[includeIf \"gitdir:/\"]\n\tpath = ../evil",
            b"[include.x]\n\tpath = ../evil",
            b"[filter \"a\"]\n\tclean = id",
            b"[diff]\n\texternal = id",
            b"[alias]\n\tst = !id",
            b"[core]\n\tworktree = /",
            b"[core]\n\thooksPath = ../evil",
            b"[remote \"o\"]\n\turl = ext::sh -c id",
            b"[remote \"o\"]\n\tuploadpack = id",
            b"[remote \"o\"]\n\turl = --upload-pack=id",
            b"[core]\n\xff\n\tbare = false",
            b"fsmonitor = id",
            b"\xef\xbb\xbf[core]\n\tfsmonitor = id",
        ];
        for bytes in table {
            let shown = String::from_utf8_lossy(bytes);
            let reduced = reduce(bytes).unwrap_or_else(|| panic!("{shown} stays"));
            for word in ["id", "evil", "worktree", "\\", "\r"] {
                assert!(!reduced.text.contains(word), "{shown}: {}", reduced.text);
            }
            assert_eq!(reduce(reduced.text.as_bytes()), None, "{shown}");
        }
    }
}
