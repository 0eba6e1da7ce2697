//! What a request holds, and how a context is fitted to a wire.

use mooring_tests::model::Reply;

use super::*;

#[tokio::test]
async fn another_providers_thoughts_and_ids_do_not_disturb() {
    let server = ModelServer::start().await;
    server.script("switch", [Reply::empty(), Reply::says("fine")]);
    let catalog = catalog(&server);
    for wire in WIRES {
        let call = ToolCall {
            id: "call:1/ä".into(),
            name: "bash".into(),
            arguments: json!({"command": "ls"}),
        };
        let thought = |signature: Option<&str>| Part::Thinking {
            text: "hm".into(),
            signature: signature.map(str::to_owned),
        };
        let foreign = if wire == "openai" {
            thought(Some("c2ln"))
        } else {
            thought(None)
        };
        let messages = vec![
            user("switch"),
            assistant(vec![
                foreign,
                thought(Some("gemini:abc")),
                Part::ToolCall(call.clone()),
            ]),
            result(&call, vec![], false),
        ];
        let response = ask(&catalog, wire, messages).await.unwrap();
        assert_eq!(said(&response.content), "fine", "{wire}");
    }
}

#[tokio::test]
async fn a_later_instruction_keeps_its_place() {
    let server = ModelServer::start().await;
    server.script(
        "start",
        [Reply::empty(), Reply::says("ok"), Reply::says("ok")],
    );
    let catalog = catalog(&server);
    let messages = vec![
        system("First rules."),
        system("More rules."),
        user("start"),
        assistant(vec![Part::text("yes?")]),
        system("From here on, whisper."),
        user("go on"),
    ];
    for wire in WIRES {
        ask(&catalog, wire, messages.clone()).await.unwrap();
    }
    let requests = server.requests();
    let openai = &requests[0].json["messages"];
    assert_eq!(
        openai[4],
        json!({"role": "system", "content": "From here on, whisper."})
    );
    let anthropic = &requests[1].json;
    assert_eq!(
        anthropic["system"][0]["text"],
        "First rules.\n\nMore rules."
    );
    let last = anthropic["messages"][2]["content"].to_string();
    assert!(
        last.contains("<system>\\nFrom here on, whisper.\\n</system>"),
        "{last}"
    );
    assert!(last.find("whisper") < last.find("go on"), "{last}");

    // At the very end, too, behind the results of a round.
    let call = ToolCall {
        id: "c1".into(),
        name: "bash".into(),
        arguments: json!({}),
    };
    let messages = vec![
        user("start"),
        assistant(vec![Part::ToolCall(call.clone())]),
        result(&call, vec![Part::text("done")], false),
        system("The model's name is now B."),
    ];
    for wire in WIRES {
        ask(&catalog, wire, messages.clone()).await.unwrap();
    }
    let requests = server.requests();
    assert_eq!(
        requests[3].json["messages"][2]["content"][0]["type"],
        "tool_result"
    );
    assert_eq!(
        requests[3].json["messages"][2]["content"][1]["type"],
        "text"
    );
}

#[tokio::test]
async fn a_context_that_begins_with_an_answer_or_holds_blanks_is_taken() {
    let server = ModelServer::start().await;
    server.queue(Reply::says("ok"));
    server.queue(Reply::says("ok"));
    let catalog = catalog(&server);
    let messages = vec![
        system("Rules."),
        assistant(vec![Part::text("What I said before.")]),
        Message::User {
            content: vec![Part::text("  \n"), Part::text("and now?")],
        },
        assistant(vec![Part::text(" ")]),
        Message::User {
            content: vec![
                Part::Image {
                    media_type: "image/svg+xml".into(),
                    data: "PHN2Zz4=".into(),
                },
                pixel(),
            ],
        },
    ];
    for wire in WIRES {
        assert_eq!(
            said(&ask(&catalog, wire, messages.clone()).await.unwrap().content),
            "ok",
            "{wire}"
        );
    }
    let svg = server.requests()[0].body.clone();
    assert!(String::from_utf8_lossy(&svg).contains("image/svg+xml, which models do not take"));
}

