//! `mooring demo`, as somebody sees it who runs it for the first time.

use std::{
    path::{Path, PathBuf},
    process::{Child, Output},
};

use mooring_tests::{
    project::{Project, met, told},
    terminal::Terminal,
};

/// A demonstration that takes place in a folder of its own.
struct Demo {
    project: Project,
    temporary: tempfile::TempDir,
}

impl Demo {
    fn new() -> Demo {
        let mut project = Project::new();
        let temporary = tempfile::Builder::new()
            .prefix("demo-")
            .tempdir_in("/tmp")
            .unwrap();
        let path = temporary.path().display().to_string();
        project.variables.push(("TMPDIR".into(), path));
        Demo { project, temporary }
    }

    fn start(&self) -> Child {
        self.project.spawn(&["demo"])
    }

    async fn end(child: Child) -> Output {
        tokio::task::spawn_blocking(|| child.wait_with_output().unwrap())
            .await
            .unwrap()
    }

    /// Its folder, once it is there.
    async fn folder(&self) -> PathBuf {
        let find = || inside(self.temporary.path()).into_iter().next();
        met(|| find().is_some_and(|folder| folder.join("project/searches").is_dir())).await;
        find().unwrap()
    }

    /// Nothing of it is left: no file, no process, no socket.
    fn left_nothing(&self) {
        assert_eq!(inside(self.temporary.path()), Vec::<PathBuf>::new());
        let mark = self.temporary.path().display().to_string();
        for process in inside(Path::new("/proc")) {
            let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            assert!(!line.contains(&mark), "{}: {line}", process.display());
        }
    }
}

fn inside(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn the_demonstration_shows_that_nothing_is_lost_and_leaves_nothing_behind() {
    let demo = Demo::new();
    let output = Demo::end(demo.start()).await;
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        "kill -9",
        "8 checks, all as they should be.",
        "✓ The search of src had finished",
        "✓ The search of docs had finished",
        "✓ The search of tests had not",
        "✓ The conversation was compacted",
        "no language model",
    ] {
        assert!(text.contains(part), "{part}: {}", told(&output));
    }
    assert!(!text.contains('✗') && !text.contains('\u{1b}'), "{text}");
    demo.left_nothing();
}

#[tokio::test]
async fn the_demonstration_fails_where_a_search_has_acted_twice() {
    use std::io::Write;
    let demo = Demo::new();
    let child = demo.start();
    let notes = demo.folder().await.join("project/searches/src");
    let mut file = std::fs::File::options()
        .append(true)
        .create(true)
        .open(notes)
        .unwrap();
    file.write_all(b"began\nended\n").unwrap();
    let output = Demo::end(child).await;
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("✗ The search of src"), "{}", told(&output));
    assert!(text.contains("1 of 8 checks went wrong"), "{text}");
    demo.left_nothing();
}

#[test]
fn a_demonstration_that_is_interrupted_at_the_keyboard_leaves_nothing_behind() {
    let demo = Demo::new();
    let mut terminal = Terminal::open(&demo.project, "demo", 40, 100);
    // Nobody holds the conversation: the sandbox and its command are what is left.
    terminal.shows("kill -9");
    terminal.press("\x03");
    assert_eq!(terminal.ended().code(), Some(130), "{}", terminal.text());
    terminal.shows("Interrupted");
    demo.left_nothing();
}
