//! The engine from outside: over its ports, on real files.
#![allow(clippy::unwrap_used)]

mod support;

mod approvals;
mod basics;
