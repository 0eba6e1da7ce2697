//! Where in a YAML text a field stands, and which field stands at a place.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A place in a text, both numbers from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub line: u64,
    pub column: u64,
}

/// The fields of a YAML text with their places.
pub(super) struct Places(Vec<(String, Place)>);

impl Places {
    /// Of a text that is YAML; nothing is known of another.
    pub(super) fn of(text: &str) -> Places {
        let mut places = Places(Vec::new());
        if let Ok(root) = serde_saphyr::from_str::<Node>(text) {
            places.take("", &root);
        }
        places
    }

    /// Where the field stands, or the nearest one around it that is written.
    pub(super) fn place(&self, path: &str) -> Option<Place> {
        self.0
            .iter()
            .filter(|(known, _)| {
                path.strip_prefix(known.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
            .max_by_key(|(known, _)| known.len())
            .map(|(_, place)| *place)
    }

    /// The field that begins at this place, or the last one before it.
    pub(super) fn path(&self, place: Place) -> Option<&str> {
        self.0
            .iter()
            .filter(|(_, known)| *known <= place)
            .max_by_key(|(path, known)| (*known, path.len()))
            .map(|(path, _)| path.as_str())
    }

    fn take(&mut self, path: &str, node: &Node) {
        match node {
            Node::Map(fields) => {
                for (name, value) in fields {
                    let path = match path {
                        "" => name.value.clone(),
                        path => format!("{path}.{}", name.value),
                    };
                    // An error stands at the name or at the value of a field.
                    self.0.push((path.clone(), place(&name.defined)));
                    self.0.push((path.clone(), place(&value.defined)));
                    self.take(&path, &value.value);
                }
            }
            Node::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    let path = format!("{path}[{at}]");
                    self.0.push((path.clone(), place(&item.defined)));
                    self.take(&path, &item.value);
                }
            }
            Node::Scalar => {}
        }
    }
}

fn place(location: &serde_saphyr::Location) -> Place {
    Place {
        line: location.line(),
        column: location.column(),
    }
}

/// YAML without its scalars.
enum Node {
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Scalar,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

/// Scalars say nothing about places.
macro_rules! scalars {
    ($($method:ident: $type:ty),*) => {
        $(fn $method<E>(self, _: $type) -> Result<Node, E> { Ok(Node::Scalar) })*
    };
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128,
             visit_u128: u128, visit_f64: f64, visit_str: &str, visit_bytes: &[u8]);

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Node::Map(fields))
    }
}
