//! What a script's own variables can hold, where the script itself says so: the
//! words of a `for` loop, and counters that are only ever numbers.
//!
//! It is read off the text, in one pass, and gives up wherever a variable might
//! be set in a way that this pass does not see.

use std::borrow::Cow;
use std::collections::HashMap;

/// Whether a command of this name sets variables that its words name.
pub(super) fn sets_variables(command: &str) -> bool {
    SETTERS.contains(&command)
}

/// Longer scripts are not looked at.
const MAX_TEXT: usize = 64 << 10;
/// Words of a loop, and names, that are kept at most.
const MAX_WORDS: usize = 24;
const MAX_NAMES: usize = 64;

/// Commands that set a variable whose name is one of their words. (What `eval`,
/// `source` and aliases do is not read for certain in any case.)
const SETTERS: &[&str] = &[
    "read",
    "mapfile",
    "readarray",
    "getopts",
    "declare",
    "local",
    "typeset",
    "export",
    "readonly",
    "let",
    "unset",
    "select",
    "coproc",
    "printf",
    "wait",
    "exec",
    "IFS",
];

/// Of one script with all that is nested in it.
#[derive(Debug, Default)]
pub(crate) struct Known {
    loops: HashMap<String, Vec<String>>,
    counters: Vec<String>,
}

#[derive(Default)]
struct Seen {
    /// Values of the only loop over it.
    words: Option<Vec<String>>,
    loops: usize,
    /// It is set in another way than by a loop.
    set: bool,
    /// Every value that is set is a number.
    numeric: bool,
}

impl Known {
    /// Reads a whole script.
    pub(crate) fn of(text: &str) -> Known {
        let has_loop = text.contains("for ") || text.contains("for\t");
        if !(has_loop || text.contains("((")) || text.len() > MAX_TEXT || hides_names(text) {
            return Known::default();
        }
        let mut seen: HashMap<&str, Seen> = HashMap::new();
        let mut after = ("", 0); // the name before, and where it ends
        for (start, name) in names(text) {
            let between = &text[after.1..start];
            let after_for = after.0 == "for" && between.bytes().all(|b| b == b' ' || b == b'\t');
            after = (name, start + name.len());
            if !name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
                || name.ends_with("_proxy")
            {
                continue;
            }
            if seen.len() > MAX_NAMES && !seen.contains_key(name) {
                return Known::default();
            }
            let entry = seen.entry(name).or_insert_with(|| Seen {
                numeric: true,
                ..Seen::default()
            });
            let rest = &text[start + name.len()..];
            if after_for {
                entry.loops += 1;
                entry.words = loop_words(rest);
                entry.numeric &= entry.words.as_ref().is_some_and(|words| {
                    words
                        .iter()
                        .all(|word| word.bytes().all(|b| b.is_ascii_digit()))
                });
                continue;
            }
            match setting(&text[..start], rest) {
                Setting::None => {}
                Setting::Number => entry.set = true,
                Setting::Other => {
                    entry.set = true;
                    entry.numeric = false;
                }
            }
        }
        let mut known = Known::default();
        for (name, seen) in seen {
            if seen.numeric && (seen.set || seen.loops > 0) {
                known.counters.push(name.to_owned());
            }
            if let (Some(mut words), 1, false) = (seen.words, seen.loops, seen.set) {
                // Where the loop was not come to, it is empty.
                words.push(String::new());
                known.loops.insert(name.to_owned(), words);
            }
        }
        known
    }

    /// Whether a loop's variable is known.
    pub(crate) fn has_loops(&self) -> bool {
        !self.loops.is_empty()
    }

    /// The values of the loops' variables that stand in a text: every combination
    /// of them; one empty combination where there are none, or too many.
    pub(crate) fn combinations<'a>(
        &self,
        texts: impl Iterator<Item = &'a str>,
    ) -> Vec<Vec<(String, String)>> {
        let mut all = vec![Vec::new()];
        let mut taken: Vec<&str> = Vec::new();
        for text in texts.filter(|text| text.contains('$')) {
            for (_, name) in names(text) {
                let Some(words) = self.loops.get(name).filter(|_| !taken.contains(&name)) else {
                    continue;
                };
                taken.push(name);
                if all.len() * words.len() > 2 * MAX_WORDS {
                    return vec![Vec::new()];
                }
                all = all
                    .iter()
                    .flat_map(|one: &Vec<(String, String)>| {
                        words.iter().map(|word| {
                            let mut one = one.clone();
                            one.push((name.to_owned(), word.clone()));
                            one
                        })
                    })
                    .collect();
            }
        }
        all
    }

    /// Whether a variable is empty or a number, whatever the script does.
    pub(crate) fn is_counter(&self, name: &str) -> bool {
        self.counters.iter().any(|known| known == name)
    }

    /// Whether arithmetic names nothing but counters, so that no text is evaluated.
    pub(crate) fn is_plain_arithmetic(&self, expression: &str) -> bool {
        let expression = without_counts(expression);
        let bytes = expression.as_bytes();
        let plain = bytes.iter().enumerate().all(|(at, byte)| match byte {
            b'$' => bytes
                .get(at + 1)
                .is_some_and(|b| b.is_ascii_lowercase() || *b == b'_'),
            _ => byte.is_ascii_alphanumeric() || b" \t\n_+-*/%()<>=!&|^~?:,;".contains(byte),
        });
        plain && names(&expression).all(|(_, name)| self.is_counter(name))
    }
}

