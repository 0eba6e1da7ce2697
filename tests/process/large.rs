//! Large files and submodules through the gateway: real git-lfs, and a store on an address
//! of its own.

use std::{path::Path, process::Output, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use mooring_harness::{git::Credentials, model::KeyStore};
use mooring_tests::{
    git::{Account, Host, PATH, command, commit, git},
    project::{met, told},
};
use serde_json::{Value, json};

use crate::{
    gateway::{ALLOW, Met, errors, machine},
    pushes,
};

const TOKEN: &str = "t0k3n";

/// A gateway to a host that wants the token.
async fn met_with_token(host: &Host, policy: &str) -> Met {
    host.admit(Account::Basic("x-access-token", TOKEN));
    let keys = Arc::new(KeyStore::new());
    keys.set("MOORING_GIT_TOKEN", TOKEN);
    keys.set("MOORING_GIT_HOST", &format!("127.0.0.1:{}", host.port));
    Met::new(host, machine(keys), policy).await
}

/// Bytes that are the same each time, and no two numbers' alike.
fn content(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 + number;
    let mut all = Vec::with_capacity(bytes + 8);
    while all.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend_from_slice(&state.to_le_bytes());
    }
    all.truncate(bytes);
    all
}

/// A person's own set-up: the hook that sends large files before a push.
fn install(folder: &Path) {
    git(folder, &["lfs", "install", "--local", "--skip-smudge"]);
    for line in ["process", "smudge", "clean", "required"] {
        let key = format!("filter.lfs.{line}");
        git(folder, &["config", "--local", "--unset-all", &key]);
    }
}

/// Commits a large file as git-lfs does; its content's id.
async fn large(met: &Met, work: &Path, number: u64, bytes: usize) -> String {
    let content = content(number, bytes);
    std::fs::write(work.join(".gitattributes"), "*.bin filter=lfs -text\n").unwrap();
    std::fs::write(work.join(format!("{number}.bin")), &content).unwrap();
    for arguments in [&["add", "-A"][..], &["commit", "-qm", "Large"]] {
        let out = met.git(work, arguments).await;
        assert!(out.status.success(), "{}", errors(&out));
    }
    let pointer = git(work, &["show", &format!("HEAD:{number}.bin")]);
    let oid = pointer
        .lines()
        .find_map(|line| line.strip_prefix("oid sha256:"));
    oid.unwrap_or_else(|| panic!("no pointer: {pointer:.200}"))
        .to_owned()
}

