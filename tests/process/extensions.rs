//! What a conversation has: files that tell the model how to work, and sets of tools.

use std::os::unix::fs::symlink;

use mooring_tests::project::{Project, told};
use mooring_wire::harness::ConversationView;
use serde_json::Value;

const ALLOW: &str =
    "tool: {\"*\": allow}\nbash: {\"*\": allow}\npath: {\"*\": allow, \"closed/*\": deny}";

/// System and tool entries from an entry on, in order.
fn told_since(view: &ConversationView, entry: i64) -> Vec<String> {
    let entries = view.entries.iter().filter(|it| it.id > entry);
    let of = entries.filter(|it| it.kind == "pi.system" || it.kind == "pi.tool-result");
    of.map(|entry| format!("{}: {}", entry.kind, entry.text))
        .collect()
}

fn newest(view: &ConversationView) -> i64 {
    view.entries.last().unwrap().id
}

/// The number of the last answer's request.
fn answered(view: &ConversationView) -> String {
    view.entries.last().unwrap().task.to_string()
}

#[tokio::test]
async fn what_agents_files_say_is_told_and_a_change_is_told_where_it_was_made() {
    let script = "announce: false\nturns:\n\
                  - text: First.\n\
                  - calls: [{tool: read, arguments: {path: src/deep/lib.rs}}]\n\
                  - calls: [{tool: read, arguments: {path: closed/a.txt}}]\n\
                  - text: Second.\n\
                  - text: Third.\n\
                  - text: Fourth.\n\
                  - text: Fifth.\n";
    let project = Project::scripted(script, ALLOW);
    for folder in ["src/deep", "closed", "other"] {
        std::fs::create_dir_all(project.path(folder)).unwrap();
    }
    let write = |path: &str, text: &str| std::fs::write(project.path(path), text).unwrap();
    write("AGENTS.md", "Indent with tabs.\n");
    write("src/AGENTS.md", "No unsafe code here.\n");
    write("src/deep/lib.rs", "fn main() {}\n");
    write("closed/AGENTS.md", "Hidden words.\n");
    write("other/AGENTS.md", "Words of another folder.\n");
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "one").await;
    let view = project.idle(&mut client, conversation).await;
    let first = told_since(&view, 0).concat();
    assert!(first.contains("Indent with tabs."), "{first}");
    assert!(!first.contains("No unsafe code"), "{first}");

    // A folder's file is told once something in the folder was read, after that result;
    // one that the policy hides is not, nor is that of a folder that nobody looked into.
    let before = newest(&view);
    project.submit(&mut client, conversation, "two").await;
    let view = project.idle(&mut client, conversation).await;
    let second = told_since(&view, before);
    assert!(second[0].contains("fn main"), "{second:#?}");
    assert!(
        second[1].starts_with("pi.system") && second[1].contains("No unsafe code here."),
        "{second:#?}"
    );
    let all = told_since(&view, 0).concat();
    assert!(!all.contains("Hidden words"), "{all}");
    assert!(!all.contains("another folder"), "{all}");

    // A change, and an end, are told at the next request; the rest is not told again.
    let before = newest(&view);
    write("AGENTS.md", "Indent with spaces.\n");
    project.submit(&mut client, conversation, "three").await;
    let view = project.idle(&mut client, conversation).await;
    let third = told_since(&view, before);
    assert_eq!(third.len(), 1, "{third:#?}");
    assert!(third[0].contains("now reads"), "{third:#?}");
    assert!(third[0].contains("Indent with spaces."), "{third:#?}");
    let request = project.mooring(&["entries", "--request", &answered(&view)]);
    let sent = told(&request);
    let (tabs, spaces) = (sent.find("with tabs"), sent.find("with spaces"));
    assert!(tabs.is_some() && tabs < spaces, "{sent}");

    // Which folders were worked in is not forgotten with the process.
    let before = newest(&view);
    drop(client);
    project.kill_harness().await;
    let mut client = project.client().await;
    std::fs::remove_file(project.path("AGENTS.md")).unwrap();
    symlink("/etc/passwd", project.path("AGENTS.md")).unwrap();
    write("src/AGENTS.md", "Unsafe code is fine.\n");
    project.submit(&mut client, conversation, "four").await;
    let view = project.idle(&mut client, conversation).await;
    let fourth = told_since(&view, before).concat();
    assert!(fourth.contains("Unsafe code is fine."), "{fourth}");
    assert!(fourth.contains("no longer holds"), "{fourth}");
    assert!(!fourth.contains("root:"), "a link leads out of the project");

    // A long file is cut, and says so.
    let before = newest(&view);
    std::fs::remove_file(project.path("AGENTS.md")).unwrap();
    write("AGENTS.md", &"One rule more.\n".repeat(100_000));
    project.submit(&mut client, conversation, "five").await;
    let view = project.idle(&mut client, conversation).await;
    let fifth = told_since(&view, before).concat();
    assert!(fifth.contains("One rule more.") && fifth.len() < 40 << 10);
    assert!(fifth.contains("AGENTS.md is longer"), "it is cut");
}

#[tokio::test]
async fn a_conversation_is_begun_with_the_extensions_that_are_named() {
    let script = "announce: false\nturns:\n\
                  - calls: [{tool: bash, arguments: {command: touch made.txt}}]\n\
                  - text: Done.\n";
    let project = Project::scripted(script, ALLOW);
    std::fs::write(project.path("AGENTS.md"), "Indent with tabs.\n").unwrap();
    let mut client = project.client().await;
    let wrong = project.mooring(&["send", "--new", "--extensions", "mooring.fles", "go"]);
    assert!(!wrong.status.success());
    let words = told(&wrong);
    assert!(
        words.contains("there is no extension mooring.fles"),
        "{words}"
    );
    assert!(words.contains("mooring.files"), "{words}");

    let named = "mooring.place,mooring.files";
    let sent = project.mooring(&["send", "--new", "--extensions", named, "go"]);
    assert!(sent.status.success(), "{}", told(&sent));
    assert!(!project.path("made.txt").exists());
    let conversation = mooring_wire::harness::ConversationsRequest::default();
    let listed = client.conversations(conversation).await.unwrap();
    let conversation = listed.into_inner().conversations[0].id;
    let view = project.view(&mut client, conversation).await;
    let said = told_since(&view, 0).concat();
    assert!(said.contains("There is no tool bash"), "{said}");
    assert!(!said.contains("Indent with tabs"), "{said}");
    let request = project.mooring(&["entries", "--request", &answered(&view)]);
    let request: Value = serde_json::from_slice(&request.stdout).unwrap();
    let tools = request["tools"].as_array().unwrap().iter();
    let tools: Vec<_> = tools.filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(tools, ["read", "write", "edit", "grep", "find", "ls"]);
    // Others have all, and what there is can be looked up.
    let status = project.status().await;
    assert!(status.extensions.contains(&"mooring.agents".to_owned()));
    project.mooring(&["send", "--new", "--quiet", "go"]);
    assert!(project.path("made.txt").exists());
}
