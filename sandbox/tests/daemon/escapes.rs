//! Attempts to get out, or to leave something that acts outside later.

use mooring_wire::sandbox::{ReadRequest, ResolveRequest, WriteRequest};
use tonic::Code;

use crate::support::{As, Sandbox, execution, host, unique, users};

fn repository(sandbox: &Sandbox) {
    host("git", &["init", "-q", "-b", "main"], &sandbox.project);
    std::fs::create_dir(sandbox.project.join("nested")).unwrap();
    host(
        "git",
        &["init", "-q", "-b", "main"],
        &sandbox.project.join("nested"),
    );
    std::fs::write(sandbox.project.join("mooring.yaml"), "kind: Workspace\n").unwrap();
}

#[tokio::test]
async fn hooks_configuration_and_the_workspace_file_cannot_be_changed() {
    for user in users() {
        let mut protect = String::new();
        let sandbox = Sandbox::prepare_with(user, |sandbox| {
            repository(sandbox);
            protect = sandbox.project.join("mooring.yaml").display().to_string();
            vec!["--protect".into(), protect.clone()]
        })
        .await;
        let python = |code: &str| format!("/usr/bin/python3 -c '{code}'");
        let table = [
            (
                "a hook",
                python("open(\".git/hooks/pre-commit\",\"w\").write(\"#!/bin/sh\\nid\\n\")"),
            ),
            (
                "core.fsmonitor",
                python("open(\".git/config\",\"a\").write(\"[core]\\nfsmonitor=id\\n\")"),
            ),
            ("git config", "git config core.fsmonitor id".into()),
            (
                "a nested hook",
                "echo id > nested/.git/hooks/post-checkout".into(),
            ),
            (
                "a nested configuration",
                "echo x >> nested/.git/config".into(),
            ),
            ("moving .git away", "mv .git .git2".into()),
            ("moving hooks away", "mv .git/hooks .git/hooks2".into()),
            (
                "replacing the configuration",
                "cp .git/config /tmp/c && mv -f /tmp/c .git/config".into(),
            ),
            ("removing the configuration", "rm -f .git/config".into()),
            (
                "a link over the configuration",
                "ln -f /etc/hostname .git/config || ln -sf /tmp/x .git/config".into(),
            ),
            ("the Workspace file", "echo x >> mooring.yaml".into()),
            (
                "replacing the Workspace file",
                "mv mooring.yaml other.yaml".into(),
            ),
            ("moving the project", "mv ../project ../project2".into()),
        ];
        let config = std::fs::read(sandbox.project.join(".git/config")).unwrap();
        for (what, command) in table {
            let text = sandbox.run(&command).await.fails();
            assert_eq!(
                std::fs::read(sandbox.project.join(".git/config")).unwrap(),
                config,
                "{what}: {text}"
            );
        }
        assert_eq!(std::fs::read(&protect).unwrap(), b"kind: Workspace\n");
        assert!(!sandbox.project.join(".git/hooks/pre-commit").exists());
        // The same through the daemon's own file operations.
        for name in [".git/hooks/pre-commit", ".git/config", "mooring.yaml"] {
            let request = WriteRequest {
                execution: execution(&unique("write"), "h"),
                path: sandbox.project.join(name).display().to_string(),
                content: "id".into(),
            };
            let outcome = sandbox
                .client()
                .await
                .write(request)
                .await
                .unwrap()
                .into_inner()
                .outcome;
            let text = format!("{outcome:?}");
            assert!(
                text.contains("Refused") && text.contains("read-only"),
                "{name}: {text}"
            );
        }
    }
}

#[tokio::test]
async fn a_file_that_would_redirect_git_is_removed_when_its_command_ends() {
    let sandbox = Sandbox::prepare(As::Caller, &[], repository).await;
    let ran = sandbox
        .run("echo ../evil > .git/commondir && cat .git/commondir")
        .await;
    assert_eq!(ran.ok(), "../evil\n");
    let message = ran.outcome.unwrap().message;
    assert!(message.contains("commondir"), "{message}");
    assert!(!sandbox.project.join(".git/commondir").exists());
}

