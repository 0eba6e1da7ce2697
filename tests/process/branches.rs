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
