//! Applies what differs, and nothing else.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use mooring_crds::Workspace;
use serde_json::Value;

use crate::build::{Kind, Object};
use crate::error::Error;
use crate::names::FIELD_MANAGER;
use crate::quantity;

/// How long a Secret that this process wrote is taken to be still there while
/// its pod does not come up.
const SECRET_DOUBT: Duration = Duration::from_secs(30);

/// Entries for workspaces that are gone are never looked for; this bounds them.
const SECRETS_KEPT_IN_MIND: usize = 50_000;

/// What this process wrote into Secrets, since it never reads them: digest and time.
#[derive(Debug, Default)]
pub struct WrittenSecrets(Mutex<HashMap<(String, String), (String, Instant)>>);

/// Whether the pod that mounts a Secret is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounted {
    /// It is, so the Secret is there.
    Yes,
    /// It is not, and a missing Secret may be why.
    No,
}

impl WrittenSecrets {
    fn is_due(&self, object: &Object, mounted: Mounted) -> bool {
        let written = self.0.lock().expect("no holder panics");
        match written.get(&(object.namespace.clone(), object.name.clone())) {
            Some((digest, at)) => {
                *digest != wanted_digest(object)
                    || (mounted == Mounted::No && at.elapsed() > SECRET_DOUBT)
            }
            None => true,
        }
    }

    fn note(&self, object: &Object) {
        let key = (object.namespace.clone(), object.name.clone());
        let mut written = self.0.lock().expect("no holder panics");
        if written.len() >= SECRETS_KEPT_IN_MIND {
            written.clear(); // they are written once more, which changes nothing
        }
        written.insert(key, (wanted_digest(object), Instant::now()));
    }
}

fn wanted_digest(object: &Object) -> String {
    object.body["metadata"]["annotations"].to_string()
}

/// How an object is addressed.
pub fn api(client: &Client, object: &Object) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &object.namespace, &object.kind.resource())
}

/// The live object, where there is one and it belongs to the Workspace with `owner_uid`,
/// or to a former one of that name: its garbage collection may be late, and what it
/// left is taken over.
pub async fn live(
    client: &Client,
    object: &Object,
    owner_uid: &str,
) -> Result<Option<DynamicObject>, Error> {
    let found = api(client, object)
        .get_opt(&object.name)
        .await
        .map_err(|error| Error::from_api("get", object.kind.as_str(), &object.name, error))?;
    match found {
        Some(found)
            if !found.owner_references().iter().any(|owner| {
                owner.uid == owner_uid
                    || (owner.kind == Workspace::kind(&()) && owner.name == object.workspace)
            }) =>
        {
            Err(Error::NotOurs {
                kind: object.kind.as_str().into(),
                name: object.name.clone(),
            })
        }
        found => Ok(found),
    }
}

/// Applies `object` unless what is there already holds all of it. Answers whether it wrote.
pub async fn apply(
    client: &Client,
    object: &Object,
    owner_uid: &str,
    secrets: &WrittenSecrets,
    mounted: Mounted,
) -> Result<bool, Error> {
    if object.kind == Kind::Secret {
        if !secrets.is_due(object, mounted) {
            return Ok(false);
        }
        // Without force: the fields of a Secret that somebody else made stay theirs.
        write(client, object, PatchParams::apply(FIELD_MANAGER))
            .await
            .map_err(|error| match error {
                Error::Conflict { kind, name } => Error::NotOurs { kind, name },
                other => other,
            })?;
        secrets.note(object);
        return Ok(true);
    }
    if let Some(live) = live(client, object, owner_uid).await? {
        let live = serde_json::to_value(live).expect("it came as JSON");
        if holds("", &object.body, &live) {
            return Ok(false);
        }
    }
    write(client, object, PatchParams::apply(FIELD_MANAGER).force()).await?;
    Ok(true)
}

async fn write(client: &Client, object: &Object, params: PatchParams) -> Result<(), Error> {
    api(client, object)
        .patch(&object.name, &params, &Patch::Apply(&object.body))
        .await
        .map_err(|error| Error::from_api("patch", object.kind.as_str(), &object.name, error))?;
    tracing::info!(
        kind = object.kind.as_str(),
        namespace = object.namespace,
        name = object.name,
        "applied"
    );
    Ok(())
}

/// Lists whose items the API server merges by a key, so that others may add to them.
fn merge_key(field: &str) -> Option<&'static str> {
    match field {
        "containers" | "volumes" | "env" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

/// Whether `live` holds everything that is wanted. What others added to maps and
/// merged lists is theirs; any other list has to be exactly as wanted.
pub fn holds(field: &str, wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => wanted.iter().all(|(key, value)| {
            let field = if matches!(field, "requests" | "limits") {
                "quantity"
            } else {
                key
            };
            match live.get(key) {
                Some(live) => holds(field, value, live),
                None => is_empty(value),
            }
        }),
        (Value::Array(wanted), Value::Array(live)) => match merge_key(field) {
            Some(key) => wanted.iter().all(|item| {
                live.iter()
                    .any(|other| other[key] == item[key] && holds("", item, other))
            }),
            None => {
                wanted.len() == live.len()
                    && wanted
                        .iter()
                        .zip(live)
                        .all(|(wanted, live)| holds("", wanted, live))
            }
        },
        (Value::String(wanted), Value::String(live))
            if matches!(field, "quantity" | "sizeLimit") =>
        {
            quantity::same(wanted, live)
        }
        (wanted, live) => wanted == live,
    }
}

/// The API server leaves out fields that hold nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Null => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn additions_of_others_stay_and_everything_else_is_drift() {
        for (what, wanted, live, same) in [
            ("a default", json!({"a": 1}), json!({"a": 1, "b": 2}), true),
            ("a changed field", json!({"a": 1}), json!({"a": 2}), false),
            (
                "a removed field",
                json!({"a": {"b": 1}}),
                json!({"a": {}}),
                false,
            ),
            ("an emptied field", json!({"replicas": 0}), json!({}), true),
            (
                "an added label",
                json!({"labels": {"a": "1"}}),
                json!({"labels": {"a": "1", "b": "2"}}),
                true,
            ),
            (
                "an added rule",
                json!({"egress": [{"to": []}]}),
                json!({"egress": [{"to": []}, {}]}),
                false,
            ),
            (
                "an added verb",
                json!({"rules": [{"verbs": ["get"]}]}),
                json!({"rules": [{"verbs": ["get", "list"]}]}),
                false,
            ),
            (
                "an added subject",
                json!({"subjects": [{"name": "a"}]}),
                json!({"subjects": [{"name": "a"}, {"name": "b"}]}),
                false,
            ),
            (
                "an injected container",
                json!({"containers": [{"name": "a", "image": "i"}]}),
                json!({"containers": [{"name": "proxy"}, {"name": "a", "image": "i"}]}),
                true,
            ),
            (
                "another image",
                json!({"containers": [{"name": "a", "image": "i"}]}),
                json!({"containers": [{"name": "a", "image": "j"}]}),
                false,
            ),
            (
                "a variable of another value",
                json!({"env": [{"name": "A", "value": "1"}]}),
                json!({"env": [{"name": "A", "value": "2"}]}),
                false,
            ),
            (
                "a quantity in other words",
                json!({"limits": {"memory": "1024Mi"}}),
                json!({"limits": {"memory": "1Gi"}}),
                true,
            ),
            (
                "another quantity",
                json!({"limits": {"memory": "1Gi"}}),
                json!({"limits": {"memory": "2Gi"}}),
                false,
            ),
        ] {
            assert_eq!(holds("", &wanted, &live), same, "{what}");
        }
    }
}
