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
                ..ResolveRequest::default()
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
            .resolve(ResolveRequest {
                path: path.into(),
                ..ResolveRequest::default()
            })
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
        .resolve(ResolveRequest {
            path: "one".into(),
            ..ResolveRequest::default()
        })
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

/// Everything by which git would run `touch MARK`, written into one git folder.
fn trap(git: &str, mark: &str) -> String {
    format!(
        "printf '[core] fsmonitor = touch {mark}\\n[core]\\n\\tfsmonitor = touch {mark}\\n\\thooksPath = {mark}.hooks\\n' >> {git}/config
         printf '[include]\\n\\tpath = {mark}.include\\n[diff]\\n\\texternal = touch {mark}\\n[filter \"x\"]\\n\\tclean = touch {mark}\\n\\tsmudge = touch {mark}\\n' >> {git}/config
         printf '[core]\\n\\tfsmonitor = touch {mark}\\n' > {mark}.include
         mkdir -p {mark}.hooks {git}/hooks
         for hook in post-index-change post-checkout pre-commit; do
           printf '#!/bin/sh\\ntouch {mark}\\n' | tee {mark}.hooks/$hook > {git}/hooks/$hook
           chmod +x {mark}.hooks/$hook {git}/hooks/$hook
         done\n"
    )
}

/// Works with a repository as a person would; whether anything of it ran.
fn springs(sandbox: &Sandbox, place: &std::path::Path, mark: &str) -> bool {
    let _ = std::fs::remove_file(mark);
    for arguments in [["status"].as_slice(), &["add", "-A"], &["diff", "HEAD"]] {
        // Git may fail, where there is no repository any more.
        std::process::Command::new("git")
            // Root works here in an ordinary user's repository.
            .args(["-c", "safe.directory=*"])
            .args(arguments)
            .current_dir(place)
            .env("GIT_CONFIG_GLOBAL", sandbox.folder.path().join("gitconfig"))
            .env("GIT_CEILING_DIRECTORIES", place.parent().unwrap())
            .output()
            .unwrap();
        if std::path::Path::new(mark).exists() {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn a_repository_that_a_command_makes_runs_nothing_for_a_person() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let mark = sandbox.project.join("mark").display().to_string();
        let file = "echo x > f; echo '* filter=x' > .gitattributes";
        let evil = trap("evil", &mark);
        // Where nobody looks after it, the same does run.
        let control = sandbox.folder.path().join("control");
        std::fs::create_dir(&control).unwrap();
        let command = format!("git init -q . && {file}\n{}", trap(".git", &mark));
        host("bash", &["-c", &command], &control);
        assert!(springs(&sandbox, &control, &mark));
        for name in ["mark", "mark.include", "mark.hooks"] {
            host("rm", &["-rf", name], &sandbox.project);
        }
        // What makes the repository, where a person then stands, what is told.
        let table = [
            (
                "top",
                format!("git init -q . && {file}\n{}", trap(".git", &mark)),
                ".",
                "fsmonitor",
            ),
            (
                "nested",
                format!(
                    "mkdir -p a/b && cd a/b && git init -q . && {file}\n{}",
                    trap(".git", &mark)
                ),
                "a/b",
                "hooks/pre-commit",
            ),
            (
                "added to later",
                format!("cd a/b\n{}", trap(".git", &mark)),
                "a/b",
                "fsmonitor",
            ),
            (
                "bare-looking",
                format!(
                    "git init -q --bare bare && cd bare\ngit config core.bare false; git config core.worktree .\n{}",
                    trap(".", &mark)
                ),
                "bare",
                "core.worktree",
            ),
            (
                "a .git file",
                format!(
                    "mkdir c && git init -q --bare evil\n{evil}mkdir -p c && echo 'gitdir: ../evil' > c/.git"
                ),
                "c",
                "evil/config",
            ),
            (
                "a symlink",
                "mkdir d && ln -s ../evil d/.git".to_owned() + "\n" + &evil,
                "d",
                "evil/config",
            ),
            (
                "commondir",
                format!(
                    "git init -q e && echo {}/evil2 > e/.git/commondir; git init -q --bare evil2\n{}",
                    sandbox.project.display(),
                    trap("evil2", &mark)
                ),
                "e",
                "commondir",
            ),
            (
                "unlistable",
                format!(
                    "mkdir g && cd g && git init -q .\n{}cd ..; chmod 311 g",
                    trap(".git", &mark)
                ),
                "g",
                "fsmonitor",
            ),
        ];
        for (what, command, place, told) in table {
            let ran = sandbox.run(&command).await;
            ran.ok();
            let message = ran.outcome.unwrap().message;
            assert!(message.contains(told), "{what}: {message}");
            let place = sandbox.project.join(place);
            assert!(!springs(&sandbox, &place, &mark), "{what}");
        }
    }
}

#[tokio::test]
async fn worktrees_and_package_folders_are_no_way_around() {
    let sandbox = Sandbox::prepare(As::Caller, &[], |sandbox| {
        repository(sandbox);
        let other = sandbox.folder.path().join("other").display().to_string();
        for arguments in [
            [
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@example.com",
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                "one",
            ]
            .as_slice(),
            &["worktree", "add", "-q", &other],
        ] {
            host("git", arguments, &sandbox.project);
        }
        std::fs::create_dir_all(sandbox.project.join("sub")).unwrap();
        std::fs::write(
            sandbox.project.join("sub/.git"),
            "gitdir: ../.git/modules/sub\n",
        )
        .unwrap();
    })
    .await;
    let mark = sandbox.project.join("mark").display().to_string();
    let evil = format!("git init -q --bare evil\n{}", trap("evil", &mark));
    let project = sandbox.project.display();
    let other = sandbox.folder.path().join("other");
    let table = [
        (
            "a worktree elsewhere",
            format!("{evil}echo {project}/evil > .git/worktrees/other/commondir"),
            other,
            "set back",
        ),
        (
            "a new worktree",
            format!(
                "git worktree add -q wt 2>&1; {evil}echo {project}/evil > .git/worktrees/wt/commondir"
            ),
            sandbox.project.join("wt"),
            "set back",
        ),
        (
            "a module that was missing",
            format!(
                "git init -q m && mkdir -p .git/modules && mv m/.git .git/modules/sub\n{}",
                trap(".git/modules/sub", &mark)
            ),
            sandbox.project.join("sub"),
            "fsmonitor",
        ),
        (
            "a submodule among packages",
            format!(
                "mkdir -p node_modules/x/y && cd node_modules/x/y && git init -q . && git commit -q --allow-empty -m y && cd ../../.. && git add -f node_modules/x/y 2>&1\n{}",
                trap("node_modules/x/y/.git", &mark)
            ),
            sandbox.project.clone(),
            "node_modules/x/y/.git/config",
        ),
    ];
    for (what, command, place, told) in table {
        let ran = sandbox.run(&command).await;
        ran.ok();
        let message = ran.outcome.unwrap().message;
        assert!(message.contains(told), "{what}: {message}");
        assert!(!springs(&sandbox, &place, &mark), "{what}");
    }
}

#[tokio::test]
async fn a_git_folder_outside_the_project_is_not_pointed_to() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let table = [
        format!("echo 'gitdir: {}/tmp/evil' > .git", sandbox.state.display()),
        "ln -s /tmp/evil .git".into(),
        "ln -s /tmp link; mkdir -p n; echo 'gitdir: link/evil' > .git".into(),
        "mkdir -p x; git init -q --bare evil; echo 'gitdir: link/../evil' > .git".into(),
    ];
    for command in table {
        let ran = sandbox
            .run(&format!("git init -q --bare /tmp/evil; {command}"))
            .await;
        ran.ok();
        let message = ran.outcome.unwrap().message;
        assert!(
            message.contains("not plainly in the project"),
            "{command}: {message}"
        );
        assert!(
            sandbox.project.join(".git").symlink_metadata().is_err(),
            "{command}"
        );
    }
}

