//! Schemas of servers' tools, made such that every provider takes them.
//!
//! Providers refuse a whole request for one tool with a schema that they do not like:
//! references, a choice at the top, formats that they do not know, keys that they do not
//! know. What is left here may allow more than the server does; the server checks the
//! arguments itself and says what is wrong.

use serde_json::{Map, Value, json};

/// Characters of a description.
const DESCRIPTION: usize = 1_024;
/// How deep a schema goes; below that everything is allowed.
const DEEPEST: usize = 10;
/// Places that a schema has; more than that, and only the top is kept.
const MOST: usize = 400;
/// Bytes of a schema.
const LARGEST: usize = 16 * 1024;
/// Formats that every provider knows or passes over.
const FORMATS: [&str; 9] = [
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
];
/// Keys that are kept as they are.
const PLAIN: [&str; 13] = [
    "title",
    "description",
    "default",
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
];

/// A description that is not too long and has no control characters.
pub fn description(text: &str) -> String {
    let plain = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => ' ',
        c => c,
    };
    let text = text.trim();
    match text.char_indices().nth(DESCRIPTION) {
        None => text.chars().map(plain).collect(),
        Some((cut, _)) => {
            let head = &text[..text[..cut].rfind(char::is_whitespace).unwrap_or(cut)];
            head.chars().map(plain).chain(['…']).collect()
        }
    }
}

/// The schema of a tool's arguments: an object, without references, without a choice at
/// the top. A function of its argument alone.
pub fn clean(schema: &Map<String, Value>) -> Value {
    let whole = Value::Object(schema.clone());
    let mut cleaner = Cleaner {
        root: &whole,
        places: 0,
    };
    let top = cleaner.top(schema);
    match cleaner.places <= MOST && top.to_string().len() <= LARGEST {
        true => top,
        // The names alone tell most of it.
        false => shallow(&top),
    }
}

fn shallow(top: &Value) -> Value {
    let names = top["properties"].as_object().into_iter().flatten();
    let properties: Map<String, Value> = names
        .take(100)
        .map(|(name, schema)| {
            let mut kept = Map::new();
            if let Some(kind) = schema.get("type") {
                kept.insert("type".into(), kind.clone());
            }
            if schema.get("type") == Some(&json!("array")) {
                kept.insert("items".into(), json!({}));
            }
            (name.clone(), Value::Object(kept))
        })
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required(top.get("required"), &properties),
    })
}

struct Cleaner<'a> {
    root: &'a Value,
    places: usize,
}

