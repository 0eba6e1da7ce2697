//! What a push does: whether it is a fast-forward, its commits and their authors, the
//! files that it changes. What cannot be computed is said, and counts as forced.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    fmt::Write as _,
};

use gix::objs::Kind;
use mooring_policy::escape_for_display;

use super::{
    mirror::{Object, Opened},
    receive::Update,
};

/// Commits that are walked.
pub const MOST_COMMITS: usize = 50_000;
/// Trees that are compared.
const MOST_TREES: usize = 20_000;
/// Folders within folders.
const MOST_DEPTH: usize = 100;
/// Commits and files that are named.
const NAMED: usize = 20;

/// What one update does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Whether nothing is lost: the old commit is an ancestor of the new one. `None`
    /// where that is not known.
    pub fast_forward: Option<bool>,
    /// Commits that are new to the ref, newest first, as far as they are named.
    pub commits: Vec<Commit>,
    /// All of them.
    pub count: usize,
    /// Their authors.
    pub authors: BTreeSet<String>,
    /// Files: how (`A`, `D`, `M`) and where, as far as they are named.
    pub files: Vec<(char, String)>,
    /// All of them; `None` where it is not known.
    pub changed: Option<usize>,
}

/// A commit, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The beginning of its id.
    pub id: String,
    /// Who wrote it.
    pub author: String,
    /// Its first line.
    pub subject: String,
}

struct Parsed {
    tree: String,
    parents: Vec<String>,
    author: String,
    subject: String,
}

fn parse(data: &[u8]) -> Parsed {
    let text = String::from_utf8_lossy(data);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut parsed = Parsed {
        tree: String::new(),
        parents: Vec::new(),
        author: String::new(),
        subject: start(body.lines().next().unwrap_or_default()),
    };
    for line in head.lines() {
        match line.split_once(' ') {
            Some(("tree", id)) => parsed.tree = id.to_owned(),
            Some(("parent", id)) => parsed.parents.push(id.to_owned()),
            Some(("author", who)) => {
                let end = who.rfind('>').map_or(who.len(), |at| at + 1);
                parsed.author = start(&who[..end]);
            }
            _ => {}
        }
    }
    parsed
}

/// A line is kept only as far as a card shows it.
fn start(text: &str) -> String {
    text.chars().take(200).collect()
}

/// What an object of history leads to: a commit's parents, a tag's target.
pub fn targets(object: &Object) -> Vec<String> {
    match object.kind {
        Kind::Commit => parse(&object.data).parents,
        Kind::Tag => {
            let text = String::from_utf8_lossy(&object.data);
            let target = text.lines().find_map(|line| line.strip_prefix("object "));
            target.map(str::to_owned).into_iter().collect()
        }
        Kind::Tree | Kind::Blob => Vec::new(),
    }
}

/// Looks at commits, each once.
struct History<'a> {
    objects: &'a Opened,
    read: HashMap<String, Option<Parsed>>,
}

impl History<'_> {
    fn commit(&mut self, id: &str) -> Option<&Parsed> {
        if !self.read.contains_key(id) {
            let found = self.objects.get(id).filter(|it| it.kind == Kind::Commit);
            self.read
                .insert(id.to_owned(), found.map(|it| parse(&it.data)));
        }
        self.read.get(id)?.as_ref()
    }

    /// All ancestors of `from` and itself, but for those in `without`, in the order in
    /// which they are met; and whether they are all there.
    fn ancestors(&mut self, from: &str, without: &HashSet<String>) -> (Vec<String>, bool) {
        let (mut met, mut whole) = (Vec::new(), true);
        let mut seen = HashSet::new();
        let mut next = VecDeque::from([from.to_owned()]);
        while let Some(id) = next.pop_front() {
            if without.contains(&id) || !seen.insert(id.clone()) {
                continue;
            }
            if seen.len() > MOST_COMMITS {
                return (met, false);
            }
            match self.commit(&id) {
                Some(commit) => next.extend(commit.parents.clone()),
                None => {
                    whole = false;
                    continue;
                }
            }
            met.push(id);
        }
        (met, whole)
    }
}

