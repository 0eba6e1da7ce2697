//! Forks, side chats and resets, as people ask for them.

use mooring_tests::project::{Project, told};
use mooring_wire::harness::ViewRequest;

const ALLOW: &str = "tool: {\"*\": allow}\nbash: {\"*\": allow}\npath: {\"*\": allow}";

#[tokio::test]
async fn a_conversation_is_forked_asked_beside_and_reset_from_the_command_line() {
    let script = "announce: false\nturns:\n- text: An answer.\n";
    let project = Project::scripted(script, ALLOW);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "first question").await;
    let view = project.idle(&mut client, conversation).await;
    let first = view.entries[0].id.to_string();

    let printed = |arguments: &[&str]| {
        let output = project.mooring(arguments);
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let fork = printed(&["fork", &conversation.to_string(), "--at", &first]);
    let listed = printed(&["entries", &fork]);
    assert!(listed.contains("first question"), "{listed}");
    assert!(!listed.contains("An answer."), "{listed}");
    assert!(listed.contains("is a fork of conversation"), "{listed}");
    let listed = printed(&["conversations"]);
    assert!(listed.contains("first question (fork)"), "{listed}");

    let side = printed(&["fork", &conversation.to_string(), "--side"]);
    let listed = printed(&["entries", &side]);
    assert!(!listed.contains("first question"), "{listed}");
    let id = side.parse().unwrap();
    let view = client
        .view(ViewRequest {
            conversation: id,
            ..ViewRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    assert!(view.side_chat && view.parent == conversation);

    printed(&["reset", &conversation.to_string(), "--brief", "begin here"]);
    let listed = printed(&["entries", &conversation.to_string()]);
    assert!(listed.contains("begin here"), "{listed}");

    let wrong = project.mooring(&["fork", &conversation.to_string(), "--at", "999999"]);
    assert!(!wrong.status.success());
    assert!(told(&wrong).contains("is not part of"), "{}", told(&wrong));
}

#[tokio::test]
async fn a_conversation_leaves_as_a_file_is_deleted_and_comes_back_whole() {
    let script = "announce: false\nturns:\n- calls: [{tool: bash, arguments: {command: echo hello}}]\n- text: Done.\n";
    let project = Project::scripted(script, ALLOW);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "first question").await;
    project.idle(&mut client, conversation).await;
    let id = conversation.to_string();
    let printed = |arguments: &[&str]| {
        let output = project.mooring(arguments);
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    // Numbers differ afterwards; what was said does not.
    let words = |id: &str| {
        let lines = printed(&["entries", id, "-o", "json"]);
        let text = |line: &str| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} {} {}", entry["kind"], entry["at_ms"], entry["text"])
        };
        lines.lines().map(text).collect::<Vec<_>>()
    };
    let before = words(&id);
    assert!(before.len() >= 4, "{before:?}");
    let file = project.path("kept.jsonl");
    let path = file.to_str().unwrap();
    let said = printed(&["export", &id, "-o", path]);
    assert!(said.contains("kept.jsonl"), "{said}");
    assert_eq!(
        printed(&["export", &id]).lines().count(),
        std::fs::read_to_string(&file).unwrap().lines().count()
    );

    let asked = project.mooring(&["delete", &id]);
    assert!(!asked.status.success(), "{}", told(&asked));
    assert!(told(&asked).contains("--yes"), "{}", told(&asked));
    printed(&["delete", &id, "--yes"]);
    let gone = project.mooring(&["delete", &id, "--yes"]);
    assert!(
        told(&gone).contains("there is no conversation"),
        "{}",
        told(&gone)
    );
    assert!(!printed(&["conversations"]).contains("first question"));

    let new = printed(&["import", path]);
    assert_ne!(new, id);
    assert_eq!(words(&new), before);
    let audit = printed(&["audit", "--conversation", &new, "-o", "json"]);
    assert!(audit.contains("echo hello"), "{audit}");
    // The beginning of a file is no file.
    let text = std::fs::read_to_string(&file).unwrap();
    let cut: Vec<_> = text
        .lines()
        .take(9)
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&file, cut.concat()).unwrap();
    let refused = project.mooring(&["import", path]);
    assert!(!refused.status.success());
    assert!(
        told(&refused).contains("only the beginning"),
        "{}",
        told(&refused)
    );
    assert_eq!(printed(&["conversations"]).lines().count(), 1);
}

