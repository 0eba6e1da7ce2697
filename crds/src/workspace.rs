//! The `Workspace` resource: one project, its agent, its people and its rules.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::{DeletionPolicy, HarnessSpec, Resources, RunState, Storage};
use crate::discord::DiscordSpec;
use crate::egress::{EgressLimits, EgressVerification};
use crate::mcp::McpServer;
use crate::policy::Policy;
use crate::status::WorkspaceStatus;

/// What a platform team wants of one workspace.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mooring.dev",
    version = "v1alpha1",
    kind = "Workspace",
    namespaced,
    shortname = "ws",
    category = "mooring",
    status = "WorkspaceStatus",
    doc = "A project, its agent, the people who may talk to it and the rules it keeps to.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.models[0].name"),
    printcolumn(
        name = "Pending",
        type_ = "integer",
        json_path = ".status.pendingApprovals"
    ),
    printcolumn(name = "Spent", type_ = "string", json_path = ".status.usage.costUsd"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WorkspaceSpec {
    /// The repository that the agent works on. Without it the project is empty,
    /// or the current folder under `mooring dev`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo: Option<Repo>,
    /// Its place in Discord. Without it the bot does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discord: Option<DiscordSpec>,
    /// Models by name; the first is the default.
    pub models: Vec<ModelSpec>,
    /// Told to the model at the start of each conversation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// Who may do what.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// The rules that decide each call.
    pub policy: Policy,
    /// How approvals are asked.
    pub approvals: Approvals,
    /// What a run may spend.
    pub budgets: Budgets,
    /// Servers whose tools the agent may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp: Vec<McpServer>,
    /// How long records are kept.
    #[serde(skip_serializing_if = "Retention::is_default")]
    pub retention: Retention,
    /// Where commands run.
    pub sandbox: SandboxSpec,
    /// The pod that holds conversations and credentials, in a cluster.
    pub harness: HarnessSpec,
    /// Whether its pods run, in a cluster.
    #[serde(skip_serializing_if = "RunState::is_default")]
    pub run_state: RunState,
    /// What happens to its volumes when it is deleted, in a cluster.
    #[serde(skip_serializing_if = "DeletionPolicy::is_default")]
    pub deletion_policy: DeletionPolicy,
}

/// A git repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repo {
    /// Its `https` address. Commands fetch from it and push to it through the
    /// harness, which alone has the credential. Without it only `worktrees` is said,
    /// of the repository that `mooring dev` runs in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Branch, tag or commit; the remote's default branch when absent.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The Secret with its credential, in a cluster: `username` and `password`, or
    /// `token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
    /// Whether the first clone leaves file contents out until they are needed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial_clone: bool,
    /// Addresses of other repositories that commands may fetch from, and never push
    /// to; they get the same credential where they are on the same host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_fetch: Vec<String>,
    /// Whether each conversation has a checkout of its own.
    #[serde(default, skip_serializing_if = "Worktrees::is_default")]
    pub worktrees: Worktrees,
}

/// Which files a conversation works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Worktrees {
    /// All on the one checkout.
    #[default]
    Shared,
    /// Each on a git worktree of its own, on its branch `mooring/<conversation>`.
    PerThread,
}

impl Worktrees {
    /// Whether this is what an absent field means.
    pub fn is_default(&self) -> bool {
        *self == Worktrees::Shared
    }
}

impl WorkspaceSpec {
    /// Which files a conversation works on.
    pub fn worktrees(&self) -> Worktrees {
        self.repo
            .as_ref()
            .map_or(Worktrees::Shared, |repo| repo.worktrees)
    }
}

/// A Secret in the Workspace's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRef {
    /// The Secret's name.
    pub name: String,
}

