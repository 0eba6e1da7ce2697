//! Scripts of sed, yq and sqlite3 that only print: whatever may write or run is not known.

/// Whether a sed script has only commands that print, delete and replace.
pub(crate) fn sed_is_plain(script: &str) -> bool {
    let mut rest = script.trim();
    while !rest.is_empty() {
        let Some(after) = address(rest) else {
            return false;
        };
        rest = after.trim_start_matches([' ', '!']);
        let Some(command) = rest.chars().next() else {
            return false;
        };
        rest = &rest[command.len_utf8()..];
        match command {
            'p' | 'd' | 'D' | 'P' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | '=' | '{' | '}'
            | 'l' | 'z' => {}
            // A label ends at the latest at the end of the line.
            ':' | 'b' | 't' | 'T' => {
                let label = |c: char| c.is_ascii_alphanumeric() || c == '_';
                rest = rest.trim_start_matches(' ').trim_start_matches(label);
            }
            // One line of text; a backslash would carry it on to the next.
            'a' | 'i' | 'c' => {
                let end = rest.find('\n').unwrap_or(rest.len());
                if end == 0 || rest[..end].contains('\\') {
                    return false;
                }
                rest = &rest[end..];
            }
            'q' | 'Q' => rest = rest.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()),
            's' | 'y' => {
                let Some(delimiter) = rest.chars().next() else {
                    return false;
                };
                if delimiter == '\\' || delimiter == '\n' || !delimiter.is_ascii() {
                    return false;
                }
                rest = &rest[1..];
                for _ in 0..2 {
                    match part(rest, delimiter) {
                        Some(after) => rest = after,
                        None => return false,
                    }
                }
                // The flags w and e write and run.
                rest = rest.trim_start_matches(|c: char| "gpiIM".contains(c) || c.is_ascii_digit());
            }
            _ => return false,
        }
        rest = rest.trim_start_matches([' ', '\t']);
        match rest.chars().next() {
            None => {}
            Some(';' | '\n') => rest = rest[1..].trim_start_matches([' ', '\t', '\n', ';']),
            Some('}') => {}
            _ if command == '{' || command == '}' => {}
            _ => return false,
        }
    }
    true
}

/// Skips addresses; `None` for one that is not handled.
fn address(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let first = rest.chars().next();
        rest = match first {
            Some('0'..='9' | '$' | '~' | '+') => &rest[1..],
            Some('/') => {
                let after = part(&rest[1..], '/')?;
                after.trim_start_matches(['I', 'M'])
            }
            Some(',') => &rest[1..],
            _ => return Some(rest),
        };
    }
}

/// What follows the next `delimiter` that is not escaped or in brackets.
fn part(text: &str, delimiter: char) -> Option<&str> {
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => {
                characters.next();
            }
            _ if character == delimiter => return Some(&text[at + delimiter.len_utf8()..]),
            _ => {}
        }
    }
    None
}

/// Whether a filter of yq opens no file and reads no variable of the environment.
pub(crate) fn yq_is_plain(filter: &str) -> bool {
    !["load", "env", "eval"]
        .iter()
        .any(|word| filter.contains(word))
}

/// Commands of sqlite3 that only tell what is there.
const SQLITE_COMMANDS: [&str; 20] = [
    ".tables",
    ".schema",
    ".fullschema",
    ".headers",
    ".header",
    ".mode",
    ".databases",
    ".indexes",
    ".indices",
    ".dump",
    ".quit",
    ".exit",
    ".width",
    ".nullvalue",
    ".show",
    ".stats",
    ".timer",
    ".help",
    ".version",
    ".eqp",
];

/// Words of SQL with which sqlite3 opens other files, loads code or runs an editor.
const SQLITE_WORDS: [&str; 9] = [
    "writefile",
    "readfile",
    "edit",
    "load_extension",
    "attach",
    "vacuum",
    "fsdir",
    "zipfile",
    "create virtual",
];

/// Whether a text for sqlite3 opens nothing but the database.
pub(crate) fn sql_is_plain(text: &str) -> bool {
    let folded = text.to_lowercase();
    folded.lines().all(|line| {
        let line = line.trim_start();
        !line.starts_with('.')
            || (!line.contains('|')
                && SQLITE_COMMANDS.contains(&line.split_whitespace().next().unwrap_or_default()))
    }) && !SQLITE_WORDS.iter().any(|word| folded.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sed_scripts_that_write_or_run_are_not_plain() {
        for (script, plain) in [
            ("s/a/b/", true),
            ("s/a/b/g", true),
            ("s|/usr|/opt|;s/x/y/2p", true),
            ("1,10p", true),
            ("/foo/,/bar/p", true),
            ("$d", true),
            ("/^$/d", true),
            ("/a/{s/x/y/;p}", true),
            ("5q", true),
            ("n;d", true),
            ("s/a/b/w out", false),
            ("s/a/b/e", false),
            ("s/a/b/ge", false),
            ("w out", false),
            ("1e id", false),
            ("r .env", false),
            ("1r .env", false),
            ("W out", false),
            ("R x", false),
            ("a text", true),
            ("1i // header", true),
            ("2c text; e id }", true),
            ("a\\\ntext", false),
            ("a text\\\nmore", false),
            ("i text\ne id", false),
            ("i text\np", true),
            ("a", false),
            (":a;N;$!ba;s/\\n/ /g", true),
            ("s/a/b/; t; s/c/d/", true),
            (":a e id", false),
            ("b x;e id", false),
            ("s/a/b", false),
            ("y/ab/cd/", true),
            ("s/[/]/x/w out", false),
        ] {
            assert_eq!(sed_is_plain(script), plain, "{script}");
        }
    }

    #[test]
    fn texts_of_sqlite_that_open_other_files_are_not_plain() {
        for (text, plain) in [
            ("select count(*) from users", true),
            (".tables", true),
            (".schema users", true),
            ("select 1;\n.mode csv", true),
            (".shell id", false),
            (".sh id", false),
            ("select 1;\n .system id", false),
            (".output x", false),
            (".once |id", false),
            (".mode csv |x", false),
            ("select writeFile('x', 'y')", false),
            ("ATTACH 'x' AS y", false),
            ("vacuum into 'x'", false),
        ] {
            assert_eq!(sql_is_plain(text), plain, "{text}");
        }
        assert!(yq_is_plain(".a.b"));
        assert!(!yq_is_plain("load(\".env\")"));
    }
}
