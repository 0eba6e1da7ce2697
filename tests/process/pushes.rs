//! A push of the agent, from the command in the sandbox to the git host, with a person
//! between them.

use mooring_tests::{
    git::{Account, Fault, Host, PATH, command, commit, git, large::STORE},
    project::{Client, Project, met, told},
};
use mooring_wire::harness::{AuditRequest, ConfigureRequest, ConversationView};

/// The host's name, which no resolver knows.
pub const NAME: &str = "git.test";
pub const TOKEN: &str = "t0k3n-of-the-harness";

/// What a person sets whose git host is on a private network.
pub fn variables(host: &Host) -> Vec<(String, String)> {
    vec![
        (
            "MOORING_PRIVATE_DESTINATIONS".into(),
            format!("127.0.0.0/8:{},127.0.0.0/8:{}", host.port, host.store.port),
        ),
        (
            "MOORING_CONNECT_TO".into(),
            format!(
                "{NAME}:{0}=127.0.0.1:{0},{STORE}:{1}=127.0.0.1:{1}",
                host.port, host.store.port
            ),
        ),
        ("MOORING_GIT_TOKEN".into(), TOKEN.into()),
        ("MOORING_GIT_HOST".into(), format!("{NAME}:{}", host.port)),
    ]
}

/// A project that is a clone of the host's repository, with a commit that the host
/// does not have, and its id. The model plays `turns`.
pub fn project(host: &Host, turns: &str) -> (Project, String) {
    host.admit(Account::Bearer(TOKEN));
    let url = format!("http://{NAME}:{}{PATH}", host.port);
    let mut project = Project::with_spec(&format!(
        "repo: {{url: \"{url}\"}}\n\
         models: [{{name: rehearsal, provider: rehearsal, model: script.yaml}}]\n\
         approvals: {{timeout: never, requesterMayApprove: true}}\n\
         policy:\n  tool: {{\"*\": allow}}\n  bash: {{\"*\": allow}}\n  path: {{\"*\": allow}}\n"
    ));
    project.variables = variables(host);
    std::fs::write(
        project.path("script.yaml"),
        format!("announce: false\nturns:\n{turns}"),
    )
    .unwrap();
    std::fs::write(
        project.path(".git/info/exclude"),
        "workspace.yaml\nscript.yaml\n",
    )
    .unwrap();
    let bare = host.bare().display().to_string();
    git(&project.folder, &["pull", "-q", &bare, "main"]);
    git(&project.folder, &["remote", "add", "origin", &url]);
    let id = commit(&project.folder, "src/new", "new\n");
    (project, id)
}

/// A client of the harness, once that has what the person's environment has.
pub async fn served(project: &Project) -> Client {
    let mut client = project.client().await;
    let given = project.variables.iter().cloned();
    let request = ConfigureRequest {
        keys: given
            .filter(|(name, _)| name.starts_with("MOORING_GIT"))
            .collect(),
        ..ConfigureRequest::default()
    };
    client.configure(request).await.unwrap();
    client
}

pub fn call(command: &str) -> String {
    let arguments = serde_json::json!({ "command": command, "timeout_ms": 120_000 });
    format!("- calls:\n  - {{tool: bash, arguments: {arguments}}}\n")
}

pub const PUSH: &str = "git push origin HEAD:refs/heads/main 2>&1; echo status $?";

pub fn results(view: &ConversationView) -> Vec<&str> {
    let results = view.entries.iter();
    results
        .filter(|entry| entry.kind == "pi.tool-result")
        .map(|entry| entry.text.as_str())
        .collect()
}

