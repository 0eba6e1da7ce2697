//! Conversations that calls own.

use super::*;

#[tokio::test]
async fn d083_a_conversation_of_a_call_answers_it_is_found_again_and_runs_on_its_own_afterwards() {
    let settings = json!({"title": "child", "plain": true});
    let on = json!([{"is": "conversation", "key": "c", "text": "look", "settings": settings}]);
    let waiting = Waiting::new(vec![vec![json!({ "on": on })]]);
    let (engine, id) = waiting.begin().await;
    let gates = Gates::default();
    let held = gates.clone();
    let script = waiting.world.model.script.lock().unwrap().clone();
    *waiting.world.model.script.lock().unwrap() =
        Arc::new(move |request, context| match last_user(request).as_str() {
            "look" => Reply::After(held.clone(), "look", "found it"),
            _ => script(request, context),
        });
    let asked = say(&engine, id, "wait 0").await;
    in_state(&engine, id, "delegated").await;
    let child = owned(&engine, id).await;
    let shown = view(&engine, child).await;
    assert_eq!(shown.origin.owner.map(|owner| owner.conversation), Some(id));
    assert_eq!(transcript(&shown.entries), ["U:look"]);
    let listed = engine.conversations(10, None).await.unwrap();
    assert_eq!(listed.len(), 1, "it is listed below its parent only");
    // It has its own tools, and none of its parent's history.
    eventually("its request", async || {
        waiting.world.model.requests.lock().unwrap().len() == 2
    })
    .await;
    let request = waiting.world.model.requests.lock().unwrap()[1].clone();
    assert!(request.tools.is_empty() && request.messages.len() == 1);
    for _ in 0..2 {
        engine.abandon().await;
        let engine = waiting.start().await;
        assert_eq!(owned(&engine, id).await, child);
        engine.abandon().await;
    }
    let engine = waiting.start().await;
    // It is steered on its own.
    let steered = input(child, "and quickly", WhenBusy::Steer);
    engine.submit(steered).await.unwrap();
    for _ in 0..4 {
        gates.open("look");
    }
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(told(&engine, id).await, ["R:c: done found it"]);
    let run = view(&engine, child).await;
    assert!(run.run.is_none());
    // What was a subagent's runs like any other.
    talk(&engine, child, "once more").await;
    assert_eq!(open_work(&waiting.world), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_conversation_in_the_background_answers_at_once_and_tells_its_end() {
    let on = json!([{"is": "background", "key": "c", "text": "look", "settings": {"plain": true}}]);
    for busy in [false, true] {
        let waiting = Waiting::new(vec![vec![json!({ "on": on })]]);
        let gates = Gates::default();
        let (held, busy_gate) = (gates.clone(), gates.clone());
        let script = waiting.world.model.script.lock().unwrap().clone();
        *waiting.world.model.script.lock().unwrap() =
            Arc::new(move |request, context| match last_user(request).as_str() {
                "look" => Reply::After(held.clone(), "look", "found it"),
                "long" => Reply::After(busy_gate.clone(), "long", "long answer"),
                _ => script(request, context),
            });
        let (engine, id) = waiting.begin().await;
        let asked = say(&engine, id, "wait 0").await;
        assert_eq!(
            settled(&engine, asked).await,
            "done",
            "it is not waited for"
        );
        assert_eq!(told(&engine, id).await, ["R:c: begun"]);
        // Neither ends it with its owner's conversation.
        engine.abort(id, AbortScope::Conversation).await.unwrap();
        if busy {
            say(&engine, id, "long").await;
        }
        engine.abandon().await;
        let engine = waiting.start().await;
        gates.open("look");
        gates.open("look");
        let said = "The subagent in conversation 2, which worked in the background, has ended: \n\nfound it";
        if busy {
            shows(&engine, id, "the queued end", |view| {
                view.inbox.iter().any(|it| it.requester != anna())
            })
            .await;
            gates.open("long");
            gates.open("long");
        }
        let shown = shows(&engine, id, "the end", |view| {
            view.run.is_none()
                && transcript(&view.entries)
                    .iter()
                    .any(|word| word.starts_with("U:The subagent"))
        })
        .await;
        let ends = shown.entries.iter().filter(|entry| {
            matches!(&entry.message, Some(Message::User { content }) if content == &[Part::text(said)])
        });
        assert_eq!(ends.count(), 1, "{:?}", transcript(&shown.entries));
        eventually("nothing is open", async || open_work(&waiting.world) == 0).await;
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn d073_an_abort_goes_bottom_up_also_over_a_crash() {
    for crash in [false, true] {
        let on = json!([
            {"is": "conversation", "key": "c", "text": "wait 1"},
            {"is": "question", "key": "q", "text": "which?"},
        ]);
        let deeper = json!([{"is": "conversation", "key": "c", "text": "hang"}]);
        let waiting = Waiting::new(vec![
            vec![json!({ "on": on })],
            vec![json!({ "on": deeper })],
        ]);
        let (mut engine, id) = waiting.begin().await;
        let asked = say(&engine, id, "wait 0").await;
        let child = owned(&engine, id).await;
        let grandchild = owned(&engine, child).await;
        eventually("the deepest request", async || {
            waiting.world.model.requests.lock().unwrap().len() == 3
        })
        .await;
        engine.abort(id, AbortScope::Run).await.unwrap();
        if crash {
            engine.abandon().await;
            engine = waiting.start().await;
        }
        assert_eq!(settled(&engine, asked).await, "unanswered Aborted");
        for id in [child, grandchild] {
            let view = view(&engine, id).await;
            assert!(view.run.is_none() && view.inbox.is_empty());
        }
        // The deepest ended first.
        let file = rusqlite::Connection::open(waiting.world.path()).unwrap();
        let mut statement = file
            .prepare("SELECT conversation FROM submission WHERE state = 'unanswered' ORDER BY settled_commit")
            .unwrap();
        let order: Vec<i64> = statement
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(order, [grandchild.0, child.0, id.0]);
        assert_eq!(open_work(&waiting.world), 0);
        assert!(engine.questions().await.unwrap().is_empty());
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_subagent_may_use_its_share_and_what_it_used_counts_for_its_parent() {
    for (tokens, expected) in [(1_000, "R:c: done answered"), (12, "R:c: failed")] {
        let settings = json!({"plain": true, "tokens": tokens});
        let on = json!([{"is": "conversation", "key": "c", "text": "look", "settings": settings}]);
        let waiting = Waiting::new(vec![vec![json!({ "on": on })]]);
        if tokens == 12 {
            // One request fits, the second does not.
            waiting
                .world
                .tool("t", Replay::Safe, |_, _, _, _| async { done("did") });
            let script = waiting.world.model.script.lock().unwrap().clone();
            *waiting.world.model.script.lock().unwrap() =
                Arc::new(move |request, context| {
                    match (last_user(request).as_str(), results(request)) {
                        ("look", 0) => Reply::Call(vec![("t", json!({}))]),
                        _ => script(request, context),
                    }
                });
        }
        let (engine, id) = waiting.begin().await;
        let asked = say(&engine, id, "wait 0").await;
        assert_eq!(settled(&engine, asked).await, "done");
        let told = told(&engine, id).await;
        assert!(told[0].starts_with(expected), "{told:?}");
        let usage = waiting
            .world
            .ledger
            .told
            .lock()
            .unwrap()
            .iter()
            .rev()
            .find_map(|(_, change)| match change {
                mooring_durable::ledger::Change::RunEnded { run, .. } => Some(run.usage),
                _ => None,
            });
        if tokens == 1_000 {
            assert_eq!(
                usage.unwrap().input,
                30,
                "two requests of its own and one of the child"
            );
        }
        engine.close().await.unwrap();
    }
}
