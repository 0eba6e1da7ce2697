//! Who may make, decide and report approvals, with the message people get.

use std::collections::BTreeMap;

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use mooring_crds::Approval;
use serde_json::{Value, json};

use crate::namespace::{TestNamespace, eventually};

pub fn good_approval(name: &str) -> Approval {
    let all: BTreeMap<String, Value> =
        serde_saphyr::from_str(include_str!("../../../crds/tests/good.yaml")).unwrap();
    let mut approval = all["Approval"].clone();
    approval["metadata"]["name"] = json!(name);
    serde_json::from_value(approval).unwrap()
}

/// Approvals as the harness of `platform` sees them, with the permissions it has.
pub async fn approvals_of_harness(namespace: &TestNamespace) -> Api<Approval> {
    let user = format!("system:serviceaccount:{}:platform-harness", namespace.name);
    let roles = namespace.api::<k8s_openapi::api::rbac::v1::Role>();
    if roles
        .get_opt(&user.replace(':', "."))
        .await
        .unwrap()
        .is_none()
    {
        namespace
            .allow(&user, json!([
                {"apiGroups": ["mooring.dev"], "resources": ["approvals"], "verbs": ["get", "create", "patch"]},
                {"apiGroups": ["mooring.dev"], "resources": ["approvals/status"], "verbs": ["patch"]},
            ]))
            .await;
    }
    namespace.api_as(&user).await
}

/// Waits until both admission policies are in force: that is a moment after the
/// chart was installed.
pub async fn policies_in_force(namespace: &TestNamespace) {
    let harness = approvals_of_harness(namespace).await;
    namespace
        .bind("prober", "ClusterRole", "mooring-approver")
        .await;
    let prober: Api<Approval> = namespace.api_as("prober").await;
    let anyone: Api<Approval> = namespace.api();
    let tried = std::sync::atomic::AtomicU32::new(0);
    eventually("admission policies in force", || async {
        let name = format!(
            "probe-{}",
            tried.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        );
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let refused = anyone.create(&dry, &good_approval(&name)).await.is_err();
        let params = PostParams::default();
        harness
            .create(&params, &good_approval(&name))
            .await
            .unwrap();
        let forged = json!({"verdict": "Denied", "decidedBy": "nobody"});
        let decided = decide(&prober, &name, forged).await.ok()?.spec.decision?;
        (refused && decided.decided_by.as_deref() == Some("prober")).then_some(())
    })
    .await;
    for index in 0..tried.load(std::sync::atomic::Ordering::Relaxed) {
        let name = format!("probe-{index}");
        anyone
            .delete(&name, &DeleteParams::default())
            .await
            .unwrap();
    }
}

