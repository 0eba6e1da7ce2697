//! A policy file: a Workspace, or the policy alone; YAML or JSON.

use mooring_crds::Policy;
use serde::Deserialize;

/// A policy with the text it was read from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name as it was given.
    pub name: String,
    /// Its text.
    pub text: String,
    /// What it says.
    pub policy: Policy,
}

/// Why a review could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The file is not YAML or JSON, or not of a policy's shape.
    #[error("{name}: {message}")]
    Malformed {
        /// The file's name.
        name: String,
        /// What is wrong, with line and column where they are known.
        message: String,
    },
    /// A line of recorded calls or of cases is not of their shape.
    #[error("{name}:{line}: {message}")]
    BadLine {
        /// The file's name.
        name: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

/// Only what is looked at of a Workspace; its own reader checks the rest.
#[derive(Deserialize)]
struct WorkspaceFile {
    spec: SpecFile,
}

#[derive(Deserialize)]
struct SpecFile {
    #[serde(default)]
    policy: Policy,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Source {
    /// Reads a policy; `name` is named in errors and findings.
    ///
    /// # Errors
    /// [`ReviewError::Malformed`], with the line where the reader knows it.
    pub fn new(name: &str, text: &str) -> Result<Source, ReviewError> {
        let malformed = |message: String| ReviewError::Malformed {
            name: name.to_owned(),
            message,
        };
        let kind = serde_saphyr::from_str::<Kind>(text)
            .map(|file| file.kind)
            .unwrap_or_default();
        let policy = match kind.as_deref() {
            Some("Workspace") => {
                let file: WorkspaceFile =
                    serde_saphyr::from_str(text).map_err(|error| malformed(error.to_string()))?;
                file.spec.policy
            }
            Some(other) => {
                return Err(malformed(format!(
                    "kind {other} has no policy; a Workspace has"
                )));
            }
            None => serde_saphyr::from_str(text).map_err(|error| malformed(error.to_string()))?,
        };
        Ok(Source {
            name: name.to_owned(),
            text: text.to_owned(),
            policy,
        })
    }
}