/// A text with `0` for what is always a number: `$#`, `$?`, `$$`, `$!` and `${#NAME}`.
pub(super) fn without_counts(text: &str) -> Cow<'_, str> {
    if !text.contains('$') {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        // `x$#` may be the name of any variable.
        let joined = result.ends_with(|c: char| c == '_' || c == '$' || c.is_alphanumeric());
        let length = match after.as_bytes() {
            _ if joined => 0,
            [b'#' | b'?' | b'$' | b'!', ..] => 1,
            [b'{', b'#' | b'?', b'}', ..] => 3,
            [b'{', b'#', name @ ..] => {
                let length = name
                    .iter()
                    .take_while(|b| **b == b'_' || b.is_ascii_alphanumeric())
                    .count();
                if length > 0 && name.get(length) == Some(&b'}') {
                    length + 3
                } else {
                    0
                }
            }
            _ => 0,
        };
        result.push(if length > 0 { '0' } else { '$' });
        rest = &after[length..];
    }
    result.push_str(rest);
    Cow::Owned(result)
}

/// Whether a name may be set without being seen: by a command that takes it as a
/// word, or where the text is not what bash reads.
fn hides_names(text: &str) -> bool {
    if text.contains("\\\n") || text.contains("$'") || text.contains("$\"") {
        return true;
    }
    let plain: String = text
        .chars()
        .filter(|c| !matches!(c, '\'' | '"' | '\\'))
        .collect();
    // `r{ea,}d x`: braces may spell any name.
    let braces = plain.match_indices('{').any(|(at, _)| {
        !plain[..at].ends_with('$')
            && plain[at + 1..]
                .split(|c: char| c == '}' || c.is_whitespace())
                .next()
                .is_some_and(|inside| inside.contains(',') || inside.contains(".."))
    });
    braces
        || names(&plain).any(|(at, name)| {
            SETTERS.contains(&name)
                && match name {
                    "printf" => plain[at..].contains("-v") || plain[at..].contains("%n"),
                    "wait" => plain[at..].contains("-p"),
                    "exec" => plain[at..].contains('{'),
                    _ => true,
                }
        })
}

/// Words that could be names, with where they begin.
fn names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |b: u8| b == b'_' || b.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            while at < bytes.len() && is_part(bytes[at]) {
                at += 1;
            }
            if at > start && !bytes[start].is_ascii_digit() {
                return Some((start, &text[start..at]));
            }
            at += usize::from(at == start);
        }
        None
    })
}

/// The words after `for NAME`, where they are plain names and globs.
fn loop_words(rest: &str) -> Option<Vec<String>> {
    let list = rest.trim_start_matches([' ', '\t']).strip_prefix("in")?;
    let list = list.strip_prefix([' ', '\t'])?;
    let list = &list[..list.find([';', '\n'])?];
    let words: Vec<String> = list.split_ascii_whitespace().map(str::to_owned).collect();
    let plain = words.iter().all(|word| {
        !word.starts_with('-')
            && word
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-./,:@%+*?".contains(&b))
    });
    (plain && !words.is_empty() && words.len() <= MAX_WORDS).then_some(words)
}

enum Setting {
    None,
    Number,
    Other,
}

