//! `${…}`: which of them only stand for text, and which run something.

use super::decode::{Decoder, Findings, Mode, Nested, decode};

/// At `{` of `${`; `start` is where the `$` stands.
pub(super) fn braced(decoder: &mut Decoder<'_, '_>, start: usize, mode: Mode) {
    let open = decoder.pos;
    let inside_at = open + 1;
    let length = closing_brace(&decoder.raw[inside_at..], mode);
    let inside = decoder.raw[inside_at..inside_at + length].to_owned();
    decoder.pos = inside_at + length;
    let closed = decoder.rest().starts_with('}');
    if closed {
        decoder.pos += 1;
    }
    if closed && is_name(&inside) {
        decoder.variable(&inside, mode);
        return;
    }
    decoder.word.text.push_str("${");
    decoder.word.text.push_str(&inside);
    decoder.word.text.push('}');
    if inside.strip_prefix('#').is_some_and(is_name) && closed {
        decoder.word.dynamic = true; // always a number
        return;
    }
    // `${a[@]}` is several words even in quotes.
    decoder.unknown(if inside.contains('@') {
        Mode::Word
    } else {
        mode
    });
    if !closed {
        decoder.trouble(start, "a parameter expansion that is not closed");
    }
    let at = decoder.at + inside_at;
    if inside.starts_with([' ', '\t', '\n', '|', '(']) {
        // Bash 5.3, ksh and mksh run it; older shells report an error.
        decoder.trouble(start, "a substitution in the form ${ command; }");
        let text = inside.trim_start_matches(['|', '(']).to_owned();
        decoder.findings.nested.push(Nested {
            text,
            at,
            doubtful: true,
        });
        return;
    }
    if let Some(why) = runs(&inside) {
        decoder.trouble(start, why);
    }
    nested_in(&inside, at, decoder.findings);
}

fn is_name(text: &str) -> bool {
    text.bytes()
        .next()
        .is_some_and(|byte| byte == b'_' || byte.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

/// Scripts inside a text that is expanded as in double quotes.
pub(super) fn nested_in(text: &str, at: usize, findings: &mut Findings) {
    if text.contains(['$', '`']) {
        decode(text, at, Mode::HereDoc, findings);
    }
    if text.contains("<(") || text.contains(">(") {
        findings.trouble(
            at,
            at + text.len(),
            "a process substitution in an expansion",
        );
        decode(text, at, Mode::Word, findings);
    }
}

/// Why an expansion may run or change something; `None` for one that only gives text.
fn runs(inside: &str) -> Option<&'static str> {
    if let Some(rest) = inside.strip_prefix('!')
        && !rest.is_empty()
    {
        return Some("an indirect expansion");
    }
    let inside = match inside.strip_prefix('#') {
        Some(rest) if !rest.is_empty() => rest,
        _ => inside,
    };
    let name = inside
        .bytes()
        .position(|byte| !(byte == b'_' || byte.is_ascii_alphanumeric()))
        .unwrap_or(inside.len());
    let (name, mut rest) = if name > 0 {
        inside.split_at(name)
    } else if inside.starts_with(['@', '*', '#', '?', '-', '$', '!']) {
        inside.split_at(1)
    } else {
        return Some("an expansion that is not handled");
    };
    if let Some(subscript) = rest.strip_prefix('[') {
        let Some((index, after)) = subscript.split_once(']') else {
            return Some("an array subscript");
        };
        if !(matches!(index, "@" | "*") || index.bytes().all(|byte| byte.is_ascii_digit())) {
            return Some("an array subscript is evaluated");
        }
        rest = after;
    }
    let _ = name;
    match rest.as_bytes() {
        [] => None,
        [b':', b'=', ..] | [b'=', ..] => Some("an expansion that assigns"),
        [b':', b'-' | b'+' | b'?', ..] => None,
        [b':', offset @ ..] => {
            let constant = offset
                .iter()
                .all(|byte| byte.is_ascii_digit() || b" :-".contains(byte));
            (!constant).then_some("an offset is evaluated as arithmetic")
        }
        [b'-' | b'+' | b'?' | b'#' | b'%' | b'^' | b',', ..] => None,
        // A replacement may hold `&`, nothing that runs beside what nests.
        [b'/', ..] => None,
        [b'@', b'Q' | b'U' | b'u' | b'L' | b'a' | b'k' | b'K' | b'E'] => None,
        [b'@', ..] => Some("an expansion that evaluates the value"),
        _ => Some("an expansion that is not handled"),
    }
}

/// Length up to the `}` that closes.
fn closing_brace(text: &str, mode: Mode) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0usize;
    let mut parentheses = 0usize;
    let mut double = false;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'\'' if mode == Mode::Word && !double => {
                at += bytes[at + 1..]
                    .iter()
                    .position(|byte| *byte == b'\'')
                    .unwrap_or(bytes.len() - at - 1)
                    + 1;
            }
            b'"' => double = !double,
            b'$' if bytes.get(at + 1) == Some(&b'{') => {
                depth += 1;
                at += 1;
            }
            b'$' if bytes.get(at + 1) == Some(&b'(') => {
                parentheses += 1;
                at += 1;
            }
            b'(' if parentheses > 0 => parentheses += 1,
            b')' if parentheses > 0 => parentheses -= 1,
            b'}' if parentheses == 0 => {
                if depth == 0 {
                    return at;
                }
                depth -= 1;
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len().min(text.len())
}
