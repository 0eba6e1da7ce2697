//! Which rule decides a path.

use mooring_crds::Verdict;

use crate::display::is_hidden;
use crate::environment::{Environment, absolute, is_within, normalize};
use crate::facts::{Direction, PathFact};
use crate::pattern::Pattern;
use crate::protected;
use crate::rules::{RuleRef, Rules};

/// The answer for one path.
pub(crate) struct PathAnswer {
    pub verdict: Verdict,
    pub rule: RuleRef,
    /// What more there is to say, for people.
    pub note: String,
}

impl PathAnswer {
    fn new(verdict: Verdict, rule: RuleRef, note: impl Into<String>) -> PathAnswer {
        PathAnswer {
            verdict,
            rule,
            note: note.into(),
        }
    }
}

/// Decides a path; `None` when no path rule has an opinion.
pub(crate) fn decide(
    rules: &Rules,
    path: &PathFact,
    environment: &dyn Environment,
    lacked: &mut Vec<String>,
) -> Option<PathAnswer> {
    if path.given.contains('\0') {
        let rule = RuleRef::built_in("a NUL in a path");
        return Some(PathAnswer::new(
            Verdict::Deny,
            rule,
            "no path has a NUL byte",
        ));
    }
    let mut strictest: Option<PathAnswer> = None;
    let mut consider = |answer: PathAnswer| {
        if strictest
            .as_ref()
            .is_none_or(|now| answer.verdict > now.verdict)
        {
            strictest = Some(answer);
        }
    };
    if path.given.chars().any(is_hidden) {
        let rule = RuleRef::built_in("hidden characters in a path");
        consider(PathAnswer::new(
            Verdict::Ask,
            rule,
            "the path has characters that cannot be seen",
        ));
    }
    for located in &path.located {
        for answer in place(rules, path, located, environment, lacked) {
            consider(answer);
        }
    }
    strictest
}

fn place(
    rules: &Rules,
    path: &PathFact,
    located: &str,
    environment: &dyn Environment,
    lacked: &mut Vec<String>,
) -> Vec<PathAnswer> {
    let (project, home) = (environment.project(), environment.home());
    let lexical = normalize(&absolute(located, project, home));
    let mut answers = Vec::new();
    let given = Forms::of(&lexical, project, home, Some(&path.given));
    if path.glob {
        answers.extend(glob(rules, &given));
    }
    answers.extend(ask_table(
        rules,
        &given,
        is_within(&lexical, project),
        located,
    ));
    let mut canonical = lexical;
    if !path.glob {
        match environment.resolve(located) {
            Some(resolved) => {
                if resolved.canonical != canonical {
                    let forms = Forms::of(&resolved.canonical, project, home, None);
                    answers.extend(ask_table(rules, &forms, resolved.in_project, located));
                }
                if resolved.exists && resolved.hard_links > 1 && resolved.kind == "file" {
                    answers.extend(hard_link(rules));
                }
                canonical = resolved.canonical;
            }
            None => {
                let fact = format!("where {} leads", path.given);
                if !lacked.contains(&fact) {
                    lacked.push(fact);
                }
            }
        }
    }
    if path.direction != Direction::Read {
        let both = [given.absolute.as_str(), canonical.as_str()];
        let forms = &both[usize::from(both[0] == both[1])..];
        if let Some(what) = protected::find(forms, project, home) {
            let note = format!("{} is {what}", path.given);
            answers.push(PathAnswer::new(
                Verdict::Ask,
                RuleRef::built_in("protected file"),
                note,
            ));
        }
    }
    answers
}

/// Another name of the file may be denied, and no name leads back to it.
fn hard_link(rules: &Rules) -> Option<PathAnswer> {
    let denies = rules
        .path()
        .strict_patterns()
        .any(|(_, verdict)| verdict == Verdict::Deny);
    denies.then(|| {
        let note = "the file has other names (hard links), which may be denied";
        PathAnswer::new(Verdict::Ask, RuleRef::built_in("hard link"), note)
    })
}

