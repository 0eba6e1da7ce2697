//! The settings that are pinned with a request.

use mooring_crds::{ModelSpec, Provider, Thinking};
use serde::{Deserialize, Serialize};

use super::{keys::name_of, prices};

/// What of a model's specification decides the bytes of a request, or where
/// they go. It is the engine's pinned `options`, and holds no key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Whose wire.
    pub provider: Provider,
    /// The provider's name of the model; a script's path for `rehearsal`.
    pub model: String,
    /// Base address, where it is not the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The name of the key in the [`super::KeyStore`]; none is sent when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How much the model thinks; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Tokens that one answer may have; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Tokens that the context holds, where known; for thresholds, not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
}

/// The most that is asked for where the Workspace does not say: some providers
/// subtract it from the context, and no answer of an agent's turn is longer.
const USUAL_MAX_OUTPUT: u64 = 32_000;

impl Settings {
    /// The settings of one model of a Workspace.
    pub fn of(spec: &ModelSpec) -> Settings {
        let facts = prices::facts(&spec.provider, &spec.model);
        let usual = facts
            .and_then(|f| f.max_output)
            .map(|most| most.min(USUAL_MAX_OUTPUT));
        // Anthropic's wire demands a limit.
        let usual = match spec.provider {
            Provider::Anthropic => Some(usual.unwrap_or(USUAL_MAX_OUTPUT)),
            _ => usual,
        };
        Settings {
            provider: spec.provider.clone(),
            model: spec.model.clone(),
            endpoint: spec.endpoint.clone(),
            key: name_of(spec),
            thinking: spec.thinking,
            max_output: spec.max_output.or(usual),
            context_window: spec.context_window.or(facts.and_then(|f| f.context_window)),
        }
    }
}
