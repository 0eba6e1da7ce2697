//! The `Workspace` type of Mooring: what a platform team writes.
//!
//! The same type is read from a YAML file by `mooring dev` and from the API
//! server in a cluster. A field is here only when its feature is built.

pub mod duration;
pub mod policy;
pub mod read;
pub mod validate;
pub mod workspace;

pub use policy::{Policy, PolicyTest, Verdict};
pub use read::{ReadError, read_workspace};
pub use validate::{Problem, validate};
pub use workspace::{
    Approvals, Budgets, Member, ModelSpec, PerRunBudget, Price, Provider, Repo, Role, SandboxSpec,
    SecretKeyRef, Thinking, Workspace, WorkspaceSpec,
};
