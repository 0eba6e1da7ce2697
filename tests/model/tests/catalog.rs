//! Names, keys and changes of the Workspace.

use mooring_harness::model::{CatalogError, UsdMicros};
use mooring_tests::model::Reply;

use super::*;

fn specs(yaml: &str) -> Vec<ModelSpec> {
    serde_saphyr::from_str(yaml).unwrap()
}

#[tokio::test]
async fn a_missing_key_is_named_and_its_arrival_is_enough() {
    let server = ModelServer::start().await;
    let keys = Arc::new(KeyStore::new());
    let catalog = Catalog::new(keys.clone(), "/nowhere", Limits::default());
    let url = server.openai_url();
    let yaml = format!(
        "[{{ name: m, provider: openai, model: gpt-4o, endpoint: \"{url}\", apiKeyEnv: MY_KEY }}]"
    );
    catalog.replace(&specs(&yaml)).unwrap();
    match ask(&catalog, "m", vec![user("hi")]).await {
        Err(ModelError::NotConfigured { needs }) => {
            assert_eq!(needs, format!("MY_KEY (for {url})"))
        }
        other => panic!("{other:?}"),
    }
    assert!(server.requests().is_empty());
    let needed = catalog.needed_keys();
    assert_eq!(
        (needed[0].variable.as_str(), needed[0].present),
        ("MY_KEY", false)
    );
    assert_eq!(needed[0].endpoint.as_deref(), Some(url.as_str()));

    // A key that was handed over for another server is not this one's.
    keys.set("MY_KEY", "sk-for-another-server");
    assert!(!catalog.needed_keys()[0].present);
    keys.set(&needed[0].name, "sk-mine");
    server.queue(Reply::says("hello"));
    assert_eq!(
        said(&ask(&catalog, "m", vec![user("hi")]).await.unwrap().content),
        "hello"
    );
    assert!(catalog.needed_keys()[0].present);
    let sent = server.requests()[0].headers.clone();
    assert!(sent.contains(&("authorization".into(), "Bearer sk-mine".into())));
}

#[tokio::test]
async fn a_changed_workspace_takes_effect_and_a_pinned_request_stays_what_it_was() {
    let server = ModelServer::start().await;
    let keys = Arc::new(KeyStore::new());
    keys.set("OPENAI_API_KEY", "sk-never-for-this-server");
    let catalog = Catalog::new(keys, "/nowhere", Limits::default());
    let (openai, anthropic) = (server.openai_url(), server.anthropic_url());
    let old = format!("[{{ name: m, provider: openai, model: old-1, endpoint: \"{openai}\" }}]");
    let new = format!(
        "[{{ name: m, provider: anthropic, model: claude-new, endpoint: \"{anthropic}\" }}]"
    );
    catalog.replace(&specs(&old)).unwrap();
    let pinned = request(&catalog, "m", vec![user("hi")]);
    catalog.replace(&specs(&new)).unwrap();
    for _ in 0..2 {
        server.queue(Reply::says("ok"));
    }
    ask(&catalog, "m", vec![user("hi")]).await.unwrap();
    ask_hearing(&catalog, &pinned, 1, &Heard::default())
        .await
        .unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].json["model"], "claude-new");
    assert_eq!(requests[1].json["model"], "old-1");
    // The provider's usual key is not for a server that the Workspace names.
    assert!(requests.iter().all(|r| {
        r.headers
            .iter()
            .all(|(_, value)| !value.contains("sk-never"))
    }));
}

#[tokio::test]
async fn names_resolve_and_the_first_is_the_default() {
    let catalog = Catalog::new(Arc::new(KeyStore::new()), "/nowhere", Limits::default());
    assert!(catalog.resolve("").is_none());
    catalog
        .replace(&specs(
            "[{ name: a, provider: anthropic, model: claude-sonnet-4-5-20250929 }, { name: b, provider: rehearsal }]",
        ))
        .unwrap();
    assert_eq!(catalog.names(), ["a", "b"]);
    assert!(catalog.resolve("c").is_none());
    let a = catalog.resolve("").unwrap();
    assert!(a.adapter().contains("genai 0.7"), "{}", a.adapter());
    assert!(!catalog.resolve("b").unwrap().adapter().contains("genai"));
    assert_eq!(catalog.context_window("a"), Some(200_000));
    let usage = Usage {
        input: 1_000_000,
        cached: 0,
        output: 0,
    };
    assert_eq!(catalog.cost("a", usage), Some(UsdMicros(3_000_000)));
    assert_eq!(catalog.cost("b", usage), Some(UsdMicros(0)));
    assert_eq!(catalog.needed_keys().len(), 1);
    assert_eq!(catalog.needed_keys()[0].variable, "ANTHROPIC_API_KEY");
}

#[test]
fn a_wrong_list_is_refused_with_the_field_and_the_old_one_stays() {
    let catalog = Catalog::new(Arc::new(KeyStore::new()), "/nowhere", Limits::default());
    catalog
        .replace(&specs("[{ name: a, provider: rehearsal }]"))
        .unwrap();
    let rows = [
        ("[]", "at least one model"),
        ("[{ name: '', provider: rehearsal }]", "spec.models[0].name"),
        (
            "[{ name: a, provider: rehearsal }, { name: a, provider: rehearsal }]",
            "spec.models[1].name",
        ),
        ("[{ name: a, provider: openai }]", "spec.models[0].model"),
        (
            "[{ name: a, provider: openai, model: m, endpoint: 'localhost:80' }]",
            "spec.models[0].endpoint",
        ),
        (
            "[{ name: a, provider: openai, model: m, endpoint: 'file:///etc' }]",
            "https://",
        ),
        (
            "[{ name: a, provider: openai, model: m, endpoint: 'http://u:p@h/v1' }]",
            "apiKeyEnv",
        ),
    ];
    for (yaml, part) in rows {
        let error: CatalogError = catalog.replace(&specs(yaml)).unwrap_err();
        assert!(error.to_string().contains(part), "{yaml}: {error}");
    }
    assert_eq!(catalog.names(), ["a"]);
}

#[test]
fn an_estimate_is_near_and_rather_too_high() {
    let catalog = Catalog::new(Arc::new(KeyStore::new()), "/nowhere", Limits::default());
    catalog
        .replace(&specs("[{ name: a, provider: rehearsal }]"))
        .unwrap();
    let mut request = request(&catalog, "a", vec![user(&"word ".repeat(1000))]);
    let model = catalog.resolve("a").unwrap();
    let words = model.estimate(&request);
    assert!((1000..1500).contains(&words), "{words}");
    request.messages.push(Message::User {
        content: vec![Part::Image {
            media_type: "image/png".into(),
            data: "A".repeat(1_000_000),
        }],
    });
    assert!(model.estimate(&request) < words + 2000);
}
