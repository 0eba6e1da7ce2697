//! A script as facts: both readings compared, words decoded, what is nested read too.

use std::rc::Rc;

use super::braces::{self, Braces};
use super::decode::{Findings, Mode, Nested, decode, is_constant};
use super::known::{Known, sets_variables, without_counts};
use super::outline::{Outline, RawWord, Reading, Trouble};
use super::parameter::nested_in;
use super::{Word, guard, rable_reader, rough, tree_reader};

/// A simple command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Decoded words; the first is the program.
    pub words: Vec<Word>,
}

/// A redirect to or from something that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub op: String,
    pub target: Word,
}

/// `NAME=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub name: String,
    pub value: Word,
    /// Where it ends in the whole text, in bytes; `None` for a variable of a loop.
    pub end: Option<usize>,
}

/// All that is known of a script, what is nested in it included.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub commands: Vec<Command>,
    pub redirects: Vec<Redirect>,
    pub assignments: Vec<Assignment>,
    /// Texts that are given as standard input.
    pub inputs: Vec<Word>,
    pub unresolved: Vec<Trouble>,
    /// What may be a command: looked at for deny only.
    pub doubtful: Vec<Command>,
}

/// Scripts nest in words at most this deeply.
const MAX_NESTED: usize = 12;
/// Bytes of a text that rable refuses and tree-sitter-bash is asked about all the same.
const MAX_BROKEN: usize = 2 << 10;
/// Scripts that are nested in one text at most.
const MAX_SCRIPTS: usize = 400;

/// Reads a whole script. Never fails: what cannot be read is unresolved.
pub(crate) fn read_script(text: &str) -> Script {
    let mut reader = Reader {
        script: Script::default(),
        scripts: 0,
        known: Rc::new(Known::of(text)),
    };
    reader.read(text, 0, 0, Certainty::Certain);
    reader.script
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Certain,
    /// The text may not be a script at all.
    Doubtful,
}

struct Reader {
    script: Script,
    scripts: usize,
    known: Rc<Known>,
}

impl Reader {
    fn unresolved(&mut self, start: usize, end: usize, why: impl Into<String>) {
        self.script.unresolved.push(Trouble::new(start, end, why));
    }

    fn read(&mut self, text: &str, base: usize, depth: usize, certainty: Certainty) {
        self.scripts += 1;
        let end = base + text.len();
        if depth > MAX_NESTED || self.scripts > MAX_SCRIPTS {
            self.unresolved(base, end, "too many scripts inside each other");
            self.rough(text, base);
            return;
        }
        let mut troubles = Vec::new();
        let guarded = guard::check(text, &mut troubles);
        let odd = !troubles.is_empty();
        self.take(troubles, base, end);
        if let Err(refused) = guarded {
            self.unresolved(base, end, refused.0);
            self.rough(text, base);
            return;
        }
        let rable = rable_reader::read(text);
        // What is not valid is not worth the time that recovering from errors takes.
        let tree = if (odd || rable.is_err()) && text.len() > MAX_BROKEN {
            Err("it is long and not valid".to_owned())
        } else {
            tree_reader::read(text)
        };
        match (tree, rable) {
            (Ok(tree), Ok(rable)) if tree.outline == rable.outline => {
                self.take(rable.troubles, base, end);
                self.take(tree.troubles, base, end);
                self.outline(&tree.outline, base, depth, certainty);
            }
            (tree, rable) => {
                let why = match (&tree, &rable) {
                    (Ok(tree), Ok(rable)) => disagreement(&tree.outline, &rable.outline),
                    (_, Err(error)) | (Err(error), _) => format!("it does not parse: {error}"),
                };
                self.unresolved(base, end, why);
                self.rough(text, base);
                for reading in [rable.ok(), tree.ok()].into_iter().flatten() {
                    let Reading { outline, troubles } = reading;
                    self.take(troubles, base, end);
                    self.outline(&outline, base, depth, certainty);
                }
            }
        }
    }

