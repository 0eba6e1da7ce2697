//! Harness and sandbox as programs of their own, as a newcomer runs them.
#![allow(clippy::unwrap_used, missing_docs)]

mod boundary;
mod branches;
mod clients;
mod demo;
mod extensions;
mod gateway;
mod hosts;
mod large;
mod losses;
mod mcp;
mod pushes;
mod remote;
mod stories;
mod terminal;
mod work;
mod worktrees;
