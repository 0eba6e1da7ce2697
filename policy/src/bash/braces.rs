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
    if raw[open..].find('}').is_none() {
        return Braces::None;
    }
    match words(raw) {
        Some(words) if words.len() == 1 && words[0] == raw => Braces::None,
        // `{,a}` is one word: nothing at all is no word.
        Some(words) => Braces::Words(words.into_iter().filter(|word| !word.is_empty()).collect()),
        None => Braces::Unresolved,
    }
}

/// The words of a text without quotes; `None` where they are not worked out.
fn words(text: &str) -> Option<Vec<String>> {
    let Some(open) = text.find('{') else {
        return (!text.contains('}')).then(|| vec![text.to_owned()]);
    };
    let close = closing(&text[open..])? + open;
    let (before, inside, after) = (&text[..open], &text[open + 1..close], &text[close + 1..]);
    if before.contains('}') {
        return None;
    }
    let parts = parts(inside)?;
    let after = words(after)?;
    if parts.len().saturating_mul(after.len()) > MAX_WORDS {
        return None;
    }
    let mut all = Vec::with_capacity(parts.len() * after.len());
    for part in &parts {
        for after in &after {
            all.push(format!("{before}{part}{after}"));
        }
    }
    Some(all)
}

/// Where the brace that begins a text is closed.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' if open == 1 => return Some(at),
            b'}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// What stands for the inside of a pair of braces.
fn parts(inside: &str) -> Option<Vec<String>> {
    let mut between = Vec::new();
    let (mut open, mut start) = (0usize, 0);
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            b',' if open == 0 => {
                between.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !between.is_empty() {
        between.push(&inside[start..]);
        let mut all = Vec::new();
        for part in between {
            all.append(&mut words(part)?);
            if all.len() > MAX_WORDS {
                return None;
            }
        }
        return Some(all);
    }
    if inside.contains(['{', '}']) {
        return None;
    }
    let Some((from, to)) = inside.split_once("..") else {
        return Some(vec![format!("{{{inside}}}")]); // `{a}` stays as it is
    };
    match (from.parse::<i64>(), to.parse::<i64>()) {
        (Ok(from), Ok(to)) if from.abs_diff(to) < MAX_WORDS as u64 && !padded(inside) => {
            let (low, high) = (from.min(to), from.max(to));
            let mut numbers: Vec<String> = (low..=high).map(|n| n.to_string()).collect();
            if from > to {
                numbers.reverse();
            }
            Some(numbers)
        }
        _ => None,
    }
}

/// `{01..10}` keeps its width, which is not worked out here.
fn padded(inside: &str) -> bool {
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
            ("{a,{b,c}}", words(&["a", "b", "c"])),
            ("x{a,b{1..3}}y", words(&["xay", "xb1y", "xb2y", "xb3y"])),
            ("{a,b}{1,2}", words(&["a1", "a2", "b1", "b2"])),
            ("{a}{b,c}", words(&["{a}b", "{a}c"])),
            ("{a,b}}", Braces::Unresolved),
            ("a}{b,c}", Braces::Unresolved),
            ("{{a},b}", words(&["{a}", "b"])),
            ("{{a,b}", Braces::Unresolved),
            ("{a,b}{c", Braces::Unresolved),
            ("{{a,b}}", Braces::Unresolved),
            ("{1..9}{1..9}", Braces::Unresolved),
            ("{a,$(x)}", Braces::Unresolved),
            ("{1..100000}", Braces::Unresolved),
            ("{,", Braces::None),
        ] {
            assert_eq!(expand(raw), expected, "{raw}");
        }
    }
}
