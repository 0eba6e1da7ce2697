//! The Workspace's models by name, which change while the process runs.

use std::{
    path::PathBuf,
    sync::{Arc, RwLock},
};

use async_trait::async_trait;
use mooring_crds::{ModelSpec, Provider};
use mooring_durable::model::{
    Model, ModelError, ModelRequest, ModelResponse, Models, PartialSink, RequestContext, Usage,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    KeyStore, Limits, NeededKey, Settings, UsdMicros, estimate,
    hosted::{self, GENAI, Provision},
    prices, rehearsal,
    transport::Transport,
};

/// What is wrong with a list of models.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// There is none.
    #[error("spec.models: at least one model is needed; `provider: rehearsal` needs no key")]
    Empty,
    /// Two have one name.
    #[error("spec.models[{index}].name: there is another model `{name}`; give each its own name")]
    Duplicate {
        /// Its place in the list.
        index: usize,
        /// The name.
        name: String,
    },
    /// A field has a value that it cannot have.
    #[error("spec.models[{index}].{field}: {problem}")]
    Field {
        /// Its place in the list.
        index: usize,
        /// The field.
        field: &'static str,
        /// What is wrong, and what is right.
        problem: String,
    },
}

/// The models of one Workspace. Cheap to share behind an `Arc`; a request that
/// has begun keeps the model it began with.
pub struct Catalog {
    shared: Arc<Shared>,
    entries: RwLock<Arc<[Arc<Entry>]>>,
}

struct Shared {
    keys: Arc<KeyStore>,
    transport: Transport,
    limits: Limits,
    folder: PathBuf,
}

impl Catalog {
    /// An empty catalog. Paths of rehearsal scripts are relative to `folder`,
    /// the one of the Workspace file.
    pub fn new(keys: Arc<KeyStore>, folder: impl Into<PathBuf>, limits: Limits) -> Catalog {
        let shared = Shared {
            keys,
            transport: Transport::default(),
            limits,
            folder: folder.into(),
        };
        Catalog {
            shared: Arc::new(shared),
            entries: RwLock::new(Arc::new([])),
        }
    }

    /// Takes the place of all models. On an error the old ones stay.
    pub fn replace(&self, specs: &[ModelSpec]) -> Result<(), CatalogError> {
        check(specs)?;
        let entries = specs.iter().map(|spec| {
            Arc::new(Entry {
                settings: Settings::of(spec),
                spec: spec.clone(),
                shared: self.shared.clone(),
            })
        });
        *self
            .entries
            .write()
            .expect("no code panics while it holds the models") = entries.collect();
        Ok(())
    }

    /// Names in the Workspace's order; the first is the default.
    pub fn names(&self) -> Vec<String> {
        self.entries()
            .iter()
            .map(|entry| entry.spec.name.clone())
            .collect()
    }

    /// The keys that the models take, one row a model.
    pub fn needed_keys(&self) -> Vec<NeededKey> {
        let entries = self.entries();
        let needed = entries.iter().filter_map(|entry| {
            let name = entry.settings.key.clone()?;
            let variable = name.split('@').next().unwrap_or_default().to_owned();
            Some(NeededKey {
                present: self.shared.keys.has(&name),
                name,
                model: entry.spec.name.clone(),
                secret: entry.spec.api_key_secret_ref.clone(),
                endpoint: entry.spec.endpoint.clone(),
                variable,
            })
        });
        needed.collect()
    }

    /// What `usage` of the model of that name costs; `None` where no price is
    /// known, neither in the Workspace nor in the built-in table.
    pub fn cost(&self, model: &str, usage: Usage) -> Option<UsdMicros> {
        prices::cost(&self.find(model)?.spec, usage)
    }

    /// Tokens that the context of the model of that name holds, where known.
    pub fn context_window(&self, model: &str) -> Option<u64> {
        self.find(model)?.settings.context_window
    }

    fn entries(&self) -> Arc<[Arc<Entry>]> {
        self.entries
            .read()
            .expect("no code panics while it holds the models")
            .clone()
    }

    fn find(&self, name: &str) -> Option<Arc<Entry>> {
        let entries = self.entries();
        match name {
            "" => entries.first().cloned(),
            name => entries
                .iter()
                .find(|entry| entry.spec.name == name)
                .cloned(),
        }
    }
}

impl Models for Catalog {
    fn resolve(&self, name: &str) -> Option<Arc<dyn Model>> {
        self.find(name).map(|entry| entry as Arc<dyn Model>)
    }
}

/// One model of the Workspace.
struct Entry {
    spec: ModelSpec,
    settings: Settings,
    shared: Arc<Shared>,
}

#[async_trait]
impl Model for Entry {
    fn adapter(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        match self.settings.provider {
            Provider::Rehearsal => format!("mooring-rehearsal {version}"),
            _ => format!("mooring {version}, genai {GENAI}"),
        }
    }

    fn options(&self) -> Value {
        serde_json::to_value(&self.settings).expect("settings are plain values")
    }

    fn estimate(&self, request: &ModelRequest) -> u64 {
        estimate::tokens(request)
    }

    fn window(&self) -> Option<u64> {
        // The answer has to fit, too.
        let answer = self.settings.max_output.unwrap_or(0);
        let window = self.settings.context_window?;
        Some(window.saturating_sub(answer.min(window / 2)))
    }

    async fn respond(
        &self,
        request: &ModelRequest,
        context: &RequestContext,
        sink: &dyn PartialSink,
        cancel: CancellationToken,
    ) -> Result<ModelResponse, ModelError> {
        // As pinned, not as the Workspace now says: a recovered request is the
        // same request. Options that are none of ours are those of a test.
        let pinned = serde_json::from_value(request.options.clone());
        let settings: Settings = pinned.unwrap_or_else(|_| self.settings.clone());
        if settings.provider == Provider::Rehearsal {
            let folder = &self.shared.folder;
            return rehearsal::respond(folder, &settings.model, request, context, sink, cancel)
                .await;
        }
        let provision = Provision {
            keys: &self.shared.keys,
            transport: &self.shared.transport,
            limits: self.shared.limits,
        };
        hosted::respond(provision, &self.spec.name, &settings, request, sink, cancel).await
    }
}

fn check(specs: &[ModelSpec]) -> Result<(), CatalogError> {
    if specs.is_empty() {
        return Err(CatalogError::Empty);
    }
    for (index, spec) in specs.iter().enumerate() {
        let wrong = |field, problem: &str| {
            Err(CatalogError::Field {
                index,
                field,
                problem: problem.to_owned(),
            })
        };
        if spec.name.is_empty() {
            return wrong("name", "is empty; it is what people choose the model by");
        }
        if specs[..index].iter().any(|other| other.name == spec.name) {
            return Err(CatalogError::Duplicate {
                index,
                name: spec.name.clone(),
            });
        }
        if spec.model.is_empty() && spec.provider != Provider::Rehearsal {
            return wrong("model", "is empty; write the provider's name of the model");
        }
        if let Some(endpoint) = &spec.endpoint {
            match reqwest::Url::parse(endpoint) {
                Ok(url) if !["http", "https"].contains(&url.scheme()) || !url.has_host() => {
                    return wrong("endpoint", "must begin with https:// or http://");
                }
                Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                    return wrong(
                        "endpoint",
                        "must hold no key; name its variable in `apiKeyEnv`",
                    );
                }
                Ok(_) => {}
                Err(error) => return wrong("endpoint", &format!("is no address: {error}")),
            }
        }
    }
    Ok(())
}