/// Waits until the output of a call shows `text`.
async fn shown(project: &Project, client: &mut Client, conversation: i64, text: &str) {
    let seen = |view: &ConversationView| {
        let mut all: String = view
            .chunks
            .iter()
            .map(|chunk| chunk.text.as_str())
            .collect();
        all.extend(view.entries.iter().map(|entry| entry.text.as_str()));
        all.contains(text).then_some(())
    };
    project.until(client, conversation, text, seen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_waits_for_a_person_and_then_goes_once() {
    let host = Host::start().await;
    let turns = format!("{}- text: Done.\n", call(PUSH));
    let (project, id) = project(&host, &turns);
    let before = host.has("refs/heads/main");
    let mut client = served(&project).await;
    let conversation = project.submit(&mut client, 0, "push it").await;
    let approval = project.approval(&mut client, conversation).await;
    assert_eq!(
        approval.summary,
        "push refs/heads/main (fast-forward, 1 new commit, 1 file changed)"
    );
    for text in ["Ada <ada@example.com>", "Write src/new", "A src/new"] {
        assert!(approval.detail.contains(text), "{}", approval.detail);
    }
    shown(
        &project,
        &mut client,
        conversation,
        "remote: waiting for approval",
    )
    .await;
    assert_eq!((host.has("refs/heads/main"), host.pushes()), (before, 0));
    let approved = project.mooring(&["approve", &approval.id]);
    assert!(approved.status.success(), "{}", told(&approved));
    let view = project.idle(&mut client, conversation).await;
    let results = results(&view);
    assert!(results[0].contains("status 0"), "{results:?}");
    assert!(results[0].contains("HEAD -> main"), "{results:?}");
    assert_eq!((host.has("refs/heads/main"), host.pushes()), (id, 1));
    let audit = client.audit(AuditRequest::default()).await.unwrap();
    let rows = audit.into_inner().rows;
    let row = rows.iter().find(|row| row.json.contains("\"pushed\""));
    let row = &row.expect("a row of the push").json;
    assert!(row.contains("push refs/heads/main"), "{row}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_whose_harness_is_killed_is_asked_for_once_and_goes_once() {
    let host = Host::start().await;
    let turns = format!("{0}{0}{0}- text: Done.\n", call(PUSH));
    let (project, id) = project(&host, &turns);
    let mut client = served(&project).await;
    let conversation = project.submit(&mut client, 0, "push it").await;
    let first = project.approval(&mut client, conversation).await;
    project.kill_harness().await;
    let mut client = served(&project).await;
    // The push has lost its connection, and says so; the next one is the same.
    let again = project
        .until(&mut client, conversation, "the second push", |view| {
            let waits = view
                .calls
                .iter()
                .any(|call| call.state == "waiting-approval");
            (waits && results(view).len() == 1).then(|| view.clone())
        })
        .await;
    assert!(
        !results(&again)[0].contains("status 0"),
        "{:?}",
        results(&again)
    );
    let pending: Vec<_> = again
        .approvals
        .iter()
        .filter(|approval| approval.state == "pending")
        .collect();
    assert_eq!((pending.len(), &pending[0].id), (1, &first.id));
    let approved = project.mooring(&["approve", &first.id]);
    assert!(approved.status.success(), "{}", told(&approved));
    let view = project.idle(&mut client, conversation).await;
    let results = results(&view);
    assert!(results[1].contains("status 0"), "{results:?}");
    assert!(results[2].contains("Everything up-to-date"), "{results:?}");
    assert_eq!((host.has("refs/heads/main"), host.pushes()), (id, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commands_time_limit_does_not_run_while_its_push_waits_for_a_person() {
    let host = Host::start().await;
    let limit = std::time::Duration::from_secs(15);
    let arguments = serde_json::json!({ "command": PUSH, "timeout_ms": limit.as_millis() as u64 });
    let turns = format!("- calls:\n  - {{tool: bash, arguments: {arguments}}}\n- text: Done.\n");
    let (project, id) = project(&host, &turns);
    let mut client = served(&project).await;
    let conversation = project.submit(&mut client, 0, "push it").await;
    let approval = project.approval(&mut client, conversation).await;
    // The command was started before it was asked for.
    let asked = std::time::Instant::now();
    met(|| asked.elapsed() > limit + std::time::Duration::from_secs(2)).await;
    let approved = project.mooring(&["approve", &approval.id]);
    assert!(approved.status.success(), "{}", told(&approved));
    let view = project.idle(&mut client, conversation).await;
    let results = results(&view);
    assert!(results[0].contains("status 0"), "{results:?}");
    assert_eq!(host.has("refs/heads/main"), id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_push_is_an_error_of_git_with_the_reason_and_own_branches_need_nobody() {
    let host = Host::start().await;
    let own = "git push origin HEAD:refs/heads/mooring/x 2>&1; echo status $?";
    let turns = format!("{}{}- text: Done.\n", call(PUSH), call(own));
    let (project, id) = project(&host, &turns);
    let before = host.has("refs/heads/main");
    let mut client = served(&project).await;
    let conversation = project.submit(&mut client, 0, "push it").await;
    let approval = project.approval(&mut client, conversation).await;
    let denied = project.mooring(&["deny", &approval.id, "--reason", "not on a Friday"]);
    assert!(denied.status.success(), "{}", told(&denied));
    let view = project.idle(&mut client, conversation).await;
    let results = results(&view);
    assert!(
        results[0].contains("[remote rejected] HEAD -> main"),
        "{results:?}"
    );
    assert!(results[0].contains("not on a Friday"), "{results:?}");
    assert!(results[1].contains("status 0"), "{results:?}");
    assert_eq!(host.has("refs/heads/main"), before);
    assert_eq!((host.has("refs/heads/mooring/x"), host.pushes()), (id, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_folder_is_filled_before_the_first_tool_runs_also_over_a_kill() {
    let host = Host::start().await;
    host.admit(Account::Bearer(TOKEN));
    let look = "cat README src/lib; git log --format=%s origin/main; git status --short";
    let mut project = Project::with_spec(&format!(
        "repo: {{url: \"http://{NAME}:{}{PATH}\", partialClone: true}}\n\
         models: [{{name: rehearsal, provider: rehearsal, model: ../script.yaml}}]\n\
         policy:\n  tool: {{\"*\": allow}}\n  bash: {{\"*\": allow}}\n  path: {{\"*\": allow}}\n",
        host.port
    ));
    project.variables = variables(&host);
    std::fs::remove_dir_all(project.path(".git")).unwrap();
    std::fs::write(
        project.path("../script.yaml"),
        format!("announce: false\nturns:\n{}- text: Done.\n", call(look)),
    )
    .unwrap();
    // The host refuses at first: that is seen, and the tool waits.
    host.fail(Fault::Hang);
    let mut client = served(&project).await;
    let conversation = project.submit(&mut client, 0, "look").await;
    project
        .until(&mut client, conversation, "a call that waits", |view| {
            let waits = view.calls.iter().any(|call| call.note.contains(PATH));
            waits.then_some(())
        })
        .await;
    let status = project.mooring(&["status"]);
    assert!(
        told(&status).contains("checkout of http://git.test"),
        "{}",
        told(&status)
    );
    project.kill_harness().await;
    host.fail(None);
    let mut client = served(&project).await;
    let view = project.idle(&mut client, conversation).await;
    let results = results(&view);
    for text in ["one\ntwo\n", "Write src/lib\nWrite README"] {
        assert!(results[0].contains(text), "{results:?}");
    }
    let config = project.read(".git/config");
    assert!(
        config.contains("partialclonefilter = blob:none"),
        "{config}"
    );
    assert!(!project.path(".git/mooring-checkout").exists());
}

/// Looks for the credential wherever a command can look. Its own text has it in two
/// pieces, so that it does not find itself.
const SEARCH: &str = r#"
import os, re, sys
word = b"t0k3n-of-" + b"the-harness"
found = []
def look(name, data):
    if word in data:
        found.append(name)
for top in ("/", os.path.expanduser("~"), os.getcwd(), "/tmp"):
    for folder, folders, files in os.walk(top):
        if folder.startswith(("/proc", "/sys", "/dev", "/usr", "/lib")):
            folders[:] = []
            continue
        for name in files:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 1 << 22:
                    look(path, open(path, "rb").read())
            except OSError:
                pass
seen = 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            look(f"/proc/{pid}/{name}", open(f"/proc/{pid}/{name}", "rb").read())
        except OSError:
            pass
    if int(pid) == os.getpid():
        continue
    try:
        memory = open(f"/proc/{pid}/mem", "rb", 0)
        for line in open(f"/proc/{pid}/maps"):
            begin, end, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()
            begin, end = int(begin, 16), int(end, 16)
            if "r" not in rights or end - begin > 1 << 26:
                continue
            try:
                memory.seek(begin)
                look(f"/proc/{pid}/mem", memory.read(end - begin))
                seen += 1
            except (OSError, ValueError, OverflowError):
                pass
    except OSError:
        pass
print("searched", seen > 0, "found", found)
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_credential_is_anywhere_that_a_command_can_look() {
    let host = Host::start().await;
    // While a fetch is under way, and after a push.
    let commands = "git push -q origin HEAD:refs/heads/mooring/x && \
        (sleep 60 & git fetch -q origin & wait %2; python3 search.py > found.txt 2>&1; kill %1)";
    let turns = format!("{}- text: Done.\n", call(commands));
    let (project, id) = project(&host, &turns);
    std::fs::write(project.path("search.py"), SEARCH).unwrap();
    let mut client = served(&project).await;
    let conversation = project.submit(&mut client, 0, "look").await;
    let view = project.idle(&mut client, conversation).await;
    met(|| !project.read("found.txt").is_empty()).await;
    assert_eq!(
        project.read("found.txt"),
        "searched True found []\n",
        "{:?}",
        results(&view)
    );
    assert_eq!(host.has("refs/heads/mooring/x"), id);
    // It was there to be found: the host was shown it.
    let shown = host
        .fields()
        .iter()
        .any(|it| format!("{it:?}").contains(TOKEN));
    assert!(shown);
    let remote = command(&project.folder, &["config", "remote.origin.url"]).output();
    let remote = String::from_utf8(remote.unwrap().stdout).unwrap();
    assert!(remote.starts_with(&format!("http://{NAME}:")), "{remote}");
}