impl Cleaner<'_> {
    fn top(&mut self, schema: &Map<String, Value>) -> Value {
        let Value::Object(merged) = self.schema(&Value::Object(schema.clone()), 0, &mut Vec::new())
        else {
            return json!({ "type": "object", "properties": {} });
        };
        let (mut properties, mut needed) = (Map::new(), Vec::new());
        if let Some(Value::Object(own)) = merged.get("properties") {
            properties.extend(own.clone());
        }
        needed.extend(names(merged.get("required")));
        for choice in ["anyOf", "oneOf"] {
            let Some(Value::Array(branches)) = merged.get(choice) else {
                continue;
            };
            // What one branch needs and another does not is not needed here.
            let mut common: Option<Vec<String>> = None;
            for branch in branches {
                if let Some(Value::Object(own)) = branch.get("properties") {
                    for (name, schema) in own {
                        properties.entry(name).or_insert_with(|| schema.clone());
                    }
                }
                let own = names(branch.get("required"));
                common = Some(match common {
                    None => own,
                    Some(common) => common.into_iter().filter(|n| own.contains(n)).collect(),
                });
            }
            needed.extend(common.unwrap_or_default());
        }
        let mut top = Map::new();
        top.insert("type".into(), json!("object"));
        if let Some(text) = merged.get("description") {
            top.insert("description".into(), text.clone());
        }
        let needed = required(Some(&json!(needed)), &properties);
        top.insert("properties".into(), Value::Object(properties));
        top.insert("required".into(), needed);
        if merged.get("additionalProperties") == Some(&json!(false))
            && !merged.contains_key("anyOf")
            && !merged.contains_key("oneOf")
        {
            top.insert("additionalProperties".into(), json!(false));
        }
        Value::Object(top)
    }

    fn schema(&mut self, schema: &Value, depth: usize, path: &mut Vec<String>) -> Value {
        self.places += 1;
        let Value::Object(schema) = schema else {
            // `true`, `false`, and what is no schema.
            return json!({});
        };
        if depth > DEEPEST || self.places > MOST {
            return json!({});
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.referred(reference, schema, depth, path);
        }
        let mut out = Map::new();
        for key in PLAIN {
            if let Some(value) = schema.get(key) {
                out.insert(key.into(), value.clone());
            }
        }
        if let Some(text) = schema.get("description").and_then(Value::as_str) {
            out.insert("description".into(), json!(description(text)));
        }
        if let Some(value) = schema.get("const") {
            out.insert("enum".into(), json!([value]));
        }
        if out
            .get("enum")
            .is_some_and(|list| list.as_array().is_none_or(Vec::is_empty))
        {
            out.remove("enum");
        }
        if let Some(format) = schema.get("format").filter(|format| {
            format
                .as_str()
                .is_some_and(|format| FORMATS.contains(&format))
        }) {
            out.insert("format".into(), format.clone());
        }
        self.kind(schema, &mut out);
        self.members(schema, &mut out, depth, path);
        self.choices(schema, &mut out, depth, path);
        Value::Object(out)
    }

    /// What a reference within the schema stands for. One that goes round, or out, allows
    /// everything.
    fn referred(
        &mut self,
        reference: &str,
        beside: &Map<String, Value>,
        depth: usize,
        path: &mut Vec<String>,
    ) -> Value {
        let pointer = reference.strip_prefix('#');
        let found = pointer.and_then(|pointer| self.root.pointer(pointer));
        let mut out = match found {
            Some(found) if !path.iter().any(|seen| seen == reference) => {
                path.push(reference.to_owned());
                let found = self.schema(&found.clone(), depth + 1, path);
                path.pop();
                found
            }
            _ => json!({}),
        };
        for key in ["title", "description", "default"] {
            if let (Some(value), Some(out)) = (beside.get(key), out.as_object_mut()) {
                out.insert(key.into(), value.clone());
            }
        }
        out
    }

    /// The type, which is one: null is left out, and several become a choice.
    fn kind(&mut self, schema: &Map<String, Value>, out: &mut Map<String, Value>) {
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let known = ["object", "array", "string", "number", "integer", "boolean"];
        let mut kinds: Vec<&str> = kinds
            .into_iter()
            .filter(|kind| known.contains(kind))
            .collect();
        kinds.dedup();
        match kinds[..] {
            [] if schema.contains_key("properties") => {
                out.insert("type".into(), json!("object"));
            }
            [] if schema.contains_key("items") => {
                out.insert("type".into(), json!("array"));
            }
            [] => {}
            [one] => {
                out.insert("type".into(), json!(one));
            }
            _ => {
                let all: Vec<Value> = kinds
                    .iter()
                    .map(|kind| match *kind {
                        "array" => json!({ "type": "array", "items": {} }),
                        kind => json!({ "type": kind }),
                    })
                    .collect();
                out.insert("anyOf".into(), Value::Array(all));
            }
        }
    }

    fn members(
        &mut self,
        schema: &Map<String, Value>,
        out: &mut Map<String, Value>,
        depth: usize,
        path: &mut Vec<String>,
    ) {
        if let Some(Value::Object(members)) = schema.get("properties") {
            let mut properties = Map::new();
            for (name, member) in members {
                if is_property(name) {
                    properties.insert(name.clone(), self.schema(member, depth + 1, path));
                }
            }
            out.insert(
                "required".into(),
                required(schema.get("required"), &properties),
            );
            out.insert("properties".into(), Value::Object(properties));
            // Where a name was left out, it may still be given.
            let whole = members.keys().all(|name| is_property(name));
            if schema.get("additionalProperties") == Some(&json!(false)) && whole {
                out.insert("additionalProperties".into(), json!(false));
            }
        } else if out.get("type") == Some(&json!("object")) {
            out.insert("properties".into(), json!({}));
        }
        if out.get("type") == Some(&json!("array")) {
            let items = schema.get("items").or_else(|| {
                let first = schema.get("prefixItems")?.as_array()?.first()?;
                Some(first)
            });
            let items = match items {
                Some(Value::Array(list)) => list.first(),
                items => items,
            };
            let items =
                items.map_or_else(|| json!({}), |items| self.schema(items, depth + 1, path));
            out.insert("items".into(), items);
        }
    }

    /// Choices; `allOf` becomes one schema.
    fn choices(
        &mut self,
        schema: &Map<String, Value>,
        out: &mut Map<String, Value>,
        depth: usize,
        path: &mut Vec<String>,
    ) {
        for choice in ["anyOf", "oneOf"] {
            let Some(Value::Array(branches)) = schema.get(choice) else {
                continue;
            };
            let mut kept: Vec<Value> = branches
                .iter()
                .filter(|branch| branch.get("type") != Some(&json!("null")))
                .map(|branch| self.schema(branch, depth + 1, path))
                .collect();
            match (kept.len(), kept.pop()) {
                (0, _) | (_, None) => {}
                (1, Some(Value::Object(only))) => {
                    for (key, value) in only {
                        out.entry(key).or_insert(value);
                    }
                }
                (_, Some(last)) => {
                    kept.push(last);
                    // One word for both: not all providers know the other.
                    out.insert("anyOf".into(), Value::Array(kept));
                }
            }
        }
        let Some(Value::Array(parts)) = schema.get("allOf") else {
            return;
        };
        for part in parts {
            let Value::Object(part) = self.schema(part, depth + 1, path) else {
                continue;
            };
            for (key, value) in part {
                match (key.as_str(), out.get_mut(&key), value) {
                    ("properties", Some(Value::Object(own)), Value::Object(more)) => {
                        own.extend(more);
                    }
                    ("required", Some(Value::Array(own)), Value::Array(more)) => {
                        own.extend(more);
                    }
                    (_, None, value) => {
                        out.insert(key, value);
                    }
                    _ => {}
                }
            }
        }
        if let Some(Value::Object(properties)) = out.get("properties").cloned() {
            let all = required(out.get("required"), &properties);
            out.insert("required".into(), all);
        }
    }
}

