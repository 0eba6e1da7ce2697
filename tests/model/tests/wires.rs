//! What goes over the wires when nothing goes wrong.

use mooring_tests::model::{Fault, Reply, Wire};

use super::*;

#[tokio::test]
async fn text_streams_in_pieces_and_ends_with_usage_and_reason() {
    let server = ModelServer::start().await;
    let text = "Grüße aus dem Hafen – 🚢 ahoi, und noch ein langer Satz dazu.";
    server.script("hello", [Reply::says(text).usage(80, 20, 7)]);
    let catalog = catalog(&server);
    for (wire, reason) in [("openai", "stop"), ("anthropic", "end_turn")] {
        let heard = Heard::default();
        let request = request(&catalog, wire, vec![system("Be kind."), user("hello")]);
        let response = ask_hearing(&catalog, &request, 1, &heard).await.unwrap();
        assert_eq!(response.content, [Part::text(text)], "{wire}");
        assert_eq!(heard.text(), text, "{wire}");
        assert!(heard.pieces() > 3, "{wire}: {} pieces", heard.pieces());
        assert_eq!(
            response.usage,
            Some(Usage {
                input: 100,
                cached: 20,
                output: 7
            }),
            "{wire}"
        );
        assert_eq!(response.stop_reason.as_deref(), Some(reason), "{wire}");
    }
}

#[tokio::test]
async fn calls_come_whole_and_in_order() {
    let server = ModelServer::start().await;
    let reply = || {
        Reply::says("Two things.")
            .call("bash", json!({"command": "echo ä; ls -la /tmp"}))
            .call("bash", json!({"command": "pwd", "timeout_ms": 5}))
            .raw_call("bash", "")
    };
    server.script("plain", [reply()]);
    server.script("mixed", [reply().interleaved()]);
    let catalog = catalog(&server);
    for (wire, opening, reason) in [
        ("openai", "plain", "tool_calls"),
        ("openai", "mixed", "tool_calls"),
        ("anthropic", "plain", "tool_use"),
    ] {
        let response = ask(&catalog, wire, vec![user(opening)]).await.unwrap();
        assert_eq!(said(&response.content), "Two things.");
        let calls = calls(&response.content);
        let arguments: Vec<&Value> = calls.iter().map(|call| &call.arguments).collect();
        assert_eq!(
            arguments,
            [
                &json!({"command": "echo ä; ls -la /tmp"}),
                &json!({"command": "pwd", "timeout_ms": 5}),
                &json!({})
            ],
            "{wire} {opening}"
        );
        let mut ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
        ids.dedup();
        assert_eq!(ids.len(), 3, "{wire} {opening}: {ids:?}");
        assert_eq!(response.stop_reason.as_deref(), Some(reason));
    }
}

#[tokio::test]
async fn a_whole_run_goes_back_as_each_provider_wants_it() {
    let server = ModelServer::start().await;
    server.script(
        "look",
        [
            Reply::says("I look.")
                .call("bash", json!({"command": "shot"}))
                .call("bash", json!({"command": "false"})),
            Reply::says("Seen."),
            Reply::says("Bye."),
        ],
    );
    let catalog = catalog(&server);
    for wire in WIRES {
        let mut messages = vec![system("Rules."), user("look")];
        let first = ask(&catalog, wire, messages.clone()).await.unwrap();
        let calls = calls(&first.content);
        messages.push(assistant(first.content));
        messages.push(result(
            &calls[0],
            vec![Part::text("a picture"), pixel()],
            false,
        ));
        messages.push(result(&calls[1], vec![Part::text("exit status 1")], true));
        let second = ask(&catalog, wire, messages.clone()).await.unwrap();
        messages.push(assistant(second.content));
        messages.push(user("thanks"));
        let third = ask(&catalog, wire, messages).await.unwrap();
        assert_eq!(said(&third.content), "Bye.", "{wire}");
    }
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.status == 200));
    let last = |wire| requests.iter().rfind(|r| r.wire == wire).unwrap().json["messages"].clone();

    let openai = last(Wire::OpenAi);
    let roles: Vec<&str> = openai
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
            "assistant",
            "user"
        ]
    );
    assert_eq!(openai[3]["content"], "a picture");
    assert_eq!(openai[4]["content"], "Error: exit status 1");
    let url = openai[5]["content"][1]["image_url"]["url"]
        .as_str()
        .unwrap();
    assert_eq!(url, format!("data:image/png;base64,{PIXEL}"));

    let anthropic = last(Wire::Anthropic);
    let roles: Vec<&str> = anthropic
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    let results = &anthropic[2]["content"];
    assert_eq!(results[0]["content"][0]["text"], "a picture");
    assert_eq!(results[0]["content"][1]["source"]["data"], PIXEL);
    assert!(results[0]["is_error"].is_null());
    assert_eq!(results[1]["is_error"], true);
}

