//! Numbered binds as plain ones.
//!
//! In a text of several statements the driver numbers `?` on from statement to
//! statement, but takes `?1` as the first bind of the whole text. So statements of
//! components, which are written with numbers, are turned into plain ones, with
//! their binds in the order of use.

/// A statement with plain `?`, and which bind (from 0) each one takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plain {
    pub text: String,
    pub order: Vec<usize>,
}

/// Rewrites `sql`; text in quotes and comments is left as it is.
pub(crate) fn plain(sql: &str) -> Plain {
    let mut text = String::with_capacity(sql.len());
    let mut order = Vec::new();
    let mut rest = sql.trim().trim_end_matches(';');
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '\'' | '"' | '`' => quoted(rest, first),
            '[' => rest.find(']').map_or(rest.len(), |at| at + 1),
            '-' if rest.starts_with("--") => rest.find('\n').map_or(rest.len(), |at| at + 1),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            '?' => {
                let digits = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
                let next = order.iter().max().map_or(0, |max| max + 1);
                let number = rest[1..1 + digits]
                    .parse::<usize>()
                    .map_or(next, |n| n.saturating_sub(1));
                order.push(number);
                text.push('?');
                rest = &rest[1 + digits..];
                continue;
            }
            other => other.len_utf8(),
        };
        text.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    Plain { text, order }
}

fn quoted(rest: &str, quote: char) -> usize {
    rest[1..].find(quote).map_or(rest.len(), |at| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_an_order() {
        for (sql, text, order) in [
            (
                "DELETE FROM t WHERE a = ?1;",
                "DELETE FROM t WHERE a = ?",
                vec![0],
            ),
            (
                "INSERT INTO t VALUES (?2, ?1, ?2)",
                "INSERT INTO t VALUES (?, ?, ?)",
                vec![1, 0, 1],
            ),
            (
                "SELECT '?1', \"?2\", [?3], `?4`, ?1 -- ?2\n, ?2 /* ?3 */",
                "SELECT '?1', \"?2\", [?3], `?4`, ? -- ?2\n, ? /* ?3 */",
                vec![0, 1],
            ),
            ("SELECT ?, ?", "SELECT ?, ?", vec![0, 1]),
            ("SELECT 'it''s ?1', ?12", "SELECT 'it''s ?1', ?", vec![11]),
        ] {
            assert_eq!(
                plain(sql),
                Plain {
                    text: text.into(),
                    order
                },
                "{sql}"
            );
        }
    }
}
