//! The `Workspace` and `Approval` types of Mooring: what a platform team writes,
//! and what people decide.
//!
//! The same `Workspace` is read from a YAML file by `mooring dev` and from the API
//! server in a cluster. A field is here only when its feature is built.

// Every printer column of kube's derive has a name and a type.
#![allow(clippy::duplicated_attributes)]

pub mod approval;
pub mod cluster;
pub mod destination;
pub mod discord;
pub mod duration;
pub mod egress;
pub mod mcp;
pub mod policy;
pub mod read;
pub mod render;
pub mod schema;
pub mod status;
pub mod validate;
pub mod workspace;

pub use approval::{
    Approval, ApprovalDecision, ApprovalPhase, ApprovalRequest, ApprovalSpec, ApprovalStatus,
    Decider, DeciderKind, DecisionScope, DecisionVerdict, Requester, WorkspaceRef,
};
pub use cluster::{AccessMode, DeletionPolicy, HarnessSpec, Resources, RunState, Storage};
pub use destination::Destination;
pub use discord::{Answer, Attachments, DiscordSpec, RespondTo, WhenBusy};
pub use egress::{EgressLimits, EgressVerification};
pub use mcp::{McpReplay, McpServer};
pub use policy::{Policy, PolicyTest, Verdict};
pub use read::{ReadError, read_workspace};
pub use render::{GeneratedFile, generated_files};
pub use schema::{APPROVAL_RULES, Rule, WORKSPACE_RULES, approval_crd, workspace_crd};
pub use status::{Phase, UsageToday, WorkspaceStatus, condition};
pub use validate::{Problem, https_form, validate, validate_in_cluster};
pub use workspace::{
    Approvals, Budgets, Member, ModelSpec, PerRunBudget, Price, Provider, Repo, Retention, Role,
    SandboxSpec, SecretKeyRef, SecretRef, Thinking, Workspace, WorkspaceSpec, Worktrees,
};
