//! Listing folders, and searching file names and contents.

use std::path::Path;
use std::time::{Duration, Instant};

use grep::matcher::Matcher;
use grep::regex::RegexMatcherBuilder;
use grep::searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use mooring_wire::sandbox::list_response::Item;
use mooring_wire::sandbox::search_request::What;
use mooring_wire::sandbox::search_response::Match;
use mooring_wire::sandbox::{
    ListRequest, ListResponse, SearchRequest, SearchResponse, StatRequest, StatResponse,
};
use rustix::fs::{AtFlags, OFlags};

use crate::paths::{CanonicalPath, FileError, Paths, kind};
use crate::read;

const DEFAULT_LIMIT: u32 = 200;
const MAX_LIMIT: u32 = 2000;
const DEFAULT_ITEMS: u32 = 1000;
const MAX_ITEMS: usize = 10_000;
const MAX_TEXT: usize = 500;
const MAX_CONTEXT: u32 = 10;
/// Larger files are not searched.
const MAX_SEARCHED_BYTES: u64 = 256 << 20;
/// A search ends after this time with what it has.
const PATIENCE: Duration = Duration::from_secs(20);
/// One line may take this much memory.
const MAX_LINE_BYTES: usize = 8 << 20;

/// Answers a `Stat`.
pub fn stat(paths: &Paths, request: &StatRequest) -> Result<StatResponse, FileError> {
    let path = CanonicalPath::parse(&request.path)?;
    let fd = match paths.open(&path, OFlags::PATH) {
        Ok(fd) => fd,
        Err(FileError::NotFound(_)) => return Ok(StatResponse::default()),
        Err(error) => return Err(error),
    };
    let stat = rustix::fs::fstat(&fd).map_err(|e| FileError::at(path.as_path(), e))?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let kind = kind(&stat);
    let sha256 = if kind == "file" && size <= read::MAX_HASHED_BYTES {
        let (file, _) = paths.open_file(&path)?;
        read::hash(&file, size).map_err(|e| FileError::at(path.as_path(), e))?
    } else {
        String::new()
    };
    Ok(StatResponse {
        exists: true,
        kind: kind.into(),
        size,
        mode: stat.st_mode & 0o7777,
        modified_ms: stat.st_mtime * 1000
            + i64::try_from(stat.st_mtime_nsec / 1_000_000).unwrap_or(0),
        sha256,
    })
}

