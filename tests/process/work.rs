//! Work that owns work: questions, sleeps, subagents, as people see them.

use mooring_tests::project::{Project, told};

const ALLOW: &str = "tool: {\"*\": allow}\nbash: {\"*\": allow}\npath: {\"*\": allow}";

fn printed(project: &Project, arguments: &[&str]) -> String {
    let output = project.mooring(arguments);
    assert!(output.status.success(), "{}", told(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn a_question_outlives_the_harness_and_is_answered_from_the_command_line() {
    let script = r#"
announce: false
turns:
- calls:
  - {tool: ask_user, arguments: {question: "Which colour?", choices: [red, blue]}}
- text: Thank you.
"#;
    let project = Project::scripted(script, ALLOW);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "paint it").await;
    let view = project
        .until(&mut client, conversation, "the question", |view| {
            (!view.questions.is_empty()).then(|| view.clone())
        })
        .await;
    assert_eq!(view.questions[0].choices, ["red", "blue"]);
    project.kill_harness().await;
    let tasks = printed(&project, &["tasks"]);
    assert!(tasks.contains("input waiting"), "{tasks}");
    assert!(tasks.contains("Which colour?"), "{tasks}");
    let id = view.questions[0].id.to_string();
    assert_eq!(printed(&project, &["answer", &id, "blue"]), "answered\n");
    let again = printed(&project, &["answer", &id, "red"]);
    assert!(again.contains("had answered before: blue"), "{again}");
    let mut client = project.client().await;
    let view = project.idle(&mut client, conversation).await;
    let result = view
        .entries
        .iter()
        .find(|entry| entry.kind == "pi.tool-result");
    assert!(result.unwrap().text.ends_with("answered: blue"));
    assert_eq!(view.entries.last().unwrap().text, "Thank you.");
    assert_eq!(printed(&project, &["tasks"]), "nothing goes on\n");
    let none = project.mooring(&["answer", "999999", "x"]);
    assert!(
        told(&none).contains("there is no question"),
        "{}",
        told(&none)
    );
}

#[tokio::test]
async fn subagents_work_side_by_side_and_survive_the_harness() {
    let script = r#"
announce: false
conversations:
- match: look for
  turns:
  - calls:
    - {tool: bash, arguments: {command: "echo ran >> ran.txt; while [ ! -e go ]; do sleep 0.05; done; echo found"}}
  - text: Found it.
turns:
- calls:
  - {tool: subagent, arguments: {task: "look for A"}}
  - {tool: subagent, arguments: {task: "look for B", tools: [bash]}}
  - {tool: sleep_until, arguments: {seconds: 0}}
- text: Both were found.
"#;
    let project = Project::scripted(script, ALLOW);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "find both").await;
    let running = || project.read("ran.txt").lines().count() == 2;
    mooring_tests::project::met(running).await;
    let tasks = printed(&project, &["tasks"]);
    assert_eq!(tasks.matches("subagent waiting").count(), 2, "{tasks}");
    assert!(tasks.contains("conversation"), "{tasks}");
    let listed = printed(&project, &["conversations"]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    project.kill_harness().await;
    std::fs::write(project.path("go"), "").unwrap();
    let mut client = project.client().await;
    let view = project.idle(&mut client, conversation).await;
    assert_eq!(view.entries.last().unwrap().text, "Both were found.");
    let results: Vec<_> = view
        .entries
        .iter()
        .filter(|entry| entry.kind == "pi.tool-result")
        .map(|entry| entry.text.as_str())
        .collect();
    assert_eq!(
        results.iter().filter(|text| **text == "Found it.").count(),
        2
    );
    assert!(
        results.iter().any(|text| text.starts_with("It is ")),
        "{results:?}"
    );
    assert_eq!(
        project.read("ran.txt").lines().count(),
        2,
        "nothing ran twice"
    );
}
