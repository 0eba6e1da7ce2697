//! From a script to facts: wrappers peeled, options and operands understood.

mod visible;

use crate::bash::{self, Command, Redirect, Word};
use crate::command_fact::{fact, runs_files};
use crate::facts::{AssignmentFact, Direction, Facts, PathFact, Role, Source, Unresolved};
use crate::folders::Folders;
use crate::programs::interpreters::{self, Code};
use crate::programs::operands::{self, Kind};
use crate::programs::options::{self, Effect, Uses};
use crate::programs::{
    awk, base_name, builtins, conditions, git, little_languages, runners, variables, wrappers,
};

/// Commands wrap each other at most this deeply.
const MAX_WRAPPED: usize = 12;

/// Adds the facts of a script that starts in `cwd`.
pub(crate) fn read(facts: &mut Facts, text: &str, cwd: &str) {
    facts.script = true;
    let script = bash::read_script(text);
    let mut reader = Reader {
        facts,
        folders: Folders::new(cwd, text),
        inputs: false,
        late: false,
        moved: false,
        depth: 0,
    };
    reader.script(script, text);
    if facts.commands.is_empty()
        && facts.paths.is_empty()
        && facts.assignments.is_empty()
        && facts.unresolved.is_empty()
    {
        facts.unresolved.push(Unresolved {
            start: 0,
            end: text.len(),
            why: "there is no command".to_owned(),
        });
    }
}

struct Reader<'a> {
    facts: &'a mut Facts,
    folders: Folders<'a>,
    /// A shell reads its script from standard input.
    inputs: bool,
    /// A trap was set: its commands run in whatever folder is the last.
    late: bool,
    /// The folder was changed.
    moved: bool,
    depth: usize,
}

