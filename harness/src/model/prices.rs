//! What a model costs and holds, from the built-in table.

use std::{collections::BTreeMap, sync::LazyLock};

use mooring_crds::{ModelSpec, Price, Provider};
use mooring_durable::model::Usage;
use serde::{Deserialize, Serialize};

/// Millionths of a US dollar.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UsdMicros(pub i64);

/// What the built-in table says of one model.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelFacts {
    /// US dollars per million tokens of input.
    pub input: f64,
    /// The same, of input read from the provider's cache.
    pub cached_input: f64,
    /// The same, of output.
    pub output: f64,
    /// Tokens that the context holds.
    pub context_window: Option<u64>,
    /// Tokens of the longest answer.
    pub max_output: Option<u64>,
}

type Table = BTreeMap<String, BTreeMap<String, ModelFacts>>;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_saphyr::from_str(include_str!("prices.yaml")).expect("the built-in table is tested")
});

/// The built-in table's entry for a provider's model.
pub(super) fn facts(provider: &Provider, model: &str) -> Option<&'static ModelFacts> {
    let provider = match provider {
        Provider::Anthropic => "anthropic",
        Provider::OpenAI => "openai",
        _ => return None,
    };
    let models = TABLE.get(provider)?;
    models.get(model).or_else(|| models.get(undated(model)?))
}

/// `name` of `name-20250929`, `name-2025-08-07`, `name-latest`.
fn undated(model: &str) -> Option<&str> {
    if let Some(name) = model.strip_suffix("-latest") {
        return Some(name);
    }
    [("-dddddddd", 9), ("-dddd-dd-dd", 11)]
        .into_iter()
        .find_map(|(shape, length)| {
            let (name, stamp) = model.split_at_checked(model.len().checked_sub(length)?)?;
            let fits = shape.bytes().zip(stamp.bytes()).all(|(s, b)| match s {
                b'd' => b.is_ascii_digit(),
                _ => b == s,
            });
            fits.then_some(name)
        })
}

/// What `usage` costs at the Workspace's price, or the built-in one.
pub(super) fn cost(spec: &ModelSpec, usage: Usage) -> Option<UsdMicros> {
    let price = match (&spec.price, &spec.provider) {
        (Some(price), _) => price.clone(),
        (None, Provider::Rehearsal) => Price {
            input: 0.0,
            cached_input: None,
            output: 0.0,
        },
        // What another server charges is not in the provider's list.
        (None, _) if spec.endpoint.is_some() => return None,
        (None, provider) => {
            let facts = facts(provider, &spec.model)?;
            Price {
                input: facts.input,
                cached_input: Some(facts.cached_input),
                output: facts.output,
            }
        }
    };
    let cached = usage.cached.min(usage.input);
    let fresh = usage.input - cached;
    // A dollar per million tokens is a millionth of a dollar per token.
    let micros = fresh as f64 * price.input
        + cached as f64 * price.cached_input.unwrap_or(price.input)
        + usage.output as f64 * price.output;
    Some(UsdMicros(micros.ceil() as i64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spec(yaml: &str) -> ModelSpec {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn the_built_in_table_is_well_formed() {
        for (provider, models) in &*TABLE {
            assert!(
                ["anthropic", "openai"].contains(&provider.as_str()),
                "{provider}"
            );
            for (name, facts) in models {
                assert!(
                    0.0 < facts.cached_input
                        && facts.cached_input <= facts.input
                        && facts.input < facts.output,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn a_dated_name_has_the_price_of_its_name_and_no_other() {
        let rows = [
            (Provider::Anthropic, "claude-sonnet-4-5", Some(3.0)),
            (Provider::Anthropic, "claude-sonnet-4-5-20250929", Some(3.0)),
            (Provider::Anthropic, "claude-opus-4-1-20250805", Some(15.0)),
            (Provider::Anthropic, "claude-sonnet-4-5-latest", Some(3.0)),
            (Provider::Anthropic, "claude-sonnet-9", None),
            (Provider::OpenAI, "gpt-5-2025-08-07", Some(1.25)),
            (Provider::OpenAI, "gpt-4.1-2025-04-14", Some(2.0)),
            (Provider::OpenAI, "gpt-5-pro", None),
            (Provider::OpenAI, "gpt-5.9", None),
            (Provider::OpenAI, "", None),
            (Provider::OpenAI, "ä-12345678901", None),
            (Provider::Groq, "gpt-5", None),
        ];
        for (provider, model, input) in rows {
            assert_eq!(facts(&provider, model).map(|f| f.input), input, "{model}");
        }
    }

    #[test]
    fn cost_is_exact_and_the_workspaces_price_comes_first() {
        let usage = Usage {
            input: 1_000_000,
            cached: 400_000,
            output: 100_000,
        };
        let rows = [
            (
                "{name: m, provider: anthropic, model: claude-sonnet-4-5}",
                Some(1_800_000 + 120_000 + 1_500_000),
            ),
            (
                "{name: m, provider: openai, model: x, price: {input: 1, output: 2}}",
                Some(1_200_000),
            ),
            (
                "{name: m, provider: openai, model: gpt-5, price: {input: 1, cachedInput: 0, output: 0}}",
                Some(600_000),
            ),
            (
                "{name: m, provider: openai, model: gpt-5, endpoint: 'http://localhost/v1'}",
                None,
            ),
            ("{name: m, provider: openai, model: unknown}", None),
            ("{name: m, provider: rehearsal}", Some(0)),
        ];
        for (yaml, micros) in rows {
            assert_eq!(cost(&spec(yaml), usage), micros.map(UsdMicros), "{yaml}");
        }
    }
}