fn ask_table(rules: &Rules, forms: &Forms, inside: bool, located: &str) -> Option<PathAnswer> {
    if inside && rules.path().is_empty() {
        return None;
    }
    let strict = forms.strict();
    let allow = &strict[..forms.allowed()];
    // Outside the project an allow has to say where: `*.md` means the project's.
    let covers = |pattern: &Pattern| {
        inside || pattern.prefix().starts_with('/') || pattern.prefix().starts_with("~/")
    };
    let found = rules.path().decide_where(allow, &strict, covers, None);
    let from = |found: &crate::rules::Found<'_>| {
        PathAnswer::new(
            found.verdict,
            RuleRef::new("path", found.pattern.source()),
            String::new(),
        )
    };
    if inside {
        return found.as_ref().map(from);
    }
    match &found {
        Some(found) if !found.any => Some(from(found)),
        _ => {
            let outside = rules.external_directory().unwrap_or(Verdict::Ask);
            let star = found
                .as_ref()
                .map(from)
                .filter(|star| star.verdict > outside);
            let note = format!("{located} is outside the project");
            Some(star.unwrap_or_else(|| {
                PathAnswer::new(outside, RuleRef::new("externalDirectory", ""), note)
            }))
        }
    }
}

/// A glob may name every file that it can match: a rule that it can meet asks.
fn glob(rules: &Rules, forms: &Forms) -> Option<PathAnswer> {
    let texts: Vec<String> = forms
        .allow()
        .iter()
        .map(|form| form.to_lowercase())
        .collect();
    rules
        .path()
        .strict_patterns()
        .find(|(pattern, _)| texts.iter().any(|text| meets(text, pattern)))
        .map(|(pattern, _)| {
            let rule = RuleRef::new("path", pattern.source());
            PathAnswer::new(
                Verdict::Ask,
                rule,
                "files that match the glob may fall under it",
            )
        })
}

/// Steps of one comparison at most; beyond, they are taken to meet.
const MAX_STEPS: usize = 100_000;

/// Whether some text matches both a shell glob and a pattern.
fn meets(glob: &str, pattern: &Pattern) -> bool {
    let pieces = pieces(glob);
    let pattern: Vec<char> = pattern.source().to_lowercase().chars().collect();
    if pieces.len().saturating_mul(pattern.len()) > MAX_STEPS {
        return true;
    }
    // reachable[j] is whether the glob so far and pattern[..j] can be equal.
    let mut reachable = vec![false; pattern.len() + 1];
    reachable[0] = true;
    for (j, c) in pattern.iter().enumerate() {
        reachable[j + 1] = reachable[j] && *c == '*';
    }
    for piece in &pieces {
        reachable = match piece {
            Piece::Start => {
                let first = step(Piece::Any { dot: false }, &reachable, &pattern);
                let all = step(Piece::Rest, &first, &pattern);
                let either = |(none, some): (&bool, &bool)| *none || *some;
                reachable.iter().zip(&all).map(either).collect()
            }
            piece => step(*piece, &reachable, &pattern),
        };
    }
    reachable[pattern.len()]
}

/// A part of a shell glob. Its wildcards match no dot at the beginning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// This character.
    One(char),
    /// A character of a name; a dot only where it is not the first.
    Any { dot: bool },
    /// `*` at the beginning of a name: nothing, or what begins without a dot.
    Start,
    /// `*` after the beginning of a name.
    Rest,
    /// `**` as a whole name: any folders that are not hidden.
    Folders,
}

fn step(piece: Piece, row: &[bool], pattern: &[char]) -> Vec<bool> {
    let repeats = matches!(piece, Piece::Rest | Piece::Folders);
    let mut next = vec![false; pattern.len() + 1];
    next[0] = row[0] && repeats;
    for (j, p) in pattern.iter().enumerate() {
        let takes = match piece {
            Piece::One(c) => c == *p,
            Piece::Any { dot } => *p != '/' && (dot || *p != '.'),
            Piece::Start | Piece::Rest => *p != '/',
            Piece::Folders => *p != '.' || j == 0 || pattern[j - 1] != '/',
        };
        next[j + 1] = match *p {
            '*' => row[j + 1] || next[j],
            _ if repeats => row[j + 1] || (next[j] && takes),
            _ => row[j] && takes,
        };
    }
    next
}

