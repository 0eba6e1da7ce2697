//! Servers of the Model Context Protocol: their tools are offered beside the built-in
//! ones. Those with a `url` are reached from here; those with a `command` run in the
//! sandbox. Whatever a server says is untrusted and bounded.

mod answer;
mod limits;
mod name;
mod overflow;
mod pipe;
mod remote;
mod schema;
mod search;
mod server;
mod servers;
mod tool;

#[cfg(test)]
mod server_tests;

pub use limits::Limits;
pub use name::server_of;
pub use server::{Means, Standing};
pub use servers::{Report, Servers};
