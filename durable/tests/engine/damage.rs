//! Files that cannot be opened, and records that are not there.

use std::path::Path;

use mooring_durable::{Component, error::OpenError};

use crate::support::*;

async fn refused(world: &World, path: &Path) -> OpenError {
    match world.open_at(path).await {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

/// A file with a turn in it, closed.
async fn used() -> World {
    let world = World::new();
    let (engine, id) = world.begin().await;
    let submission = say(&engine, id, "hello").await;
    settled(&engine, submission).await;
    engine.close().await.unwrap();
    world
}

fn sql(world: &World, text: &str) {
    rusqlite::Connection::open(world.path())
        .unwrap()
        .execute_batch(text)
        .unwrap();
}

#[tokio::test]
async fn a_second_owner_is_told_who_has_the_file() {
    let world = World::new();
    let engine = world.open().await;
    let generation = engine.generation();
    let error = refused(&world, &world.path()).await;
    let text = error.to_string();
    assert!(matches!(error, OpenError::Owned { .. }));
    assert!(
        text.contains(&format!("process {}", std::process::id())) && text.contains("mooring.db"),
        "{text}"
    );
    engine.close().await.unwrap();
    let engine = world.open().await;
    assert_eq!(engine.generation(), generation + 1);
    engine.close().await.unwrap();
}

#[tokio::test]
async fn a_newer_database_is_refused_by_component_and_left_as_it_is() {
    let world = used().await;
    for component in ["engine", "host"] {
        sql(
            &world,
            &format!(
                "INSERT INTO component VALUES ('{component}', 9) ON CONFLICT DO UPDATE SET migration = 9"
            ),
        );
        world.components.lock().unwrap().push(Component {
            name: "host",
            migrations: &["CREATE TABLE host (a)"],
        });
        let error = refused(&world, &world.path()).await;
        let OpenError::Newer {
            component: named,
            found: 9,
            known,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(named, component);
        sql(
            &world,
            &format!("UPDATE component SET migration = {known} WHERE name = '{component}'"),
        );
    }
    sql(&world, "CREATE TABLE host (a)");
    world.open().await.close().await.unwrap();
}

#[tokio::test]
async fn damage_is_named_and_never_reset() {
    type Harm = fn(&Path);
    let cases: [(&str, Harm, &str); 5] = [
        (
            "cut off",
            |path| {
                std::fs::File::options()
                    .write(true)
                    .open(path)
                    .unwrap()
                    .set_len(6_000)
                    .unwrap()
            },
            "cut off: 6000 of",
        ),
        (
            "cut off in its header",
            |path| {
                std::fs::File::options()
                    .write(true)
                    .open(path)
                    .unwrap()
                    .set_len(50)
                    .unwrap()
            },
            "cut off after 50 bytes",
        ),
        (
            "empty",
            |path| {
                std::fs::File::options()
                    .write(true)
                    .open(path)
                    .unwrap()
                    .set_len(0)
                    .unwrap()
            },
            "it is empty, but held a database",
        ),
        (
            "another file",
            |path| std::fs::write(path, "hello ".repeat(1_000)).unwrap(),
            "not an SQLite database",
        ),
        (
            "another database",
            |path| {
                std::fs::remove_file(path).unwrap();
                rusqlite::Connection::open(path)
                    .unwrap()
                    .execute_batch("CREATE TABLE songs (title)")
                    .unwrap();
            },
            "no session of this program",
        ),
    ];
    for (name, harm, reason) in cases {
        let world = used().await;
        harm(&world.path());
        let before = std::fs::read(world.path()).unwrap();
        let error = refused(&world, &world.path()).await;
        let text = error.to_string();
        assert!(
            matches!(error, OpenError::Corrupt { .. })
                && text.contains(reason)
                && text.contains("restore it"),
            "{name}: {text}"
        );
        assert_eq!(
            std::fs::read(world.path()).unwrap(),
            before,
            "{name}: it was left as it is"
        );
    }
}

#[tokio::test]
async fn d007_records_that_are_missing_are_damage_and_not_absence() {
    let world = used().await;
    sql(&world, "DELETE FROM session");
    let error = refused(&world, &world.path()).await.to_string();
    assert!(error.contains("its session record is missing"), "{error}");

    for (name, harm, phase) in [
        ("an input of a run", "DELETE FROM submission", false),
        ("the attempt in flight", "DELETE FROM attempt", false),
        (
            "the checkpoint",
            "UPDATE task SET checkpoint = NULL WHERE kind = 'pi.generation'",
            false,
        ),
        (
            "the answer with the calls",
            "DELETE FROM entry WHERE kind = 'pi.assistant'",
            true,
        ),
        ("a call", "DELETE FROM call", true),
        (
            "unreadable JSON",
            "UPDATE task SET checkpoint = '{' WHERE kind = 'pi.generation'",
            false,
        ),
    ] {
        let world = World::new();
        world.script(move |_| {
            if phase {
                Reply::Call(vec![("stuck", serde_json::json!({}))])
            } else {
                Reply::Hang("")
            }
        });
        world.tool(
            "stuck",
            mooring_durable::tool::Replay::Never,
            |_, _, _, _| std::future::pending(),
        );
        let (engine, id) = world.begin().await;
        say(&engine, id, "hello").await;
        shows(&engine, id, "the run", |view| match phase {
            true => view.calls.iter().any(|call| call.state == "running"),
            false => view
                .run
                .as_ref()
                .is_some_and(|run| run.state == mooring_durable::ledger::RunState::Requesting),
        })
        .await;
        engine.abandon().await;
        sql(&world, harm);
        let engine = world.start().await;
        let error = engine
            .submit(input(id, "more", Default::default()))
            .await
            .expect_err(name);
        assert!(
            error.to_string().contains("damaged records"),
            "{name}: {error}"
        );
        assert!(engine.view(id, 1, None).await.is_err(), "{name}");
        // Others are not concerned.
        world.script(|_| Reply::Say("fine"));
        let other = engine
            .create_conversation("m", serde_json::json!({}), Vec::new())
            .await
            .unwrap();
        let submission = say(&engine, other, "hello").await;
        assert_eq!(settled(&engine, submission).await, "done");
        engine.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_said_to_be_so() {
    let world = World::new();
    let error = refused(&world, Path::new("/sys/kernel/mooring.db")).await;
    assert!(
        matches!(error, OpenError::ReadOnly { .. })
            && error.to_string().contains("/sys/kernel/mooring.db"),
        "{error}"
    );
    let missing = world.folder.path().join("none/mooring.db");
    assert!(
        refused(&world, &missing).await.to_string().contains("none"),
        "a folder that is not there"
    );
}

#[tokio::test]
async fn an_owner_that_was_superseded_commits_nothing_more() {
    let world = World::new();
    let (engine, id) = world.begin().await;
    // As a process on a machine that does not see the lock would.
    sql(&world, "UPDATE session SET generation = generation + 1");
    let error = engine
        .submit(input(id, "hello", Default::default()))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "another process has taken over this file"
    );
    assert_eq!(
        engine.failed().await.to_string(),
        "another process has taken over this file"
    );
    engine.abandon().await;
    let engine = world.start().await;
    assert!(view(&engine, id).await.entries.is_empty());
    engine.close().await.unwrap();
}
