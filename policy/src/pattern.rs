//! Patterns of a policy table: literal text and `*`.

/// One key of a table. `*` (and `**`) matches any text, `/`, blanks and newlines
/// included; every other character stands for itself.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    source: String,
    /// Literal text between wildcards; the first is a prefix, the last a suffix.
    pieces: Vec<String>,
    /// What `ls *` matches beside `ls <anything>`: `ls`.
    bare: Option<String>,
    /// `dir/*` of a deny or an ask is also about `dir`.
    folder: bool,
}

impl Pattern {
    pub(crate) fn new(source: &str) -> Pattern {
        Pattern::with_pieces(source, source)
    }

    /// A deny or an ask of the path table: compared without case, and `dir/*`
    /// matches `dir`. `source` is kept for people.
    pub(crate) fn strict_path(source: &str) -> Pattern {
        let mut pattern = Pattern::with_pieces(source, &source.to_lowercase());
        pattern.folder = source.trim_end_matches('*').ends_with('/') && source.ends_with('*');
        pattern
    }

    fn with_pieces(source: &str, text: &str) -> Pattern {
        let mut pieces: Vec<String> = Vec::new();
        let mut after_star = false;
        for (index, piece) in text.split('*').enumerate() {
            let inner = index > 0;
            if inner && piece.is_empty() && after_star {
                continue; // `**` is `*`
            }
            after_star = piece.is_empty() && inner;
            pieces.push(piece.to_owned());
        }
        if pieces.len() == 1 && text.contains('*') {
            pieces.push(String::new());
        }
        let bare = text
            .trim_end_matches('*')
            .strip_suffix(' ')
            .filter(|bare| text.ends_with('*') && !bare.contains('*'))
            .map(str::to_owned);
        Pattern {
            source: source.to_owned(),
            pieces,
            bare,
            folder: false,
        }
    }

    /// The key as it was written.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Without a wildcard: equality.
    pub(crate) fn is_exact(&self) -> bool {
        self.pieces.len() == 1
    }

    /// `*` alone, in any number.
    pub(crate) fn is_any(&self) -> bool {
        self.pieces.len() > 1 && self.pieces.iter().all(String::is_empty)
    }

    /// Text that every match contains; empty when there is none.
    pub(crate) fn longest_literal(&self) -> &str {
        match &self.bare {
            // `ls *` also matches `ls`, which lacks the blank.
            Some(bare) => bare,
            None => {
                let longest = self.pieces.iter().max_by_key(|piece| piece.len());
                let longest = longest.map_or("", String::as_str);
                // `dir/*` also matches `dir`, which lacks the slash.
                if self.folder {
                    longest.trim_end_matches('/')
                } else {
                    longest
                }
            }
        }
    }

    /// The text before the first wildcard.
    pub(crate) fn prefix(&self) -> &str {
        self.pieces.first().map_or("", String::as_str)
    }

    /// Whether the literal text of the pattern spells `word` out.
    pub(crate) fn names(&self, word: &str) -> bool {
        self.pieces.iter().any(|piece| {
            piece.match_indices(word).any(|(at, _)| {
                let before = piece[..at].chars().next_back();
                let after = piece[at + word.len()..].chars().next();
                before.is_none_or(|c| c == ' ') && after.is_none_or(|c| c == ' ' || c == '=')
            })
        })
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        if self.bare.as_deref() == Some(text) || self.wildcards(text) {
            return true;
        }
        // The last piece is empty; the one before it ends in the slash.
        self.folder
            && self.pieces[self.pieces.len() - 2]
                .strip_suffix('/')
                .is_some_and(|name| text.ends_with(name))
            && self.wildcards(&format!("{text}/"))
    }

    fn wildcards(&self, text: &str) -> bool {
        let [first, middle @ .., last] = self.pieces.as_slice() else {
            return self.pieces.first().is_some_and(|only| only == text);
        };
        let Some(rest) = text.strip_prefix(first.as_str()) else {
            return false;
        };
        let Some(mut rest) = rest.strip_suffix(last.as_str()) else {
            return false;
        };
        for piece in middle {
            match rest.find(piece.as_str()) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn a_star_matches_any_text_and_nothing_else_is_special() {
        for (pattern, text, expected) in [
            ("git status", "git status", true),
            ("git status", "git status -s", false),
            ("git status*", "git status", true),
            ("ls *", "ls", true),
            ("ls *", "ls -la", true),
            ("ls *", "lsof", false),
            ("*", "", true),
            ("*", "a/b\nc", true),
            ("**", "a/b\nc", true),
            ("**/x", "a/x", true),
            ("*.env", "config/prod.env", true),
            ("*.env", "prod.env.md", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("ab*ba", "aba", false),
            ("a?c", "abc", false),
            ("[ab]", "a", false),
            ("* x *", "y x", false),
        ] {
            assert_eq!(
                Pattern::new(pattern).matches(text),
                expected,
                "{pattern:?} on {text:?}"
            );
        }
    }

    #[test]
    fn a_strict_path_pattern_is_also_about_the_folder() {
        for (pattern, text, expected) in [
            ("~/.ssh/*", "~/.ssh", true),
            ("~/.ssh/*", "~/.ssh/", true),
            ("~/.ssh/*", "~/.ssh/id", true),
            ("~/.ssh/*", "~/.sshx", false),
            ("*/Secrets/*", "a/secrets", true),
            ("*/secrets/*", "a/secrets2", false),
            ("dir/*x", "dir", false),
            ("/*", "", true),
        ] {
            assert_eq!(
                Pattern::strict_path(pattern).matches(text),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn a_pattern_names_an_option_only_as_a_whole_word() {
        assert!(Pattern::new("find * -delete").names("-delete"));
        assert!(Pattern::new("sort -o *").names("-o"));
        assert!(!Pattern::new("sort -output *").names("-o"));
        assert!(Pattern::new("git log --output=*").names("--output"));
        assert!(!Pattern::new("sort *").names("-o"));
    }
}
