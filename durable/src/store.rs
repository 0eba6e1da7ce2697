//! The file: its lock, its schema, and its line of commits.

pub(crate) mod checkpoint;
pub(crate) mod failpoint;
pub(crate) mod fault;
pub(crate) mod gather;
pub(crate) mod handle;
pub(crate) mod line;
pub(crate) mod lock;
pub(crate) mod open;
pub(crate) mod place;
pub(crate) mod writer;
