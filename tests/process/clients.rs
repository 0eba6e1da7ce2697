//! What scripts and people read of the clients: grants, audit, keys, ends.

use std::{process::Stdio, time::Duration};

use mooring_tests::{
    model::{Fault, ModelServer, Reply},
    project::{Project, met, told},
};
use serde_json::Value;

const ASK: &str = "tool: {\"*\": allow}\nbash: {\"*\": allow, \"rm *\": ask}\npath: {\"*\": allow}\nexternalDirectory: allow";

fn json_lines(text: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(text)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn grants_and_the_audit_are_listed_for_people_and_programs() {
    let project = Project::with_workspace(ASK);
    let nothing = project.mooring(&["grants"]);
    assert!(!nothing.status.success() && told(&nothing).contains("nothing was said"));
    let asked = project.mooring(&["send", "--workspace", "workspace.yaml", "run rm -f a.txt"]);
    assert_eq!(asked.status.code(), Some(3), "{}", told(&asked));
    let none = project.mooring(&["grants"]);
    assert_eq!(
        String::from_utf8_lossy(&none.stdout),
        "nothing is granted for more than once\n"
    );
    let id = json_lines(&project.mooring(&["approvals", "--output", "json"]).stdout)[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let approve = ["approve", &id, "--scope", "workspace", "--for", "2h"];
    let approved = project.mooring(&approve);
    assert!(approved.status.success(), "{}", told(&approved));
    // The same again runs without a question, in another conversation too.
    let again = project.mooring(&["send", "--new", "run rm -f a.txt"]);
    assert!(again.status.success(), "{}", told(&again));

    let listed = project.mooring(&["grants"]);
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(
        text.contains("bash rm -f a.txt  by local:")
            && text.contains(", for the workspace, until "),
        "{}",
        told(&listed)
    );
    let grants = json_lines(&project.mooring(&["grants", "--output", "json"]).stdout);
    let grant = grants[0]["id"].as_i64().unwrap();
    assert_eq!(
        (grants.len(), &grants[0]["rule"]),
        (1, &"rm -f a.txt".into())
    );
    assert_eq!(grants[0]["asked_by_rule"], "bash rule \"rm *\"");
    assert!(grants[0]["expires_ms"].as_i64() > grants[0]["given_ms"].as_i64());

    let revoked = project.mooring(&["grants", "--revoke", &grant.to_string()]);
    let text = String::from_utf8_lossy(&revoked.stdout);
    assert!(text.contains(", revoked by local:"), "{}", told(&revoked));
    let unknown = project.mooring(&["grants", "--revoke", "99"]);
    assert_eq!(unknown.status.code(), Some(5));
    assert!(
        told(&unknown).contains("there is no grant 99"),
        "{}",
        told(&unknown)
    );
    let asked = project.mooring(&["send", "--new", "run rm -f a.txt"]);
    assert_eq!(asked.status.code(), Some(3), "{}", told(&asked));

    let audit = project.mooring(&["audit"]);
    let text = String::from_utf8_lossy(&audit.stdout);
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        ["   ask    bash rm -f a.txt", "approved by", "→ done"].as_slice(),
        // The policy is asked again before the call runs.
        &["   allow  bash rm -f a.txt", "after an approval", "→ done"],
        &["   allow  bash rm -f a.txt", "under grant 1", "→ done"],
        &["   ask    bash rm -f a.txt", "by bash rule \"rm *\""],
    ];
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, parts) in lines.iter().zip(expected) {
        for part in parts {
            assert!(line.contains(part.trim_start()), "{line:?} lacks {part:?}");
        }
    }
    let rows = json_lines(&project.mooring(&["audit", "--output", "json"]).stdout);
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row["bash"] == "rm -f a.txt"));
    let last = project.mooring(&["audit", "--output", "json", "--after", "2", "--limit", "1"]);
    assert_eq!(json_lines(&last.stdout)[0]["id"], 3);
    // What was recorded is what a review decides again.
    let file = project.path("audit.jsonl");
    std::fs::write(
        &file,
        project.mooring(&["audit", "--output", "json"]).stdout,
    )
    .unwrap();
    let looser = project
        .read("workspace.yaml")
        .replace("\"rm *\": ask", "\"rm *\": allow");
    std::fs::write(project.path("looser.yaml"), looser).unwrap();
    let diff = [
        "policy",
        "diff",
        "workspace.yaml",
        "looser.yaml",
        "--calls",
        "audit.jsonl",
    ];
    let diff = project.mooring(&diff);
    assert_eq!(diff.status.code(), Some(1), "{}", told(&diff));
    assert!(told(&diff).contains("rm -f a.txt"), "{}", told(&diff));
}

