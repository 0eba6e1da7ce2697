//! Conversations: one actor each, while there is something to do or to remember.

pub(crate) mod actor;
mod asking;
mod command;
mod compacting;
mod completing;
mod decide;
mod ending;
mod generation;
mod inbox;
mod intent;
pub(crate) mod passing;
mod placing;
mod report;
mod reset;
mod result;
mod round;
pub(crate) mod state;
mod step;
mod waiting;

pub(crate) use command::{Command, Poke};
