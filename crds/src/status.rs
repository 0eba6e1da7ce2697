//! What is known of a Workspace: its status, and the conditions' names.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The names of a Workspace's conditions. Their reasons are stable: alerts and
/// scripts may compare them.
pub mod condition {
    /// The summary: spec accepted, harness and sandbox ready, egress denied, policy in force.
    pub const READY: &str = "Ready";
    /// Something is on its way to what the spec says (kstatus).
    pub const RECONCILING: &str = "Reconciling";
    /// Nothing will move before a person acts (kstatus).
    pub const STALLED: &str = "Stalled";
    /// The spec is valid. While it is not, what was running keeps running on the last good one.
    pub const ACCEPTED: &str = "Accepted";
    /// The harness answers and has the keys that its models take.
    pub const HARNESS_READY: &str = "HarnessReady";
    /// The harness reaches the sandbox, and the repository is checked out there.
    pub const SANDBOX_READY: &str = "SandboxReady";
    /// The bot serves the workspace's channel; written by the bot.
    pub const DISCORD_READY: &str = "DiscordReady";
    /// A probe has found that the sandbox reaches nothing.
    pub const EGRESS_DENIED: &str = "EgressDenied";
    /// The harness decides by the policy of this generation.
    pub const POLICY_LOADED: &str = "PolicyLoaded";
}

/// What is known of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceStatus {
    /// The generation that the rest speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for people; programs read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// What holds and what does not, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// Approvals that wait for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_approvals: Option<u32>,
    /// SHA-256 (hex) of the policy by which the harness decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_digest: Option<String>,
    /// Conversations there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversations: Option<u64>,
    /// What was spent since midnight UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageToday>,
    /// Where the harness serves, inside the cluster (`HOST:PORT`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

/// What a workspace has spent since midnight UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageToday {
    /// US dollars, as a decimal string; models without a known price count nothing.
    pub cost_usd: String,
    /// Input and output tokens together.
    pub tokens: u64,
}

/// One word for a workspace's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// On its way up, or to a new spec.
    Progressing,
    /// Up.
    Ready,
    /// Scaled to zero on request.
    Suspended,
    /// It waits for a person.
    Stalled,
    /// On its way out.
    Deleting,
}

/// Kubernetes' own schema of conditions, as a map by type.
fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768}
            }
        }
    })
}
