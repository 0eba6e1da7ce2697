//! The demonstration: work whose process is killed in the middle goes on where it was.
//!
//! A project of its own in a temporary folder, the real programs, and a model that plays
//! a script. What is claimed is read from committed state and from files that the
//! commands wrote.

mod evidence;
mod stage;
mod story;
mod teller;

pub use evidence::Check;
pub use stage::Stage;
pub use story::play;
pub use teller::Teller;
