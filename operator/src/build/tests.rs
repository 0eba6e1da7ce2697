#![allow(clippy::unwrap_used)]

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::apply::holds;
use crate::validate::validate;

fn built(spec: &Value) -> Vec<Object> {
    let settings = settings();
    let names = Names {
        workspace: "platform".into(),
        namespace: "agents".into(),
    };
    let valid = validate(spec).unwrap();
    let owner = OwnerReference {
        uid: "u".into(),
        name: "platform".into(),
        ..Default::default()
    };
    objects(&Input {
        names: &names,
        owner: Some(&owner),
        valid: &valid,
        settings: &settings,
        api_servers: &[ApiServer {
            address: "10.0.0.1".parse().unwrap(),
            port: 6443,
        }],
        certificates: &Certificates::placeholder(),
    })
}

fn settings() -> Settings {
    Settings {
        namespace: "mooring-system".into(),
        watch_namespaces: Vec::new(),
        harness_image: "harness:1".into(),
        sandbox_image: "sandbox:1".into(),
        image_pull_secrets: vec!["registry".into()],
        private_destinations: vec!["10.1.2.0/24:443".parse().unwrap()],
        approval_days: 7,
        concurrency: 4,
        http: "127.0.0.1:0".parse().unwrap(),
    }
}

fn small() -> Value {
    json!({"models": [{"name": "main", "provider": "rehearsal"}]})
}

fn large() -> Value {
    json!({
        "models": [
            {"name": "main", "provider": "anthropic", "model": "m", "apiKeySecretRef": {"name": "model", "key": "a"}},
            {"name": "other", "provider": "openai", "model": "m", "apiKeySecretRef": {"name": "model", "key": "b"}},
        ],
        "sandbox": {
            "image": "mine:2", "runtimeClassName": "gvisor",
            "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "8Gi"}},
            "env": {"CI": "true"}, "outputBytes": 8192,
            "storage": {"size": "50Gi", "storageClassName": "fast", "accessMode": "ReadWriteOnce"},
        },
        "repo": {"url": "https://git.example.com/a/b.git", "credentialsSecretRef": {"name": "git"}},
        "runState": "Suspended",
        "deletionPolicy": "Delete",
    })
}

fn find(objects: &[Object], kind: Kind, name: &str) -> Value {
    objects
        .iter()
        .find(|o| o.kind == kind && o.name == name)
        .unwrap()
        .body
        .clone()
}

/// A field that Kubernetes does not know would be gone after this.
fn through<T: DeserializeOwned + Serialize>(body: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(body.clone()).unwrap()).unwrap()
}

#[test]
fn every_field_is_one_that_kubernetes_knows() {
    for object in built(&small()).into_iter().chain(built(&large())) {
        let typed = match object.kind {
            Kind::ServiceAccount => through::<ServiceAccount>(&object.body),
            Kind::Role => through::<Role>(&object.body),
            Kind::RoleBinding => through::<RoleBinding>(&object.body),
            Kind::Secret => through::<Secret>(&object.body),
            Kind::NetworkPolicy => through::<NetworkPolicy>(&object.body),
            Kind::Service => through::<Service>(&object.body),
            Kind::PodDisruptionBudget => through::<PodDisruptionBudget>(&object.body),
            Kind::StatefulSet => through::<StatefulSet>(&object.body),
        };
        assert!(
            holds("", &object.body, &typed),
            "{} {}: {typed:#}",
            object.kind.as_str(),
            object.name
        );
    }
}

#[test]
fn nothing_is_null_or_an_empty_list_but_the_way_out_of_a_sandbox() {
    fn check(path: &str, value: &Value) {
        match value {
            Value::Null => panic!("{path} is null"),
            Value::Array(list) => {
                assert!(
                    !list.is_empty() || path.ends_with(".egress"),
                    "{path} is empty"
                );
                list.iter().for_each(|item| check(path, item));
            }
            Value::Object(map) => map
                .iter()
                .for_each(|(k, v)| check(&format!("{path}.{k}"), v)),
            _ => {}
        }
    }
    for object in built(&small()).into_iter().chain(built(&large())) {
        check(object.kind.as_str(), &object.body);
    }
}

#[test]
fn the_same_workspace_makes_the_same_objects() {
    assert_eq!(built(&large()), built(&large()));
}

#[test]
fn policies_and_secrets_come_before_pods() {
    let objects = built(&small());
    let last_other = objects
        .iter()
        .rposition(|o| o.kind != Kind::StatefulSet)
        .unwrap();
    let first_pod = objects
        .iter()
        .position(|o| o.kind == Kind::StatefulSet)
        .unwrap();
    assert!(last_other < first_pod);
}