/// `?` and `[…]` become one character that may be any.
fn pieces(glob: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = glob;
    let mut begins = true;
    while let Some(character) = rest.chars().next() {
        let mut length = character.len_utf8();
        let piece = match character {
            '?' => Piece::Any { dot: !begins },
            '[' => match rest[1..].char_indices().skip(1).find(|(_, c)| *c == ']') {
                Some((at, _)) => {
                    length = at + 2;
                    Piece::Any { dot: !begins }
                }
                None => Piece::One('['),
            },
            '*' => {
                let stars = rest.len() - rest.trim_start_matches('*').len();
                let whole = rest[stars..].is_empty() || rest[stars..].starts_with('/');
                length = stars;
                match begins {
                    true if stars > 1 && whole => Piece::Folders,
                    true => Piece::Start,
                    false => Piece::Rest,
                }
            }
            _ => Piece::One(character),
        };
        pieces.push(piece);
        begins = character == '/';
        rest = &rest[length..];
        // `**/x` is also `x`.
        if piece == Piece::Folders && rest.starts_with('/') {
            rest = &rest[1..];
            begins = true;
        }
    }
    pieces
}

/// The spellings of one place.
struct Forms {
    absolute: String,
    /// Relative to the project, where it lies in it.
    relative: Option<String>,
    /// Relative to the home folder, beginning with `~/`.
    home: Option<String>,
    /// As it was written.
    given: Option<String>,
}

impl Forms {
    fn of(lexical: &str, project: &str, home: &str, given: Option<&str>) -> Forms {
        let below = |folder: &str| {
            is_within(lexical, folder).then(|| {
                lexical[folder.len().min(lexical.len())..]
                    .trim_start_matches('/')
                    .to_owned()
            })
        };
        let relative = below(project).map(|rest| {
            // A folder that is named `~` is not the home folder.
            if rest.starts_with('~') {
                format!("./{rest}")
            } else {
                rest
            }
        });
        Forms {
            absolute: lexical.to_owned(),
            relative: relative.filter(|rest| !rest.is_empty()),
            home: below(home).map(|rest| format!("~/{rest}")),
            given: given.map(|given| {
                given
                    .strip_prefix("./")
                    .filter(|rest| !rest.starts_with('~'))
                    .unwrap_or(given)
                    .to_owned()
            }),
        }
    }

    /// Spellings that an allow may match.
    fn allow(&self) -> Vec<&str> {
        let mut forms = vec![self.absolute.as_str()];
        forms.extend(self.relative.as_deref());
        forms.extend(self.home.as_deref());
        forms
    }

    /// How many of the strict spellings an allow may match: the first ones.
    fn allowed(&self) -> usize {
        1 + usize::from(self.relative.is_some()) + usize::from(self.home.is_some())
    }

    /// Spellings that a deny or an ask may match.
    fn strict(&self) -> Vec<&str> {
        let mut forms = self.allow();
        if let Some(given) = self.given.as_deref()
            && !forms.contains(&given)
        {
            forms.push(given);
        }
        forms
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, meets};

    #[test]
    fn a_glob_meets_the_patterns_that_some_file_would_match() {
        for (glob, pattern, expected) in [
            (".e*", "*.env", true),
            ("*", ".env", false),
            ("?env", ".env", false),
            ("[.]env", ".env", false),
            ("a?env", "a.env", true),
            ("*", "*/.ssh/*", false),
            ("/w/*/id", "*/.ssh/*", false),
            ("/w/.s*/id", "*/.ssh/*", true),
            ("**/*.rs", "*/.ssh/*", false),
            ("**/id", "a/b/*", true),
            ("a/**", "a/b/c.env", true),
            ("**/x", "x", true),
            ("a**/x", "a/b/x", false),
            ("*", "*.env", true),
            ("*.rs", "~/.ssh/*", false),
            ("*/b/x", "a/b/*", true),
            ("*.rs", "*.env", false),
            ("src/*.rs", "src/secret*", true),
            ("src/*.rs", "doc/*", false),
            ("prod.?nv", "*.env", true),
            ("prod.[ea]nv", "*.env", true),
            ("prod.[ea]nx", "*.env", false),
            ("a[", "a[", true),
        ] {
            assert_eq!(
                meets(glob, &Pattern::new(pattern)),
                expected,
                "{glob} {pattern}"
            );
        }
    }
}
