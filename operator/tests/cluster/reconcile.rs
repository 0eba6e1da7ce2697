//! Workspaces brought up, kept so, and let go.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use mooring_crds::{Phase, Workspace};
use serde_json::{Value, json};

use crate::admission::{approvals_of_harness, good_approval};
use crate::audit;
use crate::namespace::{TestNamespace, eventually};
use crate::process::Operator;

fn spec() -> Value {
    json!({
        "models": [
            {"name": "main", "provider": "anthropic", "model": "m", "apiKeySecretRef": {"name": "model", "key": "apiKey"}},
        ],
        "sandbox": {"resources": {"requests": {"cpu": "1000m"}, "limits": {"memory": "1024Mi"}}},
    })
}

fn condition(workspace: &Workspace, type_: &str) -> String {
    let conditions = &workspace.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|c| c.type_ == type_).unwrap();
    format!("{}/{}: {}", found.status, found.reason, found.message)
}

/// As far as a Workspace comes up where no harness can answer: there is no kubelet.
const UP: &str = "NotReached";

async fn bring_up(namespace: &TestNamespace, name: &str) -> Workspace {
    namespace.make_workspace(name, spec()).await;
    namespace.wait_for_reason(name, "PodNotReady").await;
    namespace.make_pods_ready(name).await;
    namespace.wait_for_reason(name, UP).await;
    // Of the two pods either may be seen ready first.
    namespace.wait_for_true(name, "SandboxReady").await
}

#[tokio::test]
async fn a_workspace_comes_up_and_an_unchanged_one_is_not_written_again() {
    let namespace = TestNamespace::new("comes-up").await;
    let operator = Operator::start(&namespace).await;
    let workspace = bring_up(&namespace, "platform").await;
    let status = workspace.status.clone().unwrap();
    assert_eq!(status.phase, Some(Phase::Progressing));
    assert_eq!(
        status.endpoint.as_deref(),
        Some("platform-harness.comes-up.svc:7443")
    );
    let harness = condition(&workspace, "HarnessReady");
    assert!(
        harness.contains("it does not answer at platform-harness.comes-up.svc:7443"),
        "{harness}"
    );
    for type_ in ["Accepted", "SandboxReady"] {
        assert!(condition(&workspace, type_).starts_with("True/"), "{type_}");
    }
    assert_eq!(namespace.versions::<StatefulSet>().await.len(), 2);
    assert_eq!(namespace.versions::<Service>().await.len(), 2);
    assert_eq!(namespace.versions::<NetworkPolicy>().await.len(), 2);
    assert_eq!(namespace.versions::<PodDisruptionBudget>().await.len(), 2);
    // Whoever is deleted takes along what it owns.
    let set = namespace
        .api::<StatefulSet>()
        .get("platform-harness")
        .await
        .unwrap();
    assert_eq!(
        set.metadata.owner_references.unwrap()[0].uid,
        workspace.metadata.uid.clone().unwrap()
    );

    // A change that is none makes another pass.
    let before = audit::writes("comes-up").len();
    assert!(
        before > 10,
        "the audit log shows what was written: {before}"
    );
    let passes = passes(&operator).await;
    let label = json!({"metadata": {"annotations": {"touched": "yes"}}});
    let api = namespace.api::<Workspace>();
    api.patch("platform", &PatchParams::default(), &Patch::Merge(label))
        .await
        .unwrap();
    eventually("another pass", || async {
        (self::passes(&operator).await > passes).then_some(())
    })
    .await;
    let written = audit::writes("comes-up");
    assert_eq!(written[before..], [] as [String; 0]);

    // The same Secrets come out of another process; nobody reads any of them.
    let secrets = namespace.versions::<Secret>().await;
    operator.kill();
    let operator = Operator::start(&namespace).await;
    eventually("a pass of another process", || async {
        (self::passes(&operator).await > 0).then_some(())
    })
    .await;
    assert_eq!(namespace.versions::<Secret>().await, secrets);
    assert!(
        secrets.contains_key("platform-harness-tls")
            && secrets.contains_key("platform-sandbox-tls")
    );
    let reads = audit::secret_reads("comes-up");
    assert!(
        reads
            .iter()
            .all(|read| read == "get secrets mooring-authority"),
        "{reads:?}"
    );
    namespace.delete().await;
}

