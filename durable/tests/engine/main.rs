//! The engine from outside: over its ports, on real files.
#![allow(clippy::unwrap_used)]

mod support;

mod abort;
mod approvals;
mod basics;
mod branches;
mod budget;
mod compaction;
mod completing;
mod damage;
mod disk;
mod documents;
mod extensions;
mod inbox;
mod model;
mod on_the_way;
mod property;
mod retention;
mod streams;
mod tools;
mod transfer;
mod waits;
mod watch;