/// Whether a name that stands between two texts is set there. Errs towards yes.
fn setting(before: &str, rest: &str) -> Setting {
    if rest.starts_with('[') {
        return Setting::Other;
    }
    if before.trim_end().ends_with("++") || before.trim_end().ends_with("--") {
        return Setting::Number;
    }
    let after = rest.trim_start_matches([' ', '\t']);
    if after.starts_with("++") || after.starts_with("--") {
        return Setting::Number;
    }
    let length = after
        .bytes()
        .take_while(|b| b"+-*/%&|^<>:!=".contains(b))
        .count();
    let (operator, value) = after.split_at(length);
    match operator {
        // `f==x` sets f to `=x`, and `((f==x))` compares; neither makes it a text that
        // arithmetic would evaluate.
        "==" if after.len() == rest.len() && !before.ends_with(['$', '{', '#']) => {
            return Setting::Number;
        }
        "" | "==" | "!=" | "<=" | ">=" => return Setting::None,
        _ if !operator.contains('=') => return Setting::None,
        _ => {}
    }
    // `x=-1`: the sign was taken as part of the operator.
    let value = value.trim_start_matches([' ', '\t']);
    let ends = |rest: &str| {
        rest.bytes()
            .next()
            .is_none_or(|b| b.is_ascii_whitespace() || b";)&|,".contains(&b))
    };
    if operator == "="
        && let Some(expression) = value.strip_prefix("$((")
    {
        // More may follow: `i=$((0))+'a[$(x)]'`.
        return match end_of_arithmetic(expression) {
            Some(rest) if ends(rest) => Setting::Number,
            _ => Setting::Other,
        };
    }
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 && ends(&value[digits..]) {
        Setting::Number
    } else {
        Setting::Other
    }
}

/// What follows the `))` of an arithmetic expression without quotes.
fn end_of_arithmetic(text: &str) -> Option<&str> {
    let mut open = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => open += 1,
            b')' if open == 0 => return text[at + 1..].strip_prefix(')'),
            b')' => open -= 1,
            b'\'' | b'"' | b'\\' | b'`' => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::Known;

    fn values(text: &str, name: &str) -> Option<Vec<String>> {
        Known::of(text).loops.get(name).cloned()
    }

    #[test]
    fn the_words_of_a_loop_are_what_its_variable_holds() {
        assert_eq!(
            values("for f in a *.rs; do cat \"$f\"; done", "f"),
            Some(vec!["a".into(), "*.rs".into(), String::new()])
        );
        for text in [
            "for f in $(ls); do cat $f; done",
            "for f in -rf a; do cat $f; done",
            "for f in a 'b c'; do cat $f; done",
            "for f in a; do f=b; cat $f; done",
            "for f in a; do read f; cat $f; done",
            "for f in a; do r'ea'd f; cat $f; done",
            "for f in a; do r{ead,x} f; cat $f; done",
            "for f in a; do printf -v f b; cat $f; done",
            "for f in a; do echo ${f:=b}; done; cat $f",
            "for f in a; do echo $f; done; for f in b; do cat $f; done",
            "for f in a; do (( f = 3 )); cat $f; done",
            "for f in a/b; do IFS=/; cat $f; done",
            "for f in a; do export f=b; cat $f; done",
            "for PATH in a; do cat $PATH; done",
            "for f in a \\\n b; do cat $f; done",
            "for f in a; do f==b; cat $f; done",
        ] {
            assert_eq!(values(text, "f").or(values(text, "PATH")), None, "{text}");
        }
    }

    #[test]
    fn arithmetic_of_counters_evaluates_no_text() {
        for (text, expression, expected) in [
            ("i=0; i=$((i+1))", "i+1", true),
            (
                "for ((i=0; i<5; i++)); do echo $i; done",
                "i=0; i<5; i++",
                true,
            ),
            ("n=3; echo $((n * 2 - $n))", "n * 2 - $n", true),
            ("for i in 1 2; do echo $((i*2)); done", "i*2", true),
            ("i=$((1)); echo $((i+1))", "i+1", true),
            ("i=$(((1+2)*3)); echo $((i+1))", "i+1", true),
            ("i=1; ((i==2)) && ((i++))", "i==2", true),
            ("shift; echo $(( $# - 1 ))", " $# - 1 ", true),
            ("echo $(($?+${#x}))", "$?+${#x}", true),
            ("x0=1; echo $((x$#))", "x$#", false),
            ("echo $((${#a[x]}))", "${#a[x]}", false),
            ("i=$((0))+'a[$(x)]'; echo $((i))", "i", false),
            ("i=$((0))a[x]; echo $((i))", "i", false),
            ("i='a[$(x)]'; echo $((i+1))", "i+1", false),
            ("i=$(cat f); echo $((i+1))", "i+1", false),
            ("i=1; i+=[x]; echo $((i+1))", "i+1", false),
            ("i=0x[a]; echo $((i+1))", "i+1", false),
            ("for i in $(x); do echo $((i*2)); done", "i*2", false),
            ("read i; echo $((i+1))", "i+1", false),
            ("echo $((HOME+1))", "HOME+1", false),
            ("i=1; echo $((i[0]))", "i[0]", false),
            ("i=1; echo $(($1+i))", "$1+i", false),
        ] {
            assert_eq!(
                Known::of(text).is_plain_arithmetic(expression),
                expected,
                "{text}"
            );
        }
    }
}
