//! The CRDs as files: for the chart `mooring-crds` and for kustomize.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::schema::{approval_crd, workspace_crd};

/// One generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Its path from the repository's root.
    pub path: &'static str,
    /// What it holds.
    pub text: String,
}

const HEADER: &str =
    "# Written by `cargo run -p mooring-crds` from the types in crds/src; do not edit.\n";

/// All files that are generated from the types.
pub fn generated_files() -> Vec<GeneratedFile> {
    let files = [
        (
            "charts/mooring-crds/templates/workspaces.yaml",
            workspace_crd(),
            true,
        ),
        (
            "charts/mooring-crds/templates/approvals.yaml",
            approval_crd(),
            true,
        ),
        ("config/crd/workspaces.yaml", workspace_crd(), false),
        ("config/crd/approvals.yaml", approval_crd(), false),
    ];
    files
        .into_iter()
        .map(|(path, crd, in_chart)| GeneratedFile {
            path,
            text: yaml(crd, in_chart),
        })
        .collect()
}

/// In the chart a CRD outlives the release: removing it would remove every Workspace.
fn yaml(mut crd: CustomResourceDefinition, in_chart: bool) -> String {
    if in_chart {
        crd.metadata
            .annotations
            .get_or_insert_default()
            .insert("helm.sh/resource-policy".into(), "keep".into());
    }
    let mut value = serde_json::to_value(crd).expect("a CRD is JSON");
    sort(&mut value);
    let body = serde_saphyr::to_string(&value).expect("JSON is YAML");
    format!("{HEADER}{body}")
}

/// Orders keys, so that the files do not depend on which features `serde_json` was built with.
fn sort(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            let mut entries: Vec<_> = std::mem::take(map).into_iter().collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            for (key, mut child) in entries {
                sort(&mut child);
                map.insert(key, child);
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}
