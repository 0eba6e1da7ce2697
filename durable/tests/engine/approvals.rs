//! Calls that wait for a person.

use mooring_durable::{Approvals, gate::Verdict, tool::Replay};
use serde_json::{Value, json};

use crate::support::*;

fn asks(world: &World) {
    world.gate(
        |_, approvals| match approvals.last().map(|approval| approval.state) {
            Some(mooring_durable::gate::ApprovalState::Approved) => Verdict::Allow {
                record: Value::Null,
            },
            _ => ask("rule"),
        },
    );
    world.script(|request| match results(request) {
        0 => Reply::Call(vec![("act", json!({}))]),
        _ => Reply::Say("over"),
    });
    world.tool("act", Replay::Never, |_, _, _, _| async { done("acted") });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_call_runs_and_a_second_decision_is_told_who_was_first() {
    let world = World::new();
    asks(&world);
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "act").await;
    shows(&engine, id, "the question", |view| {
        !view.approvals.is_empty()
    })
    .await;
    eventually("waiting", async || {
        engine.waiting() == 1 && engine.running() == 0
    })
    .await;
    let pending = engine.approvals(None, Approvals::Pending).await.unwrap();
    // The question survives the process.
    engine.abandon().await;
    let engine = world.start().await;
    assert_eq!(
        engine
            .approvals(Some(id), Approvals::Pending)
            .await
            .unwrap(),
        pending
    );
    let (first, approval) = engine
        .decide(pending[0].task, approve(true), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(first && approval.decision.is_some());
    let (first, approval) = engine
        .decide(pending[0].task, approve(false), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(!first && approval.decision.unwrap().approved);
    assert_eq!(settled(&engine, submission).await, "done");
    assert_eq!(
        transcript(&view(&engine, id).await.entries),
        ["U:act", "A1", "R:acted", "A:over"]
    );
    assert!(
        engine
            .approvals(None, Approvals::Pending)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        engine.approvals(None, Approvals::All).await.unwrap().len(),
        1
    );
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_call_is_an_error_that_names_who_denied_it() {
    let world = World::new();
    asks(&world);
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "act").await;
    shows(&engine, id, "the question", |view| {
        !view.approvals.is_empty()
    })
    .await;
    let pending = engine.approvals(None, Approvals::Pending).await.unwrap();
    engine
        .decide(pending[0].task, approve(false), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(settled(&engine, submission).await, "done");
    assert_eq!(
        transcript(&view(&engine, id).await.entries)[2],
        "R!:Denied by local:bert: not today"
    );
    assert_eq!(
        engine
            .decide(
                mooring_durable::id::TaskId(12_345),
                approve(true),
                Vec::new()
            )
            .await
            .unwrap(),
        None
    );
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_a_denial_also_when_nobody_ran_at_the_time() {
    for ends in [false, true] {
        let world = World::new();
        asks(&world);
        world.gate(|_, _| {
            Verdict::Ask(mooring_durable::gate::Question {
                rule: "rule".into(),
                expires_at: Some(mooring_durable::id::Millis(START + 60_000)),
                data: Value::Null,
            })
        });
        let (mut engine, id) = world.begin().await;
        let submission = say(&engine, id, "act").await;
        shows(&engine, id, "the question", |view| {
            !view.approvals.is_empty()
        })
        .await;
        if ends {
            engine.abandon().await;
            world.clock.advance(60_000);
            engine = world.start().await;
        } else {
            world.clock.awaited(START + 60_000).await;
            world.clock.advance(60_000);
        }
        assert_eq!(settled(&engine, submission).await, "done");
        assert_eq!(
            transcript(&view(&engine, id).await.entries)[2],
            "R!:Denied: nobody approved the call in time."
        );
        engine.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_takes_the_question_back() {
    let world = World::new();
    asks(&world);
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "act").await;
    shows(&engine, id, "the question", |view| {
        !view.approvals.is_empty()
    })
    .await;
    engine
        .abort(id, mooring_durable::submission::AbortScope::Run)
        .await
        .unwrap();
    assert_eq!(settled(&engine, submission).await, "unanswered Aborted");
    let all = engine.approvals(None, Approvals::All).await.unwrap();
    assert_eq!(all[0].state, mooring_durable::gate::ApprovalState::Aborted);
    let (first, _) = engine
        .decide(all[0].task, approve(true), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(!first);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_open_approvals_take_no_memory_and_each_can_be_decided() {
    const MANY: i64 = 100_000;
    let world = World::new();
    asks(&world);
    let (engine, id) = world.begin().await;
    say(&engine, id, "act").await;
    shows(&engine, id, "the question", |view| {
        !view.approvals.is_empty()
    })
    .await;
    engine.close().await.unwrap();
    multiply(&world.path(), MANY);
    let before = resident();
    let engine = world.start().await;
    assert_eq!((engine.running(), engine.waiting() as i64), (0, MANY + 1));
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 * 1024 * 1024, "{grown} bytes for sleeping work");
    // The last of them, by its id.
    let (last, _) = last_approval(&world.path());
    let (first, approval) = engine
        .decide(mooring_durable::id::TaskId(last), approve(true), Vec::new())
        .await
        .unwrap()
        .unwrap();
    assert!(first);
    shows(
        &engine,
        approval.conversation,
        "the end of its run",
        |view| view.run.is_none(),
    )
    .await;
    assert_eq!(engine.waiting() as i64, MANY);
    engine.close().await.unwrap();
}

/// Copies the waiting conversation of a file many times over.
fn multiply(path: &std::path::Path, many: i64) {
    let file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch("PRAGMA synchronous = OFF").unwrap();
    let stride = 1_000;
    let columns = |table: &str| {
        let mut statement = file
            .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))
            .unwrap();
        statement
            .query_map([], |row| row.get::<_, String>(0))
            .unwrap()
            .collect::<Result<Vec<_>, _>>()
            .unwrap()
    };
    for (table, shifted) in [
        ("conversation", &["id"][..]),
        ("entry", &["id", "conversation", "writer", "submission"]),
        ("task", &["id", "conversation", "owner_task"]),
        ("call", &["task", "conversation", "generation"]),
        ("submission", &["id", "conversation", "entry"]),
        ("open_work", &["conversation", "id"]),
    ] {
        let values: Vec<_> = columns(table)
            .into_iter()
            .map(|column| match column.as_str() {
                name if shifted.contains(&name) => format!("{name} + n.step * {stride}"),
                // Ids within records shift with them.
                "checkpoint" | "input" if table == "task" => format!(
                    "CASE kind WHEN 'pi.generation' THEN json_set({column}, '$.run.id', {column}->>'$.run.id' + n.step * {stride}, '$.run.conversation', {column}->>'$.run.conversation' + n.step * {stride}, '$.inputs[0]', {column}->>'$.inputs[0]' + n.step * {stride}, '$.phase.entry', {column}->>'$.phase.entry' + n.step * {stride}) WHEN 'mooring.approval' THEN json_set({column}, '$.task', {column}->>'$.task' + n.step * {stride}, '$.conversation', {column}->>'$.conversation' + n.step * {stride}, '$.call', {column}->>'$.call' + n.step * {stride}) ELSE {column} END"
                ),
                name => name.to_owned(),
            })
            .collect();
        let sql = format!(
            "WITH RECURSIVE n(step) AS (SELECT 1 UNION ALL SELECT step + 1 FROM n WHERE step < {many})
             INSERT INTO {table} SELECT {} FROM n, {table} WHERE {table}.{} < {stride}",
            values.join(", "),
            shifted[0]
        );
        file.execute_batch(&sql).unwrap();
    }
    let next = many * stride + stride;
    file.execute_batch(&format!("UPDATE session SET next_conversation = {next}, next_entry = {next}, next_task = {next}, next_submission = {next}"))
        .unwrap();
}

fn last_approval(path: &std::path::Path) -> (i64, i64) {
    let file = rusqlite::Connection::open(path).unwrap();
    file.query_row(
        "SELECT id, conversation FROM open_work WHERE what = 2 ORDER BY conversation DESC LIMIT 1",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
    .unwrap()
}

/// Bytes of memory of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 4096
}
