//! The folders that relative names in a script may be relative to.

/// Folders followed at most; more are unknown.
const MAX: usize = 8;

pub(crate) struct Folders<'a> {
    /// Absolute, beginning with `~`, or empty for the project.
    now: Vec<String>,
    text: &'a str,
}

impl<'a> Folders<'a> {
    pub(crate) fn new(cwd: &str, text: &'a str) -> Folders<'a> {
        Folders {
            now: vec![cwd.trim_end_matches('/').to_owned()],
            text,
        }
    }

    /// As `folders` are now, for a script inside that one.
    pub(crate) fn again(folders: &Folders<'_>, text: &'a str) -> Folders<'a> {
        Folders {
            now: folders.now.clone(),
            text,
        }
    }

    /// `cd target`, whose word stands at byte `at`. False when the folders are no
    /// longer known.
    pub(crate) fn enter(&mut self, target: &str, at: usize) -> bool {
        // In back-quotes, where escapes are removed, places are not exact.
        let before = match self.text.get(..at) {
            Some(before) if !self.text.contains('`') => before,
            _ => self.text,
        };
        if repeats(before) && !ends_with_subshell(before) {
            return false;
        }
        let entered: Vec<String> = self.now.iter().map(|folder| join(folder, target)).collect();
        if !self.succeeds(at) {
            for folder in entered {
                if !self.now.contains(&folder) {
                    self.now.push(folder);
                }
            }
        } else {
            self.now = entered;
        }
        self.now.len() <= MAX
    }

    /// A name, joined to each folder.
    pub(crate) fn locate(&self, given: &str) -> Vec<String> {
        if given.starts_with('/') || given == "~" || given.starts_with("~/") {
            return vec![given.to_owned()];
        }
        self.now
            .iter()
            .take(MAX)
            .map(|folder| join(folder, given))
            .collect()
    }

    /// Whether all that follows only runs when the `cd` at `at` went well: joined
    /// by `&&`, in one line, in this shell.
    fn succeeds(&self, at: usize) -> bool {
        let Some(rest) = self.text.get(at..) else {
            return false;
        };
        let before = &self.text[..at];
        if before.contains(['(', '`', '{', '|']) {
            return false; // it may be in a subshell
        }
        let end = rest
            .find([' ', '\t', '\n', ';', '&', '|'])
            .unwrap_or(rest.len());
        let after = rest[end..].trim_start_matches([' ', '\t']);
        after.starts_with("&&")
            && !after.contains([';', '\n', '(', '`', '}'])
            && !after.contains("||")
            && !after
                .replace("&&", "")
                .replace(">&", "")
                .replace("&>", "")
                .contains('&')
    }

    /// Whether no word follows in the same command behind byte `end`.
    pub(crate) fn ends_command(&self, end: usize) -> bool {
        let Some(rest) = self.text.get(end..) else {
            return false;
        };
        let after = rest.trim_start_matches([' ', '\t']);
        after.is_empty() || after.starts_with([';', '\n', '&', '|', '#', ')', '}'])
    }
}

fn join(folder: &str, name: &str) -> String {
    let relative = !(name.starts_with('/') || name == "~" || name.starts_with("~/"));
    if relative && !folder.is_empty() {
        format!("{folder}/{name}")
    } else {
        name.to_owned()
    }
}

/// Whether what is entered after `before` is left again at once: the last `(` that
/// is open comes after every word that could begin a loop. Only where no quote hides
/// what the parentheses are.
fn ends_with_subshell(before: &str) -> bool {
    let hides = |text: &str| before.contains(text);
    if before.contains(['\'', '"', '\\', '#', '`']) || ["case", "${", "<<"].into_iter().any(hides) {
        return false;
    }
    let mut open = Vec::new();
    for (at, byte) in before.bytes().enumerate() {
        match byte {
            b'(' => open.push(at),
            b')' => {
                open.pop();
            }
            _ => {}
        }
    }
    open.last().is_some_and(|at| {
        let inside = &before[at + 1..];
        !inside.starts_with('(') && !before[..*at].ends_with('(') && !repeats(inside)
    })
}

/// A loop or a function may run a `cd` again, if it begins before it.
fn repeats(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| matches!(word, "while" | "until" | "for" | "select" | "function"))
        || text.contains("()")
}

#[cfg(test)]
mod tests {
    use super::Folders;

    #[test]
    fn a_cd_that_may_fail_leaves_both_folders() {
        let after = |text: &str, target: &str| {
            let mut folders = Folders::new("", text);
            let known = folders.enter(target, text.find(target).unwrap_or(0));
            (known, folders.locate("x"))
        };
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(after("cd sub && ls x", "sub"), (true, list(&["sub/x"])));
        assert_eq!(after("cd sub; ls x", "sub"), (true, list(&["x", "sub/x"])));
        assert_eq!(
            after("(cd sub && ls x)", "sub"),
            (true, list(&["x", "sub/x"]))
        );
        assert_eq!(
            after("cd sub && ls; ls x", "sub"),
            (true, list(&["x", "sub/x"]))
        );
        assert_eq!(
            after("cd sub && ls x | wc 2>&1", "sub"),
            (true, list(&["sub/x"]))
        );
        assert!(after("cd sub && for f in a; do ls x; done", "sub").0);
        assert_eq!(
            after("cd sub && git commit -m 'wait for it'", "sub"),
            (true, list(&["sub/x"]))
        );
        assert_eq!(
            after("for d in sub; do (cd sub && ls x); done", "sub "),
            (true, list(&["x", "sub /x"]))
        );
        for text in [
            "while cd sub; do ls x; done",
            "f() { cd sub; }; f; f",
            "for d in 1 2; do echo '('; cd sub; ls x; done",
            "for d in 1 2; do echo ${x:-(}; cd sub; ls x; done",
            "`echo \\\\\\\\; for d in 1 2; do cd sub; ls x; done`",
            "for d in 1 2; do echo \\(; cd sub; ls x; done",
            "(for d in 1 2; do cd sub; ls x; done)",
        ] {
            assert!(!after(text, "sub").0, "{text}");
        }
    }
}
