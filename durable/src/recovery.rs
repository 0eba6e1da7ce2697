//! What becomes of a call whose intent was committed by an earlier process.

use crate::tool::Replay;

/// How a started call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// It runs again from its beginning.
    Rerun,
    /// It is attached to again, from the output that is committed.
    Attach,
    /// Its outcome cannot be known.
    Interrupt,
}

/// Decides by the declaration that the intent stored and the present one; `None`:
/// the tool is gone, or was never declared.
pub(crate) fn resume(stored: Option<Replay>, present: Option<Replay>) -> Resume {
    match (stored, present) {
        (Some(Replay::Safe), Some(Replay::Safe)) => Resume::Rerun,
        (Some(Replay::Attach), Some(Replay::Attach)) => Resume::Attach,
        _ => Resume::Interrupt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_declarations_must_agree() {
        use Replay::{Attach, Never, Safe};
        for (stored, present, expected) in [
            (Some(Safe), Some(Safe), Resume::Rerun),
            (Some(Safe), Some(Never), Resume::Interrupt),
            (Some(Never), Some(Safe), Resume::Interrupt),
            (Some(Never), Some(Never), Resume::Interrupt),
            (Some(Safe), None, Resume::Interrupt),
            (None, Some(Safe), Resume::Interrupt),
            (Some(Attach), Some(Attach), Resume::Attach),
            (Some(Attach), Some(Safe), Resume::Interrupt),
            (Some(Safe), Some(Attach), Resume::Interrupt),
            (Some(Attach), None, Resume::Interrupt),
        ] {
            assert_eq!(resume(stored, present), expected, "{stored:?} {present:?}");
        }
    }
}
