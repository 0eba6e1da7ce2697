//! Exit statuses: what a script can tell from a command.

use crate::error::Error;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, answered.
    Done,
    /// 1: something failed; the text is on standard error.
    Failed,
    /// 3: a run waits for an approval, whose id was printed.
    Waiting,
    /// 4: the input ended unanswered.
    Unanswered,
    /// 5: the harness refused the request.
    Refused,
    /// 130: a signal ended it.
    Interrupted,
}

impl Exit {
    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Waiting => 3,
            Exit::Unanswered => 4,
            Exit::Refused => 5,
            Exit::Interrupted => 130,
        }
    }

    /// Of a settled submission, by its state.
    pub fn of_submission(state: &str) -> Exit {
        match state {
            "done" => Exit::Done,
            _ => Exit::Unanswered,
        }
    }
}

impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error {
            Error::Refused { .. } | Error::OtherWorkspace { .. } | Error::KeyHeldBack { .. } => {
                Exit::Refused
            }
            _ => Exit::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_the_status_that_the_manual_names() {
        let refused = Error::Refused {
            code: "not_a_member".into(),
            message: "no".into(),
        };
        for (exit, code) in [
            (Exit::of_submission("done"), 0),
            (Exit::from(&Error::Broken("x".into())), 1),
            (Exit::Waiting, 3),
            (Exit::of_submission("unanswered"), 4),
            (Exit::from(&refused), 5),
        ] {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }
}
