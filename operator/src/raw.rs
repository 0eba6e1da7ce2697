//! A Workspace as it comes from the API server, before anybody reads its spec.
//!
//! A typed watch stops at the first object that does not parse, and with it the
//! watch of all others. So the watch carries this, and each spec is read by itself.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use mooring_crds::Workspace;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::names::Names;

/// A Workspace whose spec and status nobody has read yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawWorkspace {
    /// `mooring.dev/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `Workspace`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, generation, …
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What somebody wrote.
    #[serde(default)]
    pub spec: Value,
    /// What the operator and others said of it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub status: Value,
}

impl Resource for RawWorkspace {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(dt: &()) -> Cow<'_, str> {
        Workspace::kind(dt)
    }
    fn group(dt: &()) -> Cow<'_, str> {
        Workspace::group(dt)
    }
    fn version(dt: &()) -> Cow<'_, str> {
        Workspace::version(dt)
    }
    fn plural(dt: &()) -> Cow<'_, str> {
        Workspace::plural(dt)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl RawWorkspace {
    /// What belongs to it is named after it.
    pub fn names(&self) -> Names {
        Names {
            workspace: self.name_any(),
            namespace: self.namespace().unwrap_or_default(),
        }
    }

    /// The reference by which objects are its own, and go when it goes.
    pub fn owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: Workspace::api_version(&()).into_owned(),
            kind: Workspace::kind(&()).into_owned(),
            name: self.name_any(),
            uid: self.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }
}
