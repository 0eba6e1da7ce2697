//! Work that owns work: questions, sleeps, subagents, as people see them.

use std::io::{BufRead, BufReader};

use mooring_tests::project::{BOUND, Project, told};
use mooring_wire::harness::{Child, TaskGraph, WatchRequest, watch_frame::Frame};
use serde_json::Value;

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

/// A subagent that looks until there is a file `go`.
const LOOKING: &str = r#"
announce: false
conversations:
- match: look for
  turns:
  - calls:
    - {tool: bash, arguments: {command: "while [ ! -e go ]; do sleep 0.05; done; echo found"}}
  - text: Found it.
turns:
- calls: [{tool: subagent, arguments: {task: "look for A"}}]
- text: It was found.
"#;

#[tokio::test]
async fn a_watch_tells_who_waits_for_whom_and_how_far_those_are_that_work_for_it() {
    let project = Project::scripted(LOOKING, ALLOW);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "find it").await;
    let request = WatchRequest {
        conversation,
        ..WatchRequest::default()
    };
    let mut frames = client.watch(request).await.unwrap().into_inner();
    let (mut graph, mut child) = (TaskGraph::default(), Child::default());
    let mut states = Vec::new();
    let watched = async {
        while !project.path("go").exists() {
            let frame = frames.message().await.unwrap().unwrap();
            let (tasks, children) = match frame.frame.unwrap() {
                Frame::Snapshot(view) => (view.tasks, view.children),
                Frame::Change(change) => {
                    assert_eq!(change.conversation, conversation);
                    (change.tasks, change.children)
                }
            };
            graph = tasks.unwrap_or(graph.clone());
            for moved in children {
                states.push(format!("{} {}", moved.state, moved.doing));
                child = moved;
            }
            if child.doing.starts_with("bash") && !project.path("go").exists() {
                // The call waits for the task that owns the conversation whose own call
                // goes on: all of it is in the graph.
                let owner = graph.tasks.iter().find(|it| it.owns == child.conversation);
                let owner = owner.expect("the subagent's task");
                let call = graph.tasks.iter().find(|it| it.id == owner.owner).unwrap();
                assert!(call.waits.contains(&owner.id), "{graph:?}");
                assert_eq!(
                    (call.id, call.conversation),
                    (child.call_task, conversation)
                );
                if graph
                    .tasks
                    .iter()
                    .any(|it| it.conversation == child.conversation)
                {
                    std::fs::write(project.path("go"), "").unwrap();
                }
            }
        }
    };
    let done = tokio::time::timeout(BOUND, watched).await;
    assert!(done.is_ok(), "{states:?} {graph:?}");
    assert_eq!((child.title.as_str(), child.depth), ("look for A", 0));
    // Who comes later finds it in the snapshot, and nothing goes on any more.
    let view = project.idle(&mut client, conversation).await;
    assert_eq!(view.tasks, Some(TaskGraph::default()));
    assert!(view.children.is_empty());
}

#[tokio::test]
async fn a_subagent_is_shown_below_the_run_that_it_worked_for_and_in_a_watch_for_programs() {
    let project = Project::scripted(LOOKING, ALLOW);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "find it").await;
    let mut watch = project.spawn(&["watch", &conversation.to_string(), "--output", "json"]);
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let (tell, told_of) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let frame: Value = serde_json::from_str(&line).unwrap();
            let of = match &frame["snapshot"] {
                Value::Null => &frame["change"],
                snapshot => snapshot,
            };
            let at_work = of["children"][0]["doing"]
                .as_str()
                .is_some_and(|doing| doing.starts_with("bash"));
            if at_work {
                let _ = tell.send(of.clone());
            }
        }
    });
    let seen = told_of.recv_timeout(BOUND).expect("the child at work");
    assert_eq!(seen["children"][0]["title"], "look for A");
    std::fs::write(project.path("go"), "").unwrap();
    project.idle(&mut client, conversation).await;
    let _ = watch.kill();
    let _ = watch.wait();

    let sent = printed(&project, &["send", "--new", "find it"]);
    let card = sent.find("[done]").expect("a run card");
    let below = &sent[card..];
    assert!(below.contains("↳ look for A"), "{sent}");
}
