//! The stories of one machine: what is told of each is what must come of it.

use mooring_wire::harness::{
    AbortRequest, ApprovalsRequest, AuditRequest, ConversationsRequest, DecideRequest,
    EntriesRequest, WhenBusy,
};

use mooring_tests::project::{Project, met, told};

const ALLOW: &str =
    "tool: {\"*\": allow}\nbash: {\"*\": allow}\npath: {\"*\": allow}\nexternalDirectory: allow";
const ASK_PUBLISH: &str = "tool: {\"*\": allow}\nbash: {\"*\": allow, \"touch published*\": ask}\npath: {\"*\": allow}\nexternalDirectory: allow";

#[test]
fn a_newcomer_sends_a_line_and_gets_an_answer() {
    let project = Project::new();
    std::fs::write(project.path("notes.txt"), "hello from the project\n").unwrap();
    let output = project.mooring(&["send", "read notes.txt\nrun echo $((6*7)) > answer.txt"]);
    assert!(output.status.success(), "{}", told(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("no language model"), "{}", told(&output));
    assert_eq!(project.read("answer.txt"), "42\n");
}

#[test]
fn a_risky_step_waits_with_exit_status_3_and_runs_once_when_approved() {
    let project = Project::new();
    std::fs::create_dir(project.path("build")).unwrap();
    let output = project.mooring(&["send", "run rm -rf build && echo gone >> log.txt"]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(project.path("build").exists());
    let listed = project.mooring(&["approvals", "--output", "json"]);
    let approval: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let id = approval["id"].as_str().unwrap_or_default().to_owned();
    assert!(!id.is_empty(), "{}", told(&listed));
    assert!(
        String::from_utf8_lossy(&output.stdout).contains(&id),
        "{}",
        told(&output)
    );
    let approved = project.mooring(&["approve", &id]);
    assert!(approved.status.success(), "{}", told(&approved));
    let answered = project.mooring(&["send", "--wait", "run cat log.txt"]);
    assert!(answered.status.success(), "{}", told(&answered));
    assert!(!project.path("build").exists());
    assert_eq!(project.read("log.txt"), "gone\n");
    let again = project.mooring(&["deny", &id]);
    assert!(
        !again.status.success() || told(&again).contains("approved"),
        "{}",
        told(&again)
    );
}

#[tokio::test]
async fn a_harness_killed_while_a_command_runs_and_a_call_waits_goes_on_with_both() {
    let script = r#"
announce: false
turns:
- text: Working.
  calls:
  - {tool: bash, arguments: {command: "echo start >> ran.txt; while [ ! -e go ]; do sleep 0.05; done; echo end >> ran.txt; echo finished", timeout_ms: 600000}}
  - {tool: bash, arguments: {command: "touch published; echo published >> ran.txt"}}
- text: All done.
"#;
    let project = Project::scripted(script, ASK_PUBLISH);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "go on").await;
    let approval = project.approval(&mut client, conversation).await;
    project
        .until(&mut client, conversation, "the long command", |view| {
            view.calls
                .iter()
                .any(|call| call.state == "running")
                .then_some(())
        })
        .await;
    met(|| project.read("ran.txt").contains("start")).await;
    project.kill_harness().await;

    let mut client = project.client().await;
    let still = project.approval(&mut client, conversation).await;
    assert_eq!(still.id, approval.id);
    let decide = DecideRequest {
        id: still.id,
        approve: true,
        ..DecideRequest::default()
    };
    assert!(client.decide(decide).await.unwrap().into_inner().first);
    project
        .until(&mut client, conversation, "the approved call", |view| {
            view.calls
                .iter()
                .any(|call| call.state == "done")
                .then_some(())
        })
        .await;
    std::fs::write(project.path("go"), "").unwrap();
    let view = project.idle(&mut client, conversation).await;
    assert_eq!(view.entries.last().unwrap().text, "All done.");
    let results: Vec<&str> = view
        .entries
        .iter()
        .filter(|entry| entry.kind == "pi.tool-result")
        .map(|entry| entry.text.as_str())
        .collect();
    assert_eq!(results.len(), 2);
    assert!(
        results.iter().any(|text| text.contains("finished")),
        "{results:?}"
    );
    let mut ran: Vec<String> = project.read("ran.txt").lines().map(str::to_owned).collect();
    ran.sort();
    assert_eq!(ran, ["end", "published", "start"]);
}

#[tokio::test]
async fn a_steer_joins_the_round_and_an_abort_ends_the_run_and_returns_the_queue() {
    let script = r#"
announce: false
turns:
- calls:
  - {tool: bash, arguments: {command: "while [ ! -e go ]; do sleep 0.05; done"}}
- calls:
  - {tool: bash, arguments: {command: "touch second; sleep 600"}}
- text: Never said.
"#;
    let project = Project::scripted(script, ALLOW);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "start").await;
    project
        .until(&mut client, conversation, "the first command", |view| {
            view.calls
                .iter()
                .any(|call| call.state == "running")
                .then_some(())
        })
        .await;
    project
        .submit_as(&mut client, conversation, "steer me", WhenBusy::Steer)
        .await;
    project
        .submit_as(&mut client, conversation, "later", WhenBusy::FollowUp)
        .await;
    std::fs::write(project.path("go"), "").unwrap();
    let view = project
        .until(&mut client, conversation, "the second command", |view| {
            view.calls
                .iter()
                .any(|c| c.state == "running" && c.arguments.contains("second"))
                .then(|| view.clone())
        })
        .await;
    met(|| project.path("second").exists()).await;
    let texts: Vec<&str> = view
        .entries
        .iter()
        .filter(|entry| entry.kind == "pi.user")
        .map(|entry| entry.text.as_str())
        .collect();
    assert_eq!(texts, ["start", "steer me"]);
    let aborted = client
        .abort(AbortRequest {
            conversation,
            ..AbortRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    assert!(aborted.was_running);
    let withdrawn: Vec<&str> = aborted.withdrawn.iter().map(|s| s.text.as_str()).collect();
    assert_eq!(withdrawn, ["later"]);
    let view = project.idle(&mut client, conversation).await;
    assert!(!view.entries.iter().any(|entry| entry.text == "Never said."));
    // A new message starts afresh.
    project.submit(&mut client, conversation, "hello").await;
    let view = project.idle(&mut client, conversation).await;
    assert_eq!(view.entries.last().unwrap().text, "Never said.");
}

#[tokio::test]
async fn a_daemon_killed_under_three_commands_is_told_to_the_model_and_nothing_runs_twice() {
    let script = r#"
announce: false
turns:
- calls:
  - {tool: bash, arguments: {command: "echo a >> ran.txt; sleep 600"}}
  - {tool: bash, arguments: {command: "echo b >> ran.txt; sleep 600"}}
  - {tool: bash, arguments: {command: "echo c >> ran.txt; sleep 600"}}
- text: I see.
"#;
    let project = Project::scripted(script, ALLOW);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "start").await;
    project
        .until(&mut client, conversation, "three commands", |view| {
            (view
                .calls
                .iter()
                .filter(|call| call.state == "running")
                .count()
                == 3)
                .then_some(())
        })
        .await;
    met(|| project.read("ran.txt").lines().count() >= 3).await;
    assert!(project.kill_daemon() > 0);
    let view = project.idle(&mut client, conversation).await;
    let results: Vec<&str> = view
        .entries
        .iter()
        .filter(|entry| entry.kind == "pi.tool-result")
        .map(|entry| entry.text.as_str())
        .collect();
    assert_eq!(results.len(), 3);
    assert!(
        results.iter().all(|text| text.contains("sandbox")),
        "{results:?}"
    );
    assert_eq!(view.entries.last().unwrap().text, "I see.");
    let mut ran: Vec<String> = project.read("ran.txt").lines().map(str::to_owned).collect();
    ran.sort();
    assert_eq!(ran, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_gigabyte_written_while_the_harness_is_down_is_read_in_bounded_memory() {
    let script = r#"
announce: false
turns:
- calls:
  - {tool: bash, arguments: {command: "echo first; touch begun; while [ ! -e go ]; do sleep 0.05; done; head -c 1073741824 /dev/zero | tr '\\0' 'x'; touch written; echo; echo last"}}
- text: Read.
"#;
    let project = Project::scripted(script, ALLOW);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "start").await;
    met(|| project.path("begun").exists()).await;
    project.kill_harness().await;
    std::fs::write(project.path("go"), "").unwrap();
    met(|| project.path("written").exists()).await;
    let mut client = project.client().await;
    let view = project.idle(&mut client, conversation).await;
    let result = view
        .entries
        .iter()
        .find(|entry| entry.kind == "pi.tool-result")
        .unwrap();
    assert!(result.text.contains("last"), "the end is kept");
    assert!(result.text.len() < 200 << 10, "{} bytes", result.text.len());
    assert_eq!(view.entries.last().unwrap().text, "Read.");
    for (name, pids) in [
        ("harness", vec![project.status().await.pid]),
        ("sandbox", project.daemons()),
    ] {
        for pid in pids {
            let peak = peak_kib(pid);
            assert!(peak < 200 << 10, "{name} had {peak} KiB resident");
        }
    }
}

/// Peak resident size, in KiB; 0 of a process that is gone.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse().ok())
        .unwrap_or(0)
}

#[tokio::test]
async fn each_of_the_three_processes_can_be_killed_and_the_work_goes_on() {
    let script = r#"
announce: false
turns:
- calls:
  - {tool: write, arguments: {path: one.txt, content: "1\n"}}
- calls:
  - {tool: bash, arguments: {command: "echo two >> two.txt; while [ ! -e go ]; do sleep 0.05; done; echo through"}}
- calls:
  - {tool: bash, arguments: {command: "echo three >> three.txt"}}
- text: Finished.
"#;
    let project = Project::scripted(script, ALLOW);
    project.start().await;
    // The client is killed right after the message is in.
    let mut send = project.spawn(&["send", "--workspace", "workspace.yaml", "begin"]);
    let mut client = project.client().await;
    met(|| project.path("two.txt").exists()).await;
    send.kill().unwrap();
    send.wait().unwrap();
    project.kill_harness().await;
    let mut after = project.client().await;
    std::mem::swap(&mut client, &mut after);
    std::fs::write(project.path("go"), "").unwrap();
    let listed = client
        .conversations(ConversationsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let conversation = listed.conversations[0].id;
    let view = project.idle(&mut client, conversation).await;
    assert_eq!(view.entries.last().unwrap().text, "Finished.");
    project.kill_daemon();
    let rest = project.submit(&mut client, conversation, "again").await;
    assert_eq!(rest, conversation);
    project.idle(&mut client, conversation).await;
    assert_eq!(project.read("one.txt"), "1\n");
    assert_eq!(project.read("two.txt"), "two\n");
    assert_eq!(project.read("three.txt"), "three\n");
}

#[tokio::test]
async fn the_transcript_and_the_audit_tell_who_decided() {
    let script = r#"
announce: false
turns:
- calls: [{tool: bash, arguments: {command: "touch published"}}]
- text: Said no.
"#;
    let project = Project::scripted(script, ASK_PUBLISH);
    let mut client = project.client().await;
    let conversation = project.submit(&mut client, 0, "publish").await;
    let approval = project.approval(&mut client, conversation).await;
    assert_eq!(approval.summary, "touch published");
    assert!(
        approval.rule.contains("touch published*"),
        "{}",
        approval.rule
    );
    let deny = DecideRequest {
        id: approval.id.clone(),
        approve: false,
        reason: "not today".into(),
        ..DecideRequest::default()
    };
    assert!(
        client
            .decide(deny.clone())
            .await
            .unwrap()
            .into_inner()
            .first
    );
    let second = client
        .decide(DecideRequest {
            approve: true,
            ..deny
        })
        .await
        .unwrap()
        .into_inner();
    assert!(!second.first);
    assert_eq!(second.approval.unwrap().state, "denied");
    project.idle(&mut client, conversation).await;
    assert!(!project.path("published").exists());
    let entries = client
        .entries(EntriesRequest {
            conversation,
            ..EntriesRequest::default()
        })
        .await
        .unwrap()
        .into_inner()
        .entries;
    let result = entries
        .iter()
        .find(|entry| entry.kind == "pi.tool-result")
        .unwrap();
    assert!(result.text.contains("not today"), "{}", result.text);
    let all = client
        .approvals(ApprovalsRequest {
            all: true,
            ..ApprovalsRequest::default()
        })
        .await
        .unwrap()
        .into_inner()
        .approvals;
    assert!(
        all[0].decided_by.starts_with("local:"),
        "{}",
        all[0].decided_by
    );
    let audit = client
        .audit(AuditRequest::default())
        .await
        .unwrap()
        .into_inner()
        .rows;
    let row: serde_json::Value = serde_json::from_str(&audit[0].json).unwrap();
    assert_eq!(
        (&row["verdict"], &row["outcome"]),
        (&"ask".into(), &"denied".into())
    );
    assert_eq!(row["decision"]["state"], "denied");
}

#[tokio::test]
async fn a_first_message_sent_again_after_a_kill_is_the_same_run() {
    let project = Project::new();
    project.start().await;
    let line = "run for i in 1 2 3; do echo $i >> s.txt; sleep 0.4; done";
    let send = project.spawn(&["send", "-q", line]);
    met(|| project.path("s.txt").exists()).await;
    project.kill_harness().await;
    let output = tokio::task::spawn_blocking(|| send.wait_with_output().unwrap())
        .await
        .unwrap();
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(project.read("s.txt"), "1\n2\n3\n");
    let mut client = project.client().await;
    let request = ConversationsRequest::default();
    let listed = client.conversations(request).await.unwrap().into_inner();
    assert_eq!(listed.conversations.len(), 1);
}

#[tokio::test]
async fn ten_megabytes_of_text_leave_a_conversation_that_can_be_used() {
    let project = Project::new();
    let mut client = project.client().await;
    let text = format!("run echo x {}", "y".repeat(10_000_000));
    let conversation = project.submit(&mut client, 0, &text).await;
    // Too long to be read for certain, so it is asked for.
    let approval = project.approval(&mut client, conversation).await;
    let approve = DecideRequest {
        id: approval.id,
        approve: true,
        ..DecideRequest::default()
    };
    client.decide(approve).await.unwrap();
    project.idle(&mut client, conversation).await;
    project
        .submit(&mut client, conversation, "run echo after > after.txt")
        .await;
    project.idle(&mut client, conversation).await;
    assert_eq!(project.read("after.txt"), "after\n");
    let listed = client
        .approvals(ApprovalsRequest {
            all: true,
            ..ApprovalsRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    assert!(listed.approvals.iter().all(|a| a.summary.len() < 2_000));
}

#[tokio::test]
async fn thirty_megabytes_of_input_do_not_stay_in_the_harness() {
    let project = Project::new();
    let mut client = project.client().await;
    for letter in ["x", "y", "z"] {
        let text = format!("note {}", letter.repeat(10_000_000));
        let conversation = project.submit(&mut client, 0, &text).await;
        project.idle(&mut client, conversation).await;
    }
    let pid = project.status().await.pid;
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let kib: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss_Anon:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .unwrap();
    assert!(kib < 120 << 10, "{kib} KiB");
}