#[test]
fn every_pod_passes_pod_security_restricted() {
    for component in COMPONENTS {
        let name = format!("platform-{}", component.as_str());
        let set = find(&built(&small()), Kind::StatefulSet, &name);
        let pod = &set["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        assert_eq!(pod["automountServiceAccountToken"], false);
        for container in pod["containers"].as_array().unwrap() {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false);
            assert_eq!(security["readOnlyRootFilesystem"], true);
            assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
        }
        for volume in pod["volumes"].as_array().unwrap() {
            let kinds = ["secret", "emptyDir", "projected"];
            assert!(
                kinds.iter().any(|kind| volume.get(kind).is_some()),
                "{volume}"
            );
        }
    }
}

#[test]
fn registry_credentials_reach_both_pods() {
    for component in COMPONENTS {
        let name = format!("platform-{}", component.as_str());
        let set = find(&built(&small()), Kind::StatefulSet, &name);
        assert_eq!(
            set["spec"]["template"]["spec"]["imagePullSecrets"],
            json!([{"name": "registry"}])
        );
    }
}

#[test]
fn the_sandbox_has_no_way_out_and_no_token() {
    let objects = built(&small());
    let policy = find(&objects, Kind::NetworkPolicy, "platform-sandbox");
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["spec"]["egress"], json!([]));
    let set = find(&objects, Kind::StatefulSet, "platform-sandbox");
    let text = set.to_string();
    assert!(!text.contains("serviceAccountToken\":{"), "{text}");
    assert!(
        !objects
            .iter()
            .any(|o| o.kind == Kind::RoleBinding && o.name.ends_with("sandbox"))
    );
}

#[test]
fn the_harness_reaches_the_outside_without_private_networks() {
    let policy = find(&built(&small()), Kind::NetworkPolicy, "platform-harness");
    let blocks: Vec<String> = policy["spec"]["egress"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|rule| rule["to"].as_array().unwrap())
        .filter_map(|to| to["ipBlock"]["cidr"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(blocks, ["0.0.0.0/0", "::/0", "10.0.0.1/32", "10.1.2.0/24"]);
    let except = policy["spec"]["egress"][2]["to"][0]["ipBlock"]["except"].to_string();
    for private in [
        "10.0.0.0/8",
        "169.254.0.0/16",
        "192.168.0.0/16",
        "172.16.0.0/12",
    ] {
        assert!(except.contains(private), "{private}");
    }
}

#[test]
fn each_referenced_secret_is_mounted_once_and_whole() {
    let set = find(&built(&large()), Kind::StatefulSet, "platform-harness");
    let pod = &set["spec"]["template"]["spec"];
    let keys: Vec<_> = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|volume| {
            let name = &volume["secret"]["secretName"];
            name == "model" || name == "git"
        })
        .collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0]["secret"]["optional"], true);
    assert!(!pod.to_string().contains("subPath"));
}

#[test]
fn the_harness_is_told_what_private_networks_it_may_reach() {
    let set = find(&built(&small()), Kind::StatefulSet, "platform-harness");
    let args = &set["spec"]["template"]["spec"]["containers"][0]["args"];
    let told = json!(["cluster", "--private-destination=10.1.2.0/24:443"]);
    assert_eq!(*args, told);
}

#[test]
fn what_a_workspace_says_of_its_sandbox_is_done() {
    let set = find(&built(&large()), Kind::StatefulSet, "platform-sandbox");
    assert_eq!(set["spec"]["replicas"], 0);
    assert_eq!(
        set["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"],
        "Delete"
    );
    let claim = &set["spec"]["volumeClaimTemplates"][0]["spec"];
    assert_eq!(claim["resources"]["requests"]["storage"], "50Gi");
    assert_eq!(claim["storageClassName"], "fast");
    assert_eq!(claim["accessModes"], json!(["ReadWriteOnce"]));
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["runtimeClassName"], "gvisor");
    assert_eq!(pod["containers"][0]["image"], "mine:2");
    let args = pod["containers"][0]["args"].to_string();
    for said in [
        "--harness=harness.platform.agents.mooring.internal",
        "--env=CI=true",
        "--output-bytes=8192",
    ] {
        assert!(args.contains(said), "{said}: {args}");
    }
    assert_eq!(
        pod["containers"][0]["resources"]["requests"],
        json!({"cpu": "2", "memory": "256Mi"})
    );
    assert_eq!(
        pod["containers"][0]["resources"]["limits"],
        json!({"memory": "8Gi"})
    );
}
