//! Commands: what starts, what is told of it, and how it ends.

use mooring_wire::sandbox::exec_response::Start;
use mooring_wire::sandbox::outcome::End;

use crate::support::{As, Sandbox, request, unique, users};

#[tokio::test]
async fn a_command_runs_in_the_project_with_an_environment_from_nothing() {
    for user in users() {
        let sandbox = Sandbox::start(user, &["--env", "COLOUR=blue"]).await;
        let ran = sandbox.run("pwd; id -u; env | sort | cut -d= -f1").await;
        let text = ran.ok();
        let mut lines = text.lines();
        assert_eq!(lines.next().unwrap(), sandbox.project.to_str().unwrap());
        println!("{text} {:?}", sandbox.status().await);
    }
}

#[tokio::test]
async fn the_same_id_runs_once() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let id = unique("once");
    let mut client = sandbox.client().await;
    let first = client
        .exec(request(&id, "echo ran >> count"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(first.start(), Start::Started);
    sandbox.attach(&id, 0).await.ok();
    let second = client
        .exec(request(&id, "echo ran >> count"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(second.start(), Start::Known);
    assert_eq!(second.output_path, first.output_path);
    assert_eq!(sandbox.attach(&id, 0).await.end(), (End::Exited, 0));
    assert_eq!(
        std::fs::read_to_string(sandbox.project.join("count")).unwrap(),
        "ran\n"
    );
}
