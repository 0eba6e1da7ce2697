//! Git hosts with certificates of their own, and sandboxes elsewhere that are filled from
//! one.

use mooring_tests::{
    git::{Account, Host, PATH, git, tls::Front},
    project::{Project, told},
};

use crate::{pushes, remote};

/// A project whose git host is behind TLS at `name`, and which does `commands`.
fn project(front: &Front, name: &str, commands: &str) -> Project {
    let url = format!("https://{name}:{}{PATH}", front.port);
    let mut project = Project::with_spec(&format!(
        "repo: {{url: \"{url}\"}}\n\
         models: [{{name: rehearsal, provider: rehearsal, model: script.yaml}}]\n\
         policy:\n  tool: {{\"*\": allow}}\n  bash: {{\"*\": allow}}\n  path: {{\"*\": allow}}\n"
    ));
    git(&project.folder, &["remote", "add", "origin", &url]);
    project.variables = vec![
        (
            "MOORING_PRIVATE_DESTINATIONS".into(),
            format!("127.0.0.0/8:{}", front.port),
        ),
        (
            "MOORING_CONNECT_TO".into(),
            format!("{name}:{0}=127.0.0.1:{0}", front.port),
        ),
    ];
    let turns = format!(
        "announce: false\nturns:\n{}- text: Done.\n",
        pushes::call(commands)
    );
    std::fs::write(project.path("script.yaml"), turns).unwrap();
    project
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_is_spoken_to_by_tls_where_the_installation_knows_its_authority() {
    let host = Host::start().await;
    let front = Front::start("git.test", host.port).await;
    let look = "git fetch origin 2>&1; git show origin/main:README; \
                git push origin origin/main:refs/heads/mooring/x 2>&1";
    let known = |project: &mut Project| {
        let path = project.path(".git/authority.pem");
        std::fs::write(&path, &front.authority).unwrap();
        let variable = ("SSL_CERT_FILE".into(), path.display().to_string());
        project.variables.push(variable);
    };
    for (name, is_known, expected) in [
        ("git.test", true, "\none\n"),
        (
            "git.test",
            false,
            "git.test:PORT is not reached: invalid peer certificate",
        ),
        // The certificate is for another name.
        (
            "other.test",
            true,
            "other.test:PORT is not reached: invalid peer certificate",
        ),
    ] {
        let mut project = project(&front, name, look);
        if is_known {
            known(&mut project);
        }
        let mut client = project.client().await;
        let conversation = project.submit(&mut client, 0, "look").await;
        let view = project.idle(&mut client, conversation).await;
        let results = pushes::results(&view);
        let expected = expected.replace("PORT", &front.port.to_string());
        assert!(
            results[0].contains(&expected),
            "{name} {is_known}: {results:?}"
        );
        let pushed = host.has("refs/heads/mooring/x") == host.has("refs/heads/main");
        assert!(pushed, "by the first one, and by no other: {results:?}");
        if !is_known || name != "git.test" {
            assert_eq!(host.pushes(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_elsewhere_is_filled_through_the_gateway_and_pushes_through_it() {
    let host = Host::start().await;
    host.admit(Account::Everybody);
    let there = Project::new();
    std::fs::remove_dir_all(there.path(".git")).unwrap();
    let served = remote::Served::at(there, "127.0.0.1:0");
    let url = format!("http://{}:{}{PATH}", pushes::NAME, host.port);
    let mut project = Project::with_spec(&format!(
        "repo: {{url: \"{url}\"}}\n\
         models: [{{name: rehearsal, provider: rehearsal, model: \"\"}}]\n\
         policy:\n  tool: {{\"*\": allow}}\n  bash: {{\"*\": allow}}\n  path: {{\"*\": allow}}\n"
    ));
    project.variables = pushes::variables(&host);
    let commands = "run cat README src/lib > seen.txt; git add seen.txt; git commit -qm Seen; \
                    git push -q origin HEAD:refs/heads/mooring/x";
    let sent = tokio::task::block_in_place(|| {
        remote::send(&project, &served.address, Some(&served.code), commands)
    });
    assert!(sent.status.success(), "{}", told(&sent));
    assert_eq!(
        served.project.read("seen.txt"),
        "one\ntwo\n",
        "{}",
        told(&sent)
    );
    let there = git(&host.bare(), &["show", "mooring/x:seen.txt"]);
    assert_eq!(there, "one\ntwo");
    // Nothing of it is here.
    assert!(!project.path("README").exists());
}
