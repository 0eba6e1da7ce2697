//! The provider that is no language model.

use mooring_harness::model::rehearsal::ANNOUNCEMENT;

use super::*;

fn rehearsal(folder: &std::path::Path, script: &str) -> Catalog {
    let catalog = Catalog::new(Arc::new(KeyStore::new()), folder, Limits::default());
    let yaml = format!("[{{ name: r, provider: rehearsal, model: \"{script}\" }}]");
    catalog
        .replace(&serde_saphyr::from_str::<Vec<ModelSpec>>(&yaml).unwrap())
        .unwrap();
    catalog
}

#[tokio::test]
async fn without_a_script_it_does_what_is_said_and_reports() {
    let catalog = rehearsal(std::path::Path::new("/nowhere"), "");
    let mut messages = vec![system("rules"), user("run echo hi\nwrite a.txt: text")];
    let mut tools = Vec::new();
    let report = loop {
        let heard = Heard::default();
        let request = request(&catalog, "r", messages.clone());
        let response = ask_hearing(&catalog, &request, 1, &heard).await.unwrap();
        assert_eq!(heard.text(), said(&response.content));
        assert!(response.usage.unwrap().input > 0);
        let again = ask_hearing(&catalog, &request, 2, &Heard::default())
            .await
            .unwrap();
        assert_eq!(
            again.content, response.content,
            "the same request has the same answer"
        );
        let calls = calls(&response.content);
        let Some(call) = calls.first() else {
            break heard;
        };
        tools.push(call.name.clone());
        messages.push(assistant(response.content));
        messages.push(result(call, vec![Part::text("hi")], false));
    };
    assert_eq!(tools, ["bash", "write"]);
    assert!(report.pieces() > 2);
    assert!(
        report
            .text()
            .lines()
            .next()
            .unwrap()
            .contains("no language model")
    );
    assert!(report.text().contains("2 of 2"), "{}", report.text());
}

#[tokio::test]
async fn a_script_is_played_from_the_workspaces_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("play.yaml"),
        r#"
conversations:
  - match: tests
    turns:
      - { thinking: hm, text: Running them., calls: [{ tool: bash, arguments: { command: cargo test } }] }
      - { text: All green., fail: [{ as: cut }, { as: retryable, retryAfterMs: 1500 }] }
"#,
    )
    .unwrap();
    let catalog = rehearsal(folder.path(), "play.yaml");
    let opening = request(&catalog, "r", vec![user("run the tests")]);
    let first = ask_hearing(&catalog, &opening, 1, &Heard::default())
        .await
        .unwrap();
    assert_eq!(
        said(&first.content),
        format!("{ANNOUNCEMENT}\n\nRunning them.")
    );
    let calls = calls(&first.content);
    assert_eq!(calls[0].arguments, json!({"command": "cargo test"}));
    let messages = vec![
        user("run the tests"),
        assistant(first.content),
        result(&calls[0], vec![Part::text("ok")], false),
    ];
    let second = request(&catalog, "r", messages);
    let heard = Heard::default();
    let cut = ask_hearing(&catalog, &second, 1, &heard).await;
    assert!(matches!(cut, Err(ModelError::Retryable { .. })), "{cut:?}");
    assert!("All green.".starts_with(&heard.text()));
    match ask_hearing(&catalog, &second, 2, &Heard::default()).await {
        Err(ModelError::Retryable { retry_after, .. }) => {
            assert_eq!(retry_after, Some(Duration::from_millis(1500)));
        }
        other => panic!("{other:?}"),
    }
    let third = ask_hearing(&catalog, &second, 3, &Heard::default())
        .await
        .unwrap();
    assert_eq!(said(&third.content), "All green.");
}

#[tokio::test]
async fn a_wrong_script_ends_the_run_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("bad.yaml"),
        "turns:\n  - { text: a }\n  - { say: b }\n",
    )
    .unwrap();
    for (script, part) in [("bad.yaml", "line 3"), ("none.yaml", "none.yaml")] {
        let outcome = ask(&rehearsal(folder.path(), script), "r", vec![user("hi")]).await;
        match outcome {
            Err(ModelError::Fatal { text }) => assert!(text.contains(part), "{text} lacks {part}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn cancelling_ends_a_long_wait() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("slow.yaml"),
        "turns: [{ text: late, delayMs: 3600000 }]",
    )
    .unwrap();
    let catalog = rehearsal(folder.path(), "slow.yaml");
    let request = request(&catalog, "r", vec![user("hi")]);
    let cancel = CancellationToken::new();
    let model = catalog.resolve("r").unwrap();
    let context = RequestContext {
        conversation: ConversationId(1),
        task: TaskId(1),
        attempt: 1,
        purpose: mooring_durable::model::Purpose::Turn,
    };
    let heard = Heard::default();
    let asked = model.respond(&request, &context, &heard, cancel.clone());
    let cancelling = async {
        tokio::task::yield_now().await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::time::timeout(Duration::from_secs(10), async {
        tokio::join!(asked, cancelling)
    })
    .await
    .unwrap();
    assert!(matches!(outcome, Err(ModelError::Cancelled)));
}
