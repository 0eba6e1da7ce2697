//! What a Workspace's shape cannot say: rules over its values, with field paths.

use crate::WorkspaceSpec;

/// One thing that is wrong with a Workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, as a field path (`spec.models[1].endpoint`).
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// All that is wrong with `spec`; empty where nothing is.
pub fn validate(spec: &WorkspaceSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    if spec.models.is_empty() {
        problems.push(Problem {
            path: "spec.models".into(),
            message: "at least one model is needed; `provider: rehearsal` needs no key".into(),
        });
    }
    problems
}
