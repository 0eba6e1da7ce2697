//! Programs that run the command in their words.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::bash::Word;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    None,
    One,
    Optional,
    Unresolved,
    Query,
    Shell,
}

#[derive(Default)]
struct Row {
    options: HashMap<&'static str, Takes>,
    operands: usize,
    assigns: bool,
    stdin: bool,
    shell: bool,
    elevated: bool,
    number: bool,
    unresolved: bool,
}

static TABLE: LazyLock<super::ByName<Row>> = LazyLock::new(|| {
    let mut table: super::ByName<Row> = Default::default();
    for row in super::rows(include_str!("../../data/wrappers.tsv"), 5) {
        let wrapper = table.entry(row[0]).or_default();
        match row[1] {
            "@operands" => wrapper.operands = row[2].parse().expect("a number of operands"),
            "@assign" => wrapper.assigns = true,
            "@stdin" => wrapper.stdin = true,
            "@shell" => wrapper.shell = true,
            "@elevated" => wrapper.elevated = true,
            "@number" => wrapper.number = true,
            "@unresolved" => wrapper.unresolved = true,
            option => {
                let takes = match row[2] {
                    "none" => Takes::None,
                    "one" => Takes::One,
                    "opt" => Takes::Optional,
                    "query" => Takes::Query,
                    "shell" => Takes::Shell,
                    _ => Takes::Unresolved,
                };
                wrapper.options.insert(option, takes);
            }
        }
    }
    table
});

/// What a wrapper was found to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peeled {
    /// Where the command begins; `None` where it runs none.
    pub inner: Option<usize>,
    /// `NAME=value` words that set its environment.
    pub assignments: Vec<usize>,
    /// A word that is a script.
    pub script: Option<usize>,
    /// The words are joined into a script.
    pub joined: bool,
    /// Other rights than the script's own.
    pub elevated: bool,
    /// Why it is not certain.
    pub trouble: Option<String>,
}

/// `None` for a program that is no wrapper.
pub(crate) fn peel(program: &str, words: &[Word]) -> Option<Peeled> {
    let program = if program.starts_with("ld-linux") || program.starts_with("ld-musl") {
        "ld.so"
    } else {
        program
    };
    let row = TABLE.get(program)?;
    let mut peeled = Peeled {
        elevated: row.elevated,
        joined: row.shell,
        ..Peeled::default()
    };
    if row.unresolved {
        peeled.trouble = Some(format!(
            "{program} runs a command in a way that is not worked out"
        ));
    }
    let mut at = 1;
    let mut query = false;
    let mut operands = row.operands;
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        if text == "--" {
            at += 1;
            break;
        }
        if text.len() > 1 && text.starts_with('-') || (text == "-" && row.options.contains_key("-"))
        {
            at += option(row, program, words, at, &mut peeled, &mut query);
        } else if row.assigns && is_assignment(text) {
            peeled.assignments.push(at);
            at += 1;
        } else if operands > 0 {
            operands -= 1;
            at += 1;
        } else {
            break;
        }
    }
    // After `--` there may still be assignments and operands.
    while row.assigns && words.get(at).is_some_and(|word| is_assignment(&word.text)) {
        peeled.assignments.push(at);
        at += 1;
    }
    at += operands.min(words.len().saturating_sub(at));
    if at < words.len() && !query && peeled.script.is_none() {
        peeled.inner = Some(at);
    }
    let inner = peeled.inner.is_some();
    if row.stdin && (inner || row.shell) {
        let why = format!("{program} adds words from standard input");
        peeled.trouble.get_or_insert(why);
    }
    if peeled.joined && inner {
        peeled
            .trouble
            .get_or_insert(format!("{program} joins its words into a script"));
    }
    Some(peeled)
}

