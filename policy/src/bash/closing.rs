//! Where a bracket or a parenthesis closes, past quotes, substitutions and
//! here-documents.

use super::decode::MAX_NESTING;

/// Length of a text that begins with `[`, up to the `]` that closes it.
pub(super) fn closing_bracket(text: &str) -> usize {
    let mut open = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => open += 1,
            b']' if open <= 1 => return at,
            b']' => open -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Where a `)` closes what was opened before the text.
pub(super) struct Closing {
    /// Bytes before it; the whole text where there is none.
    pub length: usize,
    /// Nothing was met whose quoting depends on the grammar.
    pub certain: bool,
}

/// Where the text's first `)` is that was not opened in it.
pub(super) fn closing_parenthesis(text: &str) -> Closing {
    let bytes = text.as_bytes();
    let mut depth = 0usize;
    let mut certain = true;
    let mut word_start = true;
    let mut here_docs: Vec<HereDocEnd> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let starts = std::mem::replace(&mut word_start, false);
        match byte {
            b'\\' => at += 1,
            b'\'' => at += skip_to(&bytes[at + 1..], b'\'') + 1,
            b'"' => at += skip_double(&text[at + 1..], 0) + 1,
            b'`' => at += skip_escaped(&bytes[at + 1..], b'`') + 1,
            b'#' if starts => {
                at += bytes[at..]
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(bytes.len() - at);
                word_start = true;
                continue;
            }
            b'(' => {
                depth += 1;
                word_start = true;
            }
            b')' if depth == 0 => {
                return Closing {
                    length: at,
                    certain,
                };
            }
            b')' => {
                depth -= 1;
                word_start = true;
            }
            b'<' if text[at..].starts_with("<<<") => at += 2,
            b'<' if text[at..].starts_with("<<") => match HereDocEnd::read(&text[at + 2..]) {
                Some((end, length)) => {
                    here_docs.push(end);
                    at += 1 + length;
                }
                None => certain = false,
            },
            b'\n' if !here_docs.is_empty() => {
                at += 1;
                for end in here_docs.drain(..) {
                    at += end.body_length(&text[at.min(bytes.len())..]);
                }
                word_start = true;
                continue;
            }
            b'c' if starts && text[at..].starts_with("case") => certain = false,
            b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' => word_start = true,
            _ => {}
        }
        at += 1;
    }
    Closing {
        length: text.len(),
        certain: false,
    }
}

/// What ends a here-document.
struct HereDocEnd {
    word: String,
    tabs: bool,
}

impl HereDocEnd {
    /// Reads the delimiter after `<<`, and how many bytes it takes.
    fn read(text: &str) -> Option<(HereDocEnd, usize)> {
        let tabs = text.starts_with('-');
        let start = usize::from(tabs);
        let rest = &text[start..];
        let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let rest = &rest[blanks..];
        let end = rest
            .find(|c: char| {
                c.is_whitespace() || matches!(c, ';' | '&' | '|' | '<' | '>' | '(' | ')')
            })
            .unwrap_or(rest.len());
        let written = &rest[..end];
        let word = written.replace(['\'', '"'], "");
        let plain = word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        (!word.is_empty() && plain).then(|| (HereDocEnd { word, tabs }, start + blanks + end))
    }

    /// Bytes of the body and its last line.
    fn body_length(&self, text: &str) -> usize {
        let mut length = 0;
        for line in text.split_inclusive('\n') {
            length += line.len();
            let line = line.strip_suffix('\n').unwrap_or(line);
            let line = if self.tabs {
                line.trim_start_matches('\t')
            } else {
                line
            };
            if line == self.word {
                return length;
            }
        }
        text.len()
    }
}

fn skip_to(bytes: &[u8], end: u8) -> usize {
    bytes
        .iter()
        .position(|byte| *byte == end)
        .unwrap_or(bytes.len())
}

fn skip_escaped(bytes: &[u8], end: u8) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            byte if byte == end => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Length of the inside of double quotes.
fn skip_double(text: &str, depth: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'"' => return at,
            b'`' => at += skip_escaped(&bytes[at + 1..], b'`') + 1,
            b'$' if bytes.get(at + 1) == Some(&b'(') && depth < MAX_NESTING => {
                at += 2 + skip_substitution(&text[at + 2..], depth + 1);
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

fn skip_substitution(text: &str, depth: usize) -> usize {
    let bytes = text.as_bytes();
    let mut open = 0usize;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'\'' => at += skip_to(&bytes[at + 1..], b'\'') + 1,
            b'"' if depth < MAX_NESTING => at += skip_double(&text[at + 1..], depth + 1) + 1,
            b'(' => open += 1,
            b')' if open == 0 => return at,
            b')' => open -= 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}
