//! Group commit: each member stands or falls alone; a full disk is no end.

use mooring_durable::{
    Component,
    error::SessionError,
    ledger::{Bind, Change, Statement},
    tool::Replay,
};
use serde_json::json;

use crate::support::*;

const HOST: Component = Component {
    name: "host",
    migrations: &["CREATE TABLE host (id INTEGER PRIMARY KEY, body TEXT) STRICT"],
};

fn insert(id: i64, body: &str) -> Statement {
    Statement {
        sql: "INSERT INTO host (body, id) VALUES (?2, ?1)",
        binds: vec![Bind::Int(id), Bind::Text(body.into())],
    }
}

/// The disk's size, in pages beyond what is used.
async fn limit(engine: &mooring_durable::Engine, sql: &'static str) {
    engine
        .commit(
            "limit",
            vec![Statement {
                sql,
                binds: Vec::new(),
            }],
        )
        .await
        .unwrap();
}
const SMALL: &str = "PRAGMA max_page_count = 120";
const LARGE: &str = "PRAGMA max_page_count = 1000000";

fn ids(world: &World) -> Vec<i64> {
    let file = rusqlite::Connection::open(world.path()).unwrap();
    let mut statement = file.prepare("SELECT id FROM host ORDER BY id").unwrap();
    statement
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d001_one_of_a_group_that_violates_a_constraint_fails_alone_and_as_a_whole() {
    let world = World::new();
    world.components.lock().unwrap().push(HOST);
    let (engine, id) = world.begin().await;
    let commits = (1..=40).map(|at| {
        // Each fourth one ends with a row that is there already; its first must not stay.
        let statements = if at % 4 == 0 {
            vec![insert(1_000 + at, "x"), insert(1_000 + at, "y")]
        } else {
            vec![insert(at, "x")]
        };
        let engine = engine.clone();
        async move { (at, engine.commit("host", statements).await) }
    });
    let outcomes = futures::future::join_all(commits).await;
    for (at, outcome) in outcomes {
        match outcome {
            Err(SessionError::Constraint(text)) => {
                assert!(at % 4 == 0 && text.contains("host.id"), "{at}: {text}")
            }
            outcome => assert!(at % 4 != 0 && outcome.is_ok(), "{at}: {outcome:?}"),
        }
    }
    let submission = say(&engine, id, "later commits work").await;
    assert_eq!(settled(&engine, submission).await, "done");
    engine.close().await.unwrap();
    assert_eq!(
        ids(&world),
        (1..=40).filter(|at| at % 4 != 0).collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_a_group_that_does_not_fit_on_the_disk_is_rejected_and_the_others_stand() {
    let world = World::new();
    world.components.lock().unwrap().push(HOST);
    let (engine, id) = world.begin().await;
    limit(&engine, SMALL).await;
    let large = "x".repeat(1_000_000);
    let commits = (1..=12).map(|at| {
        let (engine, body) = (
            engine.clone(),
            if at == 5 {
                large.clone()
            } else {
                "small".into()
            },
        );
        async move { (at, engine.commit("host", vec![insert(at, &body)]).await) }
    });
    for (at, outcome) in futures::future::join_all(commits).await {
        match outcome {
            Err(SessionError::StorageFull) => assert_eq!(at, 5),
            outcome => assert!(at != 5 && outcome.is_ok(), "{at}: {outcome:?}"),
        }
    }
    // So is an input, with nothing of it kept; the session goes on.
    let before = view(&engine, id).await;
    let error = engine
        .submit(input(id, &large, Default::default()))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "no space left on the disk; nothing of this was kept"
    );
    assert_eq!(view(&engine, id).await.entries, before.entries);
    let submission = say(&engine, id, "small").await;
    assert_eq!(settled(&engine, submission).await, "done");
    engine.close().await.unwrap();
    assert_eq!(ids(&world).len(), 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_meets_a_full_disk_waits_for_space_and_goes_on() {
    let world = World::new();
    world.components.lock().unwrap().push(HOST);
    world.script(|request| match results(request) {
        0 => Reply::Call(vec![("big", json!({}))]),
        _ => Reply::Say("over"),
    });
    world.tool("big", Replay::Never, |_, _, _, _| async {
        done(&"y".repeat(1_000_000))
    });
    let (engine, id) = world.begin().await;
    limit(&engine, SMALL).await;
    let submission = say(&engine, id, "go").await;
    world.clock.awaited(START + 1_000).await;
    world.clock.advance(1_000);
    world.clock.awaited(START + 2_000).await;
    limit(&engine, LARGE).await;
    world.clock.advance(1_000);
    assert_eq!(settled(&engine, submission).await, "done");
    assert_eq!(transcript(&view(&engine, id).await.entries).len(), 4);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_ledger_rows_are_refused_ends_faulted() {
    let world = World::new();
    world.components.lock().unwrap().push(HOST);
    *world.ledger.extra.lock().unwrap() = Some(std::sync::Arc::new(|changes: &[Change]| {
        let broken = changes
            .iter()
            .any(|change| matches!(change, Change::AttemptStarted { .. }));
        if broken {
            vec![insert(1, "a"), insert(1, "b")]
        } else {
            Vec::new()
        }
    }));
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "go").await;
    assert_eq!(settled(&engine, submission).await, "unanswered Faulted");
    *world.ledger.extra.lock().unwrap() = None;
    let submission = say(&engine, id, "again").await;
    assert_eq!(settled(&engine, submission).await, "done");
    engine.close().await.unwrap();
}
