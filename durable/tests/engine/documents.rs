//! Documents: changed in commits, by tools and by the host; versions, pasts and forks.

use mooring_durable::{
    document::{
        Document, DocumentChange, DocumentError, DocumentKind, ForkPolicy, History, Op, Scope,
    },
    id::CommitNo,
    tool::{Replay, ToolEnd, ToolResult},
};
use serde_json::{Value, json};

use crate::{branches::fork_of, support::*};

type Engine = mooring_durable::Engine;

fn same(_: u32, value: Value) -> Result<Value, String> {
    Ok(value)
}

static INITIAL: DocumentKind =
    DocumentKind::new("initial", 1, History::Latest, ForkPolicy::Initial, same);
static CURRENT: DocumentKind =
    DocumentKind::new("current", 1, History::Latest, ForkPolicy::Current, same);
static AS_OF: DocumentKind =
    DocumentKind::new("asOf", 1, History::Rewindable, ForkPolicy::AsOf, same);

fn change(scope: Scope, kind: &'static DocumentKind, op: Op) -> DocumentChange {
    DocumentChange { scope, kind, op }
}

async fn set(engine: &Engine, scope: Scope, kind: &'static DocumentKind, op: Op) -> CommitNo {
    engine
        .change_documents(&[change(scope, kind, op)], Vec::new())
        .await
        .unwrap()
}

async fn found(engine: &Engine, scope: Scope, kind: &DocumentKind) -> Option<Document> {
    engine.document(scope, kind, None).await.unwrap()
}

async fn value(engine: &Engine, scope: Scope, kind: &DocumentKind) -> Value {
    found(engine, scope, kind)
        .await
        .map_or(Value::Null, |document| document.value)
}

