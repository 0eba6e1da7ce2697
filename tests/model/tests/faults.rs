//! What goes wrong, and what the engine is told.

use mooring_tests::model::{Fault, Reply, WRONG_KEY};

use super::*;

fn kind(outcome: &Result<ModelResponse, ModelError>) -> &'static str {
    match outcome {
        Ok(_) => "answer",
        Err(ModelError::Retryable { .. }) => "retryable",
        Err(ModelError::Overflow { .. }) => "overflow",
        Err(ModelError::Fatal { .. }) => "fatal",
        Err(ModelError::NotConfigured { .. }) => "not configured",
        Err(ModelError::Cancelled) => "cancelled",
    }
}

fn error(outcome: Result<ModelResponse, ModelError>) -> String {
    outcome.unwrap_err().to_string()
}

#[tokio::test]
async fn every_fault_has_its_class_on_both_wires_and_the_next_attempt_answers() {
    let quota = r#"{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    let event = |kind: &str| Fault::Event {
        after: 2,
        kind: kind.into(),
    };
    let body = |status, body: &str| Fault::Body {
        status,
        body: body.into(),
    };
    let rows = [
        (Fault::status(429), "retryable", "429"),
        (Fault::status(500), "retryable", "500"),
        (Fault::status(502), "retryable", "502"),
        (Fault::status(503), "retryable", "503"),
        (Fault::status(504), "retryable", "504"),
        (Fault::status(529), "retryable", "529"),
        (
            body(502, "<html><h1>Bad Gateway</h1></html>"),
            "retryable",
            "HTML page",
        ),
        (
            body(400, r#"{"error":{"message":"upstream is overloaded"}}"#),
            "retryable",
            "overloaded",
        ),
        (Fault::Cut { after: 0 }, "retryable", "broke"),
        (Fault::Cut { after: 4 }, "retryable", "broke"),
        (
            Fault::End { after: 0 },
            "retryable",
            "before the answer was complete",
        ),
        (
            Fault::End { after: 4 },
            "retryable",
            "before the answer was complete",
        ),
        (Fault::Garbage { after: 4 }, "retryable", "no JSON"),
        (event("overloaded_error"), "retryable", "overloaded"),
        (event("server_error"), "retryable", "server_error"),
        (
            event("invalid_request_error"),
            "fatal",
            "invalid_request_error",
        ),
        (Fault::Overflow, "overflow", "too"),
        (Fault::status(400), "fatal", "400"),
        (Fault::status(401), "fatal", "TEST_KEY"),
        (Fault::status(403), "fatal", "TEST_KEY"),
        (Fault::status(404), "fatal", "check that"),
        (Fault::status(413), "overflow", "413"),
        (body(429, quota), "fatal", "billing"),
    ];
    let server = ModelServer::start().await;
    let catalog = catalog(&server);
    for wire in WIRES {
        for (fault, expected, part) in &rows {
            server.script(
                "hello",
                [Reply::says("All is well again.").failing(fault.clone())],
            );
            let outcome = ask(&catalog, wire, vec![user("hello")]).await;
            assert_eq!(kind(&outcome), *expected, "{wire} {fault:?}: {outcome:?}");
            let text = error(outcome);
            let part = if matches!(fault, Fault::Overflow) && wire == "openai" {
                "maximum context length"
            } else {
                part
            };
            assert!(
                text.to_lowercase().contains(&part.to_lowercase()),
                "{wire} {fault:?}: {text} lacks {part}"
            );
            assert!(
                text.contains(&format!("`{wire}`")),
                "{text} names the model"
            );
            assert!(!text.contains("sk-test"), "{text}");
            let again = ask(&catalog, wire, vec![user("hello")]).await;
            assert_eq!(kind(&again), "answer", "{wire} after {fault:?}: {again:?}");
        }
    }
}

