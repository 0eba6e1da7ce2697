//! A namespace of a test's own, and clients for whoever acts in it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Config, Resource, ResourceExt};
use mooring_crds::Workspace;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How long anything may take that a test waits for.
pub const LONG: Duration = Duration::from_secs(60);

pub struct TestNamespace {
    pub client: Client,
    pub name: String,
}

/// A client that acts as `user`, or as the cluster's administrator.
pub async fn client(user: Option<&str>) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::infer()
        .await
        .expect("KUBECONFIG names the test cluster");
    config.auth_info.impersonate = user.map(str::to_owned);
    Client::try_from(config).unwrap()
}

impl TestNamespace {
    pub async fn new(name: &str) -> TestNamespace {
        let client = client(None).await;
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
        let api: Api<Namespace> = Api::all(client.clone());
        api.create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        TestNamespace {
            client,
            name: name.to_owned(),
        }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    pub async fn api_as<K>(&self, user: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(client(Some(user)).await, &self.name)
    }

    /// Lets a user do what a role of this namespace says.
    pub async fn allow(&self, user: &str, rules: Value) {
        let name = user.replace([':', '@'], ".");
        let role: Role =
            serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap();
        self.api::<Role>()
            .create(&PostParams::default(), &role)
            .await
            .unwrap();
        self.bind(user, "Role", &name).await;
    }

    pub async fn bind(&self, user: &str, kind: &str, role: &str) {
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"generateName": "test-"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }))
        .unwrap();
        self.api::<RoleBinding>()
            .create(&PostParams::default(), &binding)
            .await
            .unwrap();
    }

    pub async fn make_workspace(&self, name: &str, spec: Value) -> Workspace {
        let workspace = json!({
            "apiVersion": "mooring.dev/v1alpha1",
            "kind": "Workspace",
            "metadata": {"name": name},
            "spec": spec,
        });
        let params = PatchParams::apply("test");
        let api = self.api::<Workspace>();
        api.patch(name, &params, &Patch::Apply(workspace))
            .await
            .unwrap()
    }

    /// There is no kubelet: pods are said to be ready.
    pub async fn make_pods_ready(&self, workspace: &str) {
        for component in ["harness", "sandbox"] {
            let name = format!("{workspace}-{component}-0");
            let pods = self.api::<Pod>();
            eventually(&name, || async { pods.get_opt(&name).await.unwrap() }).await;
            let ready = json!({"status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            }});
            let params = PatchParams::default();
            pods.patch_status(&name, &params, &Patch::Merge(ready))
                .await
                .unwrap();
        }
    }

    /// Waits for `Ready` to have this reason at the Workspace's newest generation.
    pub async fn wait_for_reason(&self, workspace: &str, reason: &str) -> Workspace {
        let api = self.api::<Workspace>();
        eventually(&format!("{workspace} {reason}"), || async {
            let found = api.get_opt(workspace).await.unwrap()?;
            let status = found.status.clone()?;
            let ready = status.conditions.iter().find(|c| c.type_ == "Ready")?;
            (ready.reason == reason && ready.observed_generation == found.metadata.generation)
                .then_some(found)
        })
        .await
    }

    /// Waits for a condition to be true.
    pub async fn wait_for_true(&self, workspace: &str, type_: &str) -> Workspace {
        let api = self.api::<Workspace>();
        eventually(&format!("{workspace} {type_}"), || async {
            let found = api.get_opt(workspace).await.unwrap()?;
            let conditions = &found.status.as_ref()?.conditions;
            let condition = conditions.iter().find(|c| c.type_ == type_)?;
            (condition.status == "True").then_some(found)
        })
        .await
    }

    pub async fn delete(&self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(&self.name, &DeleteParams::background())
            .await
            .unwrap();
    }

    /// Resource versions of all objects of a kind, by name.
    pub async fn versions<K>(&self) -> BTreeMap<String, String>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let list = self.api::<K>().list(&Default::default()).await.unwrap();
        list.items
            .iter()
            .map(|o| (o.name_any(), o.resource_version().unwrap()))
            .collect()
    }
}

/// Asks again until there is an answer, at most [`LONG`].
pub async fn eventually<T, F, Fut>(what: &str, mut ask: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let end = Instant::now() + LONG;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
