//! Conversations with a git worktree of their own.

use std::path::PathBuf;

use mooring_tests::{
    git::git,
    project::{Project, kill, met, told},
};
use mooring_wire::harness::{ForkRequest, WorktreesRequest};

const SPEC: &str = "models: [{name: rehearsal, provider: rehearsal, model: \"\"}]\n\
    repo: {worktrees: PerThread}\n\
    approvals: {timeout: never, requesterMayApprove: true}\n\
    policy:\n  tool: {\"*\": allow}\n  bash: {\"*\": allow}\n  path: {\"*\": allow}\n  externalDirectory: allow\n";

/// A repository with one commit, whose conversations have worktrees.
fn project() -> Project {
    let project = Project::with_spec(SPEC);
    std::fs::write(project.path("greeting.txt"), "hello\n").unwrap();
    git(&project.folder, &["add", "."]);
    git(&project.folder, &["commit", "-qm", "begin"]);
    project
}

/// Where the worktree of a conversation is.
fn worktree(project: &Project, conversation: i64) -> PathBuf {
    project
        .state()
        .join("threads")
        .join(conversation.to_string())
}

fn remove(project: &Project, conversation: i64) -> std::process::Output {
    project.mooring(&["worktrees", "remove", &conversation.to_string()])
}

#[tokio::test(flavor = "multi_thread")]
async fn two_conversations_that_edit_one_file_at_once_do_not_meet() {
    let project = project();
    let mut client = project.client().await;
    let mut conversations = Vec::new();
    for word in ["moin", "servus"] {
        let text = format!(
            "edit greeting.txt: hello => {word}\n\
             run while [ ! -e ../go ]; do sleep 0.05; done; cat greeting.txt > seen.txt\n\
             run git add greeting.txt && git commit -qm {word}"
        );
        let conversation = project.submit(&mut client, 0, &text).await;
        conversations.push((conversation, word));
    }
    // Both have edited before either goes on.
    for (conversation, word) in &conversations {
        let file = worktree(&project, *conversation).join("greeting.txt");
        met(|| std::fs::read_to_string(&file).is_ok_and(|text| text == format!("{word}\n"))).await;
    }
    std::fs::write(project.state().join("threads/go"), "").unwrap();
    for (conversation, word) in &conversations {
        let view = project.idle(&mut client, *conversation).await;
        let folder = worktree(&project, *conversation);
        let seen = std::fs::read_to_string(folder.join("seen.txt"));
        assert_eq!(seen.unwrap(), format!("{word}\n"), "{view:#?}");
        let branch = format!("mooring/{conversation}");
        let text = git(
            &project.folder,
            &["show", &format!("{branch}:greeting.txt")],
        );
        assert_eq!(text, *word);
        let entries = project.mooring(&["entries", &conversation.to_string()]);
        assert!(told(&entries).contains(&branch), "{}", told(&entries));
        let diff = project.mooring(&["diff", &conversation.to_string()]);
        let text = told(&diff);
        assert!(
            text.contains("+++ b/greeting.txt") && text.contains(&format!("+{word}")),
            "{text}"
        );
    }
    assert_eq!(project.read("greeting.txt"), "hello\n");
    let card = project.mooring(&["send", "--new", "run pwd"]);
    assert!(told(&card).contains("branch mooring/3"), "{}", told(&card));

    // Nothing that is nowhere else is removed.
    let (first, _) = conversations[0];
    let kept = remove(&project, first);
    assert!(!kept.status.success(), "{}", told(&kept));
    let text = told(&kept);
    assert!(
        text.contains("1 file not committed, 1 commit on no other branch"),
        "{text}"
    );
    let folder = worktree(&project, first);
    std::fs::remove_file(folder.join("seen.txt")).unwrap();
    let kept = remove(&project, first);
    assert!(!kept.status.success(), "{}", told(&kept));
    assert!(folder.join("greeting.txt").exists());
    git(
        &project.folder,
        &["branch", "saved", &format!("mooring/{first}")],
    );
    let removed = remove(&project, first);
    assert!(removed.status.success(), "{}", told(&removed));
    assert!(!folder.exists());
    assert_eq!(
        git(
            &project.folder,
            &["branch", "--list", &format!("mooring/{first}")]
        ),
        ""
    );
    let listed = project.mooring(&["worktrees"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        text.contains("mooring/2") && text.contains("mooring/3"),
        "{text}"
    );
    assert!(!text.contains("mooring/1"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_conversations_worktree_goes_where_nothing_is_lost_by_that() {
    let project = project();
    let mut client = project.client().await;
    let mut conversations = Vec::new();
    for text in ["run true", "run echo mine > only.txt"] {
        let conversation = project.submit(&mut client, 0, text).await;
        project.idle(&mut client, conversation).await;
        assert!(worktree(&project, conversation).exists());
        conversations.push(conversation);
    }
    let delete = |conversation: i64| {
        let deleted = project.mooring(&["delete", &conversation.to_string(), "--yes"]);
        assert!(deleted.status.success(), "{}", told(&deleted));
        told(&deleted)
    };
    let text = delete(conversations[0]);
    assert!(text.contains("and its branch mooring/1"), "{text}");
    assert!(!worktree(&project, conversations[0]).exists());
    let text = delete(conversations[1]);
    assert!(
        text.contains("stays, with its branch mooring/2: 1 file not committed"),
        "{text}"
    );
    let only = worktree(&project, conversations[1]).join("only.txt");
    assert_eq!(std::fs::read_to_string(&only).unwrap(), "mine\n");
    // It is not forgotten, and can be removed once nothing is lost.
    let listed = String::from_utf8(project.mooring(&["worktrees"]).stdout).unwrap();
    assert!(
        listed.starts_with("2 (deleted)  mooring/2") && listed.contains("1 file not committed"),
        "{listed}"
    );
    let kept = remove(&project, conversations[1]);
    assert!(!kept.status.success(), "{}", told(&kept));
    std::fs::remove_file(&only).unwrap();
    let removed = remove(&project, conversations[1]);
    assert!(removed.status.success(), "{}", told(&removed));
    let listed = String::from_utf8(project.mooring(&["worktrees"]).stdout).unwrap();
    assert!(listed.starts_with("no conversation"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_begins_with_the_files_of_its_parent_and_says_so() {
    let project = project();
    let mut client = project.client().await;
    let text = "write draft.txt: not committed\nedit greeting.txt: hello => moin";
    let parent = project.submit(&mut client, 0, text).await;
    project.idle(&mut client, parent).await;
    let request = ForkRequest {
        conversation: parent,
        ..ForkRequest::default()
    };
    let fork = client
        .fork(request)
        .await
        .unwrap()
        .into_inner()
        .conversation;
    let (old, new) = (worktree(&project, parent), worktree(&project, fork));
    std::fs::write(old.join("draft.txt"), "later\n").unwrap();
    project
        .submit(
            &mut client,
            fork,
            "run cat draft.txt greeting.txt > seen.txt",
        )
        .await;
    let view = project.idle(&mut client, fork).await;
    let said = view
        .entries
        .iter()
        .any(|entry| entry.text.contains("worktree of its own"));
    assert!(said, "{view:#?}");
    let seen = std::fs::read_to_string(new.join("seen.txt")).unwrap();
    assert!(
        seen.contains("not committed") && seen.ends_with("moin\n"),
        "{seen}"
    );
    assert_eq!(
        git(&new, &["status", "--porcelain", "greeting.txt"]),
        "M greeting.txt"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_left_half_done_is_made_anew_and_one_that_is_whole_is_kept() {
    let project = project();
    project.start().await;
    // What a killed daemon leaves: a locked entry, a branch and some of the files.
    let half = worktree(&project, 1);
    git(
        &project.folder,
        &[
            "worktree",
            "add",
            "-qb",
            "mooring/1",
            half.to_str().unwrap(),
        ],
    );
    let entry = project.path(".git/worktrees/1");
    std::fs::write(entry.join("locked"), "initializing").unwrap();
    std::fs::remove_file(half.join("greeting.txt")).unwrap();
    let mut client = project.client().await;
    let conversation = project
        .submit(&mut client, 0, "run cp greeting.txt copy.txt")
        .await;
    assert_eq!(conversation, 1);
    let view = project.idle(&mut client, conversation).await;
    let copy = std::fs::read_to_string(half.join("copy.txt"));
    assert_eq!(copy.unwrap_or_default(), "hello\n", "{view:#?}");
    // Killed once more, the work in it stays.
    project.kill_daemon();
    project
        .submit(&mut client, conversation, "run cat copy.txt > second.txt")
        .await;
    project.idle(&mut client, conversation).await;
    assert_eq!(
        std::fs::read_to_string(half.join("second.txt")).unwrap(),
        "hello\n"
    );
    let answer = client
        .worktrees(WorktreesRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.worktrees[0].uncommitted, 2);
    for pid in project.harnesses() {
        kill(pid);
    }
}

#[test]
fn what_git_obeys_is_kept_harmless_in_a_worktree_too() {
    let project = project();
    let script = "import os\n\
        def attempt(path, text):\n    try:\n        open(path, 'w').write(text)\n        print('wrote', os.path.basename(path))\n    except OSError: pass\n\
        common = os.popen('git rev-parse --git-common-dir').read().strip()\n\
        own = os.popen('git rev-parse --absolute-git-dir').read().strip()\n\
        attempt(common + '/hooks/pre-commit', '#!/bin/sh\\n')\n\
        attempt(common + '/config', '[core]\\n fsmonitor = touch pwned\\n')\n\
        attempt(own + '/config.worktree', '[core]\\n\\tfsmonitor = touch pwned\\n')\n\
        attempt(own + '/commondir', os.getcwd() + '/evil\\n')\n\
        os.system('git init -q evil && rm .git && mv evil/.git .git')\n\
        attempt('.git/config', '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = touch pwned\\n')\n";
    std::fs::write(project.path("attack.py"), script).unwrap();
    git(&project.folder, &["add", "."]);
    git(&project.folder, &["commit", "-qm", "attack"]);
    let sent = project.mooring(&[
        "send",
        "--workspace",
        "workspace.yaml",
        "run python3 attack.py > wrote.txt",
    ]);
    assert!(sent.status.success(), "{}", told(&sent));
    let folder = worktree(&project, 1);
    let wrote = std::fs::read_to_string(folder.join("wrote.txt")).unwrap();
    assert_eq!(
        wrote,
        "wrote config.worktree\nwrote commondir\nwrote config\n"
    );
    // What could be written is harmless once the command has ended.
    let own = project.path(".git/worktrees/1");
    for file in [own.join("config.worktree"), folder.join(".git/config")] {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(!text.contains("fsmonitor"), "{}: {text}", file.display());
    }
    assert_eq!(
        std::fs::read_to_string(own.join("commondir")).unwrap(),
        "../..\n"
    );
}

#[test]
fn without_a_commit_a_call_is_told_why_there_is_no_worktree() {
    let project = Project::with_spec(SPEC);
    let sent = project.mooring(&["send", "--workspace", "workspace.yaml", "run pwd"]);
    assert!(
        told(&sent).contains("the repository has no commit yet"),
        "{}",
        told(&sent)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_git_was_told_not_to_see_keeps_its_worktree() {
    let project = project();
    let mut client = project.client().await;
    for mark in ["--assume-unchanged", "--skip-worktree"] {
        let text =
            format!("run git update-index {mark} greeting.txt; echo precious > greeting.txt");
        let conversation = project.submit(&mut client, 0, &text).await;
        project.idle(&mut client, conversation).await;
        let kept = remove(&project, conversation);
        let text = told(&kept);
        assert!(
            !kept.status.success() && text.contains("1 file not committed"),
            "{mark}: {text}"
        );
        let file = worktree(&project, conversation).join("greeting.txt");
        assert_eq!(std::fs::read_to_string(file).unwrap(), "precious\n");
    }
}
