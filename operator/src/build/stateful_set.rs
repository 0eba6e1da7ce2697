//! StatefulSet: one pod with one volume.

use std::collections::{BTreeMap, BTreeSet};

use mooring_crds::{DeletionPolicy, Resources, RunState, Storage};
use serde_json::{Map, Value, json};

use super::{Input, Kind, Object, pod};
use crate::names::{Component, GRPC_PORT, HTTP_PORT};

/// The size of the harness's volume where a Workspace names none.
pub const HARNESS_SIZE: &str = "2Gi";
/// The size of the sandbox's volume where a Workspace names none.
pub const SANDBOX_SIZE: &str = "10Gi";

const DATA: &str = "/var/lib/mooring";
const TLS: &str = "/etc/mooring/tls";
const KEYS: &str = "/etc/mooring/keys";

pub(super) fn build(input: &Input<'_>, component: Component) -> Object {
    let spec = &input.valid.spec;
    let names = input.names;
    let replicas = match spec.run_state {
        RunState::Running => 1,
        RunState::Suspended => 0,
    };
    let volumes_on_delete = match spec.deletion_policy {
        DeletionPolicy::Retain => "Retain",
        DeletionPolicy::Delete => "Delete",
    };
    let mut template = match component {
        Component::Harness => harness_pod(input),
        Component::Sandbox => sandbox_pod(input),
    };
    template["serviceAccountName"] = json!(names.of(component));
    template["enableServiceLinks"] = json!(false);
    template["securityContext"] = pod::security();
    template["terminationGracePeriodSeconds"] = json!(30);
    if !input.settings.image_pull_secrets.is_empty() {
        let named = input.settings.image_pull_secrets.iter();
        template["imagePullSecrets"] = named.map(|name| json!({"name": name})).collect();
    }
    let rest = json!({"spec": {
        "replicas": replicas,
        "serviceName": names.of(component),
        "podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": volumes_on_delete,
            "whenScaled": "Retain",
        },
        "selector": {"matchLabels": names.selector(component)},
        "template": {
            "metadata": {"labels": names.labels(component)},
            "spec": template,
        },
        "volumeClaimTemplates": [claim(input, component)],
    }});
    Object::new(
        input,
        component,
        Kind::StatefulSet,
        names.of(component),
        rest,
    )
}

fn storage<'a>(input: &'a Input<'_>, component: Component) -> (&'a Storage, &'static str) {
    match component {
        Component::Harness => (&input.valid.spec.harness.storage, HARNESS_SIZE),
        Component::Sandbox => (&input.valid.spec.sandbox.storage, SANDBOX_SIZE),
    }
}

fn claim(input: &Input<'_>, component: Component) -> Value {
    let (storage, size) = storage(input, component);
    let mut spec = json!({
        "accessModes": [storage.access_mode.unwrap_or_default().as_str()],
        "resources": {"requests": {"storage": storage.size.as_deref().unwrap_or(size)}},
    });
    if let Some(class) = &storage.storage_class_name {
        spec["storageClassName"] = json!(class);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "labels": input.names.selector(component)},
        "spec": spec,
    })
}

/// The given resources over the defaults, as they stand in a container.
fn resources(given: &Resources, requests: [(&str, &str); 2], memory: &str) -> Value {
    let over =
        |defaults: &[(&str, &str)], given: &BTreeMap<String, String>| -> Map<String, Value> {
            let mut all: BTreeMap<String, String> = defaults
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect();
            all.extend(given.clone());
            all.into_iter().map(|(k, v)| (k, json!(v))).collect()
        };
    json!({
        "requests": over(&requests, &given.requests),
        "limits": over(&[("memory", memory)], &given.limits),
    })
}

