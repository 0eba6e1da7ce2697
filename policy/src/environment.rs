//! Facts about the place where a call would run.
//!
//! The harness answers them from the sandbox (`Resolve`), before the decision;
//! a review has no sandbox and says which facts it lacked.

use std::collections::BTreeMap;

/// What a path names once every link in it is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPath {
    /// Absolute, without `.`, `..` and symbolic links. For a file that does not
    /// exist yet: where it would come to be.
    pub canonical: String,
    /// Whether something is there now.
    pub exists: bool,
    /// Whether `canonical` lies in the project.
    pub in_project: bool,
    /// `file`, `directory`, `missing`, …, as the sandbox names it.
    pub kind: String,
    /// Number of hard links; 0 where it is not known.
    pub hard_links: u64,
}

/// Answers what only the place of execution knows.
pub trait Environment {
    /// The project folder, absolute.
    fn project(&self) -> &str;
    /// The home folder of commands, absolute.
    fn home(&self) -> &str;
    /// Where `path` leads: absolute, beginning with `~/`, or relative to the
    /// project. `None` is a fact that is lacked, and the decision says so.
    fn resolve(&self, path: &str) -> Option<ResolvedPath>;
    /// SHA-256 (hex) of a file's content; `None` where it is not known.
    fn content_hash(&self, path: &str) -> Option<String>;
}

/// Knows two folders and nothing else: paths are compared as they are written.
#[derive(Clone, Debug)]
pub struct NoEnvironment {
    project: String,
    home: String,
}

impl NoEnvironment {
    /// Both folders are absolute.
    pub fn new(project: &str, home: &str) -> NoEnvironment {
        NoEnvironment {
            project: trim(project),
            home: trim(home),
        }
    }
}

impl Default for NoEnvironment {
    fn default() -> NoEnvironment {
        NoEnvironment::new("/project", "/home/agent")
    }
}

impl Environment for NoEnvironment {
    fn project(&self) -> &str {
        &self.project
    }
    fn home(&self) -> &str {
        &self.home
    }
    fn resolve(&self, _path: &str) -> Option<ResolvedPath> {
        None
    }
    fn content_hash(&self, _path: &str) -> Option<String> {
        None
    }
}

/// The environment of a review. Where a path leads is a fact that it lacks, unless
/// the symbolic links of the place are given: then names are resolved by their
/// text and by those.
#[derive(Clone, Debug, Default)]
pub struct ReviewEnvironment {
    place: NoEnvironment,
    links: Option<BTreeMap<String, String>>,
}

impl ReviewEnvironment {
    /// Both folders are absolute.
    pub fn new(project: &str, home: &str) -> ReviewEnvironment {
        ReviewEnvironment {
            place: NoEnvironment::new(project, home),
            links: None,
        }
    }

    /// All symbolic links of the place: absolute name to target.
    pub fn with_links(mut self, links: BTreeMap<String, String>) -> ReviewEnvironment {
        self.links = Some(links);
        self
    }
}

/// Links followed at most, as Linux does (`ELOOP`).
const MAX_LINKS: usize = 40;

impl Environment for ReviewEnvironment {
    fn project(&self) -> &str {
        &self.place.project
    }

    fn home(&self) -> &str {
        &self.place.home
    }

    fn resolve(&self, path: &str) -> Option<ResolvedPath> {
        let links = self.links.as_ref()?;
        let mut canonical = normalize(&absolute(path, self.project(), self.home()));
        for _ in 0..MAX_LINKS {
            let Some((link, target)) = links.iter().find(|(link, _)| is_within(&canonical, link))
            else {
                break;
            };
            let rest = canonical[link.len()..].to_owned();
            let parent = link.rsplit_once('/').map_or("/", |(parent, _)| parent);
            let target = if target.starts_with('/') {
                target.clone()
            } else {
                format!("{parent}/{target}")
            };
            canonical = normalize(&format!("{target}{rest}"));
        }
        Some(ResolvedPath {
            in_project: is_within(&canonical, self.project()),
            canonical,
            exists: false,
            kind: "unknown".to_owned(),
            hard_links: 0,
        })
    }

    fn content_hash(&self, _path: &str) -> Option<String> {
        None
    }
}

fn trim(path: &str) -> String {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() {
        "/".to_owned()
    } else {
        trimmed.to_owned()
    }
}

/// Whether `path` is `folder` or lies in it; both normalised.
pub(crate) fn is_within(path: &str, folder: &str) -> bool {
    folder == "/"
        || path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Joins a path as a call gives it to the folders it is relative to.
pub(crate) fn absolute(path: &str, project: &str, home: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else if path == "~" {
        home.to_owned()
    } else if let Some(rest) = path.strip_prefix("~/") {
        format!("{home}/{rest}")
    } else {
        format!("{project}/{path}")
    }
}

/// Removes `.`, `..` and doubled slashes from an absolute path by its text, and
/// follows the links of `/proc` whose targets are known.
pub(crate) fn normalize(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            "root" if in_proc(&parts) => parts.clear(),
            _ => parts.push(part),
        }
    }
    let mut result = String::with_capacity(path.len());
    for part in &parts {
        result.push('/');
        result.push_str(part);
    }
    if result.is_empty() {
        "/".to_owned()
    } else {
        result
    }
}

/// `/proc/<process>` or `/proc/<process>/task/<thread>`, where `root` is `/`.
fn in_proc(parts: &[&str]) -> bool {
    let is_process = |name: &str| {
        matches!(name, "self" | "thread-self") || name.bytes().all(|byte| byte.is_ascii_digit())
    };
    match parts {
        ["proc", process] => is_process(process),
        ["proc", process, "task", thread] => is_process(process) && is_process(thread),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_resolved_by_their_text() {
        let place = ReviewEnvironment::new("/p", "/home/a").with_links(BTreeMap::new());
        for (given, canonical, inside) in [
            ("src/a.rs", "/p/src/a.rs", true),
            ("src/../../etc/x", "/etc/x", false),
            ("~/.ssh/id", "/home/a/.ssh/id", false),
            ("./~/.ssh/id", "/p/~/.ssh/id", true),
            ("/proc/self/root/etc/x", "/etc/x", false),
            ("/proc/12/task/12/root/etc/x", "/etc/x", false),
            ("/p//src/./b/", "/p/src/b", true),
            ("/project", "/project", false),
            ("", "/p", true),
        ] {
            let resolved = place.resolve(given).unwrap();
            assert_eq!(
                (resolved.canonical.as_str(), resolved.in_project),
                (canonical, inside)
            );
        }
    }

    #[test]
    fn links_are_followed_and_a_loop_ends() {
        let links = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect()
        };
        let place = ReviewEnvironment::new("/p", "/h").with_links(links(&[
            ("/p/a", "b"),
            ("/p/b", "/etc"),
            ("/p/x", "/p/x"),
        ]));
        assert_eq!(place.resolve("a/passwd").unwrap().canonical, "/etc/passwd");
        assert_eq!(place.resolve("x").unwrap().canonical, "/p/x");
    }
}
