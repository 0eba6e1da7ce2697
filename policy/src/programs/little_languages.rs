//! Scripts of sed and awk that only print: whatever may write or run is not known.

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

/// Whether an awk program has nothing that may write, run or read other files.
pub(crate) fn awk_is_plain(program: &str) -> bool {
    let text = without_texts(program);
    ![
        "system", "getline", "close", "@", "|", "printf >", "ARGV", "ENVIRON", "PROCINFO", "fflush",
    ]
    .iter()
    .any(|word| text.contains(word))
        && !writes(&text)
}

/// `print > file`: a `>` in a statement that prints.
fn writes(text: &str) -> bool {
    text.split([';', '\n', '{', '}'])
        .any(|statement| statement.contains("print") && statement.replace(">=", "").contains('>'))
}

/// The program with the text between double quotes removed.
fn without_texts(program: &str) -> String {
    let mut result = String::with_capacity(program.len());
    let mut quoted = false;
    let mut characters = program.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                characters.next();
            }
            '"' => quoted = !quoted,
            _ if quoted => {}
            _ => result.push(character),
        }
    }
    // A quote that stays open was no quote (`/"/`): then nothing is removed.
    if quoted { program.to_owned() } else { result }
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
            ("a text", false),
            ("s/a/b", false),
            ("y/ab/cd/", true),
            ("s/[/]/x/w out", false),
        ] {
            assert_eq!(sed_is_plain(script), plain, "{script}");
        }
    }

    #[test]
    fn awk_programs_that_write_or_run_are_not_plain() {
        for (program, plain) in [
            ("{print $1}", true),
            ("/foo/ {print $2, $3}", true),
            ("$3 > 5", true),
            ("$3 >= 5 {print}", true),
            ("{print \"a > b | c\"}", true),
            ("NR==1 {n++} END {print n}", true),
            ("{print > \"out\"}", false),
            ("{print | \"sh\"}", false),
            ("BEGIN {system(\"id\")}", false),
            ("BEGIN {while (getline x < \".env\") print x}", false),
            ("{print >> f}", false),
            ("@load \"x\"", false),
            ("/\"/ {print > \"x\"}", false),
        ] {
            assert_eq!(awk_is_plain(program), plain, "{program}");
        }
    }
}
