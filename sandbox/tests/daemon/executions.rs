//! Commands: what starts, what is told of it, and what is refused.

use mooring_wire::sandbox::exec_response::Start;
use mooring_wire::sandbox::outcome::End;
use mooring_wire::sandbox::signal_request::{Resize, Signal};
use mooring_wire::sandbox::{ExecRequest, ReleaseRequest};
use tonic::Code;

use crate::support::{As, Sandbox, is_root, request, unique, users};

#[tokio::test]
async fn a_command_runs_in_the_project_with_an_environment_from_nothing() {
    for user in users() {
        let sandbox = Sandbox::start(user, &["--env", "COLOUR=blue"]).await;
        let text = sandbox
            .run("pwd; env | cut -d= -f1 | sort | tr '\\n' ' '; echo $COLOUR $HOME")
            .await
            .ok();
        let expected = format!(
            "{}\nCOLOUR GIT_AUTHOR_EMAIL GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_NAME \
             GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 \
             GIT_CONFIG_KEY_1 GIT_CONFIG_VALUE_0 GIT_CONFIG_VALUE_1 HOME LANG PATH PWD SHLVL TERM _ blue {}\n",
            sandbox.project.display(),
            sandbox.home.display(),
        );
        assert_eq!(text, expected);
        let status = sandbox.status().await;
        assert_eq!(
            (status.grade.as_str(), status.missing.len()),
            ("isolated", 0),
            "{:?}",
            status.missing
        );
    }
}

/// As in a pod, where the folder of the volume is root's.
#[tokio::test]
async fn git_obeys_a_project_whose_folder_belongs_to_somebody_else() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        if is_root() {
            // Of the callers, this is somebody else to one at least.
            std::os::unix::fs::chown(&sandbox.project, Some(0), None).unwrap();
        }
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&sandbox.project, open).unwrap();
        let text = sandbox
            .run("git init -q && git commit -q --allow-empty -m first && git log --format=%s")
            .await
            .ok();
        assert_eq!(text, "first\n");
    }
}

#[tokio::test]
async fn the_same_id_runs_once_however_often_it_is_sent() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let id = unique("once");
        let client = sandbox.client().await;
        let sent = (0..8).map(|_| {
            let mut client = client.clone();
            let request = request(&id, "echo ran >> count");
            async move { client.exec(request).await.unwrap().into_inner() }
        });
        let answers = futures::future::join_all(sent).await;
        let started = answers
            .iter()
            .filter(|answer| answer.start() == Start::Started)
            .count();
        assert_eq!(started, 1, "{answers:?}");
        assert!(
            answers
                .iter()
                .all(|answer| answer.output_path == answers[0].output_path)
        );
        assert_eq!(sandbox.attach(&id, 0).await.end(), (End::Exited, 0));
        assert_eq!(
            std::fs::read_to_string(sandbox.project.join("count")).unwrap(),
            "ran\n"
        );
        let mut other = request(&id, "echo ran >> count");
        other.execution.as_mut().unwrap().args_hash = "other".into();
        let error = client.clone().exec(other).await.unwrap_err();
        assert_eq!(error.code(), Code::AlreadyExists);
    }
}

#[tokio::test]
async fn a_released_id_is_forgotten_and_never_runs_again() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let id = unique("released");
    let mut client = sandbox.client().await;
    sandbox
        .run_as(&id, request(&id, "echo ran >> count"))
        .await
        .ok();
    client
        .release(ReleaseRequest {
            execution_ids: vec![id.clone()],
        })
        .await
        .unwrap();
    assert!(sandbox.attach(&id, 0).await.never_seen);
    assert!(
        sandbox
            .status()
            .await
            .executions
            .iter()
            .all(|known| known.id != id)
    );
    let error = client
        .exec(request(&id, "echo ran >> count"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(
        std::fs::read_to_string(sandbox.project.join("count")).unwrap(),
        "ran\n"
    );
}

#[tokio::test]
async fn a_release_ends_what_still_runs() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let id = unique("running");
    let mut client = sandbox.client().await;
    client
        .exec(request(&id, "echo started > flag; sleep 600"))
        .await
        .unwrap();
    sandbox.appears("flag").await;
    client
        .release(ReleaseRequest {
            execution_ids: vec![id.clone()],
        })
        .await
        .unwrap();
    let since = std::time::Instant::now();
    while sandbox
        .status()
        .await
        .executions
        .iter()
        .any(|known| known.id == id)
    {
        assert!(since.elapsed() < crate::support::PATIENCE);
    }
    assert_eq!(sandbox.run("pgrep -c sleep; true").await.ok(), "0\n");
}

