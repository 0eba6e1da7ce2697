//! Keys from mounted Secrets. The kubelet replaces the files when a Secret
//! changes, so they are read again and again.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mooring_crds::{SecretKeyRef, WorkspaceSpec};

use crate::model::KeyStore;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Bytes of a key; a larger file is none.
const MAX: u64 = 64 << 10;

/// The name of a Secret's key in the [`KeyStore`]: each has its own, whatever
/// variable its provider's tools read.
fn name_of(reference: &SecretKeyRef) -> String {
    format!("{}/{}", reference.name, reference.key)
}

/// A spec in which each model takes its key, and each server its headers, from a Secret,
/// and none from an environment variable: a pod has no such variables.
pub fn keyed_by_secrets(mut spec: WorkspaceSpec) -> WorkspaceSpec {
    for model in &mut spec.models {
        model.api_key_env = model.api_key_secret_ref.as_ref().map(name_of);
    }
    for server in &mut spec.mcp {
        server.headers_env.clear();
    }
    spec
}

/// The mounted Secrets.
pub struct Secrets {
    folder: PathBuf,
    keys: Arc<KeyStore>,
}

impl Secrets {
    /// Secrets below `folder`, one folder each, whose keys go to `keys`.
    pub fn new(folder: PathBuf, keys: Arc<KeyStore>) -> Secrets {
        Secrets { folder, keys }
    }

    /// Reads the keys that models take and the headers of servers; `true` where one has changed.
    pub fn load(&self, spec: &WorkspaceSpec) -> bool {
        let mut changed = false;
        let models = spec.models.iter();
        let models = models.filter_map(|model| model.api_key_secret_ref.clone());
        let headers = spec
            .mcp
            .iter()
            .filter_map(|server| server.headers_secret_ref.as_ref())
            .flat_map(|secret| self.keys_of(&secret.name));
        for reference in models.chain(headers) {
            let name = name_of(&reference);
            let value = self.read(&reference);
            let known = self.keys.get(&name);
            if value.trim() != known.as_ref().map_or("", |known| known.as_str()) {
                self.keys.set(&name, &value);
                tracing::info!(
                    secret = reference.name,
                    key = reference.key,
                    present = !value.trim().is_empty(),
                    "a key has changed"
                );
                changed = true;
            }
        }
        changed
    }

    /// The keys of a Secret: those that are mounted, and those that were.
    fn keys_of(&self, secret: &str) -> Vec<SecretKeyRef> {
        let mounted = std::fs::read_dir(self.folder.join(secret));
        let mounted = mounted.into_iter().flatten().flatten();
        let prefix = format!("{secret}/");
        let known = self.keys.names();
        let known = known.iter().filter_map(|name| name.strip_prefix(&prefix));
        let mut keys: Vec<String> = mounted
            .filter_map(|entry| entry.file_name().into_string().ok())
            // The kubelet's own links.
            .filter(|name| !name.starts_with('.'))
            .chain(known.map(str::to_owned))
            .collect();
        keys.sort();
        keys.dedup();
        keys.into_iter()
            .map(|key| SecretKeyRef {
                name: secret.to_owned(),
                key,
            })
            .collect()
    }

    fn read(&self, reference: &SecretKeyRef) -> zeroize::Zeroizing<String> {
        let path = self.folder.join(&reference.name).join(&reference.key);
        let fits = std::fs::metadata(&path).is_ok_and(|meta| meta.len() <= MAX);
        let text = fits.then(|| std::fs::read_to_string(&path).ok()).flatten();
        zeroize::Zeroizing::new(text.unwrap_or_default())
    }

    /// Reads them again and again, for ever; `changed` is called after a change.
    pub async fn follow(
        &self,
        spec: impl Fn() -> Arc<crate::workspace::Loaded>,
        changed: impl Fn(),
    ) {
        let mut tick = tokio::time::interval(EVERY);
        loop {
            tick.tick().await;
            if self.load(&spec().spec) {
                changed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_keys_of_a_servers_secret_are_its_headers_and_one_that_goes_is_gone() {
        let spec: WorkspaceSpec = serde_saphyr::from_str(
            "mcp:\n- {name: t, url: 'https://t/', headersSecretRef: {name: t}, headersEnv: {X: Y}}\n",
        )
        .unwrap();
        let spec = keyed_by_secrets(spec);
        assert!(spec.mcp[0].headers_env.is_empty());
        let folder = tempfile::tempdir().unwrap();
        let keys = Arc::new(KeyStore::new());
        let secrets = Secrets::new(folder.path().to_owned(), keys.clone());
        assert!(!secrets.load(&spec));
        std::fs::create_dir(folder.path().join("t")).unwrap();
        for name in ["Authorization", "X-Team", "..data"] {
            std::fs::write(folder.path().join("t").join(name), "v").unwrap();
        }
        assert!(secrets.load(&spec));
        assert_eq!(keys.names(), ["t/Authorization", "t/X-Team"]);
        std::fs::remove_file(folder.path().join("t/X-Team")).unwrap();
        assert!(secrets.load(&spec) && !secrets.load(&spec));
        assert_eq!(keys.names(), ["t/Authorization"]);
    }

    #[test]
    fn two_models_of_one_provider_have_keys_of_their_own_and_a_rotated_one_is_taken() {
        let spec: WorkspaceSpec = serde_saphyr::from_str(
            "models:\n\
             - {name: a, provider: openai, model: m, apiKeySecretRef: {name: one, key: k}}\n\
             - {name: b, provider: openai, model: m, apiKeySecretRef: {name: two, key: k}, apiKeyEnv: PATH}\n\
             - {name: c, provider: openai, model: m, endpoint: 'http://gw/', apiKeyEnv: PATH}\n",
        )
        .unwrap();
        let spec = keyed_by_secrets(spec);
        let names: Vec<_> = spec.models.iter().map(|m| m.api_key_env.clone()).collect();
        assert_eq!(
            names,
            [Some("one/k".to_owned()), Some("two/k".to_owned()), None]
        );

        let folder = tempfile::tempdir().unwrap();
        let keys = Arc::new(KeyStore::new());
        let secrets = Secrets::new(folder.path().to_owned(), keys.clone());
        assert!(!secrets.load(&spec), "nothing is there yet");
        std::fs::create_dir(folder.path().join("one")).unwrap();
        let file = folder.path().join("one/k");
        std::fs::write(&file, "first\n").unwrap();
        assert!(secrets.load(&spec));
        assert!(!secrets.load(&spec));
        assert_eq!(keys.get("one/k").unwrap().as_str(), "first");
        assert!(!keys.has("two/k"));
        std::fs::write(&file, "second").unwrap();
        assert!(secrets.load(&spec));
        assert_eq!(keys.get("one/k").unwrap().as_str(), "second");
        std::fs::remove_file(&file).unwrap();
        assert!(secrets.load(&spec));
        assert!(!keys.has("one/k"));
    }
}
