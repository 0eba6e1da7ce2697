//! Model keys: found in the environment of the client, handed to the harness,
//! never written anywhere.

use std::collections::HashMap;
use std::path::PathBuf;

use mooring_crds::{Provider, WorkspaceSpec};

use crate::error::Error;
use crate::text::one_line;

/// The variables that are always looked at.
pub fn usual() -> Vec<String> {
    ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]
        .map(String::from)
        .into()
}

/// A key that a server would get which is not the provider's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The environment variable.
    pub variable: String,
    /// The server.
    pub endpoint: String,
}

impl Destination {
    /// Of a key's name, where it names a server: `VARIABLE@ENDPOINT`.
    pub fn of(name: &str) -> Option<Destination> {
        let (variable, endpoint) = name.split_once('@')?;
        Some(Destination {
            variable: variable.into(),
            endpoint: endpoint.into(),
        })
    }

    /// The name under which the harness keeps the key.
    pub fn name(&self) -> String {
        format!("{}@{}", self.variable, self.endpoint)
    }
}

/// Which keys a person has agreed to send where: a file of the project's state,
/// one name a line.
pub struct Agreed {
    path: PathBuf,
    names: Vec<String>,
}

impl Agreed {
    /// Reads the file; without one nothing was agreed to.
    pub fn read(path: PathBuf) -> Agreed {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let names = text.lines().map(str::to_owned).collect();
        Agreed { path, names }
    }

    /// Whether the key may be sent there.
    pub fn covers(&self, destination: &Destination) -> bool {
        self.names.contains(&destination.name())
    }

    /// Remembers that it may.
    pub fn add(&mut self, destination: &Destination) -> Result<(), Error> {
        if self.covers(destination) {
            return Ok(());
        }
        self.names.push(destination.name());
        let text: String = self.names.iter().map(|name| format!("{name}\n")).collect();
        std::fs::write(&self.path, text).map_err(|error| Error::Path {
            path: self.path.clone(),
            why: error.to_string(),
        })
    }
}

/// Names of keys, for people.
pub fn labels(names: &[String]) -> String {
    let label = |name: &String| match Destination::of(name) {
        None => one_line(name, 100),
        Some(to) => format!(
            "{} (for {})",
            one_line(&to.variable, 100),
            one_line(&to.endpoint, 200)
        ),
    };
    names.iter().map(label).collect::<Vec<_>>().join(", ")
}

/// The variables that the models of a Workspace name or imply, for their
/// providers' own servers. What other servers get, the harness asks for by name.
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
        .filter(|model| model.endpoint.is_none())
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
             - {name: c, provider: rehearsal}\n  \
             - {name: d, provider: openai, model: m, endpoint: 'http://x', apiKeyEnv: TOKEN}\n",
            "x.yaml",
        )
        .unwrap();
        assert_eq!(of(&workspace.spec), ["ANTHROPIC_API_KEY", "MY_KEY"]);
    }

    #[test]
    fn what_was_agreed_to_is_remembered_for_that_server_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key-servers");
        let to = |endpoint: &str| Destination {
            variable: "K".into(),
            endpoint: endpoint.into(),
        };
        let mut agreed = Agreed::read(path.clone());
        assert!(!agreed.covers(&to("http://a")));
        agreed.add(&to("http://a")).unwrap();
        let agreed = Agreed::read(path);
        assert!(agreed.covers(&to("http://a")));
        assert!(!agreed.covers(&to("http://b")));
        assert_eq!(Destination::of("K@http://a"), Some(to("http://a")));
        assert_eq!(
            labels(&["A".into(), "K@http://a".into()]),
            "A, K (for http://a)"
        );
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