/// Answers a `List`: by name, folders and files mixed.
pub fn list(paths: &Paths, request: &ListRequest) -> Result<ListResponse, FileError> {
    let path = CanonicalPath::parse(&request.path)?;
    let folder = paths.open(&path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let failed = |error| FileError::at(path.as_path(), error);
    let limit = match request.limit {
        0 => DEFAULT_ITEMS as usize,
        limit => (limit as usize).min(MAX_ITEMS),
    };
    // The first by name, however many there are, in bounded memory.
    let mut names = std::collections::BTreeSet::new();
    let mut cut = false;
    for entry in rustix::fs::Dir::read_from(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes().to_vec();
        if name == b"." || name == b".." {
            continue;
        }
        names.insert(name);
        if names.len() > limit {
            names.pop_last();
            cut = true;
        }
    }
    let items = names
        .into_iter()
        .filter_map(|name| {
            let stat =
                rustix::fs::statat(&folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some(Item {
                name: String::from_utf8_lossy(&name).into_owned(),
                kind: kind(&stat).into(),
                size: u64::try_from(stat.st_size).unwrap_or(0),
            })
        })
        .collect();
    Ok(ListResponse { items, cut })
}

/// Answers a `Search`. Files that git ignores and `.git` itself are left out.
pub fn search(paths: &Paths, request: &SearchRequest) -> Result<SearchResponse, FileError> {
    let root = CanonicalPath::parse(&request.path)?;
    // Refuses what is not served before anything is walked.
    paths.open(&root, OFlags::PATH)?;
    let limit = match request.limit {
        0 => DEFAULT_LIMIT,
        limit => limit.min(MAX_LIMIT),
    };
    let mut search = Search {
        paths,
        found: SearchResponse::default(),
        limit: limit as usize,
        until: Instant::now() + PATIENCE,
    };
    let invalid = |error: &dyn std::fmt::Display| {
        FileError::Invalid(format!("the pattern is no good: {error}"))
    };
    match &request.what {
        Some(What::Regex(pattern)) => {
            let matcher = RegexMatcherBuilder::new()
                .case_insensitive(request.ignore_case)
                .size_limit(10 << 20)
                .dfa_size_limit(10 << 20)
                .line_terminator(Some(b'\n'))
                .build(pattern)
                .map_err(|error| invalid(&error))?;
            let walk = search.walk(root.as_path(), &request.include, request.ignore_case)?;
            search.contents(walk, &matcher, request.context.min(MAX_CONTEXT) as usize);
        }
        Some(What::Glob(pattern)) => {
            let walk = search.walk(root.as_path(), pattern, request.ignore_case)?;
            search.names(walk);
        }
        None => {
            return Err(FileError::Invalid(
                "neither a regular expression nor a glob was given".into(),
            ));
        }
    }
    Ok(search.found)
}

struct Search<'a> {
    paths: &'a Paths,
    found: SearchResponse,
    limit: usize,
    until: Instant,
}

impl Search<'_> {
    fn walk(&self, root: &Path, glob: &str, ignore_case: bool) -> Result<ignore::Walk, FileError> {
        let mut builder = WalkBuilder::new(root);
        builder
            .hidden(false)
            .follow_links(false)
            .require_git(false)
            .git_global(false)
            .parents(root.starts_with(&self.paths.project))
            .sort_by_file_name(Ord::cmp)
            .filter_entry(|entry| entry.file_name() != ".git");
        if !glob.is_empty() {
            let overrides = OverrideBuilder::new(root)
                .case_insensitive(ignore_case)
                .and_then(|builder| builder.add(glob))
                .and_then(|builder| builder.build())
                .map_err(|error| FileError::Invalid(format!("`{glob}` is no glob: {error}")))?;
            builder.overrides(overrides);
        }
        Ok(builder.build())
    }

    fn is_full(&mut self) -> bool {
        let full = self.found.matches.len() >= self.limit || Instant::now() >= self.until;
        self.found.cut |= full;
        full
    }

    fn names(&mut self, walk: ignore::Walk) {
        for entry in walk.flatten() {
            if !entry.file_type().is_some_and(|kind| kind.is_file()) {
                continue;
            }
            if self.is_full() {
                return;
            }
            self.found.files_searched += 1;
            let path = self.shown(entry.path());
            self.found.matches.push(Match {
                path,
                ..Match::default()
            });
        }
    }

    fn contents(&mut self, walk: ignore::Walk, matcher: &impl Matcher, context: usize) {
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_LINE_BYTES))
            .build();
        for entry in walk.flatten() {
            if !entry.file_type().is_some_and(|kind| kind.is_file()) {
                continue;
            }
            if self.is_full() {
                return;
            }
            // Opened as every file is, in case a folder became a symlink meanwhile.
            let Some(path) = entry
                .path()
                .to_str()
                .and_then(|path| CanonicalPath::parse(path).ok())
            else {
                continue;
            };
            let Ok((file, stat)) = self.paths.open_file(&path) else {
                continue;
            };
            if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > MAX_SEARCHED_BYTES {
                continue;
            }
            self.found.files_searched += 1;
            let shown = self.shown(entry.path());
            let mut sink = Matches {
                path: &shown,
                found: &mut self.found,
                limit: self.limit,
                until: self.until,
            };
            // A file that cannot be read, or has a line beyond bounds, is skipped.
            let _ = searcher.search_file(matcher, &file, &mut sink);
        }
    }

    fn shown(&self, path: &Path) -> String {
        let threads = self.paths.threads.as_deref();
        let in_worktree = || {
            let mut parts = path.strip_prefix(threads?).ok()?.components();
            parts.next().map(|_| parts.as_path())
        };
        let project = path.strip_prefix(&self.paths.project).ok();
        let shown = project.or_else(in_worktree).unwrap_or(path);
        shown.display().to_string()
    }
}

struct Matches<'a> {
    path: &'a str,
    found: &'a mut SearchResponse,
    limit: usize,
    until: Instant,
}