    /// Adds troubles of a text that begins at `base`.
    fn take(&mut self, troubles: Vec<Trouble>, base: usize, end: usize) {
        for Trouble {
            start,
            end: stop,
            why,
        } in troubles
        {
            let stop = stop.saturating_add(base).min(end);
            self.unresolved((start + base).min(stop), stop, why);
        }
    }

    fn rough(&mut self, text: &str, base: usize) {
        for mut words in rough::commands(text) {
            for word in &mut words {
                word.at += base;
            }
            self.script.doubtful.push(Command { words });
        }
    }

    fn outline(&mut self, outline: &Outline<'_>, base: usize, depth: usize, certainty: Certainty) {
        let mut findings = Findings::of(&self.known);
        for raw in &outline.commands {
            if !self.known.has_loops() {
                let words = command_words(raw, base, &mut findings);
                self.command(words, certainty);
                continue;
            }
            let texts = raw.iter().map(|word| word.text.as_ref());
            for (index, bound) in self.known.combinations(texts).into_iter().enumerate() {
                findings.bound = bound;
                // What is nested is the same for each value, and is read once.
                let words = if index == 0 {
                    command_words(raw, base, &mut findings)
                } else {
                    let mut again = Findings::of(&self.known);
                    again.bound = std::mem::take(&mut findings.bound);
                    command_words(raw, base, &mut again)
                };
                self.command(words, certainty);
            }
        }
        findings.bound.clear();
        for raw in &outline.assignments {
            let assignment = assignment(raw, base, &mut findings);
            self.script.assignments.push(assignment);
        }
        for redirect in &outline.redirects {
            let at = base + redirect.target.at;
            let target = decode(&redirect.target.text, at, Mode::Word, &mut findings);
            if redirect.op == "<<<" {
                self.script.inputs.push(target);
            } else {
                if redirect.target.text.contains(['{', '}']) {
                    findings.trouble(at, at + 1, "braces in the target of a redirect");
                }
                self.script.redirects.push(Redirect {
                    op: redirect.op.clone().into_owned(),
                    target,
                });
            }
        }
        for here_doc in &outline.here_docs {
            let at = base + here_doc.at;
            let word = if here_doc.quoted {
                Word::literal(&here_doc.body, at)
            } else {
                decode(&here_doc.body, at, Mode::HereDoc, &mut findings)
            };
            self.script.inputs.push(word);
        }
        for raw in &outline.data {
            decode(&raw.text, base + raw.at, Mode::Word, &mut findings);
        }
        self.evaluations(outline, base, &mut findings);
        for name in &outline.functions {
            let why = format!("the function {name} changes what a command means");
            self.unresolved(base, base + name.len(), why);
        }
        for name in &outline.variables {
            let value = Word {
                dynamic: true,
                at: base,
                ..Word::default()
            };
            self.script.assignments.push(Assignment {
                name: name.clone(),
                value,
                end: None,
            });
        }
        let Findings {
            nested, troubles, ..
        } = findings;
        self.script.unresolved.extend(troubles);
        for Nested { text, at, doubtful } in nested {
            let certainty = if doubtful {
                Certainty::Doubtful
            } else {
                certainty
            };
            self.read(&text, at, depth + 1, certainty);
        }
    }

    fn command(&mut self, words: Vec<Word>, certainty: Certainty) {
        if words.is_empty() {
            return;
        }
        let command = Command { words };
        let list = match certainty {
            Certainty::Certain => &mut self.script.commands,
            Certainty::Doubtful => &mut self.script.doubtful,
        };
        // Both readings of a text on which they disagree mostly say the same.
        if list.len() > 64 || !list.contains(&command) {
            list.push(command);
        }
    }

