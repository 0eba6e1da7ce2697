//! Pointers: what stands in git in place of a large file.

use gix::objs::Kind;
use serde::{Deserialize, Serialize};

use crate::git::mirror::Opened;

/// Bytes of a pointer file, at most (git-lfs's specification).
const MOST_BYTES: u64 = 1_024;
/// Pointers of one push.
const MOST_POINTERS: usize = 10_000;
/// Objects of one push that are looked at.
const MOST_OBJECTS: usize = 2_000_000;

/// A large file's content: its SHA-256, and its length in bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pointer {
    /// 64 hexadecimal digits in lower case.
    pub oid: String,
    /// Bytes.
    pub size: u64,
}

impl Pointer {
    /// A pointer; `None` where `oid` is no SHA-256, or no file is so large.
    pub fn new(oid: &str, size: u64) -> Option<Pointer> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let right = oid.len() == 64 && oid.bytes().all(hex) && size <= i64::MAX as u64;
        right.then(|| Pointer {
            oid: oid.to_owned(),
            size,
        })
    }

    /// Reads a file's content; `None` where it is no pointer.
    pub fn parse(content: &[u8]) -> Option<Pointer> {
        let text = std::str::from_utf8(content).ok()?;
        let mut lines = text.lines();
        let version = lines.next()?.strip_prefix("version ")?;
        let known = [
            "https://git-lfs.github.com/spec/v1",
            "https://hawser.github.com/spec/v1",
        ];
        if !known.contains(&version) {
            return None;
        }
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let oid = value("oid sha256:")?;
        Pointer::new(oid, value("size ")?.parse().ok()?)
    }
}

/// The large files that a push brings pointers of, sorted. The error is for people.
pub fn named(objects: &Opened) -> Result<Vec<Pointer>, String> {
    let mut found = std::collections::BTreeSet::new();
    let small = objects.pushed(MOST_OBJECTS, |kind, size| {
        kind == Kind::Blob && size <= MOST_BYTES
    })?;
    for id in small {
        let pointer = objects.get(&id).and_then(|it| Pointer::parse(&it.data));
        found.extend(pointer);
        if found.len() > MOST_POINTERS {
            return Err(format!("it names more than {MOST_POINTERS} large files"));
        }
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_read_as_git_lfs_writes_them() {
        let oid = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";
        let text = |version: &str, oid: &str, size: &str| {
            format!("version {version}\n{oid}\nsize {size}\n")
        };
        let version = "https://git-lfs.github.com/spec/v1";
        let named = format!("oid sha256:{oid}");
        for (content, expected) in [
            (text(version, &named, "12345"), Pointer::new(oid, 12345)),
            (
                text(version, &format!("ext-0-x sha256:{oid}\n{named}"), "1"),
                Pointer::new(oid, 1),
            ),
            (text("https://example.com/v1", &named, "1"), None),
            (text(version, &format!("oid md5:{oid}"), "1"), None),
            (
                text(version, &format!("oid sha256:{}", oid.to_uppercase()), "1"),
                None,
            ),
            (text(version, &named, "-1"), None),
            (text(version, &named, ""), None),
            (format!("{named}\nversion {version}\nsize 1\n"), None),
            (String::new(), None),
        ] {
            assert_eq!(Pointer::parse(content.as_bytes()), expected, "{content}");
        }
    }
}
