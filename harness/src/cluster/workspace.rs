//! The Workspace as the API server has it: watched, and kept on the volume, so
//! that a harness starts and works while the API server is away.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher},
};
use mooring_crds::{Workspace, WorkspaceSpec};
use serde_json::Value;

use super::secrets::keyed_by_secrets;
use crate::workspace::{Source, check_policy};

/// How long the first answer of the API server is waited for where the volume
/// has a Workspace to begin with.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// What the watch brings: a good Workspace, or what is wrong.
type Seen = Result<Workspace, String>;

/// One Workspace of the cluster.
pub struct Watched {
    name: String,
    file: PathBuf,
    changes: std::pin::Pin<Box<dyn Stream<Item = Seen> + Send>>,
}

impl Watched {
    /// Watches `namespace/name`; the last good version is kept in the folder `data`.
    pub fn new(client: Client, namespace: &str, name: &str, data: &Path) -> Watched {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client, namespace, &ApiResource::erase::<Workspace>(&()));
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let changes = watcher(api, config)
            .default_backoff()
            .applied_objects()
            .map(|seen| match seen {
                Ok(object) => read(&object),
                Err(error) => Err(format!("the API server does not answer: {error}")),
            });
        Watched {
            name: name.to_owned(),
            file: data.join("workspace.json"),
            changes: Box::pin(changes),
        }
    }

    /// The Workspace to begin with: the API server's, or, where that does not
    /// answer, the last good one. Waits for as long as there is neither; `tell`
    /// is told why.
    pub async fn first(&mut self, tell: impl Fn(&str)) -> Workspace {
        let stored = stored(&self.file);
        loop {
            let next = tokio::time::timeout(FIRST_PATIENCE, self.changes.next()).await;
            let why = match next {
                Ok(Some(Ok(workspace))) => {
                    self.keep(&workspace);
                    return workspace;
                }
                Ok(Some(Err(why))) => why,
                Ok(None) | Err(_) => {
                    format!("the API server has not told of Workspace {}", self.name)
                }
            };
            tracing::warn!(%why, "no Workspace yet");
            if let Some(workspace) = &stored {
                tracing::warn!("beginning with the last good Workspace");
                return workspace.clone();
            }
            tell(&why);
        }
    }

    /// Carries each change to `source`, for ever.
    pub async fn follow(mut self, source: Arc<Source>) {
        while let Some(seen) = self.changes.next().await {
            match seen {
                Ok(workspace) => {
                    self.keep(&workspace);
                    source.replace(workspace);
                }
                Err(why) if why.starts_with("Workspace ") => source.refuse(why),
                // The API server is away; what is in use stays.
                Err(why) => tracing::debug!(%why, "the watch broke"),
            }
        }
    }

    fn keep(&self, workspace: &Workspace) {
        let text = serde_json::to_vec(workspace).expect("a Workspace is always JSON");
        if std::fs::read(&self.file).is_ok_and(|kept| kept == text) {
            return;
        }
        let new = self.file.with_extension("new");
        let kept = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.file));
        if let Err(error) = kept {
            tracing::warn!(%error, file = %self.file.display(), "the Workspace could not be kept");
        }
    }
}

fn stored(file: &Path) -> Option<Workspace> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// Reads and checks a Workspace as the API server has it.
fn read(object: &DynamicObject) -> Seen {
    let name = object.name_any();
    let spec = object.data.get("spec").cloned().unwrap_or(Value::Null);
    let wrong = |what: String| format!("Workspace {name}: {what}");
    let spec: WorkspaceSpec =
        serde_json::from_value(spec).map_err(|error| wrong(format!("spec: {error}")))?;
    let problems = mooring_crds::validate_in_cluster(&spec);
    if !problems.is_empty() {
        let all: Vec<_> = problems.iter().map(ToString::to_string).collect();
        return Err(wrong(all.join("; ")));
    }
    let mut workspace = Workspace::new(&name, keyed_by_secrets(spec));
    workspace.metadata.namespace = object.namespace();
    workspace.metadata.uid = object.meta().uid.clone();
    check_policy(&workspace, &format!("Workspace {name}")).map_err(|error| error.to_string())?;
    Ok(workspace)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn object(spec: Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "mooring.dev/v1alpha1",
            "kind": "Workspace",
            "metadata": {"name": "platform", "namespace": "agents", "uid": "u", "generation": 3},
            "spec": spec,
            "status": {"phase": "Ready"},
        }))
        .unwrap()
    }

    #[test]
    fn a_good_workspace_is_read_and_a_wrong_one_is_named() {
        let good = json!({"models": [{"name": "main", "provider": "rehearsal"}]});
        let workspace = read(&object(good)).unwrap();
        assert_eq!(workspace.metadata.uid.as_deref(), Some("u"));
        for (spec, told) in [
            (
                json!({"models": 1}),
                "Workspace platform: spec: invalid type",
            ),
            (json!({"models": []}), "Workspace platform: spec.models"),
            (
                json!({"models": [{"name": "main", "provider": "openai", "model": "m"}]}),
                "Workspace platform: spec.models[0].apiKeySecretRef",
            ),
            (
                json!({"models": [{"name": "main", "provider": "rehearsal"}],
                    "policy": {"bash": {"*": "deny"}, "tests": [{"bash": "ls", "expect": "allow"}]}}),
                "Workspace platform: spec.policy.tests[0]",
            ),
        ] {
            let error = read(&object(spec)).unwrap_err();
            assert!(error.starts_with(told), "{error}");
        }
    }

    #[test]
    fn the_last_good_one_is_read_back_from_the_volume() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("workspace.json");
        assert!(stored(&file).is_none());
        let good = json!({"models": [{"name": "main", "provider": "openai", "model": "m",
            "apiKeySecretRef": {"name": "model", "key": "apiKey"}}]});
        let workspace = read(&object(good)).unwrap();
        std::fs::write(&file, serde_json::to_vec(&workspace).unwrap()).unwrap();
        let back = stored(&file).unwrap();
        assert_eq!(back.spec, workspace.spec);
        assert_eq!(
            back.spec.models[0].api_key_env.as_deref(),
            Some("model/apiKey")
        );
    }
}