/// Passes that the operator finished, by its own count.
async fn passes(operator: &Operator) -> u64 {
    let Some(text) = metrics(operator).await else {
        return 0;
    };
    text.lines()
        .filter(|line| line.starts_with("mooring_operator_reconciliations_total"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

async fn metrics(operator: &Operator) -> Option<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(&operator.http).await.ok()?;
    let request = "GET /metrics HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    Some(text)
}

#[tokio::test]
async fn drift_in_every_owned_object_is_put_back() {
    let namespace = TestNamespace::new("drift").await;
    let _operator = Operator::start(&namespace).await;
    bring_up(&namespace, "platform").await;
    let params = PatchParams::default();
    let merge = |value: Value| Patch::Merge(value);

    let policies = namespace.api::<NetworkPolicy>();
    let open = json!({"spec": {"egress": [{}]}});
    policies
        .patch("platform-sandbox", &params, &merge(open))
        .await
        .unwrap();
    eventually("a closed sandbox", || async {
        let spec = policies
            .get("platform-sandbox")
            .await
            .unwrap()
            .spec
            .unwrap();
        spec.egress
            .is_none_or(|rules| rules.is_empty())
            .then_some(())
    })
    .await;

    policies
        .delete("platform-harness", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the harness's policy", || async {
        policies.get_opt("platform-harness").await.unwrap()
    })
    .await;

    let roles = namespace.api::<Role>();
    let more = json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    roles
        .patch("platform-harness", &params, &merge(more))
        .await
        .unwrap();
    eventually("the old rules", || async {
        (roles.get("platform-harness").await.unwrap().rules?.len() == 4).then_some(())
    })
    .await;

    let bindings = namespace.api::<RoleBinding>();
    let more = json!({"subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}]});
    bindings
        .patch("platform-harness", &params, &merge(more))
        .await
        .unwrap();
    eventually("the old subject", || async {
        let subjects = bindings.get("platform-harness").await.unwrap().subjects?;
        (subjects.len() == 1 && subjects[0].name == "platform-harness").then_some(())
    })
    .await;

    let sets = namespace.api::<StatefulSet>();
    let image = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:1"}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(image).unwrap());
    sets.patch("platform-sandbox", &params, &patch)
        .await
        .unwrap();
    eventually("the old image", || async {
        let set = sets.get("platform-sandbox").await.unwrap();
        let pod = set.spec?.template.spec?;
        (pod.containers[0].image.as_deref() != Some("evil:1")).then_some(())
    })
    .await;

    let budgets = namespace.api::<PodDisruptionBudget>();
    budgets
        .delete("platform-harness", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the budget", || async {
        budgets.get_opt("platform-harness").await.unwrap()
    })
    .await;
    let services = namespace.api::<Service>();
    services
        .delete("platform-sandbox", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the Service", || async {
        services.get_opt("platform-sandbox").await.unwrap()
    })
    .await;
    let accounts = namespace.api::<ServiceAccount>();
    accounts
        .delete("platform-harness", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the account", || async {
        accounts.get_opt("platform-harness").await.unwrap()
    })
    .await;
    namespace.delete().await;
}

#[tokio::test]
async fn an_invalid_change_is_named_and_what_ran_keeps_running() {
    let namespace = TestNamespace::new("invalid").await;
    let _operator = Operator::start(&namespace).await;
    bring_up(&namespace, "platform").await;
    let before = namespace.versions::<StatefulSet>().await;

    let mut wrong = spec();
    wrong["models"][0]
        .as_object_mut()
        .unwrap()
        .remove("apiKeySecretRef");
    namespace.make_workspace("platform", wrong).await;
    let workspace = namespace.wait_for_reason("platform", "Invalid").await;
    let accepted = condition(&workspace, "Accepted");
    assert!(
        accepted.contains("spec.models[0].apiKeySecretRef"),
        "{accepted}"
    );
    assert!(condition(&workspace, "SandboxReady").starts_with("True/"));
    assert_eq!(namespace.versions::<StatefulSet>().await, before);

    // One that is wrong keeps no other from coming up.
    bring_up(&namespace, "other").await;

    namespace.make_workspace("platform", spec()).await;
    namespace.wait_for_reason("platform", UP).await;
    namespace.delete().await;
}

#[tokio::test]
async fn a_suspended_workspace_has_no_pods_and_comes_back() {
    let namespace = TestNamespace::new("suspended").await;
    let _operator = Operator::start(&namespace).await;
    bring_up(&namespace, "platform").await;
    let mut suspended = spec();
    suspended["runState"] = json!("Suspended");
    namespace.make_workspace("platform", suspended).await;
    // There is no kubelet to end the pods.
    let pods = namespace.api::<k8s_openapi::api::core::v1::Pod>();
    for pod in ["platform-harness-0", "platform-sandbox-0"] {
        eventually(&format!("{pod} on its way out"), || async {
            let found = pods.get_opt(pod).await.unwrap();
            found
                .is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
                .then_some(())
        })
        .await;
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        let _ = pods.delete(pod, &now).await;
    }
    let workspace = namespace.wait_for_reason("platform", "Suspended").await;
    assert_eq!(workspace.status.unwrap().phase, Some(Phase::Suspended));
    namespace.make_workspace("platform", spec()).await;
    namespace.wait_for_reason("platform", "PodNotReady").await;
    namespace.make_pods_ready("platform").await;
    namespace.wait_for_reason("platform", UP).await;
    namespace.delete().await;
}

