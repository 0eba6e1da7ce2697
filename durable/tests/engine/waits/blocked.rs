//! Calls that wait while their code is missing.

use super::*;

#[tokio::test]
async fn a_call_whose_code_is_missing_stays_and_goes_on_once_it_is_back() {
    let plan = json!({"on": [{"is": "question", "key": "q", "text": "which?"}]});
    let waiting = Waiting::new(vec![vec![plan]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    in_state(&engine, id, "asking").await;
    engine.close().await.unwrap();
    // A program without the tool answers the question.
    let engine = waiting.world.start().await;
    let task = engine.questions().await.unwrap()[0].task;
    let answer = engine.answer(task, "blue".into(), bert(), Vec::new()).await;
    assert!(answer.unwrap().unwrap().0);
    let shown = shows(&engine, id, "the missing tool", |view| {
        view.calls.iter().any(|call| call.state == "unreachable")
    })
    .await;
    assert!(shown.calls[0].note.contains("there is no tool wait"));
    engine.close().await.unwrap();
    let engine = waiting.start().await;
    assert_eq!(settled(&engine, asked).await, "done");
    assert_eq!(told(&engine, id).await, ["R:q: local:bert blue"]);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d079_of_a_blocked_call_what_it_owns_is_aborted_first_and_it_is_orphaned() {
    let on = json!([{"is": "conversation", "key": "c", "text": "hang"}]);
    let waiting = Waiting::new(vec![vec![json!({ "on": on })]]);
    let (engine, id) = waiting.begin().await;
    let asked = say(&engine, id, "wait 0").await;
    let child = owned(&engine, id).await;
    let requests = async |least: usize| {
        eventually("the child's request", async || {
            waiting.world.model.requests.lock().unwrap().len() >= least
        })
        .await;
    };
    // The parent's and the child's own, which is sent once more after the crash.
    requests(2).await;
    engine.abandon().await;
    // A program without the tool.
    let engine = waiting.world.start().await;
    in_state(&engine, id, "delegated").await;
    requests(3).await;
    engine.abort(id, AbortScope::Run).await.unwrap();
    assert_eq!(settled(&engine, asked).await, "unanswered Aborted");
    assert!(view(&engine, child).await.run.is_none());
    let told = waiting.world.told();
    let ends: Vec<_> = told
        .iter()
        .filter(|word| *word == "unanswered Aborted" || word.starts_with("end wait"))
        .collect();
    assert_eq!(
        ends,
        [
            "unanswered Aborted",
            "end wait Aborted",
            "unanswered Aborted"
        ],
        "the child's, the call's, its run's"
    );
    let file = rusqlite::Connection::open(waiting.world.path()).unwrap();
    let sql = "SELECT status FROM task WHERE kind = 'pi.tool'";
    let status: String = file.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(status, "orphaned");
    engine.close().await.unwrap();
}
