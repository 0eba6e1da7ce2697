//! The real daemon, as a process, seen by a client and from inside a command.

#![allow(clippy::unwrap_used)]

mod ends;
mod escapes;
mod executions;
mod files;
mod grades;
mod inside;
mod output;
mod pod;
mod restart;
mod support;
mod tunnel;
