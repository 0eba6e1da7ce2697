//! Arguments against the schema of their tool.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use jsonschema::Validator;
use serde_json::Value;

use crate::message::ToolSchema;

/// Compiled schemas; a tool that changes its schema gets a new one.
#[derive(Default)]
pub(crate) struct Schemas {
    known: Mutex<HashMap<String, (Value, Arc<Validator>)>>,
}

/// Most tools whose schema is kept compiled.
const MOST: usize = 1_000;
/// Most mistakes that the model is told at once.
const MISTAKES: usize = 5;

impl Schemas {
    /// Checks arguments; the error is for the model. A schema that cannot be compiled
    /// refuses every call, by name.
    pub fn check(&self, tool: &ToolSchema, arguments: &Value) -> Result<(), String> {
        if let Value::String(text) = arguments {
            // The model sent no valid JSON, unless the tool takes a bare string.
            if tool.parameters.get("type").and_then(Value::as_str) != Some("string") {
                let start = &text[..crate::window::floor(text, 200)];
                return Err(format!(
                    "The arguments of {} are not a JSON object: {start}",
                    tool.name
                ));
            }
        }
        let validator = self.validator(tool)?;
        let mistakes: Vec<_> = validator
            .iter_errors(arguments)
            .take(MISTAKES)
            .map(|error| match error.instance_path().to_string() {
                path if path.is_empty() => error.to_string(),
                path => format!("{path}: {error}"),
            })
            .collect();
        if mistakes.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "The arguments of {} do not fit its schema: {}",
                tool.name,
                mistakes.join("; ")
            ))
        }
    }

    fn validator(&self, tool: &ToolSchema) -> Result<Arc<Validator>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((schema, validator)) = known.get(&tool.name)
            && *schema == tool.parameters
        {
            return Ok(validator.clone());
        }
        let validator = jsonschema::validator_for(&tool.parameters).map_err(|error| {
            format!(
                "The schema of {} is broken, so it cannot be called: {error}",
                tool.name
            )
        })?;
        let validator = Arc::new(validator);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(
            tool.name.clone(),
            (tool.parameters.clone(), validator.clone()),
        );
        Ok(validator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mistakes_are_named_with_their_place() {
        let schemas = Schemas::default();
        let tool = |parameters| ToolSchema {
            name: "read".into(),
            description: String::new(),
            parameters,
        };
        let object = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        for (parameters, arguments, expected) in [
            (object.clone(), json!({"path": "a"}), None),
            (
                object.clone(),
                json!({}),
                Some("\"path\" is a required property"),
            ),
            (
                object.clone(),
                json!({"path": 1}),
                Some("/path: 1 is not of type \"string\""),
            ),
            (
                object.clone(),
                json!("{\"path\": "),
                Some("not a JSON object: {\"path\": "),
            ),
            (
                json!({"type": 7}),
                json!({}),
                Some("schema of read is broken"),
            ),
            (json!({"type": "string"}), json!("text"), None),
        ] {
            let found = schemas.check(&tool(parameters), &arguments);
            match expected {
                None => assert_eq!(found, Ok(())),
                Some(text) => assert!(
                    found.clone().is_err_and(|error| error.contains(text)),
                    "{found:?}"
                ),
            }
        }
    }
}