#[tokio::test]
async fn a_side_chat_in_the_terminal_answers_and_the_way_back_is_told() {
    use std::io::Write as _;
    let script = "announce: false\nturns:\n- text: An answer.\n";
    let project = Project::scripted(script, ALLOW);
    project.start().await;
    let mut terminal = project
        .command(&["dev", "workspace.yaml"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = terminal.stdin.take().unwrap();
    input.write_all(b"hello\n/btw what is this?\n").unwrap();
    drop(input);
    let output = tokio::task::spawn_blocking(|| terminal.wait_with_output().unwrap())
        .await
        .unwrap();
    let text = told(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("a side chat of"), "{text}");
    assert!(text.contains("goes back"), "{text}");
    assert!(text.contains("An answer."), "{text}");
}

#[tokio::test]
async fn a_conversation_is_compacted_and_goes_on_and_each_request_can_be_printed() {
    let script = "announce: false\nturns:\n- text: One.\n- text: Two.\n- text: Three.\n";
    let project = Project::scripted(script, ALLOW);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "first question").await;
    project.idle(&mut client, conversation).await;
    project.submit(&mut client, conversation, "second").await;
    let view = project.idle(&mut client, conversation).await;
    let answer = view.entries.last().unwrap().task.to_string();

    let compacted = project.mooring(&["compact", "--about", "the question"]);
    assert!(compacted.status.success(), "{}", told(&compacted));
    let view = project
        .until(&mut client, conversation, "the summary", |view| {
            let last = view.entries.last()?;
            (last.kind == "pi.compaction").then(|| view.clone())
        })
        .await;
    let text = &view.entries.last().unwrap().text;
    assert!(text.contains("It began: first question"), "{text}");
    project.submit(&mut client, conversation, "third").await;
    let view = project.idle(&mut client, conversation).await;
    assert_eq!(view.entries.last().unwrap().text, "Three.");

    let listed = project.mooring(&["entries"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(text.contains(&format!("request {answer}")), "{text}");
    let request = |number: &str| {
        let output = project.mooring(&["entries", "--request", number]);
        assert!(output.status.success(), "{}", told(&output));
        assert!(output.stderr.is_empty(), "{}", told(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    // As it was before the summary.
    let before = request(&answer).to_string();
    assert!(before.contains("first question") && !before.contains("compacted"));
    let after = request(&view.entries.last().unwrap().task.to_string()).to_string();
    assert!(after.contains("was compacted"), "{after}");
    let summary = text.split("compaction  request ").nth(1).unwrap();
    let number = summary.split_whitespace().next().unwrap();
    assert!(request(number).to_string().contains("the question"));
}

#[tokio::test]
async fn the_diff_is_against_what_was_there_before_the_conversation_wrote_it() {
    let script = r#"
announce: false
turns:
- calls:
  - {tool: todo, arguments: {items: [{text: "write it", state: doing}, {text: "check it", state: open}]}}
  - {tool: write, arguments: {path: old.txt, content: "two\n"}}
- calls:
  - {tool: edit, arguments: {path: old.txt, old: two, new: three}}
  - {tool: write, arguments: {path: new.txt, content: "new\n"}}
- text: Written.
"#;
    let project = Project::scripted(script, ALLOW);
    std::fs::write(project.path("old.txt"), "one\n").unwrap();
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "write").await;
    let view = project.idle(&mut client, conversation).await;
    assert_eq!(view.entries.last().unwrap().text, "Written.");
    let plan = view
        .entries
        .iter()
        .find(|entry| entry.text.contains("plan"));
    assert_eq!(
        plan.unwrap().text,
        "The plan is kept: 0 of 2 done; now: write it."
    );
    let diff = || {
        let output = project.mooring(&["diff"]);
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(
        diff(),
        "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n\
         --- a/old.txt\n+++ b/old.txt\n@@ -1 +1 @@\n-one\n+three\n"
    );
    // It survives the process, and knows what others did since.
    project.kill_harness().await;
    std::fs::write(project.path("old.txt"), "one\n").unwrap();
    std::fs::remove_file(project.path("new.txt")).unwrap();
    assert!(diff().contains("no file is other"), "{}", diff());
}