    /// Arithmetic outside words, and tests that evaluate.
    fn evaluations(&mut self, outline: &Outline<'_>, base: usize, findings: &mut Findings) {
        for expression in &outline.arithmetic {
            if !(is_constant(expression) || self.known.is_plain_arithmetic(expression)) {
                let why = "arithmetic evaluates the text of variables";
                findings.trouble(base, base + expression.len(), why);
                nested_in(expression, base, findings);
                let text = expression.clone();
                findings.nested.push(Nested {
                    text,
                    at: base,
                    doubtful: true,
                });
            }
        }
        let evaluates = outline.tests.iter().any(|op| {
            matches!(
                op.as_str(),
                "-v" | "-R" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge"
            )
        });
        let number = |word: &RawWord<'_>| {
            let plain = without_counts(word.text.trim_matches('"'));
            plain.bytes().all(|b| b.is_ascii_digit() || b == b'-')
                || (plain.strip_prefix('$')).is_some_and(|name| self.known.is_counter(name))
        };
        if evaluates && !outline.data.iter().all(number) {
            findings.trouble(base, base + 1, "a test in [[ ]] evaluates its operands");
        }
    }
}

fn disagreement(tree: &Outline<'_>, rable: &Outline<'_>) -> String {
    let list = |commands: &[Vec<RawWord<'_>>]| commands.len();
    if tree.commands != rable.commands {
        format!(
            "the two parsers disagree about the commands ({} and {})",
            list(&tree.commands),
            list(&rable.commands)
        )
    } else {
        "the two parsers disagree".to_owned()
    }
}

fn command_words(raw: &[RawWord<'_>], base: usize, findings: &mut Findings) -> Vec<Word> {
    let mut words = Vec::with_capacity(raw.len());
    for word in raw {
        let at = base + word.at;
        match braces::expand(&word.text) {
            Braces::None => {
                let decoded = decode(&word.text, at, Mode::Word, findings);
                // An empty variable without quotes is no word.
                let vanishes = decoded.text.is_empty()
                    && !decoded.dynamic
                    && word.text.starts_with('$')
                    && !word.text.contains(['"', '\'']);
                if decoded.text.len() < word.text.len()
                    && word.text.contains('$')
                    && sets_variables(&decoded.text)
                {
                    // What loops hold was read off a text without that name.
                    findings.trouble(at, at + word.text.len(), "a name that is put together");
                }
                if !vanishes {
                    words.push(decoded);
                }
            }
            Braces::Words(expanded) => {
                for text in expanded {
                    let mut decoded = decode(&text, at, Mode::Word, findings);
                    decoded.at = at;
                    words.push(decoded);
                }
            }
            Braces::Unresolved => {
                findings.trouble(at, at + word.text.len(), "braces that are not worked out");
                let mut decoded = decode(&word.text, at, Mode::Word, findings);
                decoded.dynamic = true;
                decoded.splits = true;
                words.push(decoded);
            }
        }
    }
    words
}

fn assignment(raw: &RawWord<'_>, base: usize, findings: &mut Findings) -> Assignment {
    let at = base + raw.at;
    let text = raw.text.as_ref();
    let name_end = text
        .bytes()
        .position(|byte| !(byte == b'_' || byte.is_ascii_alphanumeric()))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(name_end);
    let value = match rest.strip_prefix("+=").or_else(|| rest.strip_prefix('=')) {
        Some(value) => value,
        None => {
            findings.trouble(at, at + text.len(), "an assignment to an array element");
            rest
        }
    };
    let value_at = at + (text.len() - value.len());
    Assignment {
        name: name.to_owned(),
        value: match list(value) {
            Some(elements) => Word::literal(elements, value_at),
            None => decode(value, value_at, Mode::Word, findings),
        },
        end: Some(at + text.len()),
    }
}

/// The elements of `(a 'b c' d)`, where they are only text: no subscript, nothing
/// that is expanded.
fn list(value: &str) -> Option<&str> {
    let elements = value.strip_prefix('(')?.strip_suffix(')')?;
    let mut quote = None;
    for byte in elements.bytes() {
        match (byte, quote) {
            (b'\'' | b'"', None) => quote = Some(byte),
            (b'$' | b'`' | b'\\', _) => return None,
            (byte, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => {}
            (byte, None) if byte.is_ascii_alphanumeric() || b" \t\n_-./:,@%+~".contains(&byte) => {}
            _ => return None,
        }
    }
    quote.is_none().then_some(elements)
}

#[cfg(test)]
mod tests {
    use super::read_script;

    fn commands(text: &str) -> Vec<String> {
        read_script(text)
            .commands
            .iter()
            .map(|c| {
                c.words
                    .iter()
                    .map(|w| w.text.as_str())
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    #[test]
    fn ordinary_scripts_are_read_without_doubt() {
        for (text, expected) in [
            ("git status && git diff", vec!["git status", "git diff"]),
            (
                "ls -la | cat - | grep src",
                vec!["ls -la", "cat -", "grep src"],
            ),
            ("ls 2>/dev/null src", vec!["ls src"]),
            ("cat <<'E' > f\nrm x\nE", vec!["cat"]),
            ("cat <<E | grep a\nx\nE", vec!["cat", "grep a"]),
            (
                "if test -f x; then a; elif b; then c; else d; fi",
                vec!["test -f x", "a", "b", "c", "d"],
            ),
            (
                "for f in a b; do echo \"$f\" $f; done",
                // Where the loop was not come to, it is empty.
                vec!["echo a a", "echo b b", "echo "],
            ),
            ("case x in (x) a;; y|z) b;; esac", vec!["a", "b"]),
            (
                "while read -r x; do echo \"$x\"; done < f",
                vec!["read -r x", "echo $x"],
            ),
            ("! time -p ls", vec!["ls"]),
            (
                "[ -f a ] && [[ -d b && c == d* ]] && e",
                vec!["[ -f a ]", "e"],
            ),
            ("FOO=1 env A=2 make x", vec!["env A=2 make x"]),
            ("export A=b c", vec!["export A=b c"]),
            (
                "echo \"a $(ls `pwd`) b\"",
                vec!["echo a $(…) b", "ls `…`", "pwd"],
            ),
            (
                "diff <(a b) >(c)",
                vec!["diff /dev/fd/63 /dev/fd/63", "a b", "c"],
            ),
            (
                "git commit -m \"$(cat <<'E'\nit's (a\nE\n)\"",
                vec!["git commit -m $(…)", "cat"],
            ),
            ("mkdir -p src/{a,b}", vec!["mkdir -p src/a src/b"]),
            (
                "mkdir {a,b}/{c,d{1..2}}",
                vec!["mkdir a/c a/d1 a/d2 b/c b/d1 b/d2"],
            ),
            ("a=(x 'y z' --all); echo \"${a[@]}\"", vec!["echo ${a[@]}"]),
            ("[[ $# -gt 0 && ${#x} -lt 3 && $? -eq 0 ]]", vec![]),
            ("i=0; [[ $i -lt 3 ]]; (( i++ < $# ))", vec![]),
            ("{ ls; } > f 2>&1; (cd x; ls)", vec!["ls", "cd x", "ls"]),
            ("ls \\\n  -la \\\n  src", vec!["ls -la src"]),
            (
                "echo $((1+2)) ${x:-y} ${#z}",
                vec!["echo $((…)) ${x:-y} ${#z}"],
            ),
            ("a >/dev/null 2>&1 &", vec!["a"]),
            ("echo x >> f; cat < f", vec!["echo x", "cat"]),
        ] {
            let script = read_script(text);
            assert_eq!(script.unresolved, [], "{text:?}");
            assert_eq!(commands(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_may_run_otherwise_is_unresolved() {
        for text in [
            "if then",
            "ls\n\\rm x",
            "echo ${x@P}",
            "echo ${!v}",
            "echo $((x))",
            "echo ${a[x]}",
            "f() { ls; }",
            "(( X = 1 ))",
            "[[ x -eq 1 ]]",
            "echo ${ ls; }",
            "ls {a,$(x)}",
            "ls\r",
            "echo $'\\xff'",
            "a[x]=1",
            "a=([x]=1)",
            "a=($(x))",
            "a=(\"`x`\")",
            "for f in a; do for c in ea; do r${c}d f; done; cat $f; done",
            "i=$((0))+'a[$(x)]'; echo $((i))",
            "{fd}>f ls",
        ] {
            assert!(!read_script(text).unresolved.is_empty(), "{text:?}");
        }
    }
}
