//! The parts of a Workspace that only a cluster uses: volumes, resources, and
//! whether its pods run. `mooring dev` reads past them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The pod that holds conversations, policy and credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HarnessSpec {
    /// Its CPU and memory.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// The volume of its database.
    #[serde(skip_serializing_if = "Storage::is_empty")]
    pub storage: Storage,
}

/// CPU and memory of a pod's container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Resources {
    /// What is kept free for it, by resource name (`cpu: 100m`, `memory: 128Mi`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// What it may use at most.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

impl Resources {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.limits.is_empty()
    }
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Storage {
    /// Its size (`10Gi`); it may only grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Its storage class; the cluster's default when absent. It cannot change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// How it may be mounted. It cannot change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
}

impl Storage {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Storage::default()
    }
}

/// How a volume may be mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    /// By one pod: no second one can open it, whatever goes wrong.
    #[default]
    ReadWriteOncePod,
    /// By the pods of one node, for drivers without the former.
    ReadWriteOnce,
}

impl AccessMode {
    /// Kubernetes' name of it.
    pub fn as_str(self) -> &'static str {
        match self {
            AccessMode::ReadWriteOncePod => "ReadWriteOncePod",
            AccessMode::ReadWriteOnce => "ReadWriteOnce",
        }
    }
}

/// Whether a workspace's pods run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RunState {
    /// They do.
    #[default]
    Running,
    /// They do not; volumes stay, and what was committed continues on resume.
    Suspended,
}

impl RunState {
    /// Whether this is what an absent field means.
    pub fn is_default(&self) -> bool {
        *self == RunState::Running
    }
}

/// What happens to a workspace's volumes when it is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They stay; a Workspace of the same name takes them up again.
    #[default]
    Retain,
    /// They are deleted.
    Delete,
}

impl DeletionPolicy {
    /// Whether this is what an absent field means.
    pub fn is_default(&self) -> bool {
        *self == DeletionPolicy::Retain
    }
}