/// Takes one option; returns how many words it is.
fn option(
    row: &Row,
    program: &str,
    words: &[Word],
    at: usize,
    peeled: &mut Peeled,
    query: &mut bool,
) -> usize {
    let text = words[at].text.as_str();
    let mut apply = |takes: Takes, attached: bool, name: &str| match takes {
        Takes::None | Takes::Optional => 1,
        Takes::One => 1 + usize::from(!attached),
        Takes::Unresolved => {
            peeled
                .trouble
                .get_or_insert(format!("{program} {name} is not worked out"));
            if attached { 1 } else { 2 }
        }
        Takes::Query => {
            *query = true;
            1
        }
        Takes::Shell => {
            peeled.script = Some(at + 1);
            peeled
                .trouble
                .get_or_insert(format!("{program} {name} runs a script"));
            2
        }
    };
    if matches!(text, "--help" | "--version") {
        *query = true;
        return 1;
    }
    if program == "watch" && matches!(text, "-x" | "--exec") {
        peeled.joined = false;
        return 1;
    }
    if let Some(takes) = row.options.get(text) {
        return apply(*takes, false, text);
    }
    if text.starts_with("--") {
        if let Some((name, _)) = text.split_once('=')
            && let Some(takes) = row.options.get(name)
        {
            return apply(*takes, true, name);
        }
    } else if row.number && text[1..].bytes().all(|byte| byte.is_ascii_digit()) {
        return 1;
    } else if let Some(length) = bundle(row, text, &mut apply) {
        return length;
    }
    peeled
        .trouble
        .get_or_insert(format!("{program} {text} is not worked out"));
    1
}

/// `-xyz`, `-n5`, `-xn 5`.
fn bundle(
    row: &Row,
    text: &str,
    apply: &mut impl FnMut(Takes, bool, &str) -> usize,
) -> Option<usize> {
    let mut length = 1;
    for (index, letter) in text.char_indices().skip(1) {
        let name = format!("-{letter}");
        let takes = *row.options.get(name.as_str())?;
        let attached = index + letter.len_utf8() < text.len();
        length = apply(takes, attached, &name);
        if takes != Takes::None && attached {
            return Some(length);
        }
    }
    Some(length)
}

/// Any word with a `=`: unlike the shell, `env` does not ask for a name of letters.
fn is_assignment(text: &str) -> bool {
    text.contains('=')
}

/// Whether `program` (a name without folder) runs the command in its words.
pub(crate) fn is_one(program: &str) -> bool {
    TABLE.contains_key(program) || program.starts_with("ld-linux") || program.starts_with("ld-musl")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bash::read_script;

    #[test]
    fn every_row_holds_for_its_example() {
        for row in crate::programs::rows(include_str!("../../data/wrappers.tsv"), 5) {
            let words = read_script(row[3]).commands[0].words.clone();
            let peeled = peel(crate::programs::base_name(&words[0].text), &words).unwrap();
            let inner = peeled.inner.map(|at| words[at].text.clone());
            match row[2] {
                "query" => assert_eq!(inner, None, "{row:?}"),
                "unresolved" => assert!(peeled.trouble.is_some(), "{row:?}"),
                "shell" => assert_eq!(words[peeled.script.unwrap()].text, "rm x", "{row:?}"),
                _ if row[1] == "@unresolved" => assert!(peeled.trouble.is_some(), "{row:?}"),
                _ => assert_eq!(inner.as_deref(), Some("rm"), "{row:?}"),
            }
            match row[1] {
                "@assign" => assert!(!peeled.assignments.is_empty(), "{row:?}"),
                "@elevated" => assert!(peeled.elevated, "{row:?}"),
                "@stdin" | "@shell" => assert!(peeled.trouble.is_some(), "{row:?}"),
                _ => {}
            }
        }
    }

    #[test]
    fn an_option_that_is_not_listed_is_unresolved() {
        for text in [
            "env --weird rm x",
            "timeout -Z 5 rm x",
            "nice -q rm x",
            "sudo --weird rm x",
        ] {
            let words = read_script(text).commands[0].words.clone();
            assert!(
                peel(&words[0].text, &words).unwrap().trouble.is_some(),
                "{text}"
            );
        }
    }
}