#[tokio::test]
async fn a_repository_that_a_command_makes_can_be_worked_with() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let table = [
            "git init -q -b main . && git config user.name A && git config user.email a@example.com",
            "echo x > f && git add f && git commit -q -m one",
            "git switch -q -c side && echo y >> f && git commit -q -a -m two",
            "git worktree add -q ../project/tree main",
            "cd tree && echo z > g && git add g && git commit -q -m three 2>&1",
            "git clone -q . copy && cd copy && git log --oneline | grep -c . && git pull -q",
            "git remote add up https://example.com/a.git && git remote -v && git status --short",
            "git -c protocol.file.allow=always submodule --quiet add ./copy sub && git commit -q -m sub -- sub .gitmodules && git status",
            "git merge -q main 2>&1 && git log --oneline | grep -c .",
        ];
        let mut text = String::new();
        for command in table {
            let ran = sandbox.run(command).await;
            text = ran.ok();
            if !command.contains("submodule") {
                assert_eq!(ran.outcome.unwrap().message, "", "{command}");
            }
        }
        assert_eq!(text.trim(), "5");
    }
}

#[tokio::test]
async fn a_repository_that_was_there_keeps_its_configuration() {
    let sandbox = Sandbox::prepare(As::Caller, &[], |sandbox| {
        repository(sandbox);
        let deep = sandbox.project.join("target");
        std::fs::create_dir(&deep).unwrap();
        host("git", &["init", "-q"], &deep);
        for folder in [&sandbox.project, &deep] {
            host("git", &["config", "alias.st", "status"], folder);
        }
    })
    .await;
    let ran = sandbox.run("git st && cd target && git st").await;
    ran.ok();
    assert_eq!(ran.outcome.unwrap().message, "");
    let ran = sandbox
        .run("cd target && git config core.fsmonitor id")
        .await;
    ran.ok();
    let message = ran.outcome.unwrap().message;
    assert!(message.contains("core.fsmonitor"), "{message}");
}

#[tokio::test]
async fn what_git_obeys_is_not_written_by_file_operations() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    sandbox
        .run("git init -q new && git init -q --bare bare")
        .await
        .ok();
    for name in [
        "new/.git/config",
        "new/.git/hooks/pre-commit",
        "bare/config",
        ".git",
        ".git/config",
    ] {
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
        assert!(text.contains("git would obey it"), "{name}: {text}");
    }
}

#[tokio::test]
async fn among_many_folders_each_new_repository_is_found() {
    let sandbox = Sandbox::prepare(As::Caller, &[], |sandbox| {
        for number in 0..2_000 {
            let folder = format!("many/{}/{number}", number % 50);
            std::fs::create_dir_all(sandbox.project.join(folder)).unwrap();
        }
    })
    .await;
    // So that what is read of the folders is old enough to be relied on.
    sandbox.run("sleep 0.3").await.ok();
    sandbox.run("true").await.ok();
    for folder in ["many/7/57", "many/0/0", "many/49/1999"] {
        let hook = format!("{folder}/.git/hooks/post-checkout");
        let command = format!(
            "git init -q {folder} && mkdir -p {folder}/.git/hooks && printf '#!/bin/sh\\nid\\n' > {hook} && chmod +x {hook}"
        );
        sandbox.run(&command).await.ok();
        assert!(!sandbox.project.join(&hook).exists(), "{hook}");
        sandbox.run("true").await.ok();
    }
}