#[tokio::test]
async fn an_intent_for_another_sandbox_starts_nothing() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let status = sandbox.status().await;
    let mut client = sandbox.client().await;
    let table = [
        (
            status.state_id.clone(),
            status.boot_id.clone(),
            Start::Started,
        ),
        (String::new(), String::new(), Start::Started),
        (
            status.state_id.clone(),
            "another boot".into(),
            Start::OtherSandbox,
        ),
        (
            "another state".into(),
            status.boot_id.clone(),
            Start::OtherSandbox,
        ),
    ];
    for (state_id, boot_id, expected) in table {
        let id = unique("intent");
        let request = ExecRequest {
            state_id,
            boot_id,
            ..request(&id, "true")
        };
        let answer = client.exec(request).await.unwrap().into_inner();
        assert_eq!(answer.start(), expected);
        if expected == Start::OtherSandbox {
            assert!(sandbox.attach(&id, 0).await.never_seen);
        }
    }
}

#[tokio::test]
async fn input_terminal_and_size_reach_the_command() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let mut client = sandbox.client().await;
        let id = unique("stdin");
        client
            .exec(ExecRequest {
                stdin: true,
                ..request(&id, "wc -c")
            })
            .await
            .unwrap();
        let mut sent = 0;
        while sent < 700_000 {
            let piece = vec![b'x'; 100_000];
            assert!(sandbox.signal(&id, Signal::Stdin(piece.into())).await);
            sent += 100_000;
        }
        assert!(sandbox.signal(&id, Signal::StdinClose(true)).await);
        assert_eq!(sandbox.attach(&id, 0).await.ok(), "700000\n");
        assert!(!sandbox.signal(&id, Signal::StdinClose(true)).await);

        let id = unique("terminal");
        let command = "test -t 0 && test -t 1 && stty size; echo ready > ready; read line; stty size; echo got $line";
        let terminal = ExecRequest {
            pty: true,
            rows: 10,
            columns: 40,
            ..request(&id, command)
        };
        client.exec(terminal).await.unwrap();
        sandbox.appears("ready").await;
        sandbox
            .signal(
                &id,
                Signal::Resize(Resize {
                    rows: 30,
                    columns: 100,
                }),
            )
            .await;
        sandbox.signal(&id, Signal::Stdin("word\n".into())).await;
        let text = sandbox.attach(&id, 0).await.ok().replace('\r', "");
        assert!(
            text.starts_with("10 40\n") && text.ends_with("30 100\ngot word\n"),
            "{text:?}"
        );
    }
}

#[tokio::test]
async fn input_that_nobody_reads_is_refused_before_it_fills_memory() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let id = unique("unread");
    let mut client = sandbox.client().await;
    client
        .exec(ExecRequest {
            stdin: true,
            ..request(&id, "sleep 600")
        })
        .await
        .unwrap();
    let mut refused = None;
    for _ in 0..40 {
        let signal = mooring_wire::sandbox::SignalRequest {
            execution_id: id.clone(),
            signal: Some(Signal::Stdin(vec![b'x'; 100_000].into())),
        };
        if let Err(error) = client.signal(signal).await {
            refused = Some(error.code());
            break;
        }
    }
    assert_eq!(refused, Some(Code::ResourceExhausted));
    assert!(sandbox.signal(&id, Signal::Kill(true)).await);
    assert_eq!(sandbox.attach(&id, 0).await.end().0, End::Killed);
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let mut client = sandbox.client().await;
    let table = [
        (
            ExecRequest {
                execution: None,
                ..request("x", "true")
            },
            Code::InvalidArgument,
        ),
        (
            request(&unique("long"), &"x".repeat(200_000)),
            Code::InvalidArgument,
        ),
        (request(&unique("zero"), "true\0"), Code::InvalidArgument),
        (
            ExecRequest {
                cwd: "/none".into(),
                ..request(&unique("cwd"), "true")
            },
            Code::NotFound,
        ),
        (
            ExecRequest {
                cwd: "../x".into(),
                ..request(&unique("cwd"), "true")
            },
            Code::InvalidArgument,
        ),
        (
            ExecRequest {
                env: [("A=B".into(), "x".into())].into(),
                ..request(&unique("env"), "true")
            },
            Code::InvalidArgument,
        ),
    ];
    for (request, code) in table {
        assert_eq!(client.exec(request).await.unwrap_err().code(), code);
    }
}
