//! Brace expansion: `src/{a,b}` is two words. Bash does it before all else.

/// Words that one word may become at most.
const MAX_WORDS: usize = 64;

/// What brace expansion makes of a raw word.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Braces {
    /// Nothing to expand.
    None,
    /// These raw words.
    Words(Vec<String>),
    /// It expands, and how is not worked out.
    Unresolved,
}

pub(crate) fn expand(raw: &str) -> Braces {
    if !raw.contains('{') || !(raw.contains(',') || raw.contains("..")) {
        return Braces::None;
    }
    let Some(open) = unquoted_brace(raw) else {
        return Braces::None;
    };
    if raw.contains(['\'', '"', '\\', '$', '`', '(']) {
        // Quotes and substitutions inside braces have rules of their own.
        return Braces::Unresolved;
    }
    let Some(close) = raw[open..].find('}').map(|at| at + open) else {
        return Braces::None;
    };
    let (before, inside, after) = (&raw[..open], &raw[open + 1..close], &raw[close + 1..]);
    if inside.contains('{') || after.contains('{') {
        return Braces::Unresolved;
    }
    let parts: Vec<String> = if inside.contains(',') {
        inside.split(',').map(str::to_owned).collect()
    } else if let Some((from, to)) = inside.split_once("..") {
        match (from.parse::<i64>(), to.parse::<i64>()) {
            (Ok(from), Ok(to)) if from.abs_diff(to) < MAX_WORDS as u64 && !padded(from, inside) => {
                let (low, high) = (from.min(to), from.max(to));
                let mut numbers: Vec<String> = (low..=high).map(|n| n.to_string()).collect();
                if from > to {
                    numbers.reverse();
                }
                numbers
            }
            _ => return Braces::Unresolved,
        }
    } else {
        return Braces::None;
    };
    if parts.len() > MAX_WORDS {
        return Braces::Unresolved;
    }
    let words = parts.iter().map(|part| format!("{before}{part}{after}"));
    // `{,a}` is one word: nothing at all is no word.
    Braces::Words(words.filter(|word| !word.is_empty()).collect())
}

/// `{01..10}` keeps its width, which is not worked out here.
fn padded(_from: i64, inside: &str) -> bool {
    inside.split("..").any(|number| {
        let digits = number.trim_start_matches(['-', '+']);
        number.starts_with('+') || (digits.len() > 1 && digits.starts_with('0'))
    })
}

/// The first `{` that is not quoted and not of a `${`.
fn unquoted_brace(raw: &str) -> Option<usize> {
    let bytes = raw.as_bytes();
    let mut at = 0;
    let (mut single, mut double) = (false, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if !single => at += 1,
            b'\'' if !double => single = !single,
            b'"' if !single => double = !double,
            b'$' if !single && bytes.get(at + 1) == Some(&b'{') => {
                at += raw[at..].find('}').unwrap_or(raw.len() - at);
            }
            b'{' if !single && !double => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Braces, expand};

    #[test]
    fn simple_braces_become_words_and_others_are_unresolved() {
        let words =
            |words: &[&str]| Braces::Words(words.iter().map(|word| (*word).to_owned()).collect());
        for (raw, expected) in [
            ("src", Braces::None),
            ("{}", Braces::None),
            ("{a}", Braces::None),
            ("${x,}", Braces::None),
            ("'{a,b}'", Braces::None),
            ("\"{a,b}\"", Braces::None),
            ("src/{a,b}.rs", words(&["src/a.rs", "src/b.rs"])),
            ("{rm,-rf,build}", words(&["rm", "-rf", "build"])),
            ("{,a,b}", words(&["a", "b"])),
            ("x{,a}", words(&["x", "xa"])),
            ("{1..3}", words(&["1", "2", "3"])),
            ("{3..1}", words(&["3", "2", "1"])),
            ("{01..3}", Braces::Unresolved),
            ("{a..c}", Braces::Unresolved),
            ("{a,{b,c}}", Braces::Unresolved),
            ("{a,$(x)}", Braces::Unresolved),
            ("{1..100000}", Braces::Unresolved),
            ("{,", Braces::None),
        ] {
            assert_eq!(expand(raw), expected, "{raw}");
        }
    }
}
