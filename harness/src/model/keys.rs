//! Keys of model providers: in memory, by name, never shown.

use std::{collections::BTreeMap, fmt, sync::RwLock};

use mooring_crds::{ModelSpec, Provider, SecretKeyRef};
use zeroize::Zeroizing;

/// Keys by the name of their environment variable. One store is shared by all
/// models of a process; `Configure` fills it.
#[derive(Default)]
pub struct KeyStore {
    keys: RwLock<BTreeMap<String, Zeroizing<String>>>,
}

impl KeyStore {
    /// An empty store.
    pub fn new() -> KeyStore {
        KeyStore::default()
    }

    /// Keeps `value` under `name`; an empty value takes the key away. Blanks
    /// around it, which a pasted key often has, are dropped.
    pub fn set(&self, name: &str, value: &str) {
        let mut keys = self
            .keys
            .write()
            .expect("no code panics while it holds the keys");
        match value.trim() {
            "" => keys.remove(name),
            value => keys.insert(name.to_owned(), Zeroizing::new(value.to_owned())),
        };
    }

    /// The key of that name.
    pub fn get(&self, name: &str) -> Option<Zeroizing<String>> {
        self.keys
            .read()
            .expect("no code panics while it holds the keys")
            .get(name)
            .cloned()
    }

    /// Whether a key of that name is there.
    pub fn has(&self, name: &str) -> bool {
        self.keys
            .read()
            .expect("no code panics while it holds the keys")
            .contains_key(name)
    }

    /// The names that have a key, sorted.
    pub fn names(&self) -> Vec<String> {
        self.keys
            .read()
            .expect("no code panics while it holds the keys")
            .keys()
            .cloned()
            .collect()
    }
}

impl fmt::Debug for KeyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyStore")
            .field("names", &self.names())
            .finish_non_exhaustive()
    }
}

/// A key that a model of the Workspace takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededKey {
    /// The model's name in the Workspace.
    pub model: String,
    /// Its name in the [`KeyStore`]: see [`key_name`].
    pub name: String,
    /// The environment variable.
    pub variable: String,
    /// Where a cluster keeps it.
    pub secret: Option<SecretKeyRef>,
    /// The address that will be sent the key, where it is not the provider's own.
    pub endpoint: Option<String>,
    /// Whether the store has it.
    pub present: bool,
}

/// The name under which a key is kept: the variable alone where the provider's own
/// server, or what a cluster's Secret says, gets it; `VARIABLE@ENDPOINT` where a
/// Workspace file names the server. So a key that was handed over for one server
/// is never sent to another.
pub fn key_name(variable: &str, endpoint: Option<&str>) -> String {
    match endpoint {
        None => variable.to_owned(),
        Some(endpoint) => format!("{variable}@{endpoint}"),
    }
}

/// A key's name for people.
pub(super) fn key_label(name: &str) -> String {
    match name.split_once('@') {
        None => name.to_owned(),
        Some((variable, endpoint)) => format!("{variable} (for {endpoint})"),
    }
}

/// The name of a model's key, or `None` where none is sent.
pub(super) fn name_of(spec: &ModelSpec) -> Option<String> {
    let endpoint = spec
        .endpoint
        .as_deref()
        .filter(|_| spec.api_key_secret_ref.is_none());
    key_variable(spec).map(|variable| key_name(&variable, endpoint))
}

/// The variable that holds a model's key, or `None` where none is sent.
///
/// A model with an `endpoint` of its own gets a key only where its `apiKeyEnv`
/// or `apiKeySecretRef` says so: the key of the provider's usual variable is
/// not for a server that a Workspace file names.
pub(super) fn key_variable(spec: &ModelSpec) -> Option<String> {
    if spec.provider == Provider::Rehearsal {
        return None;
    }
    if let Some(variable) = &spec.api_key_env {
        return Some(variable.clone());
    }
    if spec.endpoint.is_some() && spec.api_key_secret_ref.is_none() {
        return None;
    }
    usual_variable(&spec.provider).map(str::to_owned)
}

/// The variable that a provider's own tools read.
fn usual_variable(provider: &Provider) -> Option<&'static str> {
    match provider {
        Provider::Anthropic => Some("ANTHROPIC_API_KEY"),
        Provider::OpenAI => Some("OPENAI_API_KEY"),
        Provider::Gemini => Some("GEMINI_API_KEY"),
        Provider::Groq => Some("GROQ_API_KEY"),
        Provider::Xai => Some("XAI_API_KEY"),
        Provider::DeepSeek => Some("DEEPSEEK_API_KEY"),
        Provider::Ollama | Provider::Rehearsal => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spec(yaml: &str) -> ModelSpec {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn a_store_never_shows_its_values() {
        let store = KeyStore::new();
        store.set("OPENAI_API_KEY", " sk-very-secret\n");
        assert_eq!(
            store.get("OPENAI_API_KEY").unwrap().as_str(),
            "sk-very-secret"
        );
        let shown = format!("{store:?} {store:#?}");
        assert!(
            shown.contains("OPENAI_API_KEY") && !shown.contains("sk-very"),
            "{shown}"
        );
        store.set("OPENAI_API_KEY", "");
        assert!(!store.has("OPENAI_API_KEY"));
    }

    #[test]
    fn a_key_is_kept_for_the_server_that_it_may_be_sent_to() {
        for (yaml, name) in [
            ("{name: m, provider: openai, model: g}", "OPENAI_API_KEY"),
            (
                "{name: m, provider: openai, model: g, endpoint: 'http://gw/v1', apiKeyEnv: K}",
                "K@http://gw/v1",
            ),
            (
                "{name: m, provider: openai, model: g, endpoint: 'http://gw/v1', apiKeyEnv: K, apiKeySecretRef: {name: s, key: k}}",
                "K",
            ),
        ] {
            assert_eq!(name_of(&spec(yaml)).as_deref(), Some(name), "{yaml}");
        }
        assert_eq!(key_label("K@http://gw/v1"), "K (for http://gw/v1)");
    }

    #[test]
    fn the_usual_key_goes_only_to_the_providers_own_server() {
        let rows = [
            (
                "{name: m, provider: anthropic, model: c}",
                Some("ANTHROPIC_API_KEY"),
            ),
            (
                "{name: m, provider: openai, model: g}",
                Some("OPENAI_API_KEY"),
            ),
            (
                "{name: m, provider: openai, model: g, endpoint: 'http://evil.example/v1'}",
                None,
            ),
            (
                "{name: m, provider: openai, model: g, endpoint: 'http://gw/v1', apiKeyEnv: GATEWAY_KEY}",
                Some("GATEWAY_KEY"),
            ),
            (
                "{name: m, provider: openai, model: g, endpoint: 'http://gw/v1', apiKeySecretRef: {name: s, key: k}}",
                Some("OPENAI_API_KEY"),
            ),
            ("{name: m, provider: ollama, model: l}", None),
            ("{name: m, provider: rehearsal, apiKeyEnv: X}", None),
        ];
        for (yaml, variable) in rows {
            assert_eq!(key_variable(&spec(yaml)).as_deref(), variable, "{yaml}");
        }
    }
}
