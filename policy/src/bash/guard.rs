//! What is checked before a parser sees a text: size, nesting, characters.

use super::outline::Trouble;
use crate::display::is_hidden;

/// Bytes of a script that is read; a longer one is unresolved as a whole.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// Levels that a script may nest, counted by openers without regard to quotes.
const MAX_NESTING: usize = 48;

/// Pipes in one pipeline. The time that tree-sitter-bash needs after an error
/// grows with their square.
const MAX_PIPES: usize = 64;

/// Here-documents in one script; each is looked for from its start.
const MAX_HERE_DOCS: usize = 64;

/// A text that must not be parsed, with the reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub String);

/// Looks at every character once.
pub(crate) fn check(text: &str, troubles: &mut Vec<Trouble>) -> Result<(), Refused> {
    if text.len() > MAX_BYTES {
        return Err(Refused(format!(
            "{} bytes are more than the {MAX_BYTES} that are read",
            text.len()
        )));
    }
    if text.contains('\0') {
        return Err(Refused("a NUL byte, which bash drops".to_owned()));
    }
    let plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    let odd = if text.bytes().all(plain) { "" } else { text };
    for (at, character) in odd.char_indices() {
        if character == '\u{fffd}'
            || (character != '\n' && character != '\t' && is_hidden(character))
        {
            let why = format!("the hidden character U+{:04X}", u32::from(character));
            troubles.push(Trouble::new(at, at + character.len_utf8(), why));
            break; // one is enough to ask
        }
    }
    if let Some(at) = joined_token(text) {
        let why = "a line continuation inside a word or an operator";
        troubles.push(Trouble::new(at, at + 2, why));
    }
    let pipes = |text: &str| text.bytes().filter(|byte| *byte == b'|').count();
    if pipes(text) > MAX_PIPES && text.split(['\n', ';']).any(|part| pipes(part) > MAX_PIPES) {
        return Err(Refused(format!("more than {MAX_PIPES} pipes in one line")));
    }
    if text.matches("<<").count() > MAX_HERE_DOCS {
        return Err(Refused(format!("more than {MAX_HERE_DOCS} here-documents")));
    }
    // Whatever opens a level has a byte of its own.
    if text.len() > MAX_NESTING && nesting(text) > MAX_NESTING {
        return Err(Refused(format!(
            "nested more than {MAX_NESTING} levels deep"
        )));
    }
    Ok(())
}

/// A backslash and newline with text on both sides: bash joins the lines before
/// it looks for words and operators (`2\` and `>&1` become a redirect), and both
/// parsers look first.
fn joined_token(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let blank = |byte: Option<&u8>| byte.is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\n'));
    text.match_indices("\\\n").map(|(at, _)| at).find(|at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        !blank(before) && !blank(bytes.get(at + 2))
    })
}

/// An upper bound of the levels a parser may descend.
fn nesting(text: &str) -> usize {
    let (mut round, mut curly, mut square, mut most) = (0usize, 0usize, 0usize, 0usize);
    let mut back_quotes = 0usize;
    for byte in text.bytes() {
        match byte {
            b'(' => round += 1,
            b')' => round = round.saturating_sub(1),
            b'{' => curly += 1,
            b'}' => curly = curly.saturating_sub(1),
            b'[' => square += 1,
            b']' => square = square.saturating_sub(1),
            // Escaped back-quotes nest; each level doubles the backslashes.
            b'`' => back_quotes += 1,
            _ => continue,
        }
        most = most.max(round + curly + square);
    }
    let back_quotes = if text.contains("\\`") {
        back_quotes / 2
    } else {
        0
    };
    most + back_quotes + keywords(text)
}

/// Levels that words open: compound commands, and prefixes that take a command.
fn keywords(text: &str) -> usize {
    if !text
        .bytes()
        .any(|byte| matches!(byte, b'f' | b'e' | b'!' | b'l' | b'c'))
    {
        return 0;
    }
    let (mut open, mut most, mut prefixes) = (0usize, 0usize, 0usize);
    for word in text.split([' ', '\t', '\n', ';', '&', '|', '(', ')']) {
        match word {
            "if" | "while" | "until" | "for" | "case" | "select" => {
                open += 1;
                most = most.max(open);
            }
            "fi" | "done" | "esac" => open = open.saturating_sub(1),
            "!" | "time" | "coproc" | "elif" | "function" => prefixes += 1,
            _ => {}
        }
    }
    // Prefixes in a row nest, and a long script has a few of them anyway.
    most + prefixes.saturating_sub(16)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn size_and_nesting_are_refused_before_parsing() {
        let refused = |text: &str| check(text, &mut Vec::new()).is_err();
        assert!(!refused("echo $(ls $(pwd)) {a,b} [x]"));
        assert!(!refused(&"ls; (cd x); ".repeat(1000)));
        assert!(refused(&"x".repeat(MAX_BYTES + 1)));
        for opener in [
            "(", "$(", "{ ", "${x:-", "if ", "! ", "time ", "[", "while ", "$((",
        ] {
            assert!(refused(&opener.repeat(200)), "{opener:?}");
        }
    }

    #[test]
    fn lines_joined_inside_a_token_are_found() {
        for (text, found) in [
            ("c 2\\\n>&1", true),
            ("l\\\ns", true),
            ("ls \\\n  -la", false),
            ("ls\\\n  -la", false),
            ("ls \\\n-la", false),
            ("ls", false),
        ] {
            let mut troubles = Vec::new();
            check(text, &mut troubles).unwrap();
            assert_eq!(!troubles.is_empty(), found, "{text:?}");
        }
    }

    #[test]
    fn hidden_characters_are_named_with_their_place() {
        let mut troubles = Vec::new();
        check("ls \u{202e}x", &mut troubles).unwrap();
        assert_eq!(
            troubles,
            [Trouble::new(3, 6, "the hidden character U+202E")]
        );
    }
}
