//! The durable engine: one SQLite file, one owner, one line of commits.

#![deny(unsafe_code)] // but for `store/handle.rs`, which says why

pub mod boundary;
mod classify;
pub mod clock;
pub mod compaction;
mod consent;
mod context;
mod conversation;
mod debts;
mod decoder;
pub mod document;
mod engine;
pub mod error;
pub mod extension;
pub mod fork;
pub mod gate;
pub mod hook;
mod hub;
pub mod id;
pub mod ledger;
pub mod message;
pub mod model;
pub mod on_the_way;
mod ownership;
pub mod prompt;
mod read;
mod reading;
mod recovery;
mod registry;
pub mod retention;
pub mod retry;
mod schema;
mod section;
mod session;
mod sql;
mod store;
mod streams;
pub mod submission;
mod timers;
pub mod tool;
pub mod transfer;
pub mod view;
pub mod wait;
pub mod window;
pub mod write;

pub use engine::{Approvals, Component, Durability, Engine, Options, Ports};
pub use reading::Rebuilt;
pub use sql::{
    attempt::Attempt,
    conversation::{Origin, Owner},
    entry::Edit,
};
pub use store::failpoint::COMMITS;
