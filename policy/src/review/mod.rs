//! What `mooring policy` prints: pure functions from texts to text.

pub mod calls;
mod check;
mod diff;
mod explain;
mod locate;
mod output;
mod source;
mod test;

pub use check::check;
pub use diff::diff;
pub use explain::explain;
pub use output::{Output, Report};
pub use source::{ReviewError, Source};
pub use test::{cases, test};
