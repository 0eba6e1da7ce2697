//! The operator of Mooring: it brings each Workspace up in a cluster and keeps it so.
//!
//! One pass over a Workspace, in [`controller`]:
//! [`observe`] what is there → [`validate`] the spec into values that cannot be
//! wrong → [`build`] the objects (pure, cannot fail) → [`apply`] what differs →
//! [`conclude`] what holds now (pure) → one status write, only if it differs.

pub mod apply;
pub mod approvals;
pub mod authority;
pub mod bot_secret;
pub mod build;
pub mod check;
pub mod conclude;
pub mod controller;
pub mod dry_run;
pub mod error;
pub mod growth;
pub mod harness;
pub mod metrics;
pub mod names;
pub mod observe;
pub mod quantity;
pub mod raw;
pub mod run;
pub mod settings;
pub mod validate;

pub use error::{Category, Error};
pub use settings::Settings;