fn done(out: &Output) {
    assert!(out.status.success(), "{}", errors(out));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_pass_and_neither_credential_nor_the_stores_address_does() {
    let host = Host::start().await;
    let met = met_with_token(&host, ALLOW).await;
    let work = met.clone("work", &[]).await;
    install(&work);
    let before = std::fs::read_to_string(work.join(".git/config")).unwrap();
    let oid = large(&met, &work, 1, 3_000_000).await;
    let out = met
        .git(
            &work,
            &["push", "-q", "origin", "HEAD:refs/heads/mooring/x"],
        )
        .await;
    done(&out);
    assert_eq!(host.store.object(&oid).unwrap(), content(1, 3_000_000));
    assert_eq!(host.store.verified(), [oid.as_str()]);
    // Nothing is left to send, and nothing of it is written down.
    let out = met.git(&work, &["lfs", "push", "--all", "origin"]).await;
    done(&out);
    let after = std::fs::read_to_string(work.join(".git/config")).unwrap();
    assert_eq!(before, after);

    let there = met.clone("there", &["-b", "mooring/x"]).await;
    let fetched = std::fs::read(there.join("1.bin")).unwrap();
    assert!(fetched == content(1, 3_000_000), "{} bytes", fetched.len());
    let config = std::fs::read_to_string(there.join(".git/config")).unwrap();
    assert!(!config.contains("[lfs \""), "{config}");

    let passed = met.passed.lock().unwrap().clone();
    let passed = String::from_utf8_lossy(&passed);
    assert!(passed.contains(&oid), "the commands were seen");
    let basic = BASE64_STANDARD.encode(format!("x-access-token:{TOKEN}"));
    for secret in [
        TOKEN,
        &basic,
        "w0rd-of-the-store",
        mooring_tests::git::large::STORE,
    ] {
        assert!(!passed.contains(secret), "{secret}");
    }
    // Nor does the store get what is the host's, or the command's.
    for fields in host.store.fields() {
        let sent = format!("{fields:?}");
        assert!(!sent.contains(&basic) && !sent.contains("1-7"), "{sent}");
        assert!(fields.get("authorization").is_none(), "{sent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_go_only_where_a_push_may_go() {
    let host = Host::start().await;
    let policy = "git: {\"push refs/heads/mooring/*\": allow, \"push refs/heads/main\": deny, \
                  \"*\": ask}";
    let met = met_with_token(&host, policy).await;
    let work = met.clone("work", &[]).await;
    git(&work, &["checkout", "-qb", "side"]);
    let oid = large(&met, &work, 1, 1_000).await;
    for (to, reason) in [
        ("main", "git rule \"push refs/heads/main\""),
        ("other", "Nobody can be asked"),
    ] {
        git(&work, &["branch", "-f", to]);
        let out = met.git(&work, &["lfs", "push", "origin", to]).await;
        assert!(!out.status.success(), "{to}");
        let said = format!("{}{}", errors(&out), String::from_utf8_lossy(&out.stdout));
        assert!(said.contains(reason), "{to}: {said}");
    }
    assert_eq!(host.store.count(), 0);
    let send = async || {
        git(&work, &["branch", "-f", "mooring/x"]);
        let sent = met
            .git(&work, &["lfs", "push", "origin", "mooring/x"])
            .await;
        done(&sent);
        met.git(&work, &["push", "origin", "mooring/x"]).await
    };
    done(&send().await);
    assert!(host.store.object(&oid).is_some());
    assert_eq!(host.pushes(), 1);
    // A push that names what was not sent leaves no pointer to nothing at the host.
    let oid = large(&met, &work, 3, 1_000).await;
    // git-lfs has made its hook by now; commands in the sandbox cannot have one made.
    let push = ["push", "origin", "HEAD:refs/heads/mooring/x"];
    let without_hooks = ["-c", "core.hooksPath=/dev/null"];
    let out = met.git(&work, &[&without_hooks[..], &push].concat()).await;
    let said = errors(&out);
    assert!(
        said.contains("[remote rejected]") && said.contains("git lfs push"),
        "{said}"
    );
    assert_eq!((host.pushes(), host.store.object(&oid)), (1, None));
    done(&send().await);
    assert!(host.store.object(&oid).is_some());
    assert_eq!(host.pushes(), 2);
    // What may only be fetched from.
    let other = met.url.replace("project", "other");
    git(
        host.bare().parent().unwrap(),
        &["clone", "-q", "--bare", "project.git", "other.git"],
    );
    large(&met, &work, 2, 1_000).await;
    git(&work, &["remote", "add", "other", &other]);
    let out = met.git(&work, &["lfs", "push", "other", "mooring/x"]).await;
    let said = format!("{}{}", errors(&out), String::from_utf8_lossy(&out.stdout));
    assert!(
        !out.status.success() && said.contains("may only be fetched from"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_has_ended_is_asked_for_anew_and_a_transfer_goes_on() {
    let host = Host::start().await;
    let met = met_with_token(&host, ALLOW).await;
    let content = content(3, 100_000);
    let oid = host.store.put(&content);
    let base = format!("http://{}/git/0.git/info/lfs", met.address);
    let http = reqwest::Client::new();
    let ask = |operation: &str, objects: Value| {
        let question = json!({
            "operation": operation,
            "ref": { "name": "refs/heads/mooring/x" },
            "objects": objects,
        });
        http.post(format!("{base}/objects/batch"))
            .basic_auth("1-7", Some("word"))
            .body(question.to_string())
            .send()
    };
    let there =
        json!([{ "oid": oid, "size": content.len() }, { "oid": "ab".repeat(32), "size": 1 }]);
    let told: Value = ask("download", there).await.unwrap().json().await.unwrap();
    let [first, second] = &told["objects"].as_array().unwrap()[..] else {
        panic!("{told}");
    };
    assert_eq!(second["error"]["message"], "there is no such object");
    let action = &first["actions"]["download"];
    let href = action["href"].as_str().unwrap();
    assert_eq!(href, format!("{base}/objects/{oid}/{}", content.len()));
    host.store.end_addresses();
    let whole = http.get(href).send().await.unwrap().bytes().await.unwrap();
    assert!(whole == content, "{} bytes", whole.len());
    let rest = http
        .get(href)
        .header("range", "bytes=99000-")
        .send()
        .await
        .unwrap();
    assert_eq!(rest.status(), 206);
    assert!(rest.bytes().await.unwrap() == content[99_000..]);

    // What is not understood, and what was not asked for.
    for (objects, status) in [
        (json!([{ "oid": "../../etc/passwd", "size": 1 }]), 422),
        (json!([{ "oid": oid, "size": -1 }]), 422),
        (json!("x"), 422),
        (json!(vec![json!({ "oid": oid, "size": 1 }); 1_001]), 422),
    ] {
        assert_eq!(ask("download", objects).await.unwrap().status(), status);
    }
    assert_eq!(ask("remove", json!([])).await.unwrap().status(), 422);
    let sent = http
        .put(format!("{base}/objects/{oid}/5"))
        .body("hello")
        .send();
    assert_eq!(
        sent.await.unwrap().status(),
        403,
        "it was not said that it may be sent"
    );
    // An object that is another than its name says does not get there.
    let small = json!([{ "oid": "cd".repeat(32), "size": 5 }]);
    let told: Value = ask("upload", small).await.unwrap().json().await.unwrap();
    let href = told["objects"][0]["actions"]["upload"]["href"]
        .as_str()
        .unwrap();
    for body in ["hello", "hell", "hello!"] {
        let sent = http.put(href).body(body).send().await;
        assert!(!sent.is_ok_and(|it| it.status().is_success()), "{body}");
    }
    assert_eq!(host.store.count(), 1);
    assert!(host.store.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_of_a_push_that_is_asked_for_wait_for_its_approval() {
    let host = Host::start().await;
    let turns = format!("{}- text: Done.\n", pushes::call(pushes::PUSH));
    let (project, _) = pushes::project(&host, &turns);
    install(&project.folder);
    let bytes = content(4, 200_000);
    std::fs::write(project.path("large.bin"), &bytes).unwrap();
    std::fs::write(project.path(".gitattributes"), "*.bin filter=lfs -text\n").unwrap();
    let filter = "filter.lfs.process=git-lfs filter-process";
    git(&project.folder, &["-c", filter, "add", "-A"]);
    git(&project.folder, &["-c", filter, "commit", "-qm", "Large"]);
    let mut client = pushes::served(&project).await;
    let conversation = project.submit(&mut client, 0, "push it").await;
    let approval = project.approval(&mut client, conversation).await;
    assert!(
        approval
            .detail
            .contains("large files (git-lfs): 1, 200000 bytes"),
        "{}",
        approval.detail
    );
    assert_eq!(
        (host.store.count(), host.pushes()),
        (0, 0),
        "all of it waits"
    );
    let approved = project.mooring(&["approve", &approval.id]);
    assert!(approved.status.success(), "{}", told(&approved));
    let view = project.idle(&mut client, conversation).await;
    let results = pushes::results(&view);
    assert!(results[0].contains("status 0"), "{results:?}");
    let pointer = git(&host.bare(), &["show", "main:large.bin"]);
    let oid = pointer
        .lines()
        .find_map(|line| line.strip_prefix("oid sha256:"));
    assert!(host.store.object(oid.unwrap()).unwrap() == bytes);
    assert_eq!(host.pushes(), 1);
    let waits = || std::fs::read_dir(project.state().join("git/large"));
    met(|| {
        let folders = waits().into_iter().flatten().flatten();
        folders
            .flat_map(|it| std::fs::read_dir(it.path()).into_iter().flatten())
            .count()
            == 0
    })
    .await;
}

/// A host whose repository has two others as submodules, by relative addresses.
async fn with_submodules() -> Host {
    let host = Host::start().await;
    let folder = host.bare().parent().unwrap().to_owned();
    let seed = host.folder("seed");
    for name in ["other", "third"] {
        let made = host.folder(name);
        git(&made, &["init", "-q", "-b", "main"]);
        commit(&made, "inside", format!("{name}\n"));
        let bare = folder.join(format!("{name}.git"));
        git(
            &folder,
            &[
                "clone",
                "-q",
                "--bare",
                &made.display().to_string(),
                &bare.display().to_string(),
            ],
        );
        git(
            &seed,
            &[
                "-c",
                "protocol.file.allow=always",
                "submodule",
                "add",
                "-q",
                &bare.display().to_string(),
                &format!("libs/{name}"),
            ],
        );
    }
    let modules = "[submodule \"libs/other\"]\n\tpath = libs/other\n\turl = ../other.git\n\
                   [submodule \"libs/third\"]\n\tpath = libs/third\n\turl = ../third.git\n";
    commit(&seed, ".gitmodules", modules);
    git(
        &seed,
        &["push", "-q", &host.bare().display().to_string(), "main"],
    );
    host
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submodules_come_from_the_repositories_that_are_named_and_from_no_others() {
    let host = with_submodules().await;
    let met = Met::new(&host, Credentials::None, ALLOW).await;
    let work = met.clone("work", &[]).await;
    let out = met
        .git(&work, &["submodule", "update", "--init", "libs/other"])
        .await;
    done(&out);
    let inside = work.join("libs/other/inside");
    assert_eq!(std::fs::read_to_string(&inside).unwrap(), "other\n");
    let mut third = command(&work, &["submodule", "update", "--init", "libs/third"]);
    // In the sandbox nothing else is reached.
    third.envs(met.variables.iter().map(|(name, value)| (name, value)));
    third.env("http_proxy", format!("http://{}", met.address));
    let out = tokio::task::spawn_blocking(move || third.output().unwrap())
        .await
        .unwrap();
    assert!(!out.status.success(), "{}", errors(&out));
    assert!(!work.join("libs/third/inside").exists());
    // Nothing is pushed to one.
    let module = work.join("libs/other");
    commit(&module, "new", "new\n");
    let out = met
        .git(&module, &["push", "origin", "HEAD:refs/heads/x"])
        .await;
    assert!(
        errors(&out).contains("may only be fetched from"),
        "{}",
        errors(&out)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_checkout_brings_the_submodules_that_are_named() {
    let host = with_submodules().await;
    host.admit(Account::Bearer(pushes::TOKEN));
    let url = format!("http://{}:{}{PATH}", pushes::NAME, host.port);
    let look = "cat libs/other/inside; ls -A libs/third; git -C libs/other status --short";
    let mut project = mooring_tests::project::Project::with_spec(&format!(
        "repo: {{url: \"{url}\", alsoFetch: [\"{}\"]}}\n\
         models: [{{name: rehearsal, provider: rehearsal, model: ../script.yaml}}]\n\
         policy:\n  tool: {{\"*\": allow}}\n  bash: {{\"*\": allow, \"git submodule update *\": allow}}\n  \
         path: {{\"*\": allow}}\n",
        url.replace("project", "other")
    ));
    project.variables = pushes::variables(&host);
    std::fs::remove_dir_all(project.path(".git")).unwrap();
    let again = "git submodule update --init libs/other && git -C libs/other log --format=%s";
    std::fs::write(
        project.path("../script.yaml"),
        format!(
            "announce: false\nturns:\n{}{}- text: Done.\n",
            pushes::call(look),
            pushes::call(again)
        ),
    )
    .unwrap();
    let mut client = pushes::served(&project).await;
    let conversation = project.submit(&mut client, 0, "look").await;
    let view = project.idle(&mut client, conversation).await;
    let results = pushes::results(&view);
    assert!(results[0].starts_with("other\n"), "{results:?}");
    assert!(!results[0].contains("third"), "{results:?}");
    assert!(results[1].contains("Write inside"), "{results:?}");
}