impl Reader<'_> {
    fn script(&mut self, script: bash::Script, text: &str) {
        for trouble in script.unresolved {
            self.facts.unresolved.push(Unresolved {
                start: trouble.start,
                end: trouble.end,
                why: trouble.why,
            });
        }
        for Command { words } in &script.commands {
            self.command(words, Role::Plain);
        }
        for redirect in &script.redirects {
            self.redirect(redirect);
        }
        for assignment in &script.assignments {
            // In front of a command a variable reaches its environment.
            let alone = assignment
                .end
                .is_none_or(|end| self.folders.ends_command(end));
            let name = assignment.name.as_str();
            let value = assignment.value.text.as_str();
            let free = variables::is_inert(name, value)
                || (alone && variables::is_private(name, value))
                || (name == "IFS" && assignment.end.is_some_and(|end| is_before_read(text, end)));
            self.assignment(name, value, free);
        }
        for Command { words } in &script.doubtful {
            self.doubtful(words);
        }
        if self.inputs {
            // A shell reads its script from standard input.
            for input in &script.inputs {
                self.script_text(&input.text);
            }
        }
    }

    /// A script in a word, which this shell certainly runs: `trap '…' EXIT`.
    /// It is read as the whole is; its doubts are doubts about the word.
    fn inner(&mut self, word: &Word) {
        let folders = Folders::again(&self.folders, &word.text);
        let mut facts = Facts {
            script: true,
            ..Facts::default()
        };
        let script = bash::read_script(&word.text);
        let mut reader = Reader {
            facts: &mut facts,
            folders,
            inputs: false,
            late: false,
            moved: false,
            depth: self.depth + 1,
        };
        reader.script(script, &word.text);
        if let Some(place) = facts.unresolved.first() {
            self.unresolved(word, place.why.clone());
        }
        self.facts.commands.append(&mut facts.commands);
        self.facts.doubtful.append(&mut facts.doubtful);
        self.facts.paths.append(&mut facts.paths);
        self.facts.assignments.append(&mut facts.assignments);
    }

    /// `trap '…' EXIT`: the text runs later, in this shell.
    fn trap(&mut self, words: &[Word]) {
        if words.iter().any(|word| !word.is_static()) {
            self.unresolved(&words[0], "what a trap runs is known only when it runs");
            return;
        }
        let skip = words.get(1).is_some_and(|word| word.text == "--");
        let operands = &words[1 + usize::from(skip)..];
        // `-`, nothing, and one signal alone set no command.
        let Some((action, [_, ..])) = operands.split_first() else {
            return;
        };
        if action.text.starts_with('-') || action.text.is_empty() {
            return;
        }
        self.inner(action);
        self.late = true;
        self.check_late(&words[0]);
    }

    fn check_late(&mut self, word: &Word) {
        if self.late && self.moved {
            self.unresolved(word, "the folder in which a trap runs is not known");
        }
    }
    fn unresolved(&mut self, word: &Word, why: impl Into<String>) {
        let (start, end) = (word.at, word.at + word.text.len().max(1));
        self.facts.unresolved.push(Unresolved {
            start,
            end,
            why: why.into(),
        });
    }

    fn assignment(&mut self, name: &str, value: &str, free: bool) {
        let text = format!("{name}={value}");
        self.facts.assignments.push(AssignmentFact { text, free });
    }

    fn command(&mut self, words: &[Word], role: Role) {
        let Some(first) = words.first() else { return };
        if self.depth >= MAX_WRAPPED {
            self.unresolved(first, "too many commands inside each other");
            self.doubtful(words);
            return;
        }
        self.depth += 1;
        self.program(words, role);
        self.depth -= 1;
    }

    fn program(&mut self, words: &[Word], role: Role) {
        let first = &words[0];
        let text = first.text.as_str();
        if first.dynamic || (first.glob && text != "[") {
            self.unresolved(first, "which program runs is known only when it runs");
        } else if text.is_empty()
            || text.starts_with('-')
            || text.contains(char::is_whitespace)
            || !text.is_ascii()
        {
            self.unresolved(first, "a program with an unusual name");
        }
        let program = base_name(text);
        if let Some(why) = builtins::evaluates(words) {
            self.unresolved(first, why);
            self.evaluated(words);
        }
        if text == "trap" {
            self.trap(words);
        }
        if let Some(peeled) = wrappers::peel(program, words) {
            self.wrapper(words, &peeled, role);
            return;
        }
        let globals = (program == "git").then(|| git::globals(words));
        let (sub, start) = git::sub_command(program, words);
        let uses = options::uses(program, sub, words, start);
        let mut needs: Vec<(String, String)> = uses
            .options
            .iter()
            .filter(|used| matches!(used.effect, Effect::Run | Effect::Write | Effect::Change))
            .map(|used| (named(used, words), used.why.to_owned()))
            .collect();
        if let Some(globals) = &globals {
            for at in &globals.changing {
                let why = "changes which programs or which repository git uses";
                // A rule has to name the value too: `-c alias.x=…` may be anything.
                let option = match words.get(at + 1) {
                    Some(value) if !words[*at].text.contains('=') => {
                        format!("{} {}", words[*at].text, value.text)
                    }
                    _ => words[*at].text.clone(),
                };
                needs.push((option, why.to_owned()));
                self.script_value(words, *at);
            }
        }
        let runs = match self.interpreter(program, words) {
            Some(file) => vec![file],
            None => runs_files(text, program, words),
        };
        let locate = |file: String| match self.folders.locate(&file).as_slice() {
            [one] if !file.is_empty() => one.clone(),
            _ => String::new(), // no environment knows its content, so no grant is given
        };
        let runs = runs.into_iter().map(locate).collect();
        self.cd(program, words);
        if matches!(
            program,
            "export" | "declare" | "typeset" | "local" | "readonly"
        ) {
            let exports = program == "export"
                || words[1..]
                    .iter()
                    .any(|word| word.text.starts_with(['-', '+']) && word.text.contains('x'));
            for word in &words[1..] {
                let (name, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
                if !name.starts_with('-') {
                    let name = name.trim_end_matches('+');
                    let free = variables::is_inert(name, value)
                        || (!exports && variables::is_private(name, value));
                    self.assignment(name, value, free);
                }
            }
        }
        for at in builtins::named_variables(words) {
            let name = words[at].text.as_str();
            let free = words[at].dynamic || variables::is_private(name, "");
            if !free {
                self.assignment(name, "…", false);
            }
        }
        self.facts.commands.push(fact(words, role, needs, runs));
        for used in &uses.options {
            if used.effect == Effect::Run {
                if used.command {
                    self.command(&words[used.words.clone()], Role::Plain);
                }
                if let Some(value) = &used.value {
                    self.script_text(value.strip_prefix("exec=").unwrap_or(value));
                }
                if used.option.starts_with("@sub") || used.option == "@always" {
                    self.anywhere(&words[used.at + 1..]);
                }
            }
        }
        if program == "find" {
            self.found(words, &uses);
        }
        if let Some(at) = runners::command(program, words) {
            self.anywhere(&words[at..]);
        }
        self.operands(program, sub, words, start, &uses);
        if let Some(globals) = globals {
            for at in globals.folders {
                self.path_word(words.get(at), Direction::Unknown);
            }
        }
    }

    fn wrapper(&mut self, words: &[Word], peeled: &wrappers::Peeled, role: Role) {
        if let Some(why) = &peeled.trouble {
            self.unresolved(&words[0], why.clone());
            self.anywhere(&words[1..]);
        }
        for at in &peeled.assignments {
            if let Some((name, value)) = words[*at].text.split_once('=') {
                self.assignment(name, value, variables::is_inert(name, value));
            }
        }
        let limit = peeled.inner.unwrap_or(words.len());
        for word in &words[1..limit.min(words.len())] {
            if word.dynamic || word.glob {
                self.unresolved(word, unknown(word));
            }
        }
        let own = match (peeled.inner, peeled.elevated) {
            (Some(_), true) => Role::Elevated,
            (Some(_), false) => Role::Wrapper,
            (None, _) => role,
        };
        self.facts
            .commands
            .push(fact(words, own, Vec::new(), Vec::new()));
        match peeled.inner {
            Some(at) => self.command(&words[at..], Role::Plain),
            None => {
                if let Some(script) = peeled.script.and_then(|at| words.get(at)) {
                    self.script_text(&script.text);
                }
            }
        }
    }

    /// The file that an interpreter runs, if it runs one.
    fn interpreter(&mut self, program: &str, words: &[Word]) -> Option<String> {
        match interpreters::code(program, words)? {
            Code::Nothing | Code::Module => None,
            Code::File(at) => Some(words[at].text.clone()),
            Code::Inline { shell, text } => {
                self.unresolved(&words[0], format!("{program} runs code that is not read"));
                match text.and_then(|at| words.get(at)) {
                    Some(script) if shell => self.script_text(&script.text),
                    None if shell => self.inputs = true,
                    _ => {}
                }
                None
            }
        }
    }

    fn cd(&mut self, program: &str, words: &[Word]) {
        if !matches!(program, "cd" | "pushd" | "popd") {
            return;
        }
        self.moved = true;
        self.check_late(&words[0]);
        let mut operands = words[1..].iter().filter(|word| !word.text.starts_with('-'));
        let target = operands.next();
        let back = program == "popd" || words.iter().any(|word| word.text == "-");
        let known = match target {
            Some(word) if word.is_static() && !back => {
                self.folders.enter(&path_text(word), word.at)
            }
            None if program == "cd" && !back => self.folders.enter("~", words[0].at),
            _ => false,
        };
        if !known {
            self.unresolved(
                &words[0],
                "the folder that later names are relative to is not known",
            );
        }
    }

    fn operands(
        &mut self,
        program: &str,
        sub: Option<&str>,
        words: &[Word],
        start: usize,
        uses: &Uses,
    ) {
        let operands = operands::of(program, sub);
        let direction = if operands.changes {
            Direction::Unknown
        } else {
            Direction::Read
        };
        let in_place = uses
            .options
            .iter()
            .any(|used| matches!(used.effect, Effect::Change));
        let direction = if in_place {
            Direction::Write
        } else {
            direction
        };
        // Words whose value is only text, and those that an option gave a meaning.
        let mut text = vec![false; words.len()];
        let mut pattern_given = false;
        for used in &uses.options {
            pattern_given |= matches!(
                used.option,
                "-e" | "-f" | "--regexp" | "--file" | "--expression" | "--from-file"
            );
            for at in used.words.clone() {
                text[at] = used.effect == Effect::Text;
            }
            let access = match used.effect {
                Effect::Write => Direction::Write,
                Effect::Read => Direction::Read,
                Effect::File => direction,
                _ => continue,
            };
            if let Some(value) = &used.value {
                let word = used.words.clone().next().and_then(|at| words.get(at));
                match word.filter(|_| !used.attached) {
                    Some(word) => self.path_word(Some(word), access),
                    None => self.path(value.clone(), access, Source::Operand, false),
                }
            }
        }
        let scripts = match (operands.kind, pattern_given) {
            (Kind::Pattern | Kind::Sed | Kind::Awk | Kind::Yq, false) => 0..1,
            (Kind::Sql, _) => 1..usize::MAX,
            _ => 0..0,
        };
        let skipped = uses.operands.iter().skip(scripts.start);
        for at in skipped.take(scripts.len()) {
            text[*at] = true;
        }
        self.little_language(operands.kind, words, uses, pattern_given);
        // What stands before the sub-command of git is looked at with its options.
        for word in &words[1..start.min(words.len())] {
            if word.dynamic || word.glob {
                self.unresolved(word, unknown(word));
            }
        }
        for (at, word) in words.iter().enumerate().skip(start) {
            let free = text[at] || operands.kind == Kind::Text;
            if word.dynamic && !self.is_free(program, operands.kind, words, at, text[at]) {
                self.unresolved(word, unknown(word));
            } else if word.glob && (!free || program == "date") {
                let leading = word.text.starts_with(['*', '?', '[']);
                if leading && options::has_dangerous(program) {
                    self.unresolved(word, "a name that matches may be an option");
                }
            } else if word.glob && text[at] && operands.kind != Kind::Text {
                self.unresolved(word, unknown(word));
            }
            if free {
                continue;
            }
            if operands::is_hidden_file(&word.text) {
                self.unresolved(word, "an address of a file that is not worked out");
            }
            let own = uses.options.iter().any(|used| used.at == at) && !uses.operands.contains(&at);
            if own && !uses.unlisted.contains(&at) {
                continue;
            }
            if word.home {
                self.path_word(Some(word), direction);
                continue;
            }
            if operands::is_remote_helper(sub, &word.text) {
                self.unresolved(word, "an address that names a program of git");
            }
            for candidate in operands::candidates(&word.text, program) {
                let given = if candidate.len() == word.text.len() {
                    path_text(word)
                } else {
                    candidate.to_owned()
                };
                self.path(given, direction, Source::Operand, word.glob);
            }
        }
    }

    /// Scripts of sed and awk.
    fn little_language(&mut self, kind: Kind, words: &[Word], uses: &Uses, given: bool) {
        let plain: fn(&str) -> bool = match kind {
            Kind::Sed => little_languages::sed_is_plain,
            Kind::Awk => awk::is_plain,
            Kind::Yq => little_languages::yq_is_plain,
            Kind::Sql => little_languages::sql_is_plain,
            _ => return,
        };
        let mut scripts: Vec<(usize, String)> = Vec::new();
        for used in &uses.options {
            if matches!(used.option, "-e" | "--expression") {
                scripts.push((used.at, used.value.clone().unwrap_or_default()));
            }
        }
        let operands = match kind {
            Kind::Sql => uses.operands.get(1..).unwrap_or_default(),
            _ if given => &[],
            _ => uses.operands.get(..1).unwrap_or_default(),
        };
        for at in operands {
            scripts.push((*at, words[*at].text.clone()));
        }
        for (at, script) in scripts {
            if !plain(&script) {
                self.unresolved(&words[at], "a script that may write or run something");
                for part in script.split(['"', '\n', ';', '{', '}']) {
                    self.script_text(part.trim_start_matches(PREFIXES));
                }
            }
        }
    }

    /// Whether a word may stay unknown.
    fn is_free(
        &self,
        program: &str,
        kind: Kind,
        words: &[Word],
        at: usize,
        uses_value: bool,
    ) -> bool {
        match program {
            // A process that the script itself has started.
            "kill" | "wait" | "disown" => words[at].text == "$!",
            "echo" | ":" | "true" | "false" | "pwd" | "exit" | "return" | "sleep" | "basename"
            | "dirname" | "seq" | "expr" => true,
            // It may be `-f FILE`, unless its beginning is known.
            "date" => {
                let starts = ["+", "-d", "--date="];
                !words[at].splits
                    && (uses_value || starts.iter().any(|s| words[at].text.starts_with(s)))
            }
            // The first operand may be `-v`, unless its beginning is known; and a
            // format that is not known may set the variables that are named after it.
            "printf" => {
                at > 1
                    || (words.len() == 2
                        && !words[at].splits
                        && !words[at].text.starts_with(['-', '$', '`', '~']))
            }
            "test" | "[" => conditions::only_compares(words),
            // A pattern that is one word cannot be an option when one stands before it.
            _ => uses_value && kind != Kind::Text && !words[at].splits && at > 1,
        }
    }

    fn path_word(&mut self, word: Option<&Word>, direction: Direction) {
        let Some(word) = word else { return };
        self.path(path_text(word), direction, Source::Operand, word.glob);
    }

    fn path(&mut self, given: String, direction: Direction, source: Source, glob: bool) {
        if given.is_empty() || (source == Source::Operand && is_stream(&given)) {
            return;
        }
        let located = self.folders.locate(&given);
        let fact = PathFact {
            given,
            located,
            direction,
            source,
            glob,
        };
        let same = |other: &PathFact| {
            other.given == fact.given
                && other.located == fact.located
                && other.direction == fact.direction
                && other.source == fact.source
        };
        if !self.facts.paths.iter().rev().take(16).any(same) {
            self.facts.paths.push(fact);
        }
    }

    fn redirect(&mut self, redirect: &Redirect) {
        let Redirect { op, target } = redirect;
        let text = target.text.as_str();
        let copies = op.ends_with('&')
            && text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-');
        if copies || (!target.dynamic && is_stream(text)) {
            return;
        }
        if text.starts_with("/dev/tcp/") || text.starts_with("/dev/udp/") {
            self.unresolved(target, "bash opens a network connection");
        }
        if target.dynamic || target.glob {
            self.unresolved(
                target,
                "the target of a redirect is known only when it runs",
            );
        }
        let direction = match op.as_str() {
            "<" | "<&" => Direction::Read,
            _ => Direction::Write,
        };
        self.path(path_text(target), direction, Source::Redirect, target.glob);
    }
}

