//! Programs of awk that only print: whatever may write, run or read other files is
//! not known.

/// Names with which a program does more than look at its input.
const NAMES: [&str; 8] = [
    "system", "getline", "close", "fflush", "ARGV", "ENVIRON", "PROCINFO", "SYMTAB",
];

/// Whether an awk program has nothing that may write, run or read other files.
pub(crate) fn is_plain(program: &str) -> bool {
    let Some(tokens) = tokens(program) else {
        return false;
    };
    let mut prints = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Name(name) if NAMES.contains(name) => return false,
            Token::Name("print" | "printf") => prints = true,
            // `||` is one token; a single one is a pipe, `@` loads and calls.
            Token::Sign('|' | '@') => return false,
            // A comparison in parentheses is none of a file.
            Token::Sign('>') if prints && depth(&tokens[..at]) == 0 => return false,
            Token::End => prints = false,
            _ => {}
        }
    }
    true
}

/// Parentheses that are open behind the last `print`.
fn depth(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0usize;
    for token in tokens.iter().rev() {
        match token {
            Token::Sign(')') => depth += 1,
            Token::Sign('(') if depth == 0 => return 1,
            Token::Sign('(') => depth -= 1,
            Token::Name("print" | "printf") | Token::End => return 0,
            _ => {}
        }
    }
    0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Name(&'a str),
    /// A number, a text or a regular expression.
    Value,
    /// `;`, `{`, `}`, or the end of a line that ends a statement.
    End,
    /// `||`, `&&`, `,`: a statement goes on in the next line.
    Joint,
    /// `++` or `--`, after which a slash may mean two things.
    Step,
    Sign(char),
}

/// `None` where it is not certain what is text.
fn tokens(program: &str) -> Option<Vec<Token<'_>>> {
    let bytes = program.as_bytes();
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        at += 1;
        let token = match bytes[start] {
            b' ' | b'\t' | b'\r' => continue,
            b'\\' if bytes.get(at) == Some(&b'\n') => {
                at += 1;
                continue;
            }
            b'\n' => match tokens.last() {
                Some(Token::Joint) => continue,
                _ => Token::End,
            },
            b'#' => {
                at += bytes[at..]
                    .iter()
                    .take_while(|byte| **byte != b'\n')
                    .count();
                continue;
            }
            b'"' => {
                at = end_of_text(bytes, at)?;
                Token::Value
            }
            b'/' => match tokens.last() {
                Some(Token::Sign(')')) if !ends_condition(&tokens) => Token::Sign('/'),
                Some(Token::Value | Token::Sign(']')) => Token::Sign('/'),
                Some(Token::Name(name)) if !begins_expression(name) => Token::Sign('/'),
                Some(Token::Step | Token::Name("length")) => return None,
                _ => {
                    at = end_of_regex(bytes, at)?;
                    Token::Value
                }
            },
            b';' | b'{' | b'}' => Token::End,
            b',' => Token::Joint,
            b'|' | b'&' if bytes.get(at) == Some(&bytes[start]) => {
                at += 1;
                Token::Joint
            }
            b'+' | b'-' if bytes.get(at) == Some(&bytes[start]) => {
                at += 1;
                Token::Step
            }
            // `>=` compares.
            b'>' if bytes.get(at) == Some(&b'=') => {
                at += 1;
                Token::Sign('≥')
            }
            byte if byte == b'_' || byte.is_ascii_alphabetic() => {
                let rest = &bytes[at..];
                at += rest
                    .iter()
                    .take_while(|byte| **byte == b'_' || byte.is_ascii_alphanumeric())
                    .count();
                Token::Name(&program[start..at])
            }
            byte if byte.is_ascii_digit() => {
                let rest = &bytes[at..];
                at += rest
                    .iter()
                    .take_while(|byte| **byte == b'.' || byte.is_ascii_alphanumeric())
                    .count();
                Token::Value
            }
            byte if byte.is_ascii_punctuation() && byte != b'\\' && byte != b'`' => {
                Token::Sign(char::from(byte))
            }
            _ => return None,
        };
        tokens.push(token);
    }
    Some(tokens)
}

/// Words after which an expression begins, so that a slash begins one too.
fn begins_expression(name: &str) -> bool {
    matches!(
        name,
        "print"
            | "printf"
            | "return"
            | "exit"
            | "delete"
            | "in"
            | "else"
            | "do"
            | "case"
            | "BEGIN"
            | "END"
    )
}

/// Whether the last `)` closes what stands behind `if`, `while` or `for`: then a
/// statement begins.
fn ends_condition(tokens: &[Token<'_>]) -> bool {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().rev() {
        match token {
            Token::Sign(')') => depth += 1,
            Token::Sign('(') if depth == 1 => {
                let before = at.checked_sub(1).map(|before| tokens[before]);
                return matches!(before, Some(Token::Name("if" | "while" | "for" | "switch")));
            }
            Token::Sign('(') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

fn end_of_text(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'"' => return Some(at + 1),
            b'\n' => return None,
            _ => {}
        }
        at += 1;
    }
    None
}

/// In brackets some take a slash for the end, and some do not.
fn end_of_regex(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    let mut brackets = false;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'/' if brackets => return None,
            b'/' => return Some(at + 1),
            b'[' => brackets = true,
            b']' => brackets = false,
            b'\n' => return None,
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn programs_that_write_or_run_are_not_plain() {
        for (program, plain) in [
            ("{print $1}", true),
            ("/foo/ {print $2, $3}", true),
            ("$3 > 5", true),
            ("$3 >= 5 {print}", true),
            ("{print \"a > b | c\"}", true),
            ("NR==1 {n++} END {print n}", true),
            ("$1==\"a\" || $2==\"b\"", true),
            ("{print ($1 > 3)}", true),
            ("{print ($1 > 3) > \"out\"}", false),
            ("/root/ {print $1 \" -> \" $7}", true),
            ("END {print s/n, a/b}", true),
            ("{gsub(/\"/, \"\", $2); print $2}", true),
            ("{sub(/[/]/, \"\"); print}", false),
            ("# it's \"\n{print}", true),
            ("{print $1,\n$2}", true),
            ("{print > \"out\"}", false),
            ("{print | \"sh\"}", false),
            ("{print |& \"sh\"}", false),
            ("BEGIN {system(\"id\")}", false),
            ("BEGIN {while (getline x < \".env\") print x}", false),
            ("{print >> f}", false),
            ("@load \"x\"", false),
            ("{f = \"system\"; @f(\"id\")}", false),
            ("/\"/ {print > \"x\"}", false),
            ("/\"/ {print > \"out\"} /\"/", false),
            ("/\"/{system(\"id\")}/\"/", false),
            ("#\"\n{print > \"x\"}\n#\"", false),
            ("{print $1,\n$2 > \"out\"}", false),
            ("{print $1 ||\n$2 > \"out\"}", false),
            ("{print a \\\n> \"out\"}", false),
            ("{n = a++ /\"/ ; print > \"x\"; m = 1 /\"/}", false),
            ("{n = 4 / \"2\"; print > \"x\" / 1}", false),
            ("{print \"a\nb\"}", false),
            ("{if (1) /\"/; print > \"x\"; if (1) /\"/}", false),
            ("{print $/\"/; print > \"x\"; print $/\"/}", false),
            ("{print (a + b) / 2 \" > \" n}", true),
        ] {
            assert_eq!(is_plain(program), plain, "{program}");
        }
    }
}
