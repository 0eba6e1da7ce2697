//! Extensions: what a conversation has by their names, what changes when one does, hooks.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mooring_durable::{
    Engine,
    extension::{Extension, Extensions},
    gate::Verdict,
    hook::{Before, Hook},
    id::ConversationId,
    message::{Message, Part},
    prompt::Section,
    tool::{Call, Replay, Tool, ToolResult},
};
use serde_json::{Value, json};

use crate::{
    branches::{fork_of, talk},
    support::*,
};

/// A set with one tool that says which set it is of, and one section.
#[derive(Default)]
struct Set {
    tools: Vec<Arc<dyn Tool>>,
    hooks: Vec<Arc<dyn Hook>>,
    /// `None`: it cannot be rendered.
    section: Mutex<Option<&'static str>>,
}

impl Set {
    fn new(tool: &str, says: &'static str) -> Arc<Set> {
        let tool = TestTool::new(
            tool,
            Replay::Safe,
            move |_, _, _, _| async move { done(says) },
        );
        Arc::new(Set {
            tools: vec![tool],
            hooks: Vec::new(),
            section: Mutex::new(Some(says)),
        })
    }
}

#[async_trait]
impl Extension for Set {
    fn tools(&self, _conversation: ConversationId, _settings: &Value) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }
    fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        self.hooks.clone()
    }
    async fn sections(
        &self,
        _conversation: ConversationId,
        _settings: &Value,
    ) -> Result<Vec<Section>, String> {
        let said = *self.section.lock().unwrap();
        let text = said.ok_or("it is broken")?.to_owned();
        let name = String::new();
        Ok(vec![Section { name, text }])
    }
}

async fn open(world: &World, extensions: &Arc<Extensions>) -> Engine {
    let mut ports = world.ports();
    ports.tools = extensions.clone();
    ports.prompt = extensions.clone();
    let engine = Engine::open(&world.path(), world.options(), ports)
        .await
        .unwrap();
    engine.start();
    engine
}

async fn begin(engine: &Engine, settings: Value) -> ConversationId {
    let made = engine.create_conversation("m", settings, Vec::new()).await;
    made.unwrap()
}

/// The tools of the last request.
fn offered(world: &World) -> Vec<String> {
    let requests = world.model.requests.lock().unwrap();
    let tools = requests.last().unwrap().tools.iter();
    tools.map(|tool| tool.name.clone()).collect()
}

/// The system texts of the last request.
fn system(world: &World) -> Vec<String> {
    let requests = world.model.requests.lock().unwrap();
    let messages = requests.last().unwrap().messages.iter();
    messages
        .filter_map(|message| match message {
            Message::System { text } => Some(text.clone()),
            _ => None,
        })
        .collect()
}

/// The results of calls, in order.
async fn told(engine: &Engine, id: ConversationId) -> Vec<String> {
    let lines = transcript(&view(engine, id).await.entries);
    let results = lines.iter().filter(|line| line.starts_with('R'));
    results.cloned().collect()
}