/// What `update` does, as far as the objects tell.
pub fn effect(objects: &Opened, update: &Update) -> Effect {
    let mut effect = Effect::default();
    if update.deletes() {
        return effect;
    }
    let mut history = History {
        objects,
        read: HashMap::new(),
    };
    // A tag stands for what it names.
    let mut new = update.new.clone();
    for _ in 0..8 {
        match objects.get(&new) {
            Some(tag) if tag.kind == Kind::Tag => {
                new = targets(&tag).into_iter().next().unwrap_or_default();
            }
            _ => break,
        }
    }
    let mut base = None;
    let mut known = HashSet::new();
    if !update.creates() {
        let (reached, whole) = history.ancestors(&new, &HashSet::new());
        effect.fast_forward = match reached.contains(&update.old) {
            true => Some(true),
            false if whole => Some(false),
            false => None,
        };
        known.extend(history.ancestors(&update.old, &HashSet::new()).0);
        base = Some(update.old.clone());
    }
    let (reached, _) = history.ancestors(&new, &known);
    let fresh: Vec<&String> = match update.creates() {
        true => reached.iter().filter(|id| objects.is_pushed(id)).collect(),
        false => reached.iter().collect(),
    };
    effect.count = fresh.len();
    for id in &fresh {
        let Some(commit) = history.commit(id) else {
            continue;
        };
        if effect.authors.len() < NAMED {
            effect.authors.insert(commit.author.clone());
        }
        if effect.commits.len() < NAMED {
            effect.commits.push(Commit {
                id: id[..10].to_owned(),
                author: commit.author.clone(),
                subject: commit.subject.clone(),
            });
        }
    }
    if base.is_none() {
        base = reached.iter().find(|id| !objects.is_pushed(id)).cloned();
    }
    let before = match &base {
        None => Some(None),
        Some(base) => history.commit(base).map(|commit| Some(commit.tree.clone())),
    };
    let after = history.commit(&new).map(|commit| commit.tree.clone());
    if let (Some(before), Some(after)) = (before, after) {
        let mut comparison = Comparison {
            objects,
            trees: 0,
            depth: 0,
            files: Vec::new(),
            count: 0,
        };
        if comparison.trees(before.as_deref(), Some(&after), "") {
            effect.changed = Some(comparison.count);
            effect.files = comparison.files;
        }
    }
    effect
}

struct Comparison<'a> {
    objects: &'a Opened,
    trees: usize,
    depth: usize,
    files: Vec<(char, String)>,
    count: usize,
}

type Entries = Vec<(String, bool, String)>;

