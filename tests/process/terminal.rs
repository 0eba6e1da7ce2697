//! What a person sees in the terminal, key by key.

use std::{io::Write, process::Stdio};

use mooring_tests::{
    project::{Project, met, told},
    terminal::Terminal,
};

const ASK: &str = "tool: {\"*\": allow}\nbash: {\"*\": allow, \"rm *\": ask}\npath: {\"*\": allow}\nexternalDirectory: allow";

/// An answer that comes slowly, a step that asks, and a command that lasts.
const SCRIPT: &str = r#"
announce: false
turns:
- text: "First words, and then the last words."
  paceMs: 400
  calls:
  - {tool: bash, arguments: {command: "rm -f old.txt"}}
- text: "It is gone."
- text: "Working."
  calls:
  - {tool: bash, arguments: {command: "echo started > started.txt; sleep 600"}}
- text: "Not come to."
"#;

#[test]
fn a_run_is_seen_as_it_streams_asks_and_is_stopped() {
    let project = Project::scripted(SCRIPT, ASK);
    std::fs::write(project.path("old.txt"), "x").unwrap();
    let mut terminal = Terminal::open(&project, "dev workspace.yaml", 30, 100);
    terminal.shows("/help");
    let empty = terminal.cursor_column();
    terminal.press("clean up");
    terminal.until("what is typed", |screen| screen.contains("clean up"));
    assert!(terminal.cursor_column() >= empty + 8);
    terminal.press("\r");
    // The beginning is on the screen before the end has come.
    terminal.until("the beginning of the answer", |screen| {
        screen.contains("First words") && !screen.contains("last words")
    });
    let card = terminal.until("the approval card", |screen| {
        screen.contains("? approval") && screen.contains("last words")
    });
    assert!(card.contains("rm -f old.txt"), "{card}");
    assert!(card.contains("rm *"), "the rule that asks is named: {card}");
    assert!(project.path("old.txt").exists());
    terminal.press("/approve\r");
    terminal.shows("It is gone.");
    let done = terminal.shows("[done]");
    assert!(!project.path("old.txt").exists(), "{done}");
    // The answer stands there once, and what was typed too.
    assert_eq!(done.matches("First words, and").count(), 1, "{done}");
    assert_eq!(done.matches("clean up").count(), 1, "{done}");

    terminal.press("work\r");
    terminal.until("the running command", |_| {
        project.path("started.txt").exists()
    });
    terminal.press("\x03");
    terminal.shows("the run was stopped");
    terminal.shows("Ctrl-C again leaves");
    terminal.press("\x03");
    assert!(terminal.ended().success());
}

#[test]
fn a_second_ctrl_c_leaves_at_once_and_the_run_is_stopped_all_the_same() {
    let project = Project::with_workspace(ASK);
    let mut terminal = Terminal::open(&project, "dev workspace.yaml", 24, 80);
    terminal.shows("/help");
    terminal.press("run echo x > started.txt; sleep 600\r");
    terminal.until("the running command", |_| {
        project.path("started.txt").exists()
    });
    terminal.press("\x03\x03");
    assert!(terminal.ended().success());
}

#[test]
fn a_narrow_terminal_wraps_and_loses_nothing() {
    let project = Project::with_workspace(ASK);
    let mut terminal = Terminal::open(&project, "dev workspace.yaml", 24, 32);
    terminal.shows("/help");
    let long = "run rm -f one-file-with-a-long-name.txt another-file-with-a-long-name.txt";
    terminal.press(long);
    let joined = |screen: &str| screen.split_whitespace().collect::<String>();
    terminal.until("the whole input", |screen| {
        joined(screen).contains("another-file-with-a-long-name.txt")
    });
    terminal.press("\r");
    terminal.until("the whole command on the card", |screen| {
        screen.contains("? approval")
            && screen
                .lines()
                .filter(|line| line.contains('│'))
                .map(|line| line.replace('│', ""))
                .collect::<String>()
                .split_whitespace()
                .collect::<String>()
                .contains("another-file-with-a-long-name.txt")
    });
    assert!(
        terminal
            .lines()
            .iter()
            .all(|line| line.chars().count() <= 32)
    );
    terminal.press("/deny\r");
    terminal.shows("denied");
    terminal.press("/quit\r");
    assert!(terminal.ended().success());
}

#[tokio::test]
async fn without_a_terminal_the_talk_is_plain_lines() {
    let project = Project::with_workspace(ASK);
    let mut child = project
        .command(&["dev", "workspace.yaml"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input
        .write_all(b"run echo $((6*7)) > answer.txt\n")
        .unwrap();
    met(|| project.read("answer.txt") == "42\n").await;
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains('\x1b'), "no control sequences: {text:?}");
    assert!(text.contains("[done]"), "{text}");
}
