//! A command as a fact: its texts, and the files that say what it does.

use crate::bash::Word;
use crate::facts::{CommandFact, Role};
use crate::programs::{bare_name, base_name, git};

/// The files whose content says what `make x`, `npm run x` and `./script` do: those that
/// are there, and those that would be read in their place if they came to be.
pub(crate) fn runs_files(text: &str, program: &str, words: &[Word]) -> Vec<String> {
    if text.contains('/') && bare_name(text).is_none() {
        return vec![text.to_owned()];
    }
    let script = |word: &Word| {
        let text = word.text.as_str();
        matches!(text, "run" | "test" | "start" | "run-script" | "t")
    };
    let files: &[&str] = match program {
        "make" | "gmake" => &["GNUmakefile", "makefile", "Makefile"],
        "npm" | "pnpm" | "yarn" | "bun" if words.iter().any(script) => &["package.json", ".npmrc"],
        "just" => &["justfile", ".justfile", "Justfile"],
        _ => return Vec::new(),
    };
    // In another folder it runs other files, whose names are not worked out.
    let elsewhere = |word: &Word| {
        [
            "-C",
            "--directory",
            "--prefix",
            "--cwd",
            "-d",
            "-f",
            "--justfile",
            "-I",
            "--dir",
        ]
        .iter()
        .any(|option| word.text.starts_with(option))
    };
    if words[1..].iter().any(elsewhere) {
        return vec![String::new()];
    }
    files.iter().map(|file| (*file).to_owned()).collect()
}

fn join<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for (index, word) in words.enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

/// The fact of a command: as it stands, and as rules may name it.
pub(crate) fn fact(
    words: &[Word],
    role: Role,
    needs: Vec<(String, String)>,
    runs: Vec<String>,
) -> CommandFact {
    let text = join(words.iter().map(|word| word.text.as_str()));
    let program = words[0].text.as_str();
    let base = base_name(program);
    let rest = &text[program.len()..];
    let (mut allow, mut strict) = (Vec::new(), Vec::new());
    if program.contains('/') {
        let bare = format!("{base}{rest}");
        if bare_name(program).is_some() {
            allow.push(bare.clone());
        }
        strict.push(bare);
    }
    let mut argv: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
    argv[0] = base.to_owned();
    if base == "git" {
        let globals = git::globals(words);
        if let Some(sub) = globals.sub.filter(|sub| *sub > 1) {
            let plain = join(
                std::iter::once("git").chain(words[sub..].iter().map(|word| word.text.as_str())),
            );
            if globals.changing.is_empty() && bare_name(program).is_some() {
                allow.push(plain.clone());
            }
            strict.push(plain);
            argv.drain(1..sub);
        }
    }
    CommandFact {
        text,
        allow,
        strict,
        words: argv,
        role,
        needs,
        runs,
    }
}