fn harness_pod(input: &Input<'_>) -> Value {
    let spec = &input.valid.spec;
    // Whole Secrets, without subPath: a rotated key arrives in the running pod. A
    // missing one keeps nobody from starting; the harness names it.
    let git = spec
        .repo
        .as_ref()
        .and_then(|repo| repo.credentials_secret_ref.as_ref());
    let secrets: BTreeSet<&str> = spec
        .models
        .iter()
        .filter_map(|model| model.api_key_secret_ref.as_ref())
        .map(|reference| reference.name.as_str())
        .chain(git.map(|reference| reference.name.as_str()))
        .chain(
            spec.mcp
                .iter()
                .filter_map(|server| server.headers_secret_ref.as_ref())
                .map(|reference| reference.name.as_str()),
        )
        .collect();
    let mut mounts = vec![
        json!({"name": "data", "mountPath": DATA}),
        json!({"name": "tls", "mountPath": TLS, "readOnly": true}),
        json!({"name": "tmp", "mountPath": "/tmp"}),
        json!({"name": "api", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}),
    ];
    let mut volumes = vec![
        json!({"name": "tls", "secret": {"secretName": input.names.tls_secret(Component::Harness)}}),
        json!({"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}}),
        json!({"name": "api", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]}}),
    ];
    for (index, secret) in secrets.into_iter().enumerate() {
        let name = format!("keys-{index}");
        mounts
            .push(json!({"name": name, "mountPath": format!("{KEYS}/{secret}"), "readOnly": true}));
        volumes.push(json!({"name": name, "secret": {"secretName": secret, "optional": true}}));
    }
    let mut args = vec!["cluster".to_owned()];
    args.extend(
        (input.settings.private_destinations.iter())
            .map(|destination| format!("--private-destination={destination}")),
    );
    let sandbox = format!("{}:{GRPC_PORT}", input.names.host(Component::Sandbox));
    json!({
        "automountServiceAccountToken": false,
        "containers": [{
            "name": "harness",
            "image": input.settings.harness_image,
            "imagePullPolicy": "IfNotPresent",
            "args": args,
            "env": [
                {"name": "MOORING_WORKSPACE", "value": input.names.workspace},
                {"name": "MOORING_NAMESPACE", "value": input.names.namespace},
                {"name": "MOORING_INSTALLATION", "value": input.settings.namespace},
                {"name": "MOORING_DATA", "value": DATA},
                {"name": "MOORING_KEYS", "value": KEYS},
                {"name": "MOORING_TLS", "value": TLS},
                {"name": "MOORING_SANDBOX", "value": sandbox},
                {"name": "MOORING_LISTEN", "value": format!("0.0.0.0:{GRPC_PORT}")},
                {"name": "MOORING_HTTP", "value": format!("0.0.0.0:{HTTP_PORT}")},
                // Else the C library keeps what a few long inputs took, for good.
                {"name": "MALLOC_MMAP_THRESHOLD_", "value": "131072"},
                {"name": "MALLOC_TRIM_THRESHOLD_", "value": "131072"},
                {"name": "MALLOC_ARENA_MAX", "value": "2"},
            ],
            "ports": [
                {"name": "grpc", "containerPort": GRPC_PORT, "protocol": "TCP"},
                {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            ],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 1},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "failureThreshold": 6},
            "resources": resources(&spec.harness.resources, [("cpu", "50m"), ("memory", "128Mi")], "1Gi"),
            "securityContext": pod::container_security(),
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
    })
}

fn sandbox_pod(input: &Input<'_>) -> Value {
    let sandbox = &input.valid.spec.sandbox;
    let image = sandbox
        .image
        .as_deref()
        .unwrap_or(&input.settings.sandbox_image);
    let mut args: Vec<String> = [
        "pod",
        "--project",
        "/work/project",
        "--state",
        "/work/state",
        "--home",
        "/work/home",
        "--certificates",
        TLS,
    ]
    .map(str::to_owned)
    .into();
    args.push(format!("--listen=0.0.0.0:{GRPC_PORT}"));
    args.push(format!(
        "--harness={}",
        input.names.identity(Component::Harness)
    ));
    if sandbox.egress_verification.is_warn() {
        args.push("--egress-warn".to_owned());
    }
    if let Some(bytes) = sandbox.output_bytes {
        args.push(format!("--output-bytes={bytes}"));
    }
    // The kubelet would put variables into `$(NAME)`; `$$` is a plain dollar to it.
    args.extend(
        sandbox
            .env
            .iter()
            .map(|(name, value)| format!("--env={name}={}", value.replace('$', "$$"))),
    );
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "containers": [{
            "name": "sandbox",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "args": args,
            "ports": [{"name": "grpc", "containerPort": GRPC_PORT, "protocol": "TCP"}],
            "readinessProbe": {"tcpSocket": {"port": "grpc"}, "periodSeconds": 1},
            "resources": resources(&sandbox.resources, [("cpu", "100m"), ("memory", "256Mi")], "4Gi"),
            "securityContext": pod::container_security(),
            "volumeMounts": [
                {"name": "data", "mountPath": "/work/project", "subPath": "project"},
                {"name": "data", "mountPath": "/work/home", "subPath": "home"},
                {"name": "data", "mountPath": "/work/state", "subPath": "state"},
                {"name": "data", "mountPath": "/work/threads", "subPath": "threads"},
                {"name": "tls", "mountPath": TLS, "readOnly": true},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }],
        "volumes": [
            {"name": "tls", "secret": {"secretName": input.names.tls_secret(Component::Sandbox)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}},
        ],
    });
    if let Some(class) = &sandbox.runtime_class_name {
        pod["runtimeClassName"] = json!(class);
    }
    pod
}
