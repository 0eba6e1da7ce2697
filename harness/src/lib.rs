//! The harness: one process per workspace. It holds the keys and the one SQLite
//! file, and runs no command itself.
//!
//! It binds the engine (`mooring-durable`) to models ([`model`]), the policy
//! (`gate`), the sandbox (`sandbox`, `tools`, `extension`), the world (`boundary`), the Workspace ([`workspace`]),
//! its own records (`record`, `books`) and its callers (`service`), and runs on
//! one machine (`run`) or in a cluster ([`cluster`]).

mod assembly;
mod books;
pub mod boundary;
mod budget;
mod card;
mod clients;
pub mod cluster;
mod error;
mod extension;
mod first_checkout;
mod gate;
pub mod git;
mod mcp;
mod members;
mod metrics;
pub mod model;
pub mod record;
mod retention;
mod run;
mod sandbox;
mod service;
mod tools;
pub mod workspace;

pub use error::Error;
pub use run::{Launch, run};
pub use sandbox::Remote;
pub use workspace::default_workspace;
