//! Extensions: named sets of tools, prompt sections and hooks.
//!
//! A registry holds them by name; conversations store names only. One that is put in the
//! place of another, added or taken away changes the next request and the next call: a
//! call that was started finishes on the code that it took.

use std::{
    collections::HashSet,
    panic::AssertUnwindSafe,
    sync::{Arc, PoisonError, RwLock},
};

use async_trait::async_trait;
use futures::{FutureExt, future::join_all};
use serde_json::{Value, json};

use crate::{
    hook::Hook,
    id::ConversationId,
    prompt::{Prompt, Rendered, Section},
    tool::{Tool, Toolbox},
};

/// The setting of a conversation that lists the names of its extensions; one without it
/// has all that there are. What a conversation's work owns, and what is forked from it,
/// has no others.
pub const SETTING: &str = "extensions";

/// One set.
#[async_trait]
pub trait Extension: Send + Sync {
    /// Its tools at this moment; see [`Toolbox::tools`].
    fn tools(&self, _conversation: ConversationId, _settings: &Value) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    /// Its hooks at this moment.
    fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        Vec::new()
    }

    /// Its sections as they should now be. A section's name is one within the set; the
    /// empty one is the set's own. An error, or a panic, leaves them as they were.
    async fn sections(
        &self,
        _conversation: ConversationId,
        _settings: &Value,
    ) -> Result<Vec<Section>, String> {
        Ok(Vec::new())
    }
}

type Named = (String, Arc<dyn Extension>);

/// The extensions that there are, in the order in which they were first put here.
#[derive(Default)]
pub struct Extensions {
    all: RwLock<Vec<Named>>,
}

impl Extensions {
    /// Puts an extension here, in the place of the one of that name.
    pub fn put(&self, name: &str, extension: Arc<dyn Extension>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = extension,
            None => all.push((name.to_owned(), extension)),
        }
    }

    /// Takes one away. Conversations keep its name, and have it again once it is back.
    pub fn remove(&self, name: &str) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(known, _)| known != name);
    }

    /// Their names, in order.
    pub fn names(&self) -> Vec<String> {
        self.of(&Value::Null)
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    /// Those of a conversation with these settings.
    fn of(&self, settings: &Value) -> Vec<Named> {
        let named = settings.get(SETTING).and_then(Value::as_array);
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .filter(|(name, _)| named.is_none_or(|named| named.iter().any(|it| it == name)))
            .cloned()
            .collect()
    }
}

impl Toolbox for Extensions {
    /// Of two tools with one name the first counts.
    fn tools(&self, conversation: ConversationId, settings: &Value) -> Vec<Arc<dyn Tool>> {
        let mut names = HashSet::new();
        self.of(settings)
            .into_iter()
            .flat_map(|(_, extension)| extension.tools(conversation, settings))
            .filter(|tool| names.insert(tool.declaration().schema.name))
            .collect()
    }

    fn hooks(&self, _conversation: ConversationId, settings: &Value) -> Vec<Arc<dyn Hook>> {
        self.of(settings)
            .into_iter()
            .flat_map(|(_, extension)| extension.hooks())
            .collect()
    }
}

#[async_trait]
impl Prompt for Extensions {
    async fn sections(
        &self,
        conversation: ConversationId,
        settings: &Value,
    ) -> Result<Rendered, String> {
        let of = self.of(settings);
        let rendering = of.iter().map(|(_, extension)| {
            AssertUnwindSafe(extension.sections(conversation, settings)).catch_unwind()
        });
        let mut rendered = Rendered::default();
        for ((name, _), sections) in of.iter().zip(join_all(rendering).await) {
            let error = match sections {
                Ok(Ok(sections)) => {
                    let named = sections.into_iter().map(|section| Section {
                        name: match section.name.as_str() {
                            "" => name.clone(),
                            own => format!("{name}/{own}"),
                        },
                        text: section.text,
                    });
                    rendered.sections.extend(named);
                    continue;
                }
                Ok(Err(error)) => error,
                Err(_) => "it panicked".into(),
            };
            tracing::warn!(%conversation, extension = name, error, "the sections of an extension stay as they were");
            rendered.kept.push(name.clone());
        }
        Ok(rendered)
    }
}

/// The settings of a conversation that begins by another one's: it has no extensions that
/// that one has not.
pub(crate) fn narrowed(by: &Value, mut settings: Value) -> Value {
    let names = |settings: &Value| settings.get(SETTING).and_then(Value::as_array).cloned();
    let Some(allowed) = names(by) else {
        return settings;
    };
    let wanted = names(&settings).unwrap_or_else(|| allowed.clone());
    let both: Vec<Value> = allowed
        .into_iter()
        .filter(|name| wanted.contains(name))
        .collect();
    match settings.as_object_mut() {
        Some(settings) => drop(settings.insert(SETTING.into(), Value::Array(both))),
        None => settings = json!({ SETTING: both }),
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_by_another_conversation_has_no_more_than_that() {
        for (by, settings, expected) in [
            (json!({}), json!({"title": "t"}), json!({"title": "t"})),
            (
                json!({}),
                json!({"extensions": ["a"]}),
                json!({"extensions": ["a"]}),
            ),
            (
                json!({"extensions": ["a", "b"]}),
                json!({"title": "t"}),
                json!({"title": "t", "extensions": ["a", "b"]}),
            ),
            (
                json!({"extensions": ["a", "b"]}),
                json!({"extensions": ["b", "c"]}),
                json!({"extensions": ["b"]}),
            ),
            (
                json!({"extensions": ["a"]}),
                Value::Null,
                json!({"extensions": ["a"]}),
            ),
        ] {
            assert_eq!(narrowed(&by, settings.clone()), expected, "{by} {settings}");
        }
    }
}