/// Whether providers take it as the name of an argument.
fn is_property(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    !name.is_empty() && name.len() <= 64 && name.chars().all(fits)
}

fn names(required: Option<&Value>) -> Vec<String> {
    let list = required.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The needed names, once each, of those that there are.
fn required(given: Option<&Value>, properties: &Map<String, Value>) -> Value {
    let mut needed: Vec<String> = Vec::new();
    for name in names(given) {
        if properties.contains_key(&name) && !needed.contains(&name) {
            needed.push(name);
        }
    }
    json!(needed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cleaned(schema: Value) -> Value {
        clean(schema.as_object().unwrap())
    }

    #[test]
    fn schemas_that_providers_refuse_are_made_to_fit() {
        let rows = [
            (
                "nothing at all",
                json!({}),
                json!({"type": "object", "properties": {}, "required": []}),
            ),
            (
                "no type",
                json!({"properties": {"a": {"type": "string"}}, "required": ["a", "b", "a"]}),
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
            ),
            (
                "references",
                json!({"type": "object", "$schema": "x", "$defs": {"P": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                    "properties": {"p": {"$ref": "#/$defs/P", "description": "where"}, "q": {"$ref": "http://else.where/"}}}),
                json!({"type": "object", "properties": {
                    "p": {"required": [], "properties": {"x": {"type": "integer"}}, "type": "object", "description": "where"},
                    "q": {}}, "required": []}),
            ),
            (
                "a reference that goes round",
                json!({"type": "object", "definitions": {"T": {"type": "object", "properties": {"next": {"$ref": "#/definitions/T"}}}},
                    "properties": {"t": {"$ref": "#/definitions/T"}}}),
                json!({"type": "object", "properties": {"t": {"type": "object", "properties": {"next": {}}, "required": []}}, "required": []}),
            ),
            (
                "a choice at the top",
                json!({"anyOf": [
                    {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}, "required": ["id", "n"]},
                    {"type": "object", "properties": {"id": {"type": "string"}, "name": {"type": "string"}}, "required": ["id", "name"]}]}),
                json!({"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]}),
            ),
            (
                "parts at the top",
                json!({"allOf": [
                    {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                    {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}),
                json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]}),
            ),
            (
                "formats, lists without items, null, constants, keys of other drafts",
                json!({"type": "object", "additionalProperties": false, "properties": {
                    "u": {"type": "string", "format": "uri-template"},
                    "d": {"type": "string", "format": "date"},
                    "l": {"type": "array"},
                    "m": {"type": ["string", "null"]},
                    "o": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null},
                    "c": {"const": "x"},
                    "k": {"type": "object", "patternProperties": {"^a": {}}, "unevaluatedProperties": false},
                    "s": {"type": ["string", "integer"]},
                    "y": true}}),
                json!({"type": "object", "properties": {
                    "u": {"type": "string"},
                    "d": {"type": "string", "format": "date"},
                    "l": {"type": "array", "items": {}},
                    "m": {"type": "string"},
                    "o": {"type": "integer", "default": null},
                    "c": {"enum": ["x"]},
                    "k": {"type": "object", "properties": {}},
                    "s": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                    "y": {}}, "required": [], "additionalProperties": false}),
            ),
            (
                "names that are no words",
                json!({"type": "object", "additionalProperties": false, "properties": {"größe": {"type": "integer"}, "ok": {"type": "string"}}, "required": ["größe", "ok"]}),
                json!({"type": "object", "properties": {"ok": {"type": "string"}}, "required": ["ok"]}),
            ),
        ];
        for (what, given, expected) in rows {
            assert_eq!(cleaned(given), expected, "{what}");
        }
    }

    #[test]
    fn a_huge_schema_keeps_the_names_of_its_arguments() {
        let mut deep = json!({"type": "string"});
        for _ in 0..1_000 {
            deep = json!({"type": "object", "properties": {"d": deep}});
        }
        let text = cleaned(deep).to_string();
        assert!(text.len() < 2_000, "{text}");
        let many: Map<String, Value> = (0..5_000)
            .map(|at| {
                (
                    format!("p{at}"),
                    json!({"type": "string", "description": "x".repeat(900)}),
                )
            })
            .collect();
        let wide =
            cleaned(json!({"type": "object", "properties": many, "required": ["p1", "p4999"]}));
        assert!(
            wide.to_string().len() <= LARGEST,
            "{}",
            wide.to_string().len()
        );
        assert_eq!(wide["properties"]["p1"], json!({"type": "string"}));
        // Each refers to the next one twice.
        let defs: Map<String, Value> = (0..60)
            .map(|at| {
                let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
                (
                    format!("d{at}"),
                    json!({"type": "object", "properties": {"a": next.clone(), "b": next}}),
                )
            })
            .collect();
        let bomb = cleaned(json!({"$defs": defs, "properties": {"x": {"$ref": "#/$defs/d0"}}}));
        assert!(bomb.to_string().len() <= LARGEST);
    }

    #[test]
    fn descriptions_are_cut_between_words_and_have_no_control_characters() {
        assert_eq!(
            description("  reads\u{1b}[31m a\nfile "),
            "reads [31m a\nfile"
        );
        let long = description(&"word ".repeat(1_000));
        assert!(
            long.chars().count() <= DESCRIPTION + 1 && long.ends_with("word…"),
            "{long}"
        );
    }
}
