//! Names of servers' tools, as every provider takes them.

use sha2::{Digest, Sha256};

/// In front of the name of every server's tool.
const PREFIX: &str = "mcp__";
/// Characters that providers allow in a tool's name.
const LONGEST: usize = 64;

/// The name of a server's tool: `mcp__server__tool`. Where the tool's own name has other
/// characters than letters, digits, `_` and `-`, or is too long, it is made to fit and
/// ends in a part of its hash, so that no two tools of a server have one name.
///
/// A server's name has no `_`, so that what follows the first `__` is the tool's.
pub fn tool_name(server: &str, tool: &str) -> String {
    let head = format!("{PREFIX}{server}__");
    let room = LONGEST.saturating_sub(head.len());
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !tool.is_empty() && tool.len() <= room && tool.chars().all(fits) {
        return head + tool;
    }
    let hash: String = Sha256::digest(tool.as_bytes())
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let plain: String = tool
        .chars()
        .map(|c| if fits(c) { c } else { '_' })
        .take(room.saturating_sub(hash.len() + 1))
        .collect();
    format!("{head}{plain}_{hash}")
}

/// The server that a tool's name names.
pub fn server_of(name: &str) -> Option<&str> {
    let (server, _) = name.strip_prefix(PREFIX)?.split_once("__")?;
    Some(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_every_provider_and_stay_apart() {
        for (server, tool, expected) in [
            ("git", "git_status", "mcp__git__git_status"),
            ("db", "a__b", "mcp__db__a__b"),
            ("fs", "files.read", "mcp__fs__files_read_601e4eb6"),
            ("fs", "größe", "mcp__fs__gr__e_d353a267"),
            ("fs", "", "mcp__fs___e3b0c442"),
        ] {
            let name = tool_name(server, tool);
            assert_eq!(name, expected);
            assert_eq!(server_of(&name), Some(server));
        }
        let long = |end: char| tool_name("tracker", &format!("{}{end}", "x".repeat(100)));
        assert_eq!(long('a').len(), LONGEST);
        assert_ne!(long('a'), long('b'));
        assert_eq!(server_of("bash"), None);
    }
}
