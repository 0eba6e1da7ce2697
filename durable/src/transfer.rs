//! Export and import: a conversation as JSON Lines, with those that its tasks own and
//! with the history that it inherits; and back again, in this file or in another.
//!
//! The first line is a [`Header`]; each other line is `{"table": …, "row": {…}}`. An import
//! gives everything new ids of this file, in the same order, so that none can meet one
//! that is or ever was in use; commits keep their order too. What is imported is not seen
//! before the last of it is there.

mod export;
mod import;
mod renumber;

pub use export::Export;
pub use import::{Import, ImportError};

use serde::{Deserialize, Serialize};

/// The form of the lines.
pub const VERSION: u32 = 1;
/// Ids that an import may take, at most, of each kind.
const WIDEST: i64 = 1 << 40;

/// What an export begins with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Header {
    /// [`VERSION`].
    pub mooring_export: u32,
    /// The conversation.
    pub conversation: i64,
    /// It, and those that its tasks own.
    pub conversations: Vec<i64>,
    /// Others, of which it sees the beginning.
    pub ancestors: Vec<i64>,
    /// From which file.
    pub incarnation: String,
    /// The last commit of what is in it.
    pub commit: i64,
    /// Where ids lie.
    pub ids: Spans,
}

/// The lowest and the highest id of each kind; `[0, 0]`: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Spans {
    pub conversation: [i64; 2],
    pub entry: [i64; 2],
    pub task: [i64; 2],
    pub submission: [i64; 2],
    pub document: [i64; 2],
}
