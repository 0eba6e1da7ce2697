//! What is known about programs: tables as data, and their readers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) mod awk;
pub(crate) mod builtins;
pub(crate) mod conditions;
pub(crate) mod git;
pub(crate) mod granting;
pub(crate) mod interpreters;
pub(crate) mod little_languages;
pub(crate) mod operands;
pub(crate) mod options;
pub(crate) mod runners;
pub(crate) mod synonyms;
pub(crate) mod variables;
pub(crate) mod wrappers;

/// A table by the names of programs. The names are short and never come from outside,
/// so that a quick hash is as good as one that nobody can foresee.
pub(crate) type ByName<V> = HashMap<&'static str, V, BuildHasherDefault<NameHasher>>;

/// FNV-1a.
#[derive(Clone, Copy)]
pub(crate) struct NameHasher(u64);

impl Default for NameHasher {
    fn default() -> NameHasher {
        NameHasher(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Rows of a table file: columns are separated by tabs, `#` begins a comment.
pub(crate) fn rows(text: &'static str, columns: usize) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines()
        .filter(|line| !line.starts_with("# ") && !line.is_empty())
        .map(move |line| {
            let row: Vec<&str> = line.split('\t').collect();
            assert_eq!(
                row.len(),
                columns,
                "a row of a table has another number of columns: {line}"
            );
            row
        })
}

/// The name of a program without its folder.
pub(crate) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Folders whose programs are what their names say.
const SYSTEM_FOLDERS: [&str; 6] = [
    "/bin/",
    "/usr/bin/",
    "/usr/local/bin/",
    "/sbin/",
    "/usr/sbin/",
    "/usr/local/sbin/",
];

/// The bare name that an allow may be written for: of a program without a folder,
/// or in a folder of the system.
pub(crate) fn bare_name(program: &str) -> Option<&str> {
    if !program.contains('/') {
        return Some(program);
    }
    SYSTEM_FOLDERS
        .iter()
        .find_map(|folder| program.strip_prefix(folder))
        .filter(|name| !name.contains('/'))
}