async fn decide(api: &Api<Approval>, name: &str, decision: Value) -> Result<Approval, String> {
    let patch = Patch::Merge(json!({"spec": {"decision": decision}}));
    api.patch(name, &PatchParams::default(), &patch)
        .await
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn only_permitted_people_decide_once_and_under_their_own_name() {
    let namespace = TestNamespace::new("admission").await;
    policies_in_force(&namespace).await;
    let harness = approvals_of_harness(&namespace).await;
    // Ada asked; Bob may decide as well; Mallory may change Approvals and no more.
    for approver in ["ada@example.com", "bob"] {
        namespace
            .bind(approver, "ClusterRole", "mooring-approver")
            .await;
    }
    let change = json!([{"apiGroups": ["mooring.dev"], "resources": ["approvals", "approvals/status"], "verbs": ["get", "create", "patch"]}]);
    namespace.allow("mallory", change).await;
    let ada = namespace.api_as::<Approval>("ada@example.com").await;
    let bob = namespace.api_as::<Approval>("bob").await;
    let mallory = namespace.api_as::<Approval>("mallory").await;
    let pending = json!({"status": {"phase": "Pending"}});
    let params = PatchParams::default();
    for name in ["one", "two", "expired"] {
        harness
            .create(&PostParams::default(), &good_approval(name))
            .await
            .unwrap();
        harness
            .patch_status(name, &params, &Patch::Merge(&pending))
            .await
            .unwrap();
    }
    let approve = json!({"verdict": "Approved"});

    let said = decide(&mallory, "one", approve.clone()).await.unwrap_err();
    assert!(said.contains("mallory may not decide approvals in admission: that needs the verb \"approve\" on approvals.mooring.dev"), "{said}");
    let said = decide(&ada, "one", approve.clone()).await.unwrap_err();
    assert!(
        said.contains("ada@example.com asked for this and may not approve it"),
        "{said}"
    );

    // A forged name is replaced by the sender's.
    let forged = json!({"verdict": "Approved", "reason": "looks right", "decidedBy": "root"});
    let decided = decide(&bob, "one", forged)
        .await
        .unwrap()
        .spec
        .decision
        .unwrap();
    assert_eq!(decided.decided_by.as_deref(), Some("bob"));
    let said = decide(&bob, "one", json!({"verdict": "Denied"}))
        .await
        .unwrap_err();
    assert!(
        said.contains("this approval was decided already; a decision is written once"),
        "{said}"
    );

    // Whoever asked may say no to it.
    let denied = decide(&ada, "two", json!({"verdict": "Denied"}))
        .await
        .unwrap();
    assert_eq!(
        denied.spec.decision.unwrap().decided_by.as_deref(),
        Some("ada@example.com")
    );

    let expired = json!({"status": {"phase": "Expired"}});
    harness
        .patch_status("expired", &params, &Patch::Merge(&expired))
        .await
        .unwrap();
    let said = decide(&bob, "expired", approve).await.unwrap_err();
    assert!(
        said.contains("this approval is no longer pending: it is Expired"),
        "{said}"
    );
    namespace.delete().await;
}

#[tokio::test]
async fn a_requester_may_approve_where_the_workspace_lets_them() {
    let namespace = TestNamespace::new("self-approval").await;
    policies_in_force(&namespace).await;
    let harness = approvals_of_harness(&namespace).await;
    namespace
        .bind("ada@example.com", "ClusterRole", "mooring-approver")
        .await;
    let mut approval = good_approval("own");
    approval.spec.request.requester_may_approve = true;
    harness
        .create(&PostParams::default(), &approval)
        .await
        .unwrap();
    let ada = namespace.api_as::<Approval>("ada@example.com").await;
    let decided = decide(&ada, "own", json!({"verdict": "Approved"}))
        .await
        .unwrap();
    assert_eq!(
        decided.spec.decision.unwrap().decided_by.as_deref(),
        Some("ada@example.com")
    );
    namespace.delete().await;
}

#[tokio::test]
async fn only_the_harness_makes_approvals_and_writes_their_status() {
    let namespace = TestNamespace::new("makers").await;
    policies_in_force(&namespace).await;
    let harness = approvals_of_harness(&namespace).await;
    let other = format!("system:serviceaccount:{}:other-harness", namespace.name);
    let change = json!([{"apiGroups": ["mooring.dev"], "resources": ["approvals", "approvals/status"], "verbs": ["get", "create", "patch"]}]);
    namespace.allow(&other, change.clone()).await;
    namespace.allow("mallory", change).await;
    let params = PatchParams::default();
    let approved = json!({"status": {"phase": "Approved"}});
    harness
        .create(&PostParams::default(), &good_approval("mine"))
        .await
        .unwrap();
    for user in [other.as_str(), "mallory"] {
        let api = namespace.api_as::<Approval>(user).await;
        let said = api
            .create(&PostParams::default(), &good_approval("forged"))
            .await
            .unwrap_err();
        assert!(
            said.to_string()
                .contains("only the harness of the workspace makes approvals"),
            "{said}"
        );
        let said = api
            .patch_status("mine", &params, &Patch::Merge(&approved))
            .await
            .unwrap_err();
        assert!(
            said.to_string()
                .contains("only the harness of the workspace writes an approval's status"),
            "{said}"
        );
    }
    // Nor does the harness make one that is decided already.
    let mut decided = good_approval("decided");
    decided.spec.decision = Some(serde_json::from_value(json!({"verdict": "Approved"})).unwrap());
    let said = harness
        .create(&PostParams::default(), &decided)
        .await
        .unwrap_err();
    assert!(
        said.to_string()
            .contains("an approval is made without a decision"),
        "{said}"
    );
    namespace.delete().await;
}

#[tokio::test]
async fn approvals_are_found_by_workspace_and_phase() {
    let namespace = TestNamespace::new("fields").await;
    policies_in_force(&namespace).await;
    let harness = approvals_of_harness(&namespace).await;
    for (name, phase) in [("a", "Pending"), ("b", "Denied"), ("c", "Pending")] {
        harness
            .create(&PostParams::default(), &good_approval(name))
            .await
            .unwrap();
        let status = json!({"status": {"phase": phase}});
        harness
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }
    let fields = "spec.request.workspaceRef.name=platform,status.phase=Pending";
    let found = namespace
        .api::<Approval>()
        .list(&kube::api::ListParams::default().fields(fields))
        .await
        .unwrap();
    let names: Vec<_> = found
        .items
        .iter()
        .map(kube::ResourceExt::name_any)
        .collect();
    assert_eq!(names, ["a", "c"]);
    namespace.delete().await;
}
