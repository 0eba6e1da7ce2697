//! Whoever dies: what is known afterwards, and what never runs twice.

use mooring_wire::sandbox::edit_request::Replacement;
use mooring_wire::sandbox::exec_response::Start;
use mooring_wire::sandbox::file_outcome::Outcome;
use mooring_wire::sandbox::status_response::known::State;
use mooring_wire::sandbox::{EditRequest, ReleaseRequest, StopRequest, WriteRequest};

use crate::support::{As, PATIENCE, Sandbox, eventually, execution, request, unique, users};

#[tokio::test]
async fn a_killed_daemon_takes_its_commands_along_and_knows_them_as_gone() {
    for user in users() {
        let mut sandbox = Sandbox::start(user, &[]).await;
        let before = sandbox.status().await;
        let finished = unique("finished");
        sandbox
            .run_as(
                &finished,
                request(&finished, "echo whole >> once; echo whole"),
            )
            .await
            .ok();
        let released = unique("released");
        sandbox
            .run_as(&released, request(&released, "true"))
            .await
            .ok();
        let mut client = sandbox.client().await;
        client
            .release(ReleaseRequest {
                execution_ids: vec![released.clone()],
            })
            .await
            .unwrap();
        let ids: Vec<String> = (0..3).map(|_| unique("running")).collect();
        let mut files = Vec::new();
        for (number, id) in ids.iter().enumerate() {
            let command = format!(
                "echo part {number}; echo ran >> count-{number}; trap '' TERM; while :; do echo x >> beat-{number}; sleep 0.02; done"
            );
            let path = client
                .exec(request(id, &command))
                .await
                .unwrap()
                .into_inner()
                .output_path;
            let name = std::path::Path::new(&path).file_name().unwrap();
            files.push(sandbox.state.join("output").join(name));
        }
        for (number, file) in files.iter().enumerate() {
            sandbox.appears(&format!("beat-{number}")).await;
            // What still lies in the pipe dies with the supervisor.
            eventually("the output is kept", || {
                file.metadata().ok().filter(|file| file.len() == 7)
            })
            .await;
        }
        sandbox.kill();
        sandbox.launch();
        let after = sandbox.status().await;
        assert_eq!(after.state_id, before.state_id);
        assert_ne!(after.boot_id, before.boot_id);
        // Whatever beats on outlived its daemon.
        let beats = || -> u64 {
            (0..3)
                .map(|n| {
                    sandbox
                        .project
                        .join(format!("beat-{n}"))
                        .metadata()
                        .unwrap()
                        .len()
                })
                .sum()
        };
        let first = beats();
        sandbox.run("sleep 0.2").await.ok();
        assert_eq!(beats(), first);

        let mut client = sandbox.client().await;
        for (number, id) in ids.iter().enumerate() {
            let state = after
                .executions
                .iter()
                .find(|known| known.id == *id)
                .unwrap()
                .state();
            assert_eq!(state, State::Gone);
            let ran = sandbox.attach(id, 0).await;
            assert_eq!(
                (ran.text(), ran.gone),
                (format!("part {number}\n"), Some(7))
            );
            let again = client.exec(request(id, "true")).await.unwrap().into_inner();
            assert_eq!(again.start(), Start::Known);
            let count =
                std::fs::read_to_string(sandbox.project.join(format!("count-{number}"))).unwrap();
            assert_eq!(count, "ran\n");
        }
        assert_eq!(sandbox.attach(&finished, 0).await.ok(), "whole\n");
        assert!(sandbox.attach(&released, 0).await.never_seen);
        assert!(client.exec(request(&released, "true")).await.is_err());
        client
            .release(ReleaseRequest {
                execution_ids: ids.clone(),
            })
            .await
            .unwrap();
        assert!(
            sandbox
                .status()
                .await
                .executions
                .iter()
                .all(|known| !ids.contains(&known.id))
        );
    }
}

#[tokio::test]
async fn any_process_of_the_daemon_that_dies_ends_all_of_them() {
    let mut sandbox = Sandbox::start(As::Caller, &[]).await;
    let child_of = |pid: u32| -> Option<u32> {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    };
    // 0: what was started; 1: init; 2: the daemon.
    for depth in 0..3 {
        let mut pids = vec![sandbox.pid()];
        while let Some(pid) = child_of(*pids.last().unwrap()) {
            pids.push(pid);
        }
        assert_eq!(pids.len(), 3, "{pids:?}");
        let victim = rustix::process::Pid::from_raw(i32::try_from(pids[depth]).unwrap()).unwrap();
        rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
        sandbox.wait();
        for pid in &pids {
            let gone = || (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(());
            eventually(&format!("process {pid} ends"), gone).await;
        }
        sandbox.launch();
        sandbox.run("true").await.ok();
    }
}

#[tokio::test]
async fn a_stopped_daemon_ends_its_commands_first() {
    let mut sandbox = Sandbox::start(As::Caller, &[]).await;
    let id = unique("running");
    let mut client = sandbox.client().await;
    client
        .exec(request(
            &id,
            "trap 'echo bye > bye; exit' TERM; echo up > up; while :; do sleep 0.05; done",
        ))
        .await
        .unwrap();
    sandbox.appears("up").await;
    tokio::time::timeout(PATIENCE, client.stop(StopRequest {}))
        .await
        .unwrap()
        .unwrap();
    sandbox.wait();
    assert_eq!(sandbox.appears("bye").await, "bye\n");
}

#[tokio::test]
async fn a_second_daemon_on_the_same_state_waits_for_its_predecessor_only_so_long() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let mut second = Sandbox::new(As::Caller, |_| Vec::new());
    second.state.clone_from(&sandbox.state);
    let error = second.fails_to_start();
    assert!(
        error.contains("in use by another sandbox daemon"),
        "{error}"
    );
    sandbox.run("true").await.ok();
}