impl Comparison<'_> {
    /// Name, whether it is a folder, and what it is.
    fn entries(&mut self, tree: Option<&str>) -> Option<Entries> {
        let Some(id) = tree else {
            return Some(Vec::new());
        };
        self.trees += 1;
        if self.trees > MOST_TREES || self.depth > MOST_DEPTH {
            return None;
        }
        let object = self.objects.get(id).filter(|it| it.kind == Kind::Tree)?;
        let mut entries = Vec::new();
        let mut rest = object.data.as_slice();
        while !rest.is_empty() {
            let blank = rest.iter().position(|byte| *byte == b' ')?;
            let end = rest.iter().position(|byte| *byte == 0)?;
            let id = rest.get(end + 1..end + 21)?;
            let name = String::from_utf8_lossy(rest.get(blank + 1..end)?).into_owned();
            let folder = rest[..blank].trim_ascii_start().ends_with(b"40000");
            let mode = String::from_utf8_lossy(&rest[..blank]).into_owned();
            let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            let what = match folder {
                true => hex,
                false => format!("{mode} {hex}"),
            };
            entries.push((name, folder, what));
            rest = &rest[end + 21..];
        }
        Some(entries)
    }

    fn file(&mut self, how: char, path: &str) {
        self.count += 1;
        if self.files.len() < NAMED {
            self.files.push((how, path.to_owned()));
        }
    }

    /// Compares two trees; `false` where one of them cannot be read.
    fn trees(&mut self, before: Option<&str>, after: Option<&str>, place: &str) -> bool {
        if before == after {
            return true;
        }
        let (Some(before), Some(after)) = (self.entries(before), self.entries(after)) else {
            return false;
        };
        let by_name = |entries: Entries| -> HashMap<String, (bool, String)> {
            let pairs = entries.into_iter();
            pairs
                .map(|(name, folder, what)| (name, (folder, what)))
                .collect()
        };
        let (mut before, mut after) = (by_name(before), by_name(after));
        let names: BTreeSet<String> = before.keys().chain(after.keys()).cloned().collect();
        for name in names {
            let (was, now) = (before.remove(&name), after.remove(&name));
            if was == now {
                continue;
            }
            let path = match place {
                "" => name,
                place => format!("{place}/{name}"),
            };
            let folder =
                |it: &Option<(bool, String)>| it.as_ref().filter(|it| it.0).map(|it| it.1.clone());
            let file = |it: &Option<(bool, String)>| it.as_ref().is_some_and(|it| !it.0);
            match (file(&was), file(&now)) {
                (true, true) => self.file('M', &path),
                (true, false) => self.file('D', &path),
                (false, true) => self.file('A', &path),
                (false, false) => {}
            }
            let (was, now) = (folder(&was), folder(&now));
            if was.is_none() && now.is_none() {
                continue;
            }
            self.depth += 1;
            let read = self.trees(was.as_deref(), now.as_deref(), &path);
            self.depth -= 1;
            if !read {
                return false;
            }
        }
        true
    }
}

/// One line for a card: what the update does.
pub fn line(update: &Update, effect: &Effect) -> String {
    let mut words = Vec::new();
    match (update.creates(), update.deletes()) {
        (_, true) => words.push("removes the ref".to_owned()),
        (true, _) => words.push("makes the ref".to_owned()),
        _ if update.is_tag() => words.push("moves a tag".to_owned()),
        _ => words.push(
            match effect.fast_forward {
                Some(true) => "fast-forward",
                Some(false) => "not a fast-forward: commits are lost",
                None => "whether it is a fast-forward is not known",
            }
            .to_owned(),
        ),
    }
    if !update.deletes() {
        words.push(format!(
            "{} new {}",
            effect.count,
            if effect.count == 1 {
                "commit"
            } else {
                "commits"
            }
        ));
        words.push(match effect.changed {
            Some(1) => "1 file changed".to_owned(),
            Some(count) => format!("{count} files changed"),
            None => "which files change is not known".to_owned(),
        });
    }
    words.join(", ")
}

/// All of it, for a card's detail.
pub fn detail(update: &Update, effect: &Effect) -> String {
    let mut out = String::new();
    let short = |id: &str| id[..10].to_owned();
    let _ = writeln!(
        out,
        "{} {}..{}: {}",
        escape_for_display(&update.name),
        short(&update.old),
        short(&update.new),
        line(update, effect)
    );
    if !effect.authors.is_empty() {
        let authors: Vec<_> = effect
            .authors
            .iter()
            .map(|it| escape_for_display(it))
            .collect();
        let _ = writeln!(out, "  by {}", authors.join(", "));
    }
    for commit in &effect.commits {
        let subject = escape_for_display(&commit.subject);
        let _ = writeln!(out, "  {} {subject}", commit.id);
    }
    if effect.count > effect.commits.len() {
        let _ = writeln!(
            out,
            "  [{} more commits]",
            effect.count - effect.commits.len()
        );
    }
    for (how, path) in &effect.files {
        let _ = writeln!(out, "  {how} {}", escape_for_display(path));
    }
    if let Some(changed) = effect.changed.filter(|it| *it > effect.files.len()) {
        let _ = writeln!(out, "  [{} more files]", changed - effect.files.len());
    }
    out
}
