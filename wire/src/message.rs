//! Parts of a message.

use crate::harness::{Part, part};

impl Part {
    /// A part that is text.
    pub fn text(text: impl Into<String>) -> Part {
        Part {
            part: Some(part::Part::Text(text.into())),
        }
    }
}