/// Large enough that a kill meets the daemon while it writes.
const LARGE: usize = 24 << 20;

/// Names in the project that a change of a file makes for a moment.
fn temporary(sandbox: &Sandbox) -> bool {
    std::fs::read_dir(&sandbox.project)
        .unwrap()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().ends_with(".tmp"))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// The new content is being written beside the file.
    Writing,
    /// The file has its new content; the outcome may not be recorded yet.
    Replaced,
}

#[tokio::test]
async fn a_write_that_a_crash_cut_off_is_done_once() {
    for moment in [Moment::Writing, Moment::Replaced] {
        let mut sandbox = Sandbox::start(As::Caller, &[]).await;
        let file = sandbox.project.join("file");
        std::fs::write(&file, "old").unwrap();
        let id = unique("write");
        let write = WriteRequest {
            execution: execution(&id, "h"),
            path: file.display().to_string(),
            content: vec![b'x'; LARGE].into(),
        };
        let mut client = sandbox.client().await.max_encoding_message_size(64 << 20);
        let cut = write.clone();
        let sent = tokio::spawn(async move { client.write(cut).await });
        eventually("the change has begun", || {
            let replaced = file.metadata().unwrap().len() == LARGE as u64;
            (replaced || (moment == Moment::Writing && temporary(&sandbox))).then_some(())
        })
        .await;
        sandbox.kill();
        let _ = sent.await;
        sandbox.launch();
        let mut client = sandbox.client().await.max_encoding_message_size(64 << 20);
        let answer = client.write(write).await.unwrap().into_inner();
        assert!(
            matches!(answer.outcome, Some(Outcome::Written(_))),
            "{moment:?}: {answer:?}"
        );
        assert_eq!(file.metadata().unwrap().len(), LARGE as u64);
        assert!(!temporary(&sandbox), "{moment:?} leaves a file behind");
    }
}

#[tokio::test]
async fn an_edit_that_a_crash_cut_off_is_done_once_and_never_over_other_changes() {
    for (moment, other_change) in [
        (Moment::Writing, false),
        (Moment::Replaced, false),
        (Moment::Writing, true),
    ] {
        let mut sandbox = Sandbox::start(As::Caller, &[]).await;
        let file = sandbox.project.join("file");
        let mut old = b"a begin\n".to_vec();
        old.resize(LARGE, b'.');
        std::fs::write(&file, &old).unwrap();
        let id = unique("edit");
        let edit = EditRequest {
            execution: execution(&id, "h"),
            path: file.display().to_string(),
            replacements: vec![Replacement {
                old: "a begin".into(),
                new: "a begin and a begin".into(),
                all: false,
            }],
        };
        let mut client = sandbox.client().await;
        let cut = edit.clone();
        let sent = tokio::spawn(async move { client.edit(cut).await });
        let mut replaced = false;
        eventually("the change has begun", || {
            replaced = file.metadata().unwrap().len() != LARGE as u64;
            (replaced || (moment == Moment::Writing && temporary(&sandbox))).then_some(())
        })
        .await;
        sandbox.kill();
        let _ = sent.await;
        if other_change {
            std::fs::write(&file, "a begin by somebody else").unwrap();
        }
        sandbox.launch();
        let answer = sandbox
            .client()
            .await
            .edit(edit)
            .await
            .unwrap()
            .into_inner();
        let text = std::fs::read(&file).unwrap();
        if other_change {
            let Some(Outcome::Refused(why)) = &answer.outcome else {
                panic!("{answer:?}")
            };
            assert!(why.contains("changed by something else"), "{why}");
            assert_eq!(text, b"a begin by somebody else");
        } else {
            assert!(
                matches!(answer.outcome, Some(Outcome::Written(_))),
                "{moment:?}: {answer:?}"
            );
            assert!(text.starts_with(b"a begin and a begin\n."), "{moment:?}");
            assert_eq!(text.len(), LARGE + 12);
        }
        assert!(!temporary(&sandbox), "{moment:?} leaves a file behind");
    }
}
