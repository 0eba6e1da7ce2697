//! The harness in a pod of its own: Workspace and keys from the cluster, callers
//! and sandbox over mutual TLS, health and metrics over HTTP.

mod approval_object;
mod approvals;
mod caller;
mod health;
mod run;
mod secrets;
mod settings;
mod surroundings;
mod workspace;

pub use caller::Caller;
pub use run::run;
pub use settings::Settings;