#[tokio::test]
async fn changes_apply_in_order_to_what_is_there_when_they_are_committed() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    let scope = Scope::Conversation(id);
    assert_eq!(found(&engine, scope, &CURRENT).await, None);
    assert_eq!(
        found(&engine, scope, &CURRENT).await,
        None,
        "reading makes none"
    );
    for (op, expected) in [
        (Op::Keep(json!({"a": 1})), json!({"a": 1})),
        (Op::Keep(json!({"a": 2, "b": 2})), json!({"a": 1, "b": 2})),
        (Op::Merge(json!({"a": 3, "b": null})), json!({"a": 3})),
        (Op::Set(json!([1, 2])), json!([1, 2])),
        (
            Op::Set(json!({"__proto__": {"x": 1}})),
            json!({"__proto__": {"x": 1}}),
        ),
    ] {
        set(&engine, scope, &CURRENT, op.clone()).await;
        assert_eq!(value(&engine, scope, &CURRENT).await, expected, "{op:?}");
    }
    // Two changes of one commit, and of commits that share a flush.
    let both = [
        change(scope, &CURRENT, Op::Set(json!({"n": 0}))),
        change(scope, &CURRENT, Op::Merge(json!({"m": 0}))),
    ];
    engine.change_documents(&both, Vec::new()).await.unwrap();
    let patches = (0..20).map(|n| {
        let engine = engine.clone();
        async move {
            let patch = json!({ format!("k{n}"): n });
            set(&engine, Scope::Conversation(id), &CURRENT, Op::Merge(patch)).await;
        }
    });
    futures::future::join_all(patches).await;
    let end = value(&engine, scope, &CURRENT).await;
    assert_eq!(end.as_object().unwrap().len(), 22, "{end}");
    // Of a document whose past is not kept, one revision is in the file.
    let file = rusqlite::Connection::open(world.path()).unwrap();
    let kept: i64 = file
        .query_row("SELECT count(*) FROM document_revision", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(kept, 1);
    assert_eq!(value(&engine, Scope::Session, &CURRENT).await, Value::Null);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn d009_an_address_that_is_retired_and_made_in_one_commit_is_a_new_document() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    let scope = Scope::Conversation(id);
    let first = set(&engine, scope, &AS_OF, Op::Set(json!("old"))).await;
    let old = found(&engine, scope, &AS_OF).await.unwrap();
    let anew = [
        change(scope, &AS_OF, Op::Retire),
        change(scope, &AS_OF, Op::Set(json!("new"))),
    ];
    engine.change_documents(&anew, Vec::new()).await.unwrap();
    let new = found(&engine, scope, &AS_OF).await.unwrap();
    assert_ne!(new.id, old.id);
    assert_eq!((new.revision, &new.value), (1, &json!("new")));
    let then = engine.document(scope, &AS_OF, Some(first)).await.unwrap();
    assert_eq!(then, Some(old), "the past still has the old one");
    set(&engine, scope, &AS_OF, Op::Retire).await;
    assert_eq!(found(&engine, scope, &AS_OF).await, None);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn an_older_version_migrates_on_access_and_a_newer_one_is_refused() {
    fn doubled(from: u32, value: Value) -> Result<Value, String> {
        match (from, value["n"].as_i64()) {
            (1, Some(n)) => Ok(json!({"count": n * 2})),
            _ => Err("no n".into()),
        }
    }
    static ONE: DocumentKind =
        DocumentKind::new("d", 1, History::Rewindable, ForkPolicy::AsOf, same);
    static TWO: DocumentKind =
        DocumentKind::new("d", 2, History::Rewindable, ForkPolicy::AsOf, doubled);
    let world = World::new();
    let (engine, id) = world.begin().await;
    let scope = Scope::Conversation(id);
    set(&engine, scope, &ONE, Op::Set(json!({"n": 4}))).await;
    assert_eq!(value(&engine, scope, &TWO).await, json!({"count": 8}));
    assert_eq!(
        value(&engine, scope, &ONE).await,
        json!({"n": 4}),
        "reading changes nothing"
    );
    set(&engine, scope, &TWO, Op::Merge(json!({"more": true}))).await;
    let migrated = json!({"count": 8, "more": true});
    assert_eq!(value(&engine, scope, &TWO).await, migrated);
    let error = engine.document(scope, &ONE, None).await.unwrap_err();
    assert!(
        matches!(
            error,
            DocumentError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
    let refused = [change(scope, &ONE, Op::Set(json!({"n": 5})))];
    let error = engine.change_documents(&refused, Vec::new()).await;
    assert!(error.unwrap_err().to_string().contains("version 2"));
    assert_eq!(value(&engine, scope, &TWO).await, migrated);
    // A value that cannot be migrated stays as it is.
    let other = Scope::Session;
    set(&engine, other, &ONE, Op::Set(json!({"x": 1}))).await;
    let error = engine.document(other, &TWO, None).await.unwrap_err();
    assert!(error.to_string().contains("no n"), "{error}");
    assert_eq!(value(&engine, other, &ONE).await, json!({"x": 1}));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn forks_take_documents_along_by_their_policies() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    let scope = Scope::Conversation(id);
    let all = |n: i64| {
        [
            change(scope, &INITIAL, Op::Set(json!(n))),
            change(scope, &CURRENT, Op::Set(json!(n))),
            change(scope, &AS_OF, Op::Set(json!(n))),
        ]
    };
    engine.change_documents(&all(1), Vec::new()).await.unwrap();
    let one = say(&engine, id, "one").await;
    settled(&engine, one).await;
    let at = view(&engine, id).await.entries[0].id;
    engine.change_documents(&all(2), Vec::new()).await.unwrap();
    let fork = engine.fork(fork_of(id, Some(at))).await.unwrap();
    let theirs = Scope::Conversation(fork);
    let values = async |scope| {
        [
            value(&engine, scope, &INITIAL).await,
            value(&engine, scope, &CURRENT).await,
            value(&engine, scope, &AS_OF).await,
        ]
    };
    assert_eq!(values(theirs).await, [Value::Null, json!(2), json!(1)]);
    // From then on each has its own.
    engine.change_documents(&all(3), Vec::new()).await.unwrap();
    set(&engine, theirs, &CURRENT, Op::Set(json!("mine"))).await;
    assert_eq!(values(theirs).await, [Value::Null, json!("mine"), json!(1)]);
    assert_eq!(values(scope).await, [json!(3), json!(3), json!(3)]);
    // A fork of the fork at an entry of the first has what stood there.
    let again = engine.fork(fork_of(fork, Some(at))).await.unwrap();
    let again = values(Scope::Conversation(again)).await;
    assert_eq!(again, [Value::Null, json!("mine"), json!(1)]);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_result_and_the_documents_that_it_changes_are_one_commit() {
    let world = World::new();
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![("t", json!({"k": "a"})), ("t", json!({"k": "b"}))]),
            _ => Reply::Say("fine"),
        },
    );
    world.tool("t", Replay::Safe, |call, _, _, _| async move {
        let key = call.arguments["k"].as_str().unwrap().to_owned();
        Ok(ToolEnd::Completed(ToolResult {
            content: Vec::new(),
            is_error: false,
            terminate: false,
            data: Value::Null,
            documents: vec![change(
                Scope::Conversation(call.conversation),
                &AS_OF,
                Op::Merge(json!({ key: 1 })),
            )],
        }))
    });
    let (engine, id) = world.begin().await;
    let go = say(&engine, id, "go").await;
    assert_eq!(settled(&engine, go).await, "done");
    let scope = Scope::Conversation(id);
    assert_eq!(value(&engine, scope, &AS_OF).await, json!({"a": 1, "b": 1}));
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_tasks_documents_retire_with_the_task() {
    let world = World::new();
    let gates = Gates::default();
    world.script(
        |request| match (last_user(request).as_str(), results(request)) {
            ("go", 0) => Reply::Call(vec![("t", json!({}))]),
            _ => Reply::Say("fine"),
        },
    );
    let pass = gates.clone();
    world.tool("t", Replay::Safe, move |_, _, _, _| {
        let pass = pass.clone();
        async move {
            pass.pass("t").await;
            done("did")
        }
    });
    let (engine, id) = world.begin().await;
    let go = say(&engine, id, "go").await;
    let running = shows(&engine, id, "the call", |view| {
        view.calls.iter().any(|call| call.state == "running")
    })
    .await;
    let scope = Scope::Task(running.calls[0].task);
    set(&engine, scope, &CURRENT, Op::Set(json!("so far"))).await;
    assert_eq!(value(&engine, scope, &CURRENT).await, json!("so far"));
    gates.open("t");
    assert_eq!(settled(&engine, go).await, "done");
    assert_eq!(found(&engine, scope, &CURRENT).await, None);
    engine.close().await.unwrap();
}
