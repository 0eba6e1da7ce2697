//! Conversations: one actor each, while there is something to do or to remember.

pub(crate) mod actor;
mod asking;
mod command;
mod decide;
mod ending;
mod generation;
mod inbox;
mod intent;
mod placing;
mod reset;
mod result;
mod round;
pub(crate) mod state;
mod step;

pub(crate) use command::{Command, Poke};
