//! The durable engine: one SQLite file, one owner, one line of commits.

pub mod clock;
mod engine;
pub mod error;
pub mod gate;
pub mod id;
pub mod ledger;
pub mod message;
pub mod model;
pub mod prompt;
pub mod submission;
pub mod tool;
pub mod view;

pub use engine::{Approvals, Component, Durability, Engine, Options, Ports};