#[tokio::test]
async fn tools_limits_thinking_and_names_stand_in_the_request() {
    let server = ModelServer::start().await;
    let rows = [
        (
            "openai",
            "qwen-max",
            "",
            json!({"model": "qwen-max", "max_tokens": null, "reasoning_effort": null}),
        ),
        (
            "openai",
            "org::m-low",
            "maxOutput: 77",
            json!({"model": "org::m-low", "max_tokens": 77}),
        ),
        (
            "openai",
            "gpt-5-mini",
            "thinking: High",
            json!({"model": "gpt-5-mini", "max_completion_tokens": 32000, "reasoning_effort": "high"}),
        ),
        (
            "openai",
            "gpt-5",
            "thinking: 'Off'",
            json!({"reasoning_effort": "minimal"}),
        ),
        (
            "openai",
            "gpt-5.1",
            "thinking: 'Off'",
            json!({"reasoning_effort": "none"}),
        ),
        (
            "openai",
            "gpt-4o",
            "thinking: 'Off'",
            json!({"reasoning_effort": null, "max_tokens": 16384}),
        ),
        (
            "anthropic",
            "claude-opus-5-5",
            "thinking: Low",
            json!({"max_tokens": 32000, "output_config": {"effort": "low"}}),
        ),
        (
            "anthropic",
            "claude-sonnet-4-5",
            "",
            json!({"max_tokens": 32000, "thinking": null}),
        ),
        (
            "anthropic",
            "claude-house-max",
            "maxOutput: 500",
            json!({"model": "claude-house-max", "max_tokens": 500, "thinking": null, "output_config": null}),
        ),
    ];
    for (provider, model, more, expected) in rows {
        server.queue(Reply::says("ok"));
        let url = if provider == "openai" {
            server.openai_url()
        } else {
            server.anthropic_url()
        };
        let more = if more.is_empty() {
            String::new()
        } else {
            format!(", {more}")
        };
        let spec = format!(
            "- {{ name: m, provider: {provider}, model: \"{model}\", endpoint: \"{url}\"{more} }}\n"
        );
        let catalog = catalog_with(&server, Limits::default(), &spec);
        ask(&catalog, "m", vec![user("hi")]).await.unwrap();
        let sent = server.requests().last().unwrap().json.clone();
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(sent[field], *value, "{model}: {field} of {sent}");
        }
        let tool = if provider == "openai" {
            &sent["tools"][0]["function"]["parameters"]
        } else {
            &sent["tools"][0]["input_schema"]
        };
        assert_eq!(*tool, bash().parameters);
    }
}

#[tokio::test]
async fn the_same_request_has_the_same_bytes_and_the_key_only_in_its_header() {
    let server = ModelServer::start().await;
    let catalog = catalog(&server);
    for wire in WIRES {
        let request = request(
            &catalog,
            wire,
            vec![
                system("s"),
                user("hi"),
                assistant(vec![Part::text("a")]),
                user("b"),
            ],
        );
        for _ in 0..2 {
            server.queue(Reply::says("ok"));
            ask_hearing(&catalog, &request, 1, &Heard::default())
                .await
                .unwrap();
        }
        let requests = server.requests();
        let [.., first, second] = requests.as_slice() else {
            panic!("two requests")
        };
        assert_eq!(first.body, second.body, "{wire}");
        assert!(!String::from_utf8_lossy(&first.body).contains("sk-test"));
        assert!(
            first
                .headers
                .iter()
                .any(|(_, value)| value.contains("sk-test"))
        );
    }
}

#[tokio::test]
async fn the_prompt_cache_is_marked_where_the_last_request_ended_and_where_this_one_does() {
    let server = ModelServer::start().await;
    server.queue(Reply::says("ok"));
    let catalog = catalog(&server);
    let messages = vec![
        system("Rules."),
        user("one"),
        assistant(vec![Part::text("a")]),
        user("two"),
        assistant(vec![Part::text("b")]),
        user("three"),
    ];
    ask(&catalog, "anthropic", messages).await.unwrap();
    let sent = server.requests()[0].json.clone();
    let mark = json!({"type": "ephemeral"});
    assert_eq!(sent["system"][0]["cache_control"], mark);
    let messages = sent["messages"].as_array().unwrap();
    let marked: Vec<usize> = (0..messages.len())
        .filter(|at| messages[*at]["content"][0]["cache_control"] == mark)
        .collect();
    assert_eq!(marked, [2, 4]);
}
