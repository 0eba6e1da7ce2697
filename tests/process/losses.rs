//! What a client says and does when its harness is lost, or has lost its records.

use std::{io::Write, os::unix::fs::FileExt, process::Stdio};

use mooring_tests::project::{Project, kill, met, told};

/// Overwrites most of every page of the database but the first one.
fn damage(database: &std::path::Path) {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(database)
        .unwrap();
    let bytes = file.metadata().unwrap().len();
    for page in 1..bytes / 4096 {
        file.write_all_at(&[0xff; 2000], page * 4096).unwrap();
    }
}

#[tokio::test]
async fn a_database_damaged_under_a_running_harness_is_named_with_the_way_out() {
    let project = Project::new();
    // Longer than what SQLite keeps in memory: it has to be read from the file.
    let mut send = project
        .command(&["send", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let text = format!("run echo hi\n{}", "x".repeat(4 << 20));
    let mut input = send.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    send.wait().unwrap();
    // At its end a harness writes all of it into the file itself.
    let stopped = project.mooring(&["stop"]);
    assert!(stopped.status.success(), "{}", told(&stopped));
    project.start().await;
    let database = project.state().join("mooring.db");
    damage(&database);
    let named = format!("{} is damaged: ", database.display());
    for arguments in [&["entries", "1"][..], &["send", "run echo again"]] {
        let refused = project.mooring(arguments);
        let text = told(&refused);
        assert!(!refused.status.success(), "{arguments:?}: {text}");
        assert!(
            text.contains(&named) && text.contains("`mooring stop`"),
            "{arguments:?}: {text}"
        );
    }
    // The way out can be gone: it is still told how it is, and ended.
    let status = project.mooring(&["status"]);
    assert!(status.status.success(), "{}", told(&status));
    let stopped = project.mooring(&["stop"]);
    assert!(stopped.status.success(), "{}", told(&stopped));
    assert!(project.harnesses().is_empty());
}

#[tokio::test]
async fn a_harness_is_started_again_after_the_program_was_replaced_or_is_gone() {
    for replaced in [true, false] {
        let mut project = Project::new();
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("mooring");
        std::fs::copy(&project.program, &program).unwrap();
        let original = std::mem::replace(&mut project.program, program.clone());
        let text = "run touch began; while [ ! -e go ]; do sleep 0.05; done";
        let send = project.spawn(&["send", text]);
        // A harness that is killed before it serves has not started, which is another end.
        met(|| project.path("began").exists()).await;
        std::fs::remove_file(&program).unwrap();
        if replaced {
            std::fs::copy(&original, &program).unwrap();
        }
        for pid in project.harnesses().into_iter().chain(project.daemons()) {
            kill(pid);
        }
        std::fs::write(project.path("go"), "").unwrap();
        let ended = send.wait_with_output().unwrap();
        // The project's own end calls the program, also after a failure.
        project.program = original;
        assert!(ended.status.success(), "{}", told(&ended));
    }
}