#[test]
fn a_stop_that_a_person_asked_for_ends_who_listens() {
    let project = Project::with_workspace(ASK);
    let asked = project.mooring(&["send", "--workspace", "workspace.yaml", "run rm -f a.txt"]);
    assert_eq!(asked.status.code(), Some(3), "{}", told(&asked));
    let seen = project.path("seen.jsonl");
    let mut watch = project.command(&["watch", "1", "--output", "json"]);
    watch.stdout(std::fs::File::create(&seen).unwrap());
    let mut clients = [
        project.spawn(&["send", "--new", "--wait", "run rm -f b.txt"]),
        watch.stderr(Stdio::piped()).spawn().unwrap(),
    ];
    let begun = std::time::Instant::now();
    while json_lines(&project.mooring(&["approvals", "--output", "json"]).stdout).len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    // The watch begins with what the conversation holds.
    while std::fs::metadata(&seen).unwrap().len() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    let stopped = project.mooring(&["stop"]);
    assert!(stopped.status.success(), "{}", told(&stopped));
    for client in &mut clients {
        let begun = std::time::Instant::now();
        while client.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    for client in clients {
        let output = client.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", told(&output));
        assert!(
            told(&output).contains("ended by `mooring stop`"),
            "{}",
            told(&output)
        );
    }
    let status = project.mooring(&["status"]);
    assert!(told(&status).contains("nothing runs"), "{}", told(&status));
    // What waited is there again.
    let approvals = project.mooring(&["approvals", "--output", "json"]);
    assert_eq!(
        json_lines(&approvals.stdout).len(),
        2,
        "{}",
        told(&approvals)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_goes_to_a_server_that_the_workspace_names_only_after_a_yes() {
    let server = ModelServer::start().await;
    server.queue(Reply::says("hello"));
    let url = server.openai_url();
    let models = format!(
        "{{name: m, provider: openai, model: gpt-4o, endpoint: '{url}', apiKeyEnv: GITHUB_TOKEN}}"
    );
    let project = Project::with_models(&models, ASK);
    let send = |more: &[&str]| {
        let arguments = [&["send", "--workspace", "workspace.yaml"], more, &["hi"]].concat();
        let mut command = project.command(&arguments);
        command.env("GITHUB_TOKEN", "ghp-secret").output().unwrap()
    };
    let refused = tokio::task::block_in_place(|| send(&[]));
    assert_eq!(refused.status.code(), Some(5), "{}", told(&refused));
    let way_out = format!("--allow-key GITHUB_TOKEN@{url}");
    assert!(told(&refused).contains(&way_out), "{}", told(&refused));
    assert!(server.requests().is_empty());
    let name = format!("GITHUB_TOKEN@{url}");
    let allowed = tokio::task::block_in_place(|| send(&["--allow-key", &name]));
    assert!(allowed.status.success(), "{}", told(&allowed));
    let sent = server.requests()[0].headers.clone();
    assert!(sent.contains(&("authorization".into(), "Bearer ghp-secret".into())));
    // It is remembered, also by the next harness.
    server.queue(Reply::says("hello again"));
    tokio::task::block_in_place(|| project.mooring(&["stop"]));
    let again = tokio::task::block_in_place(|| send(&[]));
    assert!(again.status.success(), "{}", told(&again));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_went_wrong_is_told_in_the_providers_words_and_beside_the_call() {
    let server = ModelServer::start().await;
    let bad = Reply::says("I look.").call("read", serde_json::json!({ "offset": "no path" }));
    server.queue(bad.failing(Fault::status(500)));
    server.queue(Reply::says("so it is"));
    let url = server.openai_url();
    let models = format!("{{name: m, provider: openai, model: gpt-4o, endpoint: '{url}'}}");
    let project = Project::with_models(&models, ASK);
    let arguments = ["send", "--workspace", "workspace.yaml", "hi"];
    let output = tokio::task::block_in_place(|| project.mooring(&arguments));
    assert!(output.status.success(), "{}", told(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("(attempt 1 failed: "), "{text}");
    let call = text
        .lines()
        .find(|line| line.contains("✗ read"))
        .unwrap_or_default();
    assert!(
        call.contains("do not fit its schema"),
        "the reason is beside the call: {text}"
    );
    assert!(text.contains("so it is"), "{text}");
    met(|| server.requests().len() == 3).await;
}

#[tokio::test]
async fn a_killed_harness_comes_back_with_its_workspace_until_it_is_stopped() {
    let project = Project::with_workspace(ASK);
    let asks = ["send", "--new", "run rm -f a.txt"];
    project.start().await;
    project.kill_harness().await;
    let asked = project.mooring(&asks);
    assert_eq!(asked.status.code(), Some(3), "{}", told(&asked));
    project.kill_harness().await;
    let file = project.path("workspace.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let missing = project.mooring(&asks);
    assert!(
        !missing.status.success() && told(&missing).contains("`mooring stop`"),
        "{}",
        told(&missing)
    );
    std::fs::write(&file, text).unwrap();
    let asked = project.mooring(&asks);
    assert_eq!(asked.status.code(), Some(3), "{}", told(&asked));
    project.mooring(&["stop"]);
    let by_default = project.mooring(&["send", "--new", "run echo hi"]);
    assert!(by_default.status.success(), "{}", told(&by_default));
    let status = project.mooring(&["status"]);
    assert!(told(&status).contains("the default"), "{}", told(&status));
}

#[tokio::test]
async fn what_a_changed_workspace_permits_waits_for_a_yes_past_a_harness_that_was_killed() {
    let project = Project::with_workspace(&ASK.replace("\"rm *\": ask", "\"rm *\": deny"));
    let send = ["send", "--workspace", "workspace.yaml", "run rm -f a.txt"];
    let denied = project.mooring(&send);
    assert!(told(&denied).contains("deni"), "{}", told(&denied));
    let looser = project
        .read("workspace.yaml")
        .replace("\"rm *\": deny", "\"rm *\": allow");
    std::fs::write(project.path("workspace.yaml"), looser).unwrap();
    std::fs::write(project.path("a.txt"), "kept").unwrap();
    project.kill_harness().await;
    let denied = project.mooring(&send);
    assert!(
        told(&denied).contains("waits for a yes"),
        "{}",
        told(&denied)
    );
    project.mooring(&["stop"]);
    project.mooring(&send);
    assert_eq!(project.read("a.txt"), "kept");
    let status = project.mooring(&["status"]);
    assert!(
        told(&status).contains("bash \"rm *\": deny becomes allow"),
        "{}",
        told(&status)
    );
}

#[test]
fn a_repeated_request_whose_run_waits_says_so_again() {
    let project = Project::with_workspace(ASK);
    let send = [
        "send",
        "--workspace",
        "workspace.yaml",
        "--request-id",
        "one",
        "run rm -f a.txt",
    ];
    let first = project.mooring(&send);
    assert_eq!(first.status.code(), Some(3), "{}", told(&first));
    let again = project.mooring(&send);
    assert_eq!(again.status.code(), Some(3), "{}", told(&again));
    assert!(
        told(&again).contains("mooring approve "),
        "{}",
        told(&again)
    );
}

#[test]
fn a_run_that_waits_for_an_answer_names_the_question_and_the_command() {
    let script = "announce: false\nturns:\n\
                  - calls: [{tool: ask_user, arguments: {question: 'Which colour?'}}]\n\
                  - text: Done.\n";
    let project = Project::with_spec(
        "models: [{name: rehearsal, provider: rehearsal, model: script.yaml}]\n\
         policy:\n  tool: {ask_user: allow}",
    );
    std::fs::write(project.path("script.yaml"), script).unwrap();
    let sent = project.mooring(&["send", "--workspace", "workspace.yaml", "ask"]);
    assert_eq!(sent.status.code(), Some(3), "{}", told(&sent));
    let text = told(&sent);
    assert!(
        text.contains("waiting for an answer to \"Which colour?\": mooring answer "),
        "{text}"
    );
}
