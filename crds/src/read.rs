//! Reads a Workspace from YAML, with line and column in errors.

use crate::{Problem, Workspace, validate};

/// Why a Workspace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is no YAML, or not of the type's shape.
    #[error("{source_name}: {message}")]
    Malformed {
        /// The file's name as the caller gave it.
        source_name: String,
        /// What is wrong, with line and column.
        message: String,
    },
    /// It has the right shape and wrong values.
    #[error("{source_name}: {}", .problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; "))]
    Invalid {
        /// The file's name as the caller gave it.
        source_name: String,
        /// All that is wrong.
        problems: Vec<Problem>,
    },
}

/// Reads and validates one Workspace; `source_name` is named in errors.
pub fn read_workspace(text: &str, source_name: &str) -> Result<Workspace, ReadError> {
    let workspace: Workspace =
        serde_saphyr::from_str(text).map_err(|error| ReadError::Malformed {
            source_name: source_name.to_owned(),
            message: error.to_string(),
        })?;
    let problems = validate(&workspace.spec);
    if problems.is_empty() {
        Ok(workspace)
    } else {
        Err(ReadError::Invalid {
            source_name: source_name.to_owned(),
            problems,
        })
    }
}