/// What stands before a command in a script of sed or sqlite3: `1e rm x`, `.shell rm x`.
const PREFIXES: fn(char) -> bool =
    |c| c.is_ascii_digit() || matches!(c, ' ' | ',' | '$' | '!' | '~' | '+' | 'e' | '|');

/// Whether `read` is the command that follows at byte `end`.
fn is_before_read(text: &str, end: usize) -> bool {
    text.get(end..)
        .and_then(|rest| rest.trim_start_matches([' ', '\t']).strip_prefix("read"))
        .is_some_and(|rest| rest.starts_with([' ', '\t']))
}

/// Devices and descriptors that are no files.
fn is_stream(path: &str) -> bool {
    matches!(
        path,
        "/dev/null"
            | "/dev/stdin"
            | "/dev/stdout"
            | "/dev/stderr"
            | "/dev/zero"
            | "/dev/urandom"
            | "/dev/random"
    ) || path
        .strip_prefix("/dev/fd/")
        .is_some_and(|fd| !fd.is_empty() && fd.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A word as a path: a literal `~` is not the home folder.
fn path_text(word: &Word) -> String {
    if !word.home && word.text.starts_with('~') && !word.dynamic {
        format!("./{}", word.text)
    } else {
        word.text.clone()
    }
}

fn unknown(word: &Word) -> String {
    format!("the value of {} is known only when it runs", word.text)
}

/// How a pattern has to name an option.
fn named(used: &options::Use, words: &[Word]) -> String {
    match used.option.strip_prefix('@') {
        None => used.option.to_owned(),
        Some("always" | "second") => used.value.clone().unwrap_or_default(),
        Some(rule) => match rule.split_once('=') {
            Some(("key", key)) => key.to_owned(),
            Some((_, name)) => name.to_owned(),
            // `SHELL=…`: the name.
            None => {
                let name = words[used.at].text.split('=').next();
                name.unwrap_or_default().to_owned()
            }
        },
    }
}
