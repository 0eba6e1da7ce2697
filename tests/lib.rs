//! What crosses two programs, and the stand-ins.

pub mod project;