#[tokio::test]
async fn a_rate_limit_says_how_long_to_wait() {
    let server = ModelServer::start().await;
    let catalog = catalog(&server);
    // The stand-in's own `date` header is now; the date is far enough away to
    // tell seconds of a slow machine from hours of a wrong reading.
    let date = jiff::fmt::rfc2822::DateTimePrinter::new();
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(600);
    let later = date.timestamp_to_rfc9110_string(&later).unwrap();
    for wire in WIRES {
        for (header, least, most) in [("7", 7, 7), ("0", 0, 0), (later.as_str(), 500, 600)] {
            server.script(
                "hello",
                [Reply::says("x").failing(Fault::rate_limit(header))],
            );
            match ask(&catalog, wire, vec![user("hello")]).await {
                Err(ModelError::Retryable {
                    retry_after: Some(after),
                    ..
                }) => {
                    assert!(
                        (least..=most).contains(&after.as_secs()),
                        "{wire} {header}: {after:?}"
                    );
                }
                other => panic!("{wire} {header}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn what_came_before_a_cut_was_heard_and_what_it_cost_is_told() {
    let server = ModelServer::start().await;
    let catalog = catalog(&server);
    for (wire, cost) in [
        ("openai", None),
        (
            "anthropic",
            Some(Usage {
                input: 150,
                cached: 50,
                output: 1,
            }),
        ),
    ] {
        let reply = Reply::says("This is a rather long answer.").usage(100, 50, 9);
        server.script("hello", [reply.failing(Fault::Cut { after: 5 })]);
        let heard = Heard::default();
        let request = request(&catalog, wire, vec![user("hello")]);
        match ask_hearing(&catalog, &request, 1, &heard).await {
            Err(ModelError::Retryable { usage, .. }) => assert_eq!(usage, cost, "{wire}"),
            other => panic!("{wire}: {other:?}"),
        }
        assert!(
            heard.text().starts_with("This is"),
            "{wire}: {:?}",
            heard.text()
        );
    }
}

#[tokio::test]
async fn silence_ends_an_answer_and_slowness_does_not() {
    let server = ModelServer::start().await;
    let limits = Limits {
        first: Duration::from_millis(900),
        idle: Duration::from_millis(600),
        ..Limits::default()
    };
    let catalog = catalog_with(&server, limits, "");
    for wire in WIRES {
        server.script(
            "stall",
            [Reply::says("a long enough text").failing(Fault::Stall { after: 3 })],
        );
        let outcome = ask(&catalog, wire, vec![user("stall")]).await;
        assert_eq!(kind(&outcome), "retryable");
        assert!(error(outcome).contains("stalled"), "{wire}");
        server.script(
            "mute",
            [Reply::says("text").failing(Fault::Stall { after: 0 })],
        );
        let outcome = ask(&catalog, wire, vec![user("mute")]).await;
        assert_eq!(kind(&outcome), "retryable");
        assert!(error(outcome).contains("nothing came within"), "{wire}");
        // Longer than both limits in all, and never silent for long.
        let slow = Reply::says("word ".repeat(20)).pace(Duration::from_millis(100));
        server.script("slow", [slow]);
        let outcome = ask(&catalog, wire, vec![user("slow")]).await;
        assert_eq!(kind(&outcome), "answer", "{wire}: {outcome:?}");
    }
}

#[tokio::test]
async fn an_answer_that_takes_for_ever_is_ended() {
    let server = ModelServer::start().await;
    let limits = Limits {
        whole: Duration::from_millis(700),
        ..Limits::default()
    };
    let catalog = catalog_with(&server, limits, "");
    server.queue(Reply::says("word ".repeat(400)).pace(Duration::from_millis(50)));
    let outcome = ask(&catalog, "openai", vec![user("hi")]).await;
    assert!(error(outcome).contains("was not complete after"));
}

#[tokio::test]
async fn an_answer_without_end_is_ended_and_says_so() {
    let server = ModelServer::start().await;
    let catalog = catalog(&server);
    for wire in WIRES {
        for fault in [
            Fault::Huge { bytes: 64 << 20 },
            Fault::HugeArguments { bytes: 64 << 20 },
        ] {
            server.script("huge", [Reply::says("x").failing(fault.clone())]);
            let outcome = ask(&catalog, wire, vec![user("huge")]).await;
            assert_eq!(kind(&outcome), "fatal", "{wire} {fault:?}");
            assert!(
                error(outcome).contains("more than 10485760 bytes"),
                "{wire} {fault:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_answer_that_says_nothing_is_told_apart_by_its_reason() {
    let server = ModelServer::start().await;
    let catalog = catalog(&server);
    let rows = [
        ("openai", Reply::empty(), "retryable", "empty answer"),
        ("anthropic", Reply::empty(), "retryable", "empty answer"),
        ("openai", Reply::says(" \n"), "retryable", "empty answer"),
        (
            "openai",
            Reply::empty().thinking("hm"),
            "retryable",
            "empty answer",
        ),
        (
            "openai",
            Reply::empty().thinking("hm").stop("length"),
            "fatal",
            "maxOutput",
        ),
        (
            "anthropic",
            Reply::empty().stop("max_tokens"),
            "fatal",
            "maxOutput",
        ),
        (
            "anthropic",
            Reply::empty().stop("refusal"),
            "fatal",
            "refused",
        ),
        (
            "openai",
            Reply::empty().stop("content_filter"),
            "fatal",
            "refused",
        ),
        (
            "anthropic",
            Reply::empty().stop("model_context_window_exceeded"),
            "overflow",
            "context",
        ),
    ];
    for (wire, reply, expected, part) in rows {
        server.script("hello", [reply.clone()]);
        let outcome = ask(&catalog, wire, vec![user("hello")]).await;
        assert_eq!(kind(&outcome), expected, "{wire} {reply:?}: {outcome:?}");
        let text = error(outcome);
        assert!(text.contains(part), "{text} lacks {part}");
    }
}

#[tokio::test]
async fn a_wrong_key_or_model_or_address_names_the_way_out() {
    let server = ModelServer::start().await;
    let (openai, anthropic) = (server.openai_url(), server.anthropic_url());
    let more = format!(
        r#"
- {{ name: badkey, provider: openai, model: gpt-4o, endpoint: "{openai}", apiKeyEnv: BAD_KEY }}
- {{ name: oddkey, provider: openai, model: gpt-4o, endpoint: "{openai}", apiKeyEnv: ODD_KEY }}
- {{ name: nomodel, provider: openai, model: missing-1, endpoint: "{openai}" }}
- {{ name: noclaude, provider: anthropic, model: claude-missing, endpoint: "{anthropic}" }}
- {{ name: nopath, provider: openai, model: m, endpoint: "{anthropic}/other" }}
- {{ name: noserver, provider: openai, model: m, endpoint: "http://127.0.0.1:1/v1" }}
- {{ name: nohost, provider: anthropic, model: claude-x, endpoint: "http://no-such-host.invalid" }}
"#
    );
    let catalog = catalog_with(&server, Limits::default(), &more);
    let keys = Arc::new(KeyStore::new());
    let own = Catalog::new(keys.clone(), "/nowhere", Limits::default());
    own.replace(&serde_saphyr::from_str::<Vec<ModelSpec>>(&more).unwrap())
        .unwrap();
    keys.set(&key_name("BAD_KEY", Some(&openai)), WRONG_KEY);
    keys.set(&key_name("ODD_KEY", Some(&openai)), "two\nlines");
    let rows = [
        (&own, "badkey", "fatal", "BAD_KEY"),
        (&own, "oddkey", "fatal", "stray characters"),
        (&catalog, "nomodel", "fatal", "`missing-1`"),
        (&catalog, "noclaude", "fatal", "`claude-missing`"),
        (&catalog, "nopath", "fatal", "/other"),
        (&catalog, "noserver", "retryable", "refused"),
        (&catalog, "nohost", "retryable", "no-such-host"),
    ];
    for (catalog, model, expected, part) in rows {
        let outcome = ask(catalog, model, vec![user("hello")]).await;
        assert_eq!(kind(&outcome), expected, "{model}: {outcome:?}");
        let text = error(outcome);
        assert!(
            text.contains(part) && !text.contains("two"),
            "{model}: {text} lacks {part}"
        );
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_carries_no_key() {
    let (server, other) = (ModelServer::start().await, ModelServer::start().await);
    let catalog = catalog(&server);
    for wire in WIRES {
        let to = format!("{}/v1/messages", other.url());
        server.script(
            "hello",
            [Reply::says("x").failing(Fault::Redirect { to: to.clone() })],
        );
        let outcome = ask(&catalog, wire, vec![user("hello")]).await;
        assert_eq!(kind(&outcome), "fatal");
        assert!(error(outcome).contains(&to));
    }
    assert!(other.requests().is_empty());
}
