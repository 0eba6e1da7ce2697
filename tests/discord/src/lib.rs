//! A Discord stand-in: a server on loopback that is as hard to please as Discord.
//!
//! It speaks the gateway (version 10) and the REST routes that a bot of threads
//! uses, holds Discord's limits, goes wrong on the wire by script, and keeps a
//! ledger of every request. It gives no field that Discord does not give: history
//! has no `nonce` and no `member`.
//!
//! Tests in Rust start it in their own process ([`StandIn::start`]) and act on its
//! [`World`](world::World); others start the program and use the control routes
//! (`control`).

pub mod act;
pub mod clock;
pub mod control;
pub mod fault;
pub mod gateway;
pub mod ledger;
mod limit;
pub mod permission;
mod rest;
mod serve;
mod show;
pub mod world;

pub use serve::{Shared, StandIn};
