//! The lines of a policy file's rules.
//!
//! Text only: a file that was written by hand has each key on the line that people
//! look at, and indentation says which table it belongs to.

use std::collections::HashMap;

const TABLES: [&str; 9] = [
    "tool",
    "bash",
    "path",
    "mcp",
    "git",
    "egress",
    "externalDirectory",
    "external_directory",
    "tests",
];

/// Where each rule of a file stands, found in one pass.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// By table, the line of its name and the lines of its patterns.
    tables: HashMap<&'static str, (usize, HashMap<String, usize>)>,
    tests: Vec<usize>,
}

impl Lines {
    pub(crate) fn of(text: &str) -> Lines {
        let mut lines = Lines::default();
        let mut now: Option<(&'static str, usize)> = None;
        // In braces over several lines indentation says nothing; a line of their end does.
        let mut closer: Option<char> = None;
        // The keys of a Workspace's policy are only below `policy`.
        let workspace = text.lines().any(|line| key(line, "policy").is_some());
        let mut below: Option<usize> = None;
        for (index, line) in text.lines().enumerate() {
            let content = line.trim_start();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let indent = line.len() - content.trim_start_matches(['{', ' ', '\t']).len();
            if workspace && below.is_none_or(|policy| indent <= policy) {
                now = None;
                below = key(line, "policy").map(|_| indent);
                continue;
            }
            // An entry of a list may stand as far left as the list's name.
            let listed = |table: &str| table == "tests" && content.starts_with('-');
            if closer.is_some_and(|closer| content.starts_with(closer)) {
                (closer, now) = (None, None);
                continue;
            }
            let inside =
                now.filter(|(table, start)| closer.is_some() || indent > *start || listed(table));
            let (table, rest) = match inside {
                Some((table, _)) => (table, line),
                None => {
                    let found = TABLES
                        .iter()
                        .find_map(|name| Some((*name, key(line, name)?)));
                    now = found.map(|(name, _)| (name, indent));
                    let Some((name, rest)) = found else { continue };
                    closer = match rest.trim() {
                        "{" => Some('}'),
                        "[" => Some(']'),
                        _ => None,
                    };
                    lines
                        .tables
                        .entry(name)
                        .or_insert((index + 1, HashMap::new()));
                    (name, rest)
                }
            };
            if table == "tests" {
                if inside.is_some() && content.starts_with(['-', '{']) {
                    lines.tests.push(index + 1);
                }
            } else if let Some((_, rules)) = lines.tables.get_mut(table) {
                for pattern in keys(rest) {
                    rules.entry(pattern).or_insert(index + 1);
                }
            }
        }
        lines
    }

    /// Line (from 1) of `pattern` in `table`, or of the table where it has no rule of
    /// that name; 0 where neither is found.
    pub(crate) fn rule(&self, table: &str, pattern: &str) -> usize {
        let other = match table {
            "externalDirectory" => "external_directory",
            other => other,
        };
        let found = self.tables.get(table).or_else(|| self.tables.get(other));
        found.map_or(0, |(start, rules)| match pattern {
            "" => *start,
            pattern => rules.get(pattern).copied().unwrap_or(0),
        })
    }

    /// Line of the `index`-th entry of `tests`, or of their beginning.
    pub(crate) fn test(&self, index: usize) -> usize {
        let start = self.tables.get("tests").map_or(0, |(start, _)| *start);
        self.tests.get(index).copied().unwrap_or(start)
    }
}

/// What follows `name:` on a line that begins with it, quoted or not.
fn key<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let line = line.trim_start().trim_start_matches('{').trim_start();
    let line = line.strip_prefix(['"', '\'']).unwrap_or(line);
    let rest = line.strip_prefix(name)?;
    rest.strip_prefix(['"', '\''])
        .unwrap_or(rest)
        .trim_start()
        .strip_prefix(':')
}

