//! Conditions of `test` and `[` whose operands are known only when they run.

use crate::bash::Word;

/// Whether the words that are known fix the form, so that no operand can become an
/// operator: `-v NAME` evaluates the name.
pub(crate) fn only_compares(words: &[Word]) -> bool {
    let mut operands = &words[1..];
    if words[0].text == "[" {
        match operands.split_last() {
            Some((last, rest)) if last.is_static() && last.text == "]" => operands = rest,
            _ => return false,
        }
    }
    if operands.iter().any(|word| word.splits || word.glob) {
        return false;
    }
    while let [first, rest @ ..] = operands
        && !rest.is_empty()
        && !first.dynamic
        && first.text == "!"
    {
        operands = rest;
    }
    match operands {
        [_] => true,
        [operator, _] => !operator.dynamic && is_unary(&operator.text),
        [_, operator, _] => !operator.dynamic && is_binary(&operator.text),
        _ => false,
    }
}

fn is_unary(text: &str) -> bool {
    matches!(
        text.as_bytes(),
        [b'-', letter] if letter.is_ascii_alphabetic() && !matches!(letter, b'v' | b'R' | b'a' | b'o')
    )
}

fn is_binary(text: &str) -> bool {
    matches!(
        text,
        "=" | "=="
            | "!="
            | "<"
            | ">"
            | "-a"
            | "-o"
            | "-eq"
            | "-ne"
            | "-lt"
            | "-le"
            | "-gt"
            | "-ge"
            | "-nt"
            | "-ot"
            | "-ef"
    )
}

#[cfg(test)]
mod tests {
    use super::only_compares;
    use crate::bash::read_script;

    #[test]
    fn a_condition_is_known_where_its_operator_is() {
        for (text, known) in [
            ("[ \"$x\" ]", true),
            ("test \"$x\"", true),
            ("[ -n \"$x\" ]", true),
            ("[ ! -n \"$x\" ]", true),
            ("[ \"$a\" = \"$b\" ]", true),
            ("[ ! \"$a\" = y ]", true),
            ("[ $? -ne 0 ]", true),
            ("[ $# -eq 0 ]", true),
            ("[ ${#x} -gt 3 ]", true),
            ("[ $x = y ]", false),
            ("[ \"$a\" \"$b\" ]", false),
            ("[ ! \"$a\" \"$b\" ]", false),
            ("[ -v \"$x\" ]", false),
            ("[ -R \"$x\" ]", false),
            ("test \"$a\" \"$b\" \"$c\" -n", false),
            ("test \"$a\" \"$b\" -a \"$c\"", false),
            ("[ \"$a\" = \"$b\"", false),
        ] {
            let script = read_script(text);
            assert_eq!(only_compares(&script.commands[0].words), known, "{text}");
        }
    }
}
