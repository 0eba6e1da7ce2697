//! What may be a command in the words of another: a deny is looked for in
//! everything that the text shows.

use super::{MAX_WRAPPED, Reader};
use crate::bash::{self, Word};
use crate::command_fact::fact;
use crate::facts::{Direction, Role, Source};
use crate::programs::operands;
use crate::programs::options::{Effect, Uses};
use crate::programs::{base_name, wrappers};

/// Facts that are kept of what may be a command.
const MAX_DOUBTFUL: usize = 1_000_000;
/// Words of one command that are looked at, and places in it where another may begin.
const MAX_LOOKED_AT: usize = 256;
const MAX_BEGINNINGS: usize = 16;

impl Reader<'_> {
    /// A script that is not certain to run, for deny only.
    pub(super) fn script_text(&mut self, text: &str) {
        if self.facts.doubtful.len() > MAX_DOUBTFUL {
            return;
        }
        // `!cmd` of git and editors, `|cmd` of programs that open pipes.
        let script = bash::read_script(text.trim_start_matches([':', '!', '|', ' ']));
        for command in script.commands.iter().chain(&script.doubtful) {
            self.doubtful(&command.words);
        }
        for redirect in &script.redirects {
            self.redirect(redirect);
        }
    }

    pub(super) fn doubtful(&mut self, words: &[Word]) {
        let mut at = 0;
        for _ in 0..MAX_WRAPPED {
            let Some(rest) = words.get(at..).filter(|rest| !rest.is_empty()) else {
                return;
            };
            if self.facts.doubtful.len() > MAX_DOUBTFUL {
                return;
            }
            let program = base_name(&rest[0].text);
            self.facts
                .doubtful
                .push(fact(rest, Role::Plain, Vec::new(), Vec::new()));
            let Some(peeled) = wrappers::peel(program, rest) else {
                return;
            };
            match peeled.inner {
                Some(inner) => at += inner,
                None => return,
            }
        }
    }

    /// `-c alias.x='!rm -rf y'`: the value may be a script.
    pub(super) fn script_value(&mut self, words: &[Word], at: usize) {
        for word in words.iter().skip(at).take(2) {
            if let Some((_, value)) = word.text.split_once('=') {
                self.script_text(value);
            }
        }
    }

    /// Words among which a command stands, or that hold a script: where it begins is
    /// not worked out.
    pub(super) fn anywhere(&mut self, words: &[Word]) {
        let mut begins = 0;
        for (at, word) in words.iter().enumerate().take(MAX_LOOKED_AT) {
            let text = word.text.as_str();
            if !text.starts_with('-') && !text.contains('=') && begins < MAX_BEGINNINGS {
                begins += 1;
                self.doubtful(&words[at..]);
            }
            self.script_in(text);
        }
    }

    /// A word that may be a script, or the end of which may be one: `--name=…`, `-S…`.
    pub(super) fn script_in(&mut self, text: &str) {
        if !text.contains([' ', '\t', '\n']) {
            return;
        }
        self.script_text(text);
        if let Some((_, value)) = text.split_once('=') {
            self.script_text(value);
        }
        if let Some(value) = text.strip_prefix('-') {
            let short = value.chars().next().map_or(0, char::len_utf8);
            self.script_text(&value[short..]);
        }
    }

    /// A builtin whose words are, or hold, what the shell runs.
    pub(super) fn evaluated(&mut self, words: &[Word]) {
        if words[0].text == "eval" {
            let texts: Vec<&str> = words[1..].iter().map(|word| word.text.as_str()).collect();
            self.script_text(&texts.join(" "));
            return;
        }
        for word in words[1..].iter().take(MAX_LOOKED_AT) {
            self.script_in(&word.text);
        }
    }

    /// Names that `find` looks for and hands to what it runs, or removes: they are
    /// operands that the text shows.
    pub(super) fn found(&mut self, words: &[Word], uses: &Uses) {
        let mut direction = None;
        for used in &uses.options {
            let found = match used.effect {
                Effect::Change => Some(Direction::Write),
                Effect::Run
                    if words[used.words.clone()]
                        .iter()
                        .any(|w| w.text.contains("{}")) =>
                {
                    let program = words[used.words.start].text.as_str();
                    match operands::of(base_name(program), None).changes {
                        true => Some(Direction::Unknown),
                        false => Some(Direction::Read),
                    }
                }
                _ => None,
            };
            direction = match (direction, found) {
                (Some(Direction::Read) | None, Some(found)) => Some(found),
                (before, _) => before,
            };
        }
        let Some(direction) = direction else { return };
        for used in &uses.options {
            let Some(value) = used.value.as_deref().filter(|value| !value.is_empty()) else {
                continue;
            };
            match used.option {
                "-name" | "-iname" => {
                    if !value.contains(['*', '?', '[']) {
                        self.path(value.to_owned(), direction, Source::Operand, false);
                    }
                    self.path(format!("**/{value}"), direction, Source::Operand, true);
                    // Its wildcards match a dot at the beginning, the shell's do not.
                    if value.starts_with(['*', '?']) {
                        let rest = value.trim_start_matches('?');
                        self.path(format!("**/.{rest}"), direction, Source::Operand, true);
                    }
                }
                "-path" | "-ipath" | "-wholename" => {
                    self.path(value.to_owned(), direction, Source::Operand, true);
                }
                _ => {}
            }
        }
    }
}