/// The keys on a line: `a: allow`, `"a": allow`, `{a: allow, 'b': ask}`.
fn keys(line: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut rest = line;
    let mut flow = false;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(after) = rest.strip_prefix('{') {
            flow = true;
            rest = after;
            continue;
        }
        let (key, after) = match rest.chars().next() {
            None | Some('#') => return keys,
            Some('"') => {
                let mut end = 1;
                let bytes = rest.as_bytes();
                while end < bytes.len() && bytes[end] != b'"' {
                    end += 1 + usize::from(bytes[end] == b'\\');
                }
                let end = (end + 1).min(rest.len());
                let Some(text) = rest.get(..end) else {
                    return keys;
                };
                (serde_json::from_str(text).ok(), &rest[end..])
            }
            Some('\'') => {
                let mut end = 1;
                loop {
                    match rest[end..].find('\'') {
                        None => return keys,
                        Some(at) if rest[end + at + 1..].starts_with('\'') => end += at + 2,
                        Some(at) => {
                            end += at;
                            break;
                        }
                    }
                }
                (Some(rest[1..end].replace("''", "'")), &rest[end + 1..])
            }
            Some(_) => {
                let end = rest
                    .match_indices(':')
                    .map(|(at, _)| at)
                    .find(|at| rest[at + 1..].is_empty() || rest[at + 1..].starts_with(' '));
                match end {
                    Some(end) => (Some(rest[..end].trim_end().to_owned()), &rest[end..]),
                    None => return keys,
                }
            }
        };
        let Some(value) = after.trim_start().strip_prefix(':') else {
            return keys;
        };
        keys.extend(key);
        // The value is a word, quoted or not; the next key comes behind a comma.
        match value
            .find([',', '}'])
            .filter(|_| flow || value.trim_start().starts_with('"'))
        {
            Some(at) if value[at..].starts_with(',') => rest = &value[at..],
            _ => return keys,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn rules_are_found_in_yaml_and_json() {
        let yaml = Lines::of(
            "kind: Workspace\nspec:\n  git: {a: b}\n  policy:\n    tool: {\"*\": allow}\n    bash:\n      \
             \"git push*\": ask\n      ls: allow\n    # a note\n    path:\n      '*.env': deny\n    \
             externalDirectory: deny\n    tests:\n    - {bash: ls, expect: allow}\n    \
             - {bash: x, expect: ask}\n  egress: {c: d}\n",
        );
        assert_eq!(yaml.rule("tool", "*"), 5);
        assert_eq!(yaml.rule("bash", "git push*"), 7);
        assert_eq!(yaml.rule("bash", "ls"), 8);
        assert_eq!(yaml.rule("bash", "unheard-of"), 0);
        assert_eq!(yaml.rule("path", "*.env"), 11);
        assert_eq!(yaml.rule("path", "git push*"), 0);
        assert_eq!(yaml.rule("externalDirectory", ""), 12);
        assert_eq!(yaml.rule("git", "a"), 0);
        assert_eq!(yaml.rule("egress", "c"), 0);
        assert_eq!(yaml.test(0), 14);
        assert_eq!(yaml.test(1), 15);
        let json = Lines::of("{\n \"bash\": {\n  \"rm -rf *\": \"deny\"\n }\n}");
        assert_eq!(json.rule("bash", "rm -rf *"), 3);
    }

    #[test]
    fn a_rule_that_has_the_name_of_a_table_is_no_table() {
        let yaml = Lines::of(
            "tool:\n  \"*\": allow\n  bash: ask\n  git: deny\nbash:\n  'it''s *': allow\n  a:b c: ask\n\
             external_directory: ask\n",
        );
        assert_eq!(yaml.rule("tool", "bash"), 3);
        assert_eq!(yaml.rule("tool", "git"), 4);
        assert_eq!(yaml.rule("bash", "it's *"), 6);
        assert_eq!(yaml.rule("bash", "a:b c"), 7);
        assert_eq!(yaml.rule("externalDirectory", ""), 8);
    }

    #[test]
    fn several_rules_on_one_line_are_found() {
        for text in [
            "tool: {\"*\": allow, bash: ask}\nbash: {ls: allow, \"rm, *\": deny, 'git *': ask}\n",
            "{\"tool\": {\"*\": \"allow\", \"bash\": \"ask\"},\n \"bash\": {\"ls\": \"allow\", \"rm, *\": \
             \"deny\", \"git *\": \"ask\"}}",
        ] {
            let lines = Lines::of(text);
            for (table, pattern, line) in [
                ("tool", "*", 1),
                ("tool", "bash", 1),
                ("bash", "ls", 2),
                ("bash", "rm, *", 2),
                ("bash", "git *", 2),
            ] {
                assert_eq!(lines.rule(table, pattern), line, "{table} {pattern} {text}");
            }
        }
    }
}