#[tokio::test]
async fn thoughts_go_back_to_who_had_them_as_they_came() {
    let server = ModelServer::start().await;
    let opening = Reply::says("I act.")
        .thinking("What would be best here? Listing first.")
        .redacted()
        .call("bash", json!({"command": "ls"}));
    server.script("think", [opening, Reply::says("Done.")]);
    let more = format!(
        "- {{ name: thinker, provider: anthropic, model: claude-sonnet-4-5, thinking: Medium, endpoint: \"{}\" }}\n",
        server.anthropic_url()
    );
    let catalog = catalog_with(&server, Limits::default(), &more);
    for model in ["thinker", "openai"] {
        let heard = Heard::default();
        let first = request(&catalog, model, vec![user("think")]);
        let response = ask_hearing(&catalog, &first, 1, &heard).await.unwrap();
        assert_eq!(
            heard.thinking(),
            "What would be best here? Listing first.",
            "{model}"
        );
        let Part::Thinking { text, signature } = &response.content[0] else {
            panic!("{model} thinks first: {:?}", response.content);
        };
        assert_eq!(text, "What would be best here? Listing first.");
        assert_eq!(signature.is_some(), model == "thinker");
        let calls = calls(&response.content);
        let messages = vec![
            user("think"),
            assistant(response.content.clone()),
            result(&calls[0], vec![Part::text("a.txt")], false),
        ];
        let second = ask(&catalog, model, messages).await.unwrap();
        assert_eq!(said(&second.content), "Done.");
    }
    let requests = server.requests();
    let thoughts = &requests[1].json["messages"][1]["content"];
    assert_eq!(thoughts[0]["type"], "thinking");
    assert_eq!(thoughts[1]["type"], "redacted_thinking");
    assert_eq!(requests[1].json["thinking"]["budget_tokens"], 8000);
    assert_eq!(
        requests[3].json["messages"][1]["reasoning_content"],
        "What would be best here? Listing first."
    );
}

#[tokio::test]
async fn invalid_arguments_reach_the_engine_as_they_came_and_go_back_readable() {
    let server = ModelServer::start().await;
    for (opening, raw) in [
        ("broken", "{\"command\": \"ls"),
        ("list", "[1, 2]"),
        ("word", "ls"),
    ] {
        server.script(
            opening,
            [Reply::says("").raw_call("bash", raw), Reply::says("sorry")],
        );
    }
    let catalog = catalog(&server);
    for wire in WIRES {
        for (opening, raw) in [
            ("broken", "{\"command\": \"ls"),
            ("list", "[1, 2]"),
            ("word", "ls"),
        ] {
            let first = ask(&catalog, wire, vec![user(opening)]).await.unwrap();
            let calls = calls(&first.content);
            assert_eq!(calls[0].arguments, json!(raw), "{wire} {opening}");
            let messages = vec![
                user(opening),
                assistant(first.content),
                result(
                    &calls[0],
                    vec![Part::text("the arguments are no JSON object")],
                    true,
                ),
            ];
            assert_eq!(
                said(&ask(&catalog, wire, messages).await.unwrap().content),
                "sorry",
                "{wire}"
            );
            let body = server.requests().last().unwrap().json.to_string();
            assert!(body.contains("invalid_json"), "{body}");
        }
    }
}

#[tokio::test]
async fn what_was_cut_off_in_a_calls_arguments_is_no_call_without_arguments() {
    let server = ModelServer::start().await;
    server.script(
        "long",
        [Reply::says("I write.").raw_call("write", "").stop("length")],
    );
    let catalog = catalog(&server);
    let response = ask(&catalog, "openai", vec![user("long")]).await.unwrap();
    assert_eq!(calls(&response.content)[0].arguments, json!(""));
    assert_eq!(response.stop_reason.as_deref(), Some("length"));
}

#[tokio::test]
async fn cancelling_ends_a_request_at_once() {
    let server = ModelServer::start().await;
    let catalog = catalog(&server);
    for wire in WIRES {
        server.script(
            "hi",
            [Reply::says("never mind").failing(Fault::Stall { after: 3 })],
        );
        let request = request(&catalog, wire, vec![user("hi")]);
        let model = catalog.resolve(wire).unwrap();
        let cancel = CancellationToken::new();
        let context = RequestContext {
            conversation: ConversationId(1),
            task: TaskId(1),
            attempt: 1,
            purpose: mooring_durable::model::Purpose::Turn,
        };
        let heard = Heard::default();
        let asked = model.respond(&request, &context, &heard, cancel.clone());
        let before = server.requests().len();
        let cancelling = async {
            server
                .wait_for_requests(before + 1, Duration::from_secs(10))
                .await;
            cancel.cancel();
        };
        let (outcome, ()) = tokio::time::timeout(Duration::from_secs(20), async {
            tokio::join!(asked, cancelling)
        })
        .await
        .unwrap();
        assert!(matches!(outcome, Err(ModelError::Cancelled)), "{outcome:?}");
    }
}
