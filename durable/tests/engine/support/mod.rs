//! What the engine's tests share.

mod ports;
mod words;
mod world;

pub use ports::*;
pub use words::*;
pub use world::*;
