//! What crosses two programs, and the stand-ins.

pub mod model;
pub mod project;
