//! The line of a rule in a policy file.

/// Line (from 1) of `pattern` in `table`; 0 where it is not found. Text only: a
/// file that was written by hand has each key on the line that people look at.
pub(crate) fn line(text: &str, table: &str, pattern: &str) -> usize {
    let escaped = serde_json::to_string(pattern).unwrap_or_default();
    let single = format!("'{}'", pattern.replace('\'', "''"));
    let plain = format!("{pattern}:");
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let mut rest = line;
        if let Some(after) = key(line, table) {
            inside = true;
            rest = after;
        } else if inside
            && TABLES
                .iter()
                .any(|other| *other != table && key(line, other).is_some())
        {
            inside = false;
        }
        if inside
            && (rest.contains(&escaped)
                || rest.contains(&single)
                || rest
                    .trim_start()
                    .trim_start_matches("- ")
                    .starts_with(&plain))
        {
            return index + 1;
        }
    }
    0
}

/// Line of the `index`-th entry of `tests`.
pub(crate) fn test_line(text: &str, index: usize) -> usize {
    let mut lines = text
        .lines()
        .enumerate()
        .skip_while(|(_, line)| key(line, "tests").is_none());
    let Some((first, _)) = lines.next() else {
        return 0;
    };
    lines
        .filter(|(_, line)| line.trim_start().starts_with(['-', '{']))
        .nth(index)
        .map_or(first + 1, |(at, _)| at + 1)
}

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

#[cfg(test)]
mod tests {
    use super::{line, test_line};

    #[test]
    fn rules_are_found_in_yaml_and_json() {
        let yaml = "kind: Workspace\nspec:\n  policy:\n    tool: {\"*\": allow}\n    bash:\n      \
                    \"git push*\": ask\n      ls: allow\n    path:\n      '*.env': deny\n    tests:\n    \
                    - {bash: ls, expect: allow}\n    - {bash: x, expect: ask}\n";
        assert_eq!(line(yaml, "tool", "*"), 4);
        assert_eq!(line(yaml, "bash", "git push*"), 6);
        assert_eq!(line(yaml, "bash", "ls"), 7);
        assert_eq!(line(yaml, "path", "*.env"), 9);
        assert_eq!(line(yaml, "path", "git push*"), 0);
        assert_eq!(test_line(yaml, 1), 12);
        let json = "{\n \"bash\": {\n  \"rm -rf *\": \"deny\"\n }\n}";
        assert_eq!(line(json, "bash", "rm -rf *"), 3);
    }
}
