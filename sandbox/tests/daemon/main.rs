//! The real daemon, as a process, seen by a client and from inside a command.

#![allow(clippy::unwrap_used)]

mod executions;
mod support;
