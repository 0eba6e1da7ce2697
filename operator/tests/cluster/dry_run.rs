//! `mooring-operator --dry-run`: what it prints, the API server admits.

use std::process::Command;

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use crate::namespace::TestNamespace;

const WORKSPACE: &str = "\
apiVersion: mooring.dev/v1alpha1
kind: Workspace
metadata: {name: platform, namespace: dry-run}
spec:
  models: [{name: main, provider: rehearsal}]
";

fn dry_run(text: &str) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("workspace.yaml");
    std::fs::write(&file, text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_mooring-operator"))
        .args(["--dry-run", "-f"])
        .arg(&file)
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

#[tokio::test]
async fn a_dry_run_prints_objects_that_the_api_server_admits_to_the_letter() {
    let output = dry_run(WORKSPACE);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("PRIVATE KEY"));
    let namespace = TestNamespace::new("dry-run").await;
    let mut kinds = Vec::new();
    for document in text.split("---\n").skip(1) {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = text(&object["kind"]);
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api: Api<DynamicObject> =
            Api::namespaced_with(namespace.client.clone(), "dry-run", &resource);
        let params = PatchParams {
            dry_run: true,
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply("test")
        };
        let name = text(&object["metadata"]["name"]);
        if kind != "Secret" {
            api.patch(&name, &params, &Patch::Apply(&object))
                .await
                .unwrap();
        }
        kinds.push(kind);
    }
    assert_eq!(kinds.len(), 15, "{kinds:?}");
    namespace.delete().await;
}

#[test]
fn a_file_that_is_no_workspace_is_named_with_the_place() {
    for (text, said) in [
        ("kind: Workspace\nspec: {models: 1}\n", "workspace.yaml"),
        (&WORKSPACE.replace("rehearsal", "nobody"), "line 5"),
        (
            &WORKSPACE.replace("rehearsal", "anthropic, model: m"),
            "spec.models[0].apiKeySecretRef",
        ),
    ] {
        let output = dry_run(text);
        assert!(!output.status.success());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(said), "{said}: {error}");
    }
}
