//! Volumes that grow. A StatefulSet's claims cannot be changed in place: the claim
//! is patched, and the StatefulSet is deleted without its pod and made again.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::apply::{api, live};
use crate::build::{Kind, Object};
use crate::error::Error;
use crate::quantity::milli;

/// The size in a StatefulSet's first volume claim.
fn size(set: &Value) -> Option<&str> {
    set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"].as_str()
}

/// The size that `wanted` asks for, where the live StatefulSet has a smaller one.
fn grows_to<'a>(wanted: &'a Value, live: &Value) -> Option<&'a str> {
    let (new, old) = (size(wanted)?, size(live)?);
    (milli(new)? > milli(old)?).then_some(new)
}

/// Makes way for `object` where its volume is to grow: afterwards it can be applied.
/// Answers whether it wrote.
pub async fn grow(
    client: &Client,
    object: &Object,
    claim: &str,
    owner_uid: &str,
) -> Result<bool, Error> {
    if object.kind != Kind::StatefulSet {
        return Ok(false);
    }
    let Some(live) = live(client, object, owner_uid).await? else {
        return Ok(false);
    };
    let (uid, version) = (live.uid(), live.resource_version());
    let live = serde_json::to_value(live).expect("it came as JSON");
    let Some(new) = grows_to(&object.body, &live) else {
        return Ok(false);
    };

    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &object.namespace);
    let found = claims
        .get_opt(claim)
        .await
        .map_err(|error| Error::from_api("get", "PersistentVolumeClaim", claim, error))?;
    if found.is_some() {
        let patch = json!({"spec": {"resources": {"requests": {"storage": new}}}});
        claims
            .patch(claim, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(|error| {
                match Error::from_api("patch", "PersistentVolumeClaim", claim, error) {
                    Error::Refused { message, .. } | Error::Forbidden { message, .. } => {
                        Error::CannotGrow {
                            claim: claim.into(),
                            size: new.into(),
                            message,
                        }
                    }
                    other => other,
                }
            })?;
    }
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        preconditions: Some(Preconditions {
            uid,
            resource_version: version,
        }),
        ..DeleteParams::default()
    };
    api(client, object)
        .delete(&object.name, &params)
        .await
        .map_err(|error| Error::from_api("delete", "StatefulSet", &object.name, error))?;
    tracing::info!(
        claim,
        size = new,
        "a volume grows; its StatefulSet is made again"
    );
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_larger_size_is_growth() {
        let set = |size: &str| {
            json!({"spec": {"volumeClaimTemplates": [
                {"spec": {"resources": {"requests": {"storage": size}}}},
            ]}})
        };
        for (old, new, grows) in [
            ("1Gi", "2Gi", Some("2Gi")),
            ("1Gi", "1024Mi", None),
            ("2Gi", "1Gi", None),
        ] {
            assert_eq!(grows_to(&set(new), &set(old)), grows, "{old} to {new}");
        }
    }
}
