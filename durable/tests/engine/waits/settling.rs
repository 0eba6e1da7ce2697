//! What calls wait for settles: answers, times, other calls.

use super::*;

#[tokio::test]
async fn a_question_waits_over_restarts_and_the_first_answer_wins() {
    let plan = json!({"on": [{"is": "question", "key": "q", "text": "which?"}]});
    let waiting = Waiting::new(vec![vec![plan]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    in_state(&engine, id, "asking").await;
    for _ in 0..2 {
        engine.close().await.unwrap();
        let engine = waiting.start().await;
        assert_eq!(view(&engine, id).await.questions[0].text, "which?");
        engine.close().await.unwrap();
    }
    let engine = waiting.start().await;
    let questions = engine.questions().await.unwrap();
    assert_eq!(questions.len(), 1);
    let task = questions[0].task;
    let (first, question) = engine
        .answer(task, "blue".into(), bert(), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(first && question.end.is_some());
    let (first, question) = engine
        .answer(task, "red".into(), anna(), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(!first);
    let blue = WorkEnd::Answered {
        text: "blue".into(),
        by: bert(),
    };
    assert_eq!(question.end, Some(blue));
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(told(&engine, id).await, ["R:q: local:bert blue"]);
    assert_eq!(waiting.waiter.runs.load(Ordering::SeqCst), 1);
    let none = engine
        .answer(TaskId(99), "x".into(), bert(), Vec::new())
        .await;
    assert!(none.unwrap().is_none());
    assert_eq!(open_work(&waiting.world), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_timer_fires_once_also_if_the_process_was_down_at_the_time() {
    for down in [false, true] {
        let plan = json!({"on": [{"is": "timer", "key": "t", "ms": 5_000}]});
        let waiting = Waiting::new(vec![vec![plan]]);
        let (mut engine, id) = waiting.begin().await;
        let asleep = say(&engine, id, "wait 0").await;
        in_state(&engine, id, "sleeping").await;
        if down {
            engine.close().await.unwrap();
            waiting.world.clock.advance(60_000);
            engine = waiting.start().await;
        } else {
            waiting.world.clock.awaited(START + 5_000).await;
            waiting.world.clock.advance(5_000);
        }
        assert_eq!(settled(&engine, asleep).await, "done");
        assert_eq!(told(&engine, id).await, ["R:t: fired"]);
        assert_eq!(waiting.waiter.resumes.load(Ordering::SeqCst), 1);
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_sleeps_is_not_in_memory() {
    let plan = json!({"on": [{"is": "timer", "key": "t", "ms": 50_000}]});
    let waiting = Waiting::new(vec![vec![plan]]);
    let engine = waiting.start().await;
    for _ in 0..100 {
        let id = engine.create_conversation("m", json!({}), Vec::new()).await;
        say(&engine, id.unwrap(), "wait 0").await;
    }
    eventually("all sleep", async || engine.waiting() == 100).await;
    engine.close().await.unwrap();
    let engine = waiting.start().await;
    assert_eq!((engine.waiting(), engine.running()), (100, 0));
    waiting.world.clock.awaited(START + 50_000).await;
    waiting.world.clock.advance(50_000);
    eventually("all are awake", async || {
        engine.waiting() == 0 && engine.running() == 0
    })
    .await;
    assert_eq!(waiting.waiter.resumes.load(Ordering::SeqCst), 100);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d067_work_of_a_key_is_the_same_work_and_other_work_is_refused() {
    let first = json!({"is": "question", "key": "q", "text": "which?"});
    let other = json!({"is": "question", "key": "q", "text": "other?"});
    for (then, expected) in [
        (first.clone(), "R:q: local:bert blue"),
        (other, "R!:The key q stands for other work already."),
    ] {
        let plan = json!({"on": [first], "then": [then]});
        let waiting = Waiting::new(vec![vec![plan]]);
        let (engine, id) = waiting.begin().await;
        let asked = say(&engine, id, "wait 0").await;
        in_state(&engine, id, "asking").await;
        let task = engine.questions().await.unwrap()[0].task;
        let answer = engine.answer(task, "blue".into(), bert(), Vec::new()).await;
        answer.unwrap();
        assert_eq!(settled(&engine, asked).await, "done");
        assert_eq!(told(&engine, id).await, [expected]);
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn d069_of_a_wait_that_fails_fast_the_siblings_are_aborted_in_order() {
    let on = json!([
        {"is": "question", "key": "a", "text": "a?"},
        {"is": "question", "key": "b", "text": "b?", "expires": 1_000},
        {"is": "conversation", "key": "c", "text": "hang"},
        {"is": "timer", "key": "d", "ms": 500_000},
    ]);
    let waiting = Waiting::new(vec![vec![json!({"on": on, "fast": true})]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    in_state(&engine, id, "asking").await;
    let child = owned(&engine, id).await;
    waiting.world.clock.awaited(START + 1_000).await;
    waiting.world.clock.advance(1_000);
    assert_eq!(settled(&engine, asked).await, "done");
    let expected = "R:a: aborted; b: expired; c: aborted; d: aborted";
    assert_eq!(told(&engine, id).await, [expected]);
    assert!(view(&engine, child).await.run.is_none());
    assert_eq!(open_work(&waiting.world), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d071_siblings_of_what_failed_before_a_crash_are_ended_when_it_is_open_again() {
    let on = json!([
        {"is": "conversation", "key": "a", "text": "fail"},
        {"is": "conversation", "key": "b", "text": "hang"},
    ]);
    let waiting = Waiting::new(vec![vec![json!({"on": on, "fast": true})]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    // The process ends somewhere around the failure.
    eventually("the failure", async || {
        engine.conversations(1, None).await.is_ok()
            && waiting.world.model.requests.lock().unwrap().len() >= 3
    })
    .await;
    engine.abandon().await;
    let engine = waiting.start().await;
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(told(&engine, id).await, ["R:a: failed broken; b: aborted"]);
    assert_eq!(open_work(&waiting.world), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d077_a_call_that_waits_for_another_goes_when_that_ends() {
    let waiting = Waiting::new(vec![vec![json!({})]]);
    let world = &waiting.world;
    // The first call of the round has the task after the generation's.
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![
                ("hold", json!({})),
                (
                    "wait",
                    json!({"on": [{"is": "call", "key": "k", "task": 2}]}),
                ),
            ]),
            ("other", 0) => Reply::Call(vec![(
                "wait",
                json!({"on": [{"is": "call", "key": "k", "task": 2}]}),
            )]),
            _ => Reply::Say("answered"),
        },
    );
    let gates = Gates::default();
    let pass = gates.clone();
    world.tool("hold", Replay::Never, move |_, _, _, _| {
        let pass = pass.clone();
        async move {
            pass.pass("hold").await;
            done("held")
        }
    });
    let (engine, id) = waiting.begin().await;
    let go = say(&engine, id, "go").await;
    in_state(&engine, id, "delegated").await;
    gates.open("hold");
    assert_eq!(settled(&engine, go).await, "done");
    assert_eq!(told(&engine, id).await, ["R:held", "R:k: done "]);
    let other = say(&engine, id, "other").await;
    assert_eq!(settled(&engine, other).await, "done");
    let told = told(&engine, id).await;
    assert_eq!(told[2], "R!:There is no call 2 in this round.");
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d081_of_two_calls_that_wait_for_each_other_the_second_is_refused() {
    let waiting = Waiting::new(vec![vec![
        json!({"on": [{"is": "call", "key": "k", "task": 3}]}),
        json!({"on": [{"is": "call", "key": "k", "task": 2}]}),
    ]]);
    let (engine, id) = waiting.begin().await;
    let go = say(&engine, id, "wait 0").await;
    assert_eq!(settled(&engine, go).await, "done");
    let mut told = told(&engine, id).await;
    told.sort();
    assert_eq!(told.len(), 2);
    assert!(
        told[0].starts_with("R!:The call would wait for itself"),
        "{told:?}"
    );
    assert_eq!(told[1], "R:k: done ");
    assert_eq!(open_work(&waiting.world), 0);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_call_that_has_begun_is_not_decided_again_when_the_policy_changes() {
    let plan = json!({"on": [{"is": "question", "key": "q", "text": "which?"}]});
    let waiting = Waiting::new(vec![vec![plan]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    in_state(&engine, id, "asking").await;
    let decided = waiting.world.gate.1.load(Ordering::SeqCst);
    engine.policy_changed();
    let task = engine.questions().await.unwrap()[0].task;
    let answer = engine.answer(task, "blue".into(), bert(), Vec::new()).await;
    assert!(answer.unwrap().unwrap().0);
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(waiting.world.gate.1.load(Ordering::SeqCst), decided);
    assert_eq!(waiting.waiter.runs.load(Ordering::SeqCst), 1);
    engine.close().await.unwrap();
}
