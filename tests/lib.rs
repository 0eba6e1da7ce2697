//! What crosses two programs, and the stand-ins.

#[cfg(test)]
mod documents;
pub mod git;
pub mod model;
pub mod project;
pub mod terminal;
pub mod world;