impl Matches<'_> {
    fn push(&mut self, line: Option<u64>, bytes: &[u8], is_context: bool) -> bool {
        if self.found.matches.len() >= self.limit || Instant::now() >= self.until {
            self.found.cut = true;
            return false;
        }
        // Four bytes a character at most; what is cut off is not decoded.
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT * 4)]);
        let text: String = text
            .trim_end_matches(['\r', '\n'])
            .chars()
            .take(MAX_TEXT)
            .collect();
        self.found.matches.push(Match {
            path: self.path.to_owned(),
            line: line.unwrap_or(0),
            text,
            is_context,
        });
        true
    }
}

impl Sink for Matches<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> std::io::Result<bool> {
        Ok(self.push(found.line_number(), found.bytes(), false))
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> std::io::Result<bool> {
        Ok(self.push(found.line_number(), found.bytes(), true))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn project() -> (tempfile::TempDir, Paths) {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().canonicalize().unwrap();
        for (name, text) in [
            (".gitignore", "ignored/\n"),
            ("src/a.rs", "fn one() {}\nfn two() {}\n"),
            ("src/b.txt", "fn three\n"),
            ("ignored/c.rs", "fn four() {}\n"),
            (".git/config", "fn five\n"),
            ("binary", "fn \0six\n"),
            ("long", &format!("fn {}\n", "é".repeat(2000))),
        ] {
            let path = project.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink("/etc", project.join("etc")).unwrap();
        let paths = Paths {
            threads: None,
            project,
            home: "/".into(),
            private: Vec::new(),
            output: "/nowhere".into(),
        };
        (folder, paths)
    }

    fn found(paths: &Paths, what: What, include: &str, limit: u32) -> (Vec<String>, bool) {
        let request = SearchRequest {
            path: paths.project.display().to_string(),
            what: Some(what),
            include: include.into(),
            limit,
            ..SearchRequest::default()
        };
        let answer = search(paths, &request).unwrap();
        for hit in &answer.matches {
            assert!(hit.text.chars().count() <= MAX_TEXT);
        }
        let hits = answer
            .matches
            .iter()
            .map(|hit| format!("{}:{}", hit.path, hit.line))
            .collect();
        (hits, answer.cut)
    }

    #[test]
    fn contents_and_names_are_found_but_not_what_git_ignores() {
        let (_folder, paths) = project();
        let regex = |text: &str| What::Regex(text.into());
        let glob = |text: &str| What::Glob(text.into());
        let table = [
            (
                regex("^fn "),
                "",
                0,
                vec!["long:1", "src/a.rs:1", "src/a.rs:2", "src/b.txt:1"],
                false,
            ),
            (
                regex("^fn "),
                "*.rs",
                0,
                vec!["src/a.rs:1", "src/a.rs:2"],
                false,
            ),
            (regex("fn"), "", 2, vec!["long:1", "src/a.rs:1"], true),
            (regex("root:"), "", 0, vec![], false),
            (glob("*.rs"), "", 0, vec!["src/a.rs:0"], false),
            (
                glob("src/*"),
                "",
                0,
                vec!["src/a.rs:0", "src/b.txt:0"],
                false,
            ),
        ];
        for (what, include, limit, expected, cut) in table {
            let told = format!("{what:?} in {include:?}");
            let answer = found(&paths, what, include, limit);
            assert_eq!(
                answer,
                (expected.into_iter().map(str::to_owned).collect(), cut),
                "{told}"
            );
        }
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let (_folder, paths) = project();
        for what in [What::Regex("(".into()), What::Glob("[".into())] {
            let request = SearchRequest {
                path: paths.project.display().to_string(),
                what: Some(what),
                ..SearchRequest::default()
            };
            assert!(matches!(
                search(&paths, &request),
                Err(FileError::Invalid(_))
            ));
        }
    }

    #[test]
    fn a_list_is_sorted_and_bounded() {
        let (_folder, paths) = project();
        let path = paths.project.display().to_string();
        let all = list(
            &paths,
            &ListRequest {
                path: path.clone(),
                limit: 0,
            },
        )
        .unwrap();
        let names: Vec<_> = all
            .items
            .iter()
            .map(|item| (item.name.as_str(), item.kind.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                (".git", "directory"),
                (".gitignore", "file"),
                ("binary", "file"),
                ("etc", "symlink"),
                ("ignored", "directory"),
                ("long", "file"),
                ("src", "directory"),
            ]
        );
        assert!(!all.cut);
        let some = list(&paths, &ListRequest { path, limit: 2 }).unwrap();
        assert_eq!((some.items.len(), some.cut), (2, true));
    }
}
