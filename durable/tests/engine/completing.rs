//! Calls that have their result while work goes on, and calls that hand off.

use mooring_durable::{
    Engine,
    id::ConversationId,
    message::Part,
    submission::AbortScope,
    tool::{Replay, ToolEnd, ToolResult},
    wait::{Awaited, Delegate, Work},
};
use serde_json::{Value, json};

use crate::{branches::told, support::*};

fn result(text: &str) -> ToolResult {
    ToolResult {
        content: vec![Part::text(text)],
        is_error: false,
        terminate: false,
        data: Value::Null,
        documents: Vec::new(),
    }
}

/// A world whose tool `leave` starts a conversation and returns; `look` is what that one
/// is asked, and it answers once the gate is open.
fn leaving() -> (World, Gates) {
    let world = World::new();
    let gates = Gates::default();
    let held = gates.clone();
    world.script(
        move |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![("leave", json!({}))]),
            ("look", _) => Reply::After(held.clone(), "look", "found it"),
            _ => Reply::Say("over"),
        },
    );
    world.tool("leave", Replay::Never, |_, _, _, _| async {
        let work = Work::Conversation(Delegate {
            model: String::new(),
            settings: json!({}),
            input: vec![Part::text("look")],
            background: false,
        });
        let key = "look".into();
        Ok(ToolEnd::Leaves {
            result: result("begun"),
            work: vec![Awaited { key, work }],
        })
    });
    (world, gates)
}

/// The status of the call's task, and how many generations there are.
fn stored(world: &World) -> (String, i64) {
    let file = rusqlite::Connection::open(world.path()).unwrap();
    let sql = "SELECT (SELECT status FROM task WHERE kind = 'pi.tool'),
        (SELECT count(*) FROM task WHERE kind = 'pi.generation' AND conversation = 1)";
    file.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
}

async fn left(engine: &Engine, id: ConversationId, world: &World) {
    eventually("the conversation that was left", async || {
        let tasks = engine.tasks(id, 100).await.unwrap().tasks;
        match tasks.iter().find_map(|task| task.owns) {
            Some(child) => !view(engine, child).await.entries.is_empty(),
            None => false,
        }
    })
    .await;
    let shown = view(engine, id).await;
    assert_eq!(transcript(&shown.entries), ["U:go", "A1", "R:begun"]);
    assert_eq!(shown.calls[0].state, "done");
    assert_eq!(stored(world), ("completing".into(), 1));
    let open = engine.tasks(id, 100).await.unwrap().tasks;
    assert!(open.iter().any(|task| task.status == "completing"));
}

#[tokio::test]
async fn d065_a_call_that_leaves_work_has_its_result_and_the_next_turn_waits_for_the_work() {
    let (world, gates) = leaving();
    let (engine, id) = world.begin().await;
    let asked = say(&engine, id, "go").await;
    left(&engine, id, &world).await;
    // Over crashes, too: the call does not run again, and the work is the same.
    for _ in 0..2 {
        engine.abandon().await;
        let engine = world.start().await;
        left(&engine, id, &world).await;
        assert_eq!(engine.tasks(id, 100).await.unwrap().tasks.len(), 4);
        engine.abandon().await;
    }
    let engine = world.start().await;
    left(&engine, id, &world).await;
    for _ in 0..4 {
        gates.open("look");
    }
    assert_eq!(settled(&engine, asked).await, "done");
    let words = transcript(&view(&engine, id).await.entries);
    assert_eq!(words, ["U:go", "A1", "R:begun", "A:over"]);
    assert_eq!(stored(&world), ("done".into(), 2));
    let told = world.told();
    let ends = told.iter().filter(|word| *word == "end leave Done");
    assert_eq!(ends.count(), 1);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn an_abort_changes_nothing_of_an_outcome_that_is_decided_and_held() {
    for crash in [false, true] {
        let (world, _) = leaving();
        let (engine, id) = world.begin().await;
        let asked = say(&engine, id, "go").await;
        left(&engine, id, &world).await;
        engine.abort(id, AbortScope::Conversation).await.unwrap();
        let engine = match crash {
            true => {
                engine.abandon().await;
                world.start().await
            }
            false => engine,
        };
        assert_eq!(settled(&engine, asked).await, "unanswered Aborted");
        let words = transcript(&view(&engine, id).await.entries);
        assert_eq!(words, ["U:go", "A1", "R:begun"]);
        assert_eq!(stored(&world), ("done".into(), 1));
        let told = world.told();
        assert!(told.contains(&"end leave Done".into()));
        assert!(!told.contains(&"end leave Aborted".into()));
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn only_times_and_conversations_can_be_left() {
    let (world, _) = leaving();
    world.tool("leave", Replay::Never, |_, _, _, _| async {
        let work = Work::Question {
            text: "which?".into(),
            choices: Vec::new(),
            expires_at: None,
        };
        let key = "q".into();
        Ok(ToolEnd::Leaves {
            result: result("begun"),
            work: vec![Awaited { key, work }],
        })
    });
    let (engine, id) = world.begin().await;
    let asked = say(&engine, id, "go").await;
    assert_eq!(settled(&engine, asked).await, "done");
    let words = transcript(&view(&engine, id).await.entries);
    assert!(words[2].starts_with("R!:Only times and"), "{words:?}");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn of_the_calls_that_hand_off_the_last_in_call_order_begins_the_context() {
    let world = World::new();
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![
                ("first", json!({})),
                ("last", json!({})),
                ("plain", json!({})),
            ]),
            _ => Reply::Say("over"),
        },
    );
    let gates = Gates::default();
    for (name, brief) in [("first", "the first brief"), ("last", "the last brief")] {
        let held = gates.clone();
        world.tool(name, Replay::Safe, move |_, _, _, _| {
            let held = held.clone();
            async move {
                held.pass(name).await;
                Ok(ToolEnd::HandsOff {
                    result: result(name),
                    brief: brief.into(),
                })
            }
        });
    }
    world.tool("plain", Replay::Safe, |_, _, _, _| async { done("plain") });
    let (engine, id) = world.begin().await;
    let asked = say(&engine, id, "go").await;
    // The last one in call order ends first, and a crash comes between.
    gates.open("last");
    shows(&engine, id, "the first results", |view| {
        view.calls
            .iter()
            .filter(|call| call.state == "done")
            .count()
            == 2
    })
    .await;
    engine.abandon().await;
    let engine = world.start().await;
    gates.open("first");
    gates.open("first");
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(told(&world), ["the last brief"]);
    let words = transcript(&view(&engine, id).await.entries);
    assert_eq!(words[words.len() - 2..], ["U:the last brief", "A:over"]);
    engine.close().await.unwrap();
}