/// Calls these tools in the first turn of each run.
fn calling(world: &World, calls: &'static [(&'static str, &'static str)]) {
    world.script(move |request| match results(request) {
        1.. => Reply::Say("fine"),
        0 => {
            let call = |(tool, text): &(&'static str, &str)| (*tool, json!({ "text": text }));
            Reply::Call(calls.iter().map(call).collect())
        }
    });
}

#[tokio::test]
async fn a_conversation_has_the_extensions_that_it_names_and_what_begins_by_it_has_no_others() {
    let world = World::new();
    let extensions = Arc::new(Extensions::default());
    extensions.put("a", Set::new("one", "of a"));
    extensions.put("b", Set::new("two", "of b"));
    assert_eq!(extensions.names(), ["a", "b"]);
    let engine = open(&world, &extensions).await;
    for (settings, tools, sections) in [
        (json!({}), &["one", "two"][..], "of a\n\nof b"),
        (json!({"extensions": ["b"]}), &["two"], "of b"),
        (json!({"extensions": ["b", "gone"]}), &["two"], "of b"),
    ] {
        let id = begin(&engine, settings.clone()).await;
        talk(&engine, id, "hello").await;
        assert_eq!(offered(&world), tools, "{settings}");
        assert_eq!(system(&world), [sections], "{settings}");
        let fork = engine.fork(fork_of(id, None)).await.unwrap();
        talk(&engine, fork, "hello").await;
        assert_eq!(offered(&world), tools, "a fork of {settings}");
    }
    // Only the name is stored: once it is there, the conversation has it.
    let id = begin(&engine, json!({"extensions": ["later"]})).await;
    talk(&engine, id, "hello").await;
    assert!(offered(&world).is_empty());
    extensions.put("later", Set::new("three", "of later"));
    talk(&engine, id, "hello").await;
    assert_eq!(offered(&world), ["three"]);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_replaced_counts_from_the_next_request_and_call_and_a_started_call_ends_as_it_began()
 {
    let world = World::new();
    let (gates, extensions) = (Gates::default(), Arc::new(Extensions::default()));
    let pass = gates.clone();
    let hold = TestTool::new("act", Replay::Never, move |_, _, _, _| {
        let pass = pass.clone();
        async move {
            pass.pass("held").await;
            done("old code")
        }
    });
    let old = Set {
        tools: vec![hold],
        hooks: Vec::new(),
        section: Mutex::new(Some("old words")),
    };
    extensions.put("set", Arc::new(old));
    extensions.put("other", Set::new("other", "other words"));
    calling(&world, &[("act", "")]);
    let engine = open(&world, &extensions).await;
    let id = begin(&engine, json!({})).await;
    let first = say(&engine, id, "go").await;
    shows(&engine, id, "the call", |view| {
        view.calls.iter().any(|call| call.state == "running")
    })
    .await;
    extensions.put("set", Set::new("act", "new"));
    gates.open("held");
    assert_eq!(settled(&engine, first).await, "done");
    assert_eq!(told(&engine, id).await.len(), 1);
    assert!(told(&engine, id).await[0].contains("old code"));
    // The change stands where it was made known: after the result, before the answer.
    assert_eq!(
        system(&world),
        [
            "old words\n\nother words",
            "Section \"set\" now reads:\nnew"
        ]
    );
    let second = say(&engine, id, "again").await;
    assert_eq!(settled(&engine, second).await, "done");
    assert!(told(&engine, id).await[1].contains("new"));
    // Taken away, its calls are errors that say so, and its words no longer hold.
    extensions.remove("set");
    let third = say(&engine, id, "again").await;
    assert_eq!(settled(&engine, third).await, "done");
    let error = &told(&engine, id).await[2];
    assert!(error.contains("There is no tool act"), "{error}");
    let gone = "Section \"set\" no longer holds.".to_owned();
    assert_eq!(system(&world).last(), Some(&gone));
    // Back again, the conversation goes on with it.
    extensions.put("set", Set::new("act", "back"));
    let fourth = say(&engine, id, "again").await;
    assert_eq!(settled(&engine, fourth).await, "done");
    assert!(told(&engine, id).await[3].contains("back"));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn sections_that_one_extension_cannot_render_stay_as_they_were_and_others_are_told() {
    let world = World::new();
    let extensions = Arc::new(Extensions::default());
    let (a, b) = (Set::new("one", "of a"), Set::new("two", "of b"));
    extensions.put("a", a.clone());
    extensions.put("b", b.clone());
    let engine = open(&world, &extensions).await;
    let id = begin(&engine, json!({})).await;
    talk(&engine, id, "one").await;
    *a.section.lock().unwrap() = None;
    *b.section.lock().unwrap() = Some("b changed");
    talk(&engine, id, "two").await;
    let expected = ["of a\n\nof b", "Section \"b\" now reads:\nb changed"];
    assert_eq!(system(&world), expected);
    *a.section.lock().unwrap() = Some("of a");
    talk(&engine, id, "three").await;
    assert_eq!(system(&world), expected, "nothing has changed");
    engine.close().await.unwrap();
}

/// Looks at calls by the text that they are given.
struct Looks;

#[async_trait]
impl Hook for Looks {
    async fn before(&self, call: &Call) -> Before {
        match call.arguments["text"].as_str() {
            Some("change") => Before::With(json!({"text": "changed"})),
            Some("wrong") => Before::With(json!(7)),
            Some("refuse") => Before::Refuse("not that".into()),
            Some("panic") => panic!("a test's hook breaks"),
            _ => Before::Go,
        }
    }
    async fn after(&self, call: &Call, mut result: ToolResult) -> Result<ToolResult, String> {
        match call.arguments["text"].as_str() {
            Some("add") => {
                result.content.push(Part::text("and more"));
                Ok(result)
            }
            Some("fail") => Err("it cannot look".into()),
            Some("break") => panic!("a test's hook breaks"),
            _ => Ok(result),
        }
    }
}

/// One extension: a tool `act`, and a hook that looks at its calls.
fn looking() -> Arc<Extensions> {
    let extensions = Arc::new(Extensions::default());
    let tool = TestTool::new("act", Replay::Never, |call, _, _, _| async move {
        done(&format!("did {}", call.arguments["text"]))
    });
    let set = Set {
        tools: vec![tool],
        hooks: vec![Arc::new(Looks)],
        section: Mutex::new(Some("look")),
    };
    extensions.put("looks", Arc::new(set));
    extensions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_change_and_refuse_calls_before_the_gate_and_results_before_they_are_committed() {
    let world = World::new();
    let extensions = looking();
    let decided: Arc<Mutex<Vec<Value>>> = Arc::default();
    let heard = decided.clone();
    world.gate(move |call, _| {
        heard.lock().unwrap().push(call.arguments.clone());
        Verdict::Allow {
            record: Value::Null,
        }
    });
    calling(
        &world,
        &[
            ("act", "plain"),
            ("act", "change"),
            ("act", "wrong"),
            ("act", "refuse"),
            ("act", "panic"),
            ("act", "add"),
            ("act", "fail"),
            ("act", "break"),
        ],
    );
    let engine = open(&world, &extensions).await;
    let id = begin(&engine, json!({})).await;
    let submission = say(&engine, id, "go").await;
    assert_eq!(settled(&engine, submission).await, "done");
    let requests = world.model.requests.lock().unwrap().clone();
    let results: Vec<(String, bool)> = requests[1]
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::ToolResult {
                content, is_error, ..
            } => {
                let texts = content.iter().map(|part| match part {
                    Part::Text { text } => text.as_str(),
                    _ => "",
                });
                Some((texts.collect::<Vec<_>>().join(" "), *is_error))
            }
            _ => None,
        })
        .collect();
    for (at, (expected, is_error)) in [
        ("did \"plain\"", false),
        ("did \"changed\"", false),
        ("", true), // validated again
        ("not that", true),
        ("so the call was not carried out", true),
        ("did \"add\" and more", false),
        ("did \"fail\"", false),
        ("did \"break\"", false),
    ]
    .into_iter()
    .enumerate()
    {
        let (text, error) = &results[at];
        assert!(
            text.contains(expected) && *error == is_error,
            "{at}: {text}"
        );
    }
    // The gate decides the arguments that the call has in the end, and no refused call.
    let mut decided: Vec<String> = decided
        .lock()
        .unwrap()
        .iter()
        .map(|arguments| arguments["text"].as_str().unwrap().to_owned())
        .collect();
    decided.sort();
    assert_eq!(decided, ["add", "break", "changed", "fail", "plain"]);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_is_of_the_arguments_that_a_hook_gave_and_is_found_again_after_a_crash() {
    let world = World::new();
    let extensions = looking();
    world.gate(|_, _| ask("rule"));
    calling(&world, &[("act", "change")]);
    let engine = open(&world, &extensions).await;
    let id = begin(&engine, json!({})).await;
    let submission = say(&engine, id, "go").await;
    let asked = |view: &mooring_durable::view::ConversationView| view.approvals.len() == 1;
    shows(&engine, id, "the question", asked).await;
    let first = view(&engine, id).await.approvals.remove(0);
    engine.close().await.unwrap();
    let engine = open(&world, &extensions).await;
    engine.policy_changed();
    let again = view(&engine, id).await.approvals.remove(0);
    assert_eq!(
        (again.task, again.arguments_hash),
        (first.task, first.arguments_hash)
    );
    let decided = engine.decide(first.task, approve(true), Vec::new()).await;
    assert!(decided.unwrap().unwrap().0);
    assert_eq!(settled(&engine, submission).await, "done");
    assert!(told(&engine, id).await[0].contains("did \"changed\""));
    engine.close().await.unwrap();
}
