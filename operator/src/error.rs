//! What can go wrong in a pass, by what is done about it.

use std::time::Duration;

/// What is done about an error. Also the reason of its Event, of the condition
/// and the label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// It passes by itself within moments: another pass at once.
    RetrySoon,
    /// It may pass: another pass after a growing time.
    BackOff,
    /// Nothing changes before something that is watched does.
    WaitForChange,
    /// Nothing changes before a person acts.
    Terminal,
}

impl Category {
    /// As it stands in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Category::RetrySoon => "retry_soon",
            Category::BackOff => "back_off",
            Category::WaitForChange => "wait_for_change",
            Category::Terminal => "terminal",
        }
    }
}

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else wrote the object at the same time.
    #[error("{kind} {name} was changed by somebody else at the same moment")]
    Conflict {
        /// The object's kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The operator lacks a permission.
    #[error("the operator may not {verb} {kind} {name}: {message}")]
    Forbidden {
        /// What it wanted to do.
        verb: &'static str,
        /// The object's kind.
        kind: String,
        /// Its name.
        name: String,
        /// The API server's words.
        message: String,
    },
    /// The API server refused an object.
    #[error("{kind} {name} was refused: {message}")]
    Refused {
        /// The object's kind.
        kind: String,
        /// Its name.
        name: String,
        /// The API server's words.
        message: String,
    },
    /// An object of that name belongs to somebody else.
    #[error(
        "{kind} {name} exists and does not belong to this Workspace; delete or rename one of the two"
    )]
    NotOurs {
        /// The object's kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The namespace is on its way out.
    #[error("namespace {0} is being deleted")]
    NamespaceTerminating(String),
    /// A volume cannot grow.
    #[error("volume claim {claim} cannot grow to {size}: {message}")]
    CannotGrow {
        /// The claim's name.
        claim: String,
        /// The size that was wanted.
        size: String,
        /// The API server's words.
        message: String,
    },
    /// A certificate could not be made.
    #[error("a certificate for {name} could not be made: {message}")]
    Certificate {
        /// Whom it was for.
        name: String,
        /// What went wrong.
        message: String,
    },
    /// The API server could not be asked.
    #[error("{verb} {kind} {name}: {source}")]
    Api {
        /// What was asked of it.
        verb: &'static str,
        /// The object's kind.
        kind: String,
        /// Its name.
        name: String,
        /// What came back.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Error {
    /// Sorts what the API server answered.
    pub fn from_api(verb: &'static str, kind: &str, name: &str, error: kube::Error) -> Error {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        if let kube::Error::Api(status) = &error {
            let message = status.message.clone();
            match status.code {
                403 if message.contains("because it is being terminated") => {
                    return Error::NamespaceTerminating(name);
                }
                403 => {
                    return Error::Forbidden {
                        verb,
                        kind,
                        name,
                        message,
                    };
                }
                409 => return Error::Conflict { kind, name },
                400 | 422 => {
                    return Error::Refused {
                        kind,
                        name,
                        message,
                    };
                }
                _ => {}
            }
        }
        Error::Api {
            verb,
            kind,
            name,
            source: Box::new(error),
        }
    }

    /// What is done about it.
    pub fn category(&self) -> Category {
        match self {
            Error::Conflict { .. } => Category::RetrySoon,
            Error::Api { .. } | Error::Forbidden { .. } | Error::Certificate { .. } => {
                Category::BackOff
            }
            Error::NamespaceTerminating(_) => Category::WaitForChange,
            Error::Refused { .. } | Error::NotOurs { .. } | Error::CannotGrow { .. } => {
                Category::Terminal
            }
        }
    }

    /// The stable reason of the Event and of the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Conflict { .. } => "Conflict",
            Error::Forbidden { .. } => "Forbidden",
            Error::Refused { .. } => "Refused",
            Error::NotOurs { .. } => "NotOurs",
            Error::NamespaceTerminating(_) => "NamespaceTerminating",
            Error::CannotGrow { .. } => "CannotGrow",
            Error::Certificate { .. } => "Certificate",
            Error::Api { .. } => "ApiServer",
        }
    }

    /// How long to wait before the next pass, after `failures` in a row;
    /// `jitter` lies in `0.0..1.0` and spreads passes that failed together.
    pub fn delay(&self, failures: u32, jitter: f64) -> Duration {
        let (first, most) = match self.category() {
            Category::RetrySoon => (0.2, 5.0),
            Category::BackOff => (1.0, 300.0),
            // Changes are watched; this is for those that are not (a storage class, a quota).
            Category::WaitForChange | Category::Terminal => (60.0, 900.0),
        };
        let grown: f64 = first * f64::from(1u32 << failures.min(16));
        Duration::from_secs_f64(grown.min(most) * (0.5 + jitter / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_bound_and_are_spread() {
        let conflict = Error::Conflict {
            kind: "Service".into(),
            name: "a".into(),
        };
        let api = Error::Certificate {
            name: "a".into(),
            message: "m".into(),
        };
        let terminal = Error::NotOurs {
            kind: "Service".into(),
            name: "a".into(),
        };
        for (error, failures, jitter, seconds) in [
            (&conflict, 0, 1.0, 0.2),
            (&conflict, 40, 1.0, 5.0),
            (&api, 0, 0.0, 0.5),
            (&api, 3, 1.0, 8.0),
            (&api, 40, 1.0, 300.0),
            (&terminal, 0, 1.0, 60.0),
            (&terminal, 9, 1.0, 900.0),
        ] {
            let delay = error.delay(failures, jitter).as_secs_f64();
            assert!((delay - seconds).abs() < 1e-6, "{error}: {delay}");
        }
    }

    #[test]
    fn answers_of_the_api_server_are_sorted() {
        for (code, message, reason) in [
            (409, "the object has been modified", "Conflict"),
            (403, "User \"x\" cannot patch resource", "Forbidden"),
            (
                403,
                "unable to create new content in namespace a because it is being terminated",
                "NamespaceTerminating",
            ),
            (422, "spec: Invalid value", "Refused"),
            (500, "etcd is away", "ApiServer"),
        ] {
            let status = kube::core::Status {
                code,
                message: message.into(),
                ..Default::default()
            };
            let error =
                Error::from_api("patch", "Service", "a", kube::Error::Api(Box::new(status)));
            assert_eq!(error.reason(), reason);
        }
    }
}
