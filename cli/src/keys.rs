//! Model keys: found in the environment of the client, handed to the harness,
//! never written anywhere.

use std::collections::HashMap;

use mooring_crds::{Provider, WorkspaceSpec};

/// The variables that are always looked at.
pub fn usual() -> Vec<String> {
    ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]
        .map(String::from)
        .into()
}

/// The variables that the models of a Workspace name or imply.
pub fn of(spec: &WorkspaceSpec) -> Vec<String> {
    let implied = |provider: &Provider| match provider {
        Provider::Anthropic => Some("ANTHROPIC_API_KEY"),
        Provider::OpenAI => Some("OPENAI_API_KEY"),
        Provider::Gemini => Some("GEMINI_API_KEY"),
        Provider::Groq => Some("GROQ_API_KEY"),
        Provider::Xai => Some("XAI_API_KEY"),
        Provider::DeepSeek => Some("DEEPSEEK_API_KEY"),
        Provider::Ollama | Provider::Rehearsal => None,
    };
    spec.models
        .iter()
        .filter_map(|model| {
            model
                .api_key_env
                .clone()
                .or_else(|| implied(&model.provider).map(String::from))
        })
        .collect()
}

/// Those of `names` that are set and not empty, with their values.
pub fn from_env(
    names: impl IntoIterator<Item = String>,
    var: impl Fn(&str) -> Option<String>,
) -> HashMap<String, String> {
    names
        .into_iter()
        .filter_map(|name| {
            let value = var(&name).filter(|value| !value.trim().is_empty())?;
            Some((name, value.trim().to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_model_names_the_variable_of_its_key() {
        let workspace = mooring_crds::read_workspace(
            "apiVersion: mooring.dev/v1alpha1\nkind: Workspace\nmetadata: {name: x}\nspec:\n  \
             models:\n  - {name: a, provider: anthropic, model: m}\n  \
             - {name: b, provider: openai, model: m, apiKeyEnv: MY_KEY}\n  \
             - {name: c, provider: rehearsal}\n",
            "x.yaml",
        )
        .unwrap();
        assert_eq!(of(&workspace.spec), ["ANTHROPIC_API_KEY", "MY_KEY"]);
    }

    #[test]
    fn empty_variables_are_no_keys() {
        let env = |name: &str| match name {
            "SET" => Some(" sk-1\n".to_owned()),
            "EMPTY" => Some(" ".to_owned()),
            _ => None,
        };
        let found = from_env(["SET", "EMPTY", "ABSENT"].map(String::from), env);
        assert_eq!(
            found,
            HashMap::from([("SET".to_owned(), "sk-1".to_owned())])
        );
    }
}