/// One model that conversations may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelSpec {
    /// The name people choose it by.
    pub name: String,
    /// Whose wire it speaks.
    pub provider: Provider,
    /// The provider's name of it; the rehearsal provider takes the path of a
    /// script here, or nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Base address, for an OpenAI-compatible server or a stand-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Environment variable of the key, under `mooring dev`; by default the
    /// provider's usual one (`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, …).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Secret that holds the key, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_secret_ref: Option<SecretKeyRef>,
    /// How much the model thinks before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Tokens that its context holds; the built-in table's value when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Tokens that one answer may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// What it costs; the built-in table's value when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// US dollars per million tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Price {
    /// Of input.
    pub input: f64,
    /// Of input read from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<f64>,
    /// Of output.
    pub output: f64,
}

/// Whose wire a model speaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Anthropic's messages.
    Anthropic,
    /// OpenAI's chat completions, and every server that is compatible.
    OpenAI,
    /// Google's Gemini (untested).
    Gemini,
    /// Groq (untested).
    Groq,
    /// xAI (untested).
    Xai,
    /// DeepSeek (untested).
    DeepSeek,
    /// A local Ollama (untested).
    Ollama,
    /// No language model: plays a script, or does plainly what the message says.
    Rehearsal,
}

/// How much a model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Thinking {
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

/// One key of a Secret in the Workspace's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretKeyRef {
    /// The Secret's name.
    pub name: String,
    /// Its key.
    pub key: String,
}

/// A person, or all who hold a Discord role, with what they may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    /// A Discord role's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discord_role_id: Option<String>,
    /// A Discord user's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discord_user_id: Option<String>,
    /// The same person's name in Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_user: Option<String>,
    /// What they may do.
    pub role: Role,
}

/// What a member may do; each role may also do what the ones before it may.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Role {
    /// Talk, steer, stop and queue own runs.
    User,
    /// Decide approvals, grant for a conversation.
    Approver,
    /// Stop others' runs, choose the model, grant for the workspace.
    Maintainer,
}

/// How approvals are asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Approvals {
    /// How long one stays open (`4h`, `30m`, `1d`); `never` keeps it open.
    pub timeout: String,
    /// Whether who asked may also approve.
    pub requester_may_approve: bool,
}

impl Default for Approvals {
    fn default() -> Self {
        Approvals {
            timeout: "4h".into(),
            requester_may_approve: false,
        }
    }
}

/// How long records are kept. What is absent is kept for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Retention {
    /// What belongs to transcripts beside what was said: ended tasks with their requests,
    /// settled submissions, revisions of documents that no entry needs; `90d`. What was
    /// said is kept until its conversation is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transcripts: Option<String>,
    /// Rows of the audit; `365d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<String>,
}

impl Retention {
    fn is_default(&self) -> bool {
        *self == Retention::default()
    }
}

/// What may be spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Budgets {
    /// By one run.
    pub per_run: PerRunBudget,
}

/// What one run may spend; an absent limit is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PerRunBudget {
    /// Model responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u32>,
    /// Input and output tokens together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// US dollars, as a decimal string (`"2.50"`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<String>,
    /// Model and tool time (`30m`), without waiting for people and downtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_time: Option<String>,
}

/// Where commands run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SandboxSpec {
    /// Environment of commands, beside what the daemon sets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Paths of the host that commands may read, under `mooring dev`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<String>,
    /// Bytes of output kept whole for one command (64 MiB when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// Certificates of authorities (PEM) that commands trust beside the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// What a sandbox that is not proved to have no network means for tools.
    #[serde(skip_serializing_if = "EgressVerification::is_default")]
    pub egress_verification: EgressVerification,
    /// Bounds of the connections that the policy's egress table allows.
    #[serde(skip_serializing_if = "EgressLimits::is_default")]
    pub egress_limits: EgressLimits,
    /// Image of its pod, in a cluster; the installation's default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// CPU and memory of its pod, in a cluster.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// The volume of the project, in a cluster.
    #[serde(skip_serializing_if = "Storage::is_empty")]
    pub storage: Storage,
    /// Runtime class of its pod (gVisor, Kata), in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
}
