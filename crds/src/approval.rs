//! The `Approval` resource: one call that waits for a person, and the decision.
//!
//! The harness's database is the authority; this object mirrors it and is one
//! more way to decide.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One call that waits for a person.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mooring.dev",
    version = "v1alpha1",
    kind = "Approval",
    namespaced,
    shortname = "apr",
    category = "mooring",
    status = "ApprovalStatus",
    derive = "PartialEq",
    doc = "A call of an agent that waits for a person's decision.",
    selectable = ".spec.request.workspaceRef.name",
    selectable = ".status.phase",
    printcolumn(
        name = "Workspace",
        type_ = "string",
        json_path = ".spec.request.workspaceRef.name"
    ),
    printcolumn(name = "Tool", type_ = "string", json_path = ".spec.request.tool"),
    printcolumn(
        name = "Summary",
        type_ = "string",
        json_path = ".spec.request.summary"
    ),
    printcolumn(
        name = "Requesters",
        type_ = "string",
        json_path = ".spec.request.requesters[*].name"
    ),
    printcolumn(
        name = "Expires",
        type_ = "string",
        json_path = ".spec.request.expiresAt"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalSpec {
    /// What is asked, as it was when it was asked. It cannot change.
    pub request: ApprovalRequest,
    /// The decision. It can be written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ApprovalDecision>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalRequest {
    /// The Workspace whose agent asks.
    pub workspace_ref: WorkspaceRef,
    /// The conversation's number.
    pub conversation: i64,
    /// The task of the call.
    pub task: i64,
    /// The tool's name.
    pub tool: String,
    /// The exact command or path, on one line.
    pub summary: String,
    /// The call's arguments as JSON, cut to size, with secrets masked.
    pub arguments: String,
    /// SHA-256 of the whole arguments, in hex: what is approved is this and nothing else.
    pub arguments_sha256: String,
    /// SHA-256 of the policy that asked, in hex.
    pub policy_digest: String,
    /// Table and pattern that asked (`bash: "git push*"`).
    pub rule: String,
    /// Whoever asked the agent for the work that led here.
    pub requesters: Vec<Requester>,
    /// Whether one of them may approve it.
    pub requester_may_approve: bool,
    /// When it expires (RFC 3339); absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A Workspace of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceRef {
    /// Its name.
    pub name: String,
}

/// Whoever asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requester {
    /// The name that people know.
    pub name: String,
    /// Discord's id of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discord_user_id: Option<String>,
    /// Their name in Kubernetes, where the Workspace's member entry has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_user: Option<String>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalDecision {
    /// Yes or no.
    pub verdict: DecisionVerdict,
    /// What it covers; this one call when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<DecisionScope>,
    /// Why; the model is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Kubernetes' name of whoever decided. The API server stamps it where it
    /// can; elsewhere the sender writes their own, and no other is admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
}

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DecisionVerdict {
    /// The call runs.
    Approved,
    /// It does not.
    Denied,
}

/// What a decision covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DecisionScope {
    /// This call.
    #[default]
    Once,
    /// The same kind of call in this conversation.
    Conversation,
    /// The same kind of call in the workspace.
    Workspace,
}

/// What became of it; written by the harness only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalStatus {
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ApprovalPhase>,
    /// Whose decision counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<Decider>,
    /// Through what it came (`kubernetes`, `discord`, `terminal`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// When it was decided (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<String>,
    /// Whether the approved call has been started; absent until that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<bool>,
}

/// Where an approval stands. All but `Pending` are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ApprovalPhase {
    /// It waits.
    Pending,
    /// It was approved.
    Approved,
    /// It was denied.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// The call or its rule changed; another approval takes its place, or none is needed.
    Superseded,
}

/// Whose decision counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Decider {
    /// Where the identity is known.
    pub kind: DeciderKind,
    /// The name that people know.
    pub name: String,
    /// The identity itself: a Kubernetes user name, a Discord id, a local name.
    pub id: String,
}

/// Where an identity is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeciderKind {
    /// In the cluster.
    Kubernetes,
    /// On Discord.
    Discord,
    /// At a terminal.
    Cli,
}