#[tokio::test]
async fn a_path_that_becomes_a_symlink_between_resolving_and_acting_fails() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let mut client = sandbox.client().await;
        sandbox
            .run("mkdir -p a && echo inside > a/passwd")
            .await
            .ok();
        let found = client
            .resolve(ResolveRequest {
                path: "a/passwd".into(),
            })
            .await
            .unwrap()
            .into_inner();
        assert!(found.in_project && found.exists, "{found:?}");
        sandbox.run("mv a b && ln -s /etc a").await.ok();
        let read = ReadRequest {
            path: found.canonical.clone(),
            ..ReadRequest::default()
        };
        assert_eq!(
            client.read(read).await.unwrap_err().code(),
            Code::FailedPrecondition
        );
        let write = WriteRequest {
            execution: execution(&unique("write"), "h"),
            path: found.canonical,
            content: "x".into(),
        };
        assert_eq!(
            client.write(write).await.unwrap_err().code(),
            Code::FailedPrecondition
        );
    }
}

#[tokio::test]
async fn paths_that_lead_away_are_seen_as_what_they_are() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let mut client = sandbox.client().await;
    sandbox
        .run("ln -s /proc/1/environ p; ln -s ../../.. up; mkfifo pipe; echo x > one; ln one two; ln -s /dev/zero zero")
        .await
        .ok();
    let table = [
        ("p", "refused", false),
        ("up/etc", "", false),
        ("../..", "directory", false),
        ("pipe", "refused", true),
        ("zero", "refused", false),
        ("one", "file", true),
    ];
    for (path, kind, in_project) in table {
        let found = client
            .resolve(ResolveRequest { path: path.into() })
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (found.kind.as_str(), found.in_project),
            (kind, in_project),
            "{path}: {found:?}"
        );
        if kind == "refused" {
            let read = ReadRequest {
                path: found.canonical,
                ..ReadRequest::default()
            };
            assert_eq!(
                client.read(read).await.unwrap_err().code(),
                Code::PermissionDenied,
                "{path}"
            );
        }
    }
    let found = client
        .resolve(ResolveRequest { path: "one".into() })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(found.hard_links, 2);
}

#[tokio::test]
async fn the_daemon_cannot_be_signalled_traced_or_read() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let boot = sandbox.status().await.boot_id;
        let text = sandbox
            .run(
                "for p in 1 2; do
                   for s in KILL STOP TERM SEGV; do kill -$s $p && echo \"LEAK kill $s $p\"; done
                   cat /proc/$p/environ /proc/$p/maps /proc/$p/mem >/dev/null 2>&1 && echo \"LEAK read $p\"
                   readlink /proc/$p/fd/* 2>/dev/null | grep . && echo \"LEAK fd $p\"
                   ls /proc/$p/root/ 2>/dev/null | grep . && echo \"LEAK root $p\"
                   command -v strace >/dev/null && timeout 5 strace -p $p 2>&1 | grep -q attached && echo \"LEAK trace $p\"
                 done; kill -KILL -1; true",
            )
            .await;
        let text = text.text();
        assert!(!text.contains("LEAK"), "{text}");
        assert_eq!(sandbox.status().await.boot_id, boot);
    }
}

#[tokio::test]
async fn one_command_cannot_signal_another() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let id = unique("victim");
    let mut client = sandbox.client().await;
    client
        .exec(crate::support::request(
            &id,
            "echo $$ > victim; exec sleep 60",
        ))
        .await
        .unwrap();
    let pid = sandbox.appears("victim").await;
    sandbox
        .run(&format!("kill -KILL {}", pid.trim()))
        .await
        .fails();
    sandbox
        .signal(
            &id,
            mooring_wire::sandbox::signal_request::Signal::Kill(true),
        )
        .await;
}
