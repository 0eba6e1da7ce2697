//! The tables: one file each, with its row, its statements and its reads.

pub(crate) mod attempt;
pub(crate) mod batch;
pub(crate) mod call;
pub(crate) mod chunk;
pub(crate) mod conversation;
pub(crate) mod document;
pub(crate) mod entry;
pub(crate) mod open_work;
pub(crate) mod retention;
pub(crate) mod row;
pub(crate) mod submission;
pub(crate) mod task;
pub(crate) mod transfer;
