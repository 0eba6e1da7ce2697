//! What is left where the machine refuses namespaces.

use mooring_wire::sandbox::{
    ExecRequest, ProbeRequest, ReadRequest, Target, WorktreeRequest,
    worktree_request::{Act, Add},
};

use crate::support::{As, Sandbox, request, unique, users};

/// Runs the daemon where no further user namespace can be made.
fn without_namespaces(user: As, arguments: &[&str]) -> Sandbox {
    let mut sandbox = Sandbox::new(user, |_| {
        arguments.iter().map(|&text| text.to_owned()).collect()
    });
    sandbox.wrapper = [
        "unshare",
        "-Ur",
        "sh",
        "-c",
        "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"",
        "sh",
    ]
    .map(str::to_owned)
    .to_vec();
    sandbox
}

#[tokio::test]
async fn without_namespaces_landlock_and_a_filter_confine() {
    let outside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = outside.local_addr().unwrap();
    for user in users() {
        let mut sandbox = without_namespaces(user, &[]);
        sandbox.launch();
        let status = sandbox.status().await;
        assert_eq!(status.grade, "confined");
        assert!(
            status
                .missing
                .iter()
                .any(|text| text.starts_with("namespaces: ")),
            "{:?}",
            status.missing
        );
        let table = [
            format!("cat {}/.ssh/id_ed25519", sandbox.home.display()),
            format!("ls {}", sandbox.state.join("records").display()),
            format!("exec 3<>/dev/tcp/127.0.0.1/{}", address.port()),
            "curl -sS --max-time 5 http://127.0.0.1/".into(),
            format!(
                "/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{}\")'",
                sandbox.socket.display()
            ),
            "kill -KILL $PPID".into(),
            format!("touch {}/x", sandbox.home.display()),
        ];
        for command in table {
            let text = sandbox.run(&command).await.fails();
            assert!(!text.contains("SECRET"), "{command}: {text}");
        }
        let text = sandbox
            .run("echo x > file && cat file && git --version && touch ~/y && ls ~")
            .await
            .ok();
        assert!(
            text.starts_with("x\ngit version") && text.ends_with("y\n"),
            "{text}"
        );
        // The daemon's own file operations are held as the commands are.
        let path = sandbox.home.join(".ssh/id_ed25519").display().to_string();
        sandbox
            .client()
            .await
            .read(ReadRequest {
                path,
                ..ReadRequest::default()
            })
            .await
            .unwrap_err();
        let target = Target {
            name: "harness".into(),
            address: address.to_string(),
            udp: false,
        };
        let request = ProbeRequest {
            targets: vec![target],
            timeout_ms: 500,
        };
        let results = sandbox
            .client()
            .await
            .probe(request)
            .await
            .unwrap()
            .into_inner()
            .results;
        assert!(!results[0].reached, "{results:?}");
    }
}

#[tokio::test]
async fn without_namespaces_a_killed_daemon_ends_its_commands_too() {
    let mut sandbox = without_namespaces(As::Caller, &[]);
    sandbox.launch();
    let id = unique("running");
    let command = "trap '' TERM HUP; (setsid bash -c 'trap \"\" TERM HUP; while :; do echo x >> beat; sleep 0.02; done' &); sleep 600";
    sandbox
        .client()
        .await
        .exec(request(&id, command))
        .await
        .unwrap();
    sandbox.appears("beat").await;
    sandbox.kill();
    sandbox.launch();
    sandbox.client().await;
    let beat = || sandbox.project.join("beat").metadata().unwrap().len();
    let first = beat();
    sandbox.run("sleep 0.3").await.ok();
    assert_eq!(beat(), first);
    assert!(sandbox.attach(&id, 0).await.gone.is_some());
}

