//! Reading, writing, editing, listing and searching through the wire.

use std::os::unix::fs::PermissionsExt;

use mooring_wire::sandbox::edit_request::Replacement;
use mooring_wire::sandbox::file_outcome::Outcome;
use mooring_wire::sandbox::read_response::Content;
use mooring_wire::sandbox::search_request::What;
use mooring_wire::sandbox::{
    EditRequest, ListRequest, ReadRequest, ReleaseRequest, SearchRequest, StatRequest, WriteRequest,
};
use tonic::Code;

use crate::support::{As, Sandbox, execution, unique, users};

fn write(sandbox: &Sandbox, id: &str, hash: &str, name: &str, content: &str) -> WriteRequest {
    WriteRequest {
        execution: execution(id, hash),
        path: sandbox.project.join(name).display().to_string(),
        content: content.to_owned().into(),
    }
}

#[tokio::test]
async fn a_write_acts_once_per_id_and_keeps_the_mode() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let mut client = sandbox.client().await;
        let id = unique("write");
        let first = client
            .write(write(&sandbox, &id, "h", "deep/er/file.sh", "one\n"))
            .await
            .unwrap()
            .into_inner();
        let Some(Outcome::Written(written)) = &first.outcome else {
            panic!("{first:?}")
        };
        assert!(
            written.created && !first.repeated && written.diff.contains("+one"),
            "{first:?}"
        );
        sandbox
            .run("chmod 750 deep/er/file.sh; echo other > deep/er/file.sh")
            .await
            .ok();

        let again = client
            .write(write(&sandbox, &id, "h", "deep/er/file.sh", "one\n"))
            .await
            .unwrap()
            .into_inner();
        assert!(again.repeated);
        assert_eq!(again.outcome, first.outcome);
        let path = sandbox.project.join("deep/er/file.sh");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "other\n");
        let other = client
            .write(write(&sandbox, &id, "other hash", "deep/er/file.sh", "x"))
            .await
            .unwrap_err();
        assert_eq!(other.code(), Code::AlreadyExists);

        client
            .write(write(
                &sandbox,
                &unique("write"),
                "h",
                "deep/er/file.sh",
                "two\n",
            ))
            .await
            .unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o750);
        let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "a temporary file is left: {left:?}");

        client
            .release(ReleaseRequest {
                execution_ids: vec![id.clone()],
            })
            .await
            .unwrap();
        let late = client
            .write(write(&sandbox, &id, "h", "deep/er/file.sh", "one\n"))
            .await
            .unwrap_err();
        assert_eq!(late.code(), Code::FailedPrecondition);
    }
}

#[tokio::test]
async fn edits_at_the_same_time_lose_nothing() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let text: String = (0..40).map(|n| format!("<{n}>\n")).collect();
    std::fs::write(sandbox.project.join("file"), &text).unwrap();
    let client = sandbox.client().await;
    let path = sandbox.project.join("file").display().to_string();
    let edits = (0..40).map(|n| {
        let mut client = client.clone();
        let request = EditRequest {
            execution: execution(&unique("edit"), "h"),
            path: path.clone(),
            replacements: vec![Replacement {
                old: format!("<{n}>"),
                new: format!("[{n}]"),
                all: false,
            }],
        };
        async move { client.edit(request).await.unwrap().into_inner() }
    });
    for outcome in futures::future::join_all(edits).await {
        assert!(
            matches!(outcome.outcome, Some(Outcome::Written(_))),
            "{outcome:?}"
        );
    }
    let expected: String = (0..40).map(|n| format!("[{n}]\n")).collect();
    assert_eq!(
        std::fs::read_to_string(sandbox.project.join("file")).unwrap(),
        expected
    );
}

#[tokio::test]
async fn what_cannot_be_edited_is_told_and_changes_nothing() {
    let sandbox = Sandbox::start(As::Caller, &[]).await;
    let mut client = sandbox.client().await;
    std::fs::write(sandbox.project.join("file"), "a\na\n").unwrap();
    let table = [
        ("file", "a", "found 2 times"),
        ("file", "zzz", "not found"),
        ("missing", "a", "does not exist"),
        (".", "a", "is a directory"),
    ];
    for (name, old, expected) in table {
        let path = if name == "." {
            sandbox.project.clone()
        } else {
            sandbox.project.join(name)
        };
        let request = EditRequest {
            execution: execution(&unique("edit"), "h"),
            path: path.display().to_string(),
            replacements: vec![Replacement {
                old: old.into(),
                new: "b".into(),
                all: false,
            }],
        };
        let outcome = client.edit(request).await.unwrap().into_inner().outcome;
        let Some(Outcome::Refused(text)) = outcome else {
            panic!("{name}: {outcome:?}")
        };
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(
        std::fs::read_to_string(sandbox.project.join("file")).unwrap(),
        "a\na\n"
    );
}

#[tokio::test]
async fn files_are_read_listed_and_searched() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let mut client = sandbox.client().await;
        sandbox.run("mkdir src; printf 'one\\ntwo\\xff\\n' > src/a.txt; head -c 3000000 /dev/zero > src/zeros").await.ok();
        let project = sandbox.project.display().to_string();
        let read = |path: String| ReadRequest {
            path,
            ..ReadRequest::default()
        };
        let answer = client
            .read(read(format!("{project}/src/a.txt")))
            .await
            .unwrap()
            .into_inner();
        let Some(Content::Text(text)) = answer.content else {
            panic!("no text")
        };
        assert_eq!(text.text, "one\ntwo\u{fffd}\n");
        let answer = client
            .read(read(format!("{project}/src/zeros")))
            .await
            .unwrap()
            .into_inner();
        assert!(matches!(answer.content, Some(Content::Binary(_))));
        assert_eq!(
            client
                .read(read(format!("{project}/none")))
                .await
                .unwrap_err()
                .code(),
            Code::NotFound
        );
        assert_eq!(
            client
                .read(read(format!("{project}/../x")))
                .await
                .unwrap_err()
                .code(),
            Code::InvalidArgument
        );

        let listed = client
            .list(ListRequest {
                path: format!("{project}/src"),
                limit: 0,
            })
            .await
            .unwrap()
            .into_inner();
        let names: Vec<_> = listed.items.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, ["a.txt", "zeros"]);
        let request = SearchRequest {
            path: project.clone(),
            what: Some(What::Regex("^two".into())),
            ..SearchRequest::default()
        };
        let found = client.search(request).await.unwrap().into_inner().matches;
        assert_eq!(
            (found.len(), found[0].path.as_str(), found[0].line),
            (1, "src/a.txt", 2)
        );
        let stat = client
            .stat(StatRequest {
                path: format!("{project}/src/zeros"),
            })
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (stat.exists, stat.kind.as_str(), stat.size),
            (true, "file", 3_000_000)
        );
        assert_eq!(stat.sha256.len(), 64);
    }
}
