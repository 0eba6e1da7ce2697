//! The real bot program between the Discord stand-in and a harness double, over
//! real sockets. Cases are those of `tests/cases/discord.md`, by their ids.
#![allow(clippy::unwrap_used, missing_docs)]

mod cards;
mod delivery;
mod double;
mod gateway;
mod intake;
mod settings;
mod soak;
mod stage;
