//! An object to be applied.

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Input;
use crate::names::Component;

/// The annotation with the digest of what the operator last wanted of an object:
/// where it differs, fields that are no longer wanted are taken out.
pub const WANTED: &str = "mooring.dev/wanted";

/// The kinds that the operator makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Kind {
    ServiceAccount,
    Role,
    RoleBinding,
    Secret,
    NetworkPolicy,
    Service,
    PodDisruptionBudget,
    StatefulSet,
}

impl Kind {
    /// Kubernetes' name of it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::ServiceAccount => "ServiceAccount",
            Kind::Role => "Role",
            Kind::RoleBinding => "RoleBinding",
            Kind::Secret => "Secret",
            Kind::NetworkPolicy => "NetworkPolicy",
            Kind::Service => "Service",
            Kind::PodDisruptionBudget => "PodDisruptionBudget",
            Kind::StatefulSet => "StatefulSet",
        }
    }

    /// When it is applied: all of one step together, each step after the former. A
    /// binding needs its role, and a pod all the rest.
    pub fn step(self) -> u8 {
        match self {
            Kind::ServiceAccount
            | Kind::Role
            | Kind::Secret
            | Kind::NetworkPolicy
            | Kind::Service
            | Kind::PodDisruptionBudget => 0,
            Kind::RoleBinding => 1,
            Kind::StatefulSet => 2,
        }
    }

    /// Its API group, empty for the core one.
    pub fn group(self) -> &'static str {
        match self {
            Kind::ServiceAccount | Kind::Secret | Kind::Service => "",
            Kind::Role | Kind::RoleBinding => "rbac.authorization.k8s.io",
            Kind::NetworkPolicy => "networking.k8s.io",
            Kind::PodDisruptionBudget => "policy",
            Kind::StatefulSet => "apps",
        }
    }

    /// How it is addressed.
    pub fn resource(self) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(self.group(), "v1", self.as_str()))
    }
}

/// An object to be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The name of the workspace that it belongs to.
    pub workspace: String,
    /// The whole of it, as it is sent.
    pub body: Value,
}

impl Object {
    /// Puts type, names, labels, owner and digest around `rest` (`spec`, `rules`, …).
    pub(super) fn new(
        input: &Input<'_>,
        component: Component,
        kind: Kind,
        name: String,
        rest: Value,
    ) -> Object {
        let resource = kind.resource();
        let mut body = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": name,
                "namespace": input.names.namespace,
                "labels": input.names.labels(component),
            },
        });
        if let Some(owner) = input.owner {
            body["metadata"]["ownerReferences"] = json!([owner]);
        }
        let object = body.as_object_mut().expect("it was made as an object");
        if let Value::Object(rest) = rest {
            object.extend(rest);
        }
        let digest = hex::encode(Sha256::digest(body.to_string()));
        body["metadata"]["annotations"] = json!({ WANTED: digest });
        Object {
            kind,
            name,
            namespace: input.names.namespace.clone(),
            workspace: input.names.workspace.clone(),
            body,
        }
    }
}