#[tokio::test]
async fn without_both_it_serves_only_where_that_was_agreed_to() {
    let mut refused = without_namespaces(As::Caller, &[]);
    refused.without_landlock = true;
    let text = refused.fails_to_start();
    for part in [
        "namespaces: ",
        "Landlock: not in this kernel",
        "--allow-unisolated",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let mut sandbox = without_namespaces(As::Caller, &["--allow-unisolated"]);
    sandbox.without_landlock = true;
    sandbox.launch();
    let status = sandbox.status().await;
    assert_eq!(status.grade, "not-isolated");
    for part in ["namespaces: ", "Landlock: "] {
        let named = status.missing.iter().any(|text| text.contains(part));
        assert!(named, "{part}: {:?}", status.missing);
    }
    // Nothing holds commands, but they are the daemon's all the same.
    assert_eq!(sandbox.run("echo x > file; cat file").await.ok(), "x\n");
    let id = unique("running");
    let command = "echo up > up; trap '' TERM; while :; do sleep 0.05; done";
    let mut client = sandbox.client().await;
    client.exec(request(&id, command)).await.unwrap();
    sandbox.appears("up").await;
    let kill = mooring_wire::sandbox::signal_request::Signal::Kill(true);
    assert!(sandbox.signal(&id, kill).await);
    let end = sandbox.attach(&id, 0).await.end().0;
    assert_eq!(end, mooring_wire::sandbox::outcome::End::Killed);
    assert!(!sandbox.run("env").await.ok().contains("SECRET-TOKEN"));
}

#[tokio::test]
async fn bad_places_are_named() {
    type Row = (&'static str, fn(&mut Sandbox), &'static str);
    let table: [Row; 3] = [
        (
            "a project that is home",
            |sandbox| sandbox.project.clone_from(&sandbox.home),
            "holds your home",
        ),
        (
            "a project that is missing",
            |sandbox| sandbox.project.push("none"),
            "none: resolving",
        ),
        (
            "a socket with a long path",
            |sandbox| sandbox.socket = sandbox.home.join("x".repeat(120)),
            "at most 107",
        ),
    ];
    for (what, change, expected) in table {
        let mut sandbox = Sandbox::new(As::Caller, |_| Vec::new());
        change(&mut sandbox);
        let error = sandbox.fails_to_start();
        assert!(error.contains(expected), "{what}: {error}");
    }
}

#[tokio::test]
async fn without_namespaces_conversations_have_worktrees_too() {
    for user in users() {
        let mut sandbox = without_namespaces(user, &[]);
        sandbox.launch();
        let begin = "git init -q . && git commit -q --allow-empty -m begin";
        sandbox.run(begin).await.ok();
        let mut client = sandbox.client().await;
        let ask = |act| WorktreeRequest {
            name: "7".into(),
            owner: "test".into(),
            act: Some(act),
        };
        let made = client.worktree(ask(Act::Add(Add::default()))).await;
        let made = made.unwrap().into_inner();
        assert_eq!(made.branch, "mooring/7");
        let id = unique("inside");
        let inside = ExecRequest {
            cwd: made.path.clone(),
            ..request(
                &id,
                "echo x > file && git add file && git commit -qm x && git status -sb",
            )
        };
        assert_eq!(sandbox.run_as(&id, inside).await.ok(), "## mooring/7\n");
        let listed = client.worktree(ask(Act::List(true))).await.unwrap();
        assert_eq!(listed.into_inner().names, ["7"]);
        let kept = client.worktree(ask(Act::Remove(true))).await.unwrap();
        let kept = kept.into_inner();
        assert_eq!((kept.removed, kept.unpushed), (false, 1));
        let id = unique("undo");
        let undo = ExecRequest {
            cwd: made.path.clone(),
            ..request(&id, "git reset -q --hard HEAD~1")
        };
        sandbox.run_as(&id, undo).await.ok();
        let removed = client.worktree(ask(Act::Remove(true))).await.unwrap();
        assert!(removed.into_inner().removed);
        let listed = client.worktree(ask(Act::List(true))).await.unwrap();
        assert!(listed.into_inner().names.is_empty());
    }
}