#[tokio::test]
async fn an_object_of_somebody_else_is_left_alone_and_named() {
    let namespace = TestNamespace::new("not-ours").await;
    let foreign: Service = serde_json::from_value(json!({
        "metadata": {"name": "platform-harness"},
        "spec": {"ports": [{"port": 80}]},
    }))
    .unwrap();
    let services = namespace.api::<Service>();
    services
        .create(&PostParams::default(), &foreign)
        .await
        .unwrap();
    let version = namespace.versions::<Service>().await;
    let _operator = Operator::start(&namespace).await;
    namespace.make_workspace("platform", spec()).await;
    let workspace = namespace.wait_for_reason("platform", "NotOurs").await;
    let stalled = condition(&workspace, "Stalled");
    assert!(
        stalled.contains("Service platform-harness exists and does not belong"),
        "{stalled}"
    );
    let now = namespace.versions::<Service>().await;
    assert_eq!(now["platform-harness"], version["platform-harness"]);

    services
        .delete("platform-harness", &DeleteParams::default())
        .await
        .unwrap();
    namespace
        .make_workspace(
            "platform",
            json!({"models": [{"name": "main", "provider": "rehearsal"}]}),
        )
        .await;
    namespace.wait_for_reason("platform", "PodNotReady").await;
    namespace.delete().await;
}

#[tokio::test]
async fn a_volume_that_cannot_grow_says_so() {
    let namespace = TestNamespace::new("cannot-grow").await;
    let _operator = Operator::start(&namespace).await;
    bring_up(&namespace, "platform").await;
    let sets = namespace.versions::<StatefulSet>().await;
    // The claim is unbound, and no storage class lets it grow.
    let mut larger = spec();
    larger["sandbox"]["storage"] = json!({"size": "20Gi"});
    namespace.make_workspace("platform", larger).await;
    let workspace = namespace.wait_for_reason("platform", "CannotGrow").await;
    let stalled = condition(&workspace, "Stalled");
    assert!(
        stalled.contains("volume claim data-platform-sandbox-0 cannot grow to 20Gi"),
        "{stalled}"
    );
    assert_eq!(namespace.versions::<StatefulSet>().await, sets);
    namespace.delete().await;
}

#[tokio::test]
async fn a_volume_grows_by_making_its_stateful_set_again() {
    let namespace = TestNamespace::new("grows").await;
    let _operator = Operator::start(&namespace).await;
    // Suspended from the start: there is no claim yet that could refuse.
    let mut spec = spec();
    spec["runState"] = json!("Suspended");
    namespace.make_workspace("platform", spec.clone()).await;
    namespace.wait_for_reason("platform", "Suspended").await;
    let sets = namespace.api::<StatefulSet>();
    let before = sets.get("platform-sandbox").await.unwrap().metadata.uid;
    spec["sandbox"]["storage"] = json!({"size": "20Gi"});
    namespace.make_workspace("platform", spec).await;
    eventually("a larger StatefulSet", || async {
        let set = sets.get_opt("platform-sandbox").await.unwrap()?;
        let claim = set.spec?.volume_claim_templates?.remove(0).spec?;
        let size = claim.resources?.requests?.remove("storage")?;
        (set.metadata.uid != before && size.0 == "20Gi").then_some(())
    })
    .await;
    namespace.wait_for_reason("platform", "Suspended").await;
    namespace.delete().await;
}

#[tokio::test]
async fn pending_approvals_are_counted_in_the_status() {
    let namespace = TestNamespace::new("pending").await;
    let _operator = Operator::start(&namespace).await;
    bring_up(&namespace, "platform").await;
    let harness = approvals_of_harness(&namespace).await;
    let api = namespace.api::<Workspace>();
    harness
        .create(&PostParams::default(), &good_approval("a"))
        .await
        .unwrap();
    let params = PatchParams::default();
    for (phase, count) in [("Pending", 1), ("Denied", 0)] {
        let status = json!({"status": {"phase": phase}});
        harness
            .patch_status("a", &params, &Patch::Merge(status))
            .await
            .unwrap();
        eventually(&format!("{count} pending"), || async {
            let found = api.get("platform").await.unwrap();
            (found.status?.pending_approvals == Some(count)).then_some(())
        })
        .await;
    }
    namespace.delete().await;
}

#[tokio::test]
async fn a_deleted_workspace_takes_everything_along_but_its_volumes() {
    let namespace = TestNamespace::new("deleted").await;
    let _operator = Operator::start(&namespace).await;
    bring_up(&namespace, "platform").await;
    let api = namespace.api::<Workspace>();
    api.delete("platform", &DeleteParams::background())
        .await
        .unwrap();
    eventually("nothing left", || async {
        let left = namespace.versions::<StatefulSet>().await.len()
            + namespace.versions::<Service>().await.len()
            + namespace.versions::<NetworkPolicy>().await.len();
        (left == 0).then_some(())
    })
    .await;
    let claims = namespace.versions::<PersistentVolumeClaim>().await;
    assert_eq!(claims.len(), 2, "{claims:?}");
    namespace.delete().await;
}
