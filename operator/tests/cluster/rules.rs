//! Every rule of the CRDs, on the API server.

use std::collections::BTreeMap;

use kube::api::{Api, Patch, PatchParams, PostParams};
use mooring_crds::{Approval, Workspace};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::admission::{approvals_of_harness, good_approval, policies_in_force};
use crate::namespace::TestNamespace;

#[derive(Deserialize)]
struct Case {
    name: String,
    kind: String,
    #[serde(default)]
    subresource: String,
    before: Option<Value>,
    change: Value,
    message: String,
}

fn good(kind: &str) -> Value {
    let all: BTreeMap<String, Value> =
        serde_saphyr::from_str(include_str!("../../../crds/tests/good.yaml")).unwrap();
    all[kind].clone()
}

/// JSON merge patch (RFC 7396), for objects that are not there yet.
fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(json!({})), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

async fn refusal_of_workspace(namespace: &TestNamespace, name: &str, case: &Case) -> kube::Error {
    let api: Api<Workspace> = namespace.api();
    let params = PostParams::default();
    let mut object = good("Workspace");
    object["metadata"]["name"] = json!(name);
    match &case.before {
        None => {
            merge(&mut object, &case.change);
            let typed: kube::api::DynamicObject = serde_json::from_value(object).unwrap();
            let resource = kube::api::ApiResource::erase::<Workspace>(&());
            let api: Api<kube::api::DynamicObject> =
                Api::namespaced_with(namespace.client.clone(), &namespace.name, &resource);
            api.create(&params, &typed).await.expect_err(&case.name)
        }
        Some(before) => {
            merge(&mut object, before);
            api.create(&params, &serde_json::from_value(object).unwrap())
                .await
                .unwrap();
            let change = Patch::Merge(&case.change);
            api.patch(name, &PatchParams::default(), &change)
                .await
                .expect_err(&case.name)
        }
    }
}

async fn refusal_of_approval(namespace: &TestNamespace, name: &str, case: &Case) -> kube::Error {
    let harness = approvals_of_harness(namespace).await;
    let ada: Api<Approval> = namespace.api_as("ada").await;
    let params = PatchParams::default();
    harness
        .create(&PostParams::default(), &good_approval(name))
        .await
        .unwrap();
    let before = case.before.clone().unwrap_or_default();
    if let Some(spec) = before.get("spec") {
        ada.patch(name, &params, &Patch::Merge(json!({"spec": spec})))
            .await
            .unwrap();
    }
    if before.get("status").is_some() {
        harness
            .patch_status(name, &params, &Patch::Merge(&before))
            .await
            .unwrap();
    }
    let change = Patch::Merge(&case.change);
    if case.subresource == "status" {
        harness
            .patch_status(name, &params, &change)
            .await
            .expect_err(&case.name)
    } else {
        ada.patch(name, &params, &change)
            .await
            .expect_err(&case.name)
    }
}

#[tokio::test]
async fn the_api_server_refuses_what_every_rule_is_for_and_says_what_would_be_right() {
    let namespace = TestNamespace::new("rules").await;
    namespace
        .bind("ada", "ClusterRole", "mooring-approver")
        .await;
    policies_in_force(&namespace).await;
    let cases: Vec<Case> =
        serde_saphyr::from_str(include_str!("../../../crds/tests/rules.yaml")).unwrap();
    assert!(cases.len() > 30);
    for (index, case) in cases.iter().enumerate() {
        let name = format!("case-{index}");
        let error = match case.kind.as_str() {
            "Workspace" => refusal_of_workspace(&namespace, &name, case).await,
            _ => refusal_of_approval(&namespace, &name, case).await,
        };
        assert!(
            error.to_string().contains(&case.message),
            "{}: {error}",
            case.name
        );
    }
    namespace.delete().await;
}

#[tokio::test]
async fn shapes_that_make_no_sense_are_refused_with_the_path() {
    let namespace = TestNamespace::new("shapes").await;
    let api: Api<Workspace> = namespace.api();
    let strict = PatchParams {
        field_validation: Some(kube::api::ValidationDirective::Strict),
        ..PatchParams::apply("test")
    };
    for (change, path) in [
        (json!({"spec": {"buget": {}}}), ".spec.buget"),
        (json!({"spec": {"models": []}}), "spec.models"),
        (
            json!({"spec": {"models": [{"name": "a", "provider": "nobody"}]}}),
            "spec.models[0].provider",
        ),
        (
            json!({"spec": {"approvals": {"requesterMayApprove": "no"}}}),
            "spec.approvals.requesterMayApprove",
        ),
        (
            json!({"spec": {"members": [{"discordUserId": "ada", "role": "User"}]}}),
            "spec.members[0].discordUserId",
        ),
        (
            json!({"spec": {"members": [{"discordUserId": "1", "role": "Boss"}]}}),
            "spec.members[0].role",
        ),
        (
            json!({"spec": {"policy": {"bash": {"*": "perhaps"}}}}),
            "spec.policy.bash.*",
        ),
    ] {
        let mut object = good("Workspace");
        merge(&mut object, &change);
        let error = api
            .patch("platform", &strict, &Patch::Apply(object))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(path), "{path}: {error}");
    }
    let fine = api
        .patch("platform", &strict, &Patch::Apply(good("Workspace")))
        .await;
    assert!(fine.is_ok(), "{fine:?}");
    namespace.delete().await;
}
