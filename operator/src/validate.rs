//! From what somebody wrote to values that cannot be wrong.

use mooring_crds::{Problem, WorkspaceSpec};
use serde_json::Value;

/// A spec that was read and holds together.
#[derive(Clone, Debug, PartialEq)]
pub struct Valid {
    /// The spec.
    pub spec: WorkspaceSpec,
}

/// Reads and checks a spec; the problems carry the exact field paths.
pub fn validate(spec: &Value) -> Result<Valid, Vec<Problem>> {
    let spec: WorkspaceSpec = serde_path_to_error::deserialize(spec).map_err(|error| {
        let path = match error.path().to_string().as_str() {
            "." => "spec".to_owned(),
            path => format!("spec.{path}"),
        };
        vec![Problem {
            path,
            message: error.inner().to_string(),
        }]
    })?;
    let problems = mooring_crds::validate_in_cluster(&spec);
    if problems.is_empty() {
        Ok(Valid { spec })
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_is_named_with_its_path() {
        let rehearsal = json!([{"name": "main", "provider": "rehearsal"}]);
        for (spec, path) in [
            (json!({"models": rehearsal}), None),
            (json!({"models": "main"}), Some("spec.models")),
            (
                json!({"models": [{"name": "main", "provider": "nobody"}]}),
                Some("spec.models[0].provider"),
            ),
            (
                json!({"models": rehearsal, "approvals": {"requesterMayApprove": 1}}),
                Some("spec.approvals.requesterMayApprove"),
            ),
            (json!({"models": []}), Some("spec.models")),
            (
                json!({"models": [{"name": "main", "provider": "anthropic", "model": "m"}]}),
                Some("spec.models[0].apiKeySecretRef"),
            ),
            (json!(null), Some("spec")),
        ] {
            match (validate(&spec), path) {
                (Ok(_), None) => {}
                (Err(problems), Some(path)) => assert_eq!(problems[0].path, path, "{spec}"),
                (answer, _) => panic!("{spec}: {answer:?}"),
            }
        }
    }
}
