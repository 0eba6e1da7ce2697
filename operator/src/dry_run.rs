//! `--dry-run -f workspace.yaml`: what would be made, for review, without a cluster.

use mooring_crds::Workspace;

use crate::authority::Certificates;
use crate::build::{Input, Kind, objects};
use crate::names::Names;
use crate::settings::Settings;
use crate::validate::validate;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum DryRunError {
    /// The file is no Workspace.
    #[error("{file}: {message}")]
    Malformed {
        /// The file's name.
        file: String,
        /// What is wrong with it.
        message: String,
    },
}

/// The objects of the Workspace in `text`, as YAML. Certificates are named, not
/// made; what only a cluster knows (its API server's addresses, the owner) is left out.
pub fn dry_run(settings: &Settings, text: &str, file: &str) -> Result<String, DryRunError> {
    let malformed = |message: String| DryRunError::Malformed {
        file: file.to_owned(),
        message,
    };
    // Read as the type first, for line and column in errors.
    let workspace: Workspace =
        serde_saphyr::from_str(text).map_err(|error| malformed(error.to_string()))?;
    let name = workspace
        .metadata
        .name
        .clone()
        .filter(|name| (1..=40).contains(&name.len()));
    let names = Names {
        workspace: name.ok_or_else(|| malformed("metadata.name has 1 to 40 characters".into()))?,
        namespace: workspace
            .metadata
            .namespace
            .clone()
            .unwrap_or_else(|| "default".into()),
    };
    let spec = serde_json::to_value(&workspace.spec).map_err(|e| malformed(e.to_string()))?;
    let valid = validate(&spec).map_err(|problems| {
        malformed(
            problems
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        )
    })?;
    let certificates = Certificates::placeholder();
    let input = Input {
        names: &names,
        owner: None,
        valid: &valid,
        settings,
        api_servers: &[],
        certificates: &certificates,
    };
    let mut out = String::from(
        "# In a cluster each object is owned by its Workspace, and the harness may also reach\n\
         # the API server at its addresses.\n",
    );
    for mut object in objects(&input) {
        if object.kind == Kind::Secret
            && let Some(body) = object.body.as_object_mut()
            && let Some(data) = body.remove("data")
        {
            let names = data.as_object().into_iter().flat_map(|data| data.keys());
            let shown = names
                .map(|name| (name.clone(), "made by the operator".into()))
                .collect();
            body.insert("stringData".into(), serde_json::Value::Object(shown));
        }
        out.push_str("---\n");
        let yaml = serde_saphyr::to_string(&object.body).map_err(|e| malformed(e.to_string()))?;
        out.push_str(&yaml);
    }
    Ok(out)
}
