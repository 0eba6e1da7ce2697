//! The sandbox as the harness sees it: one daemon, reached or not.

mod link;
mod probe;
mod start;

pub use link::{Link, State};
pub use start::Daemon;
