//! Removes Approval objects that are terminal and old. Expiry itself is the
//! harness's; these objects only mirror it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use kube::{Client, ResourceExt};
use mooring_crds::{Approval, ApprovalPhase};

use crate::error::Error;

/// Objects that are read at once; an Approval holds up to 64 KiB of arguments.
const PAGE: u32 = 100;

/// When an approval became terminal, as far as it says; nothing while it is pending.
fn ended(approval: &Approval) -> Option<Timestamp> {
    let status = approval.status.as_ref()?;
    if status.phase? == ApprovalPhase::Pending {
        return None;
    }
    let said = status
        .decided_at
        .as_ref()
        .or(approval.spec.request.expires_at.as_ref());
    said.and_then(|text| text.parse().ok()).or_else(|| {
        approval
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0)
    })
}

/// Whether an approval is terminal for longer than `keep`.
pub fn is_over(approval: &Approval, keep: Duration, now: Timestamp) -> bool {
    ended(approval).is_some_and(|ended| {
        Duration::try_from(now.duration_since(ended)).is_ok_and(|since| since > keep)
    })
}

/// Removes what is over, in one namespace or in all. Answers how many.
pub async fn sweep(
    client: &Client,
    namespace: Option<&str>,
    keep: Duration,
    now: Timestamp,
) -> Result<u64, Error> {
    let all: Api<Approval> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut params = ListParams::default().limit(PAGE);
    let mut removed = 0;
    loop {
        let page = all
            .list(&params)
            .await
            .map_err(|error| Error::from_api("list", "Approval", "*", error))?;
        for approval in page
            .items
            .iter()
            .filter(|approval| is_over(approval, keep, now))
        {
            let name = approval.name_any();
            let own: Api<Approval> =
                Api::namespaced(client.clone(), &approval.namespace().unwrap_or_default());
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: approval.uid(),
                    resource_version: approval.resource_version(),
                }),
                ..DeleteParams::default()
            };
            match own.delete(&name, &params).await {
                Ok(_) => removed += 1,
                // Gone or changed meanwhile: the next sweep looks again.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(Error::from_api("delete", "Approval", &name, error)),
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(removed),
        }
    }
}

#[cfg(test)]
mod tests {
    use mooring_crds::ApprovalStatus;

    use super::*;

    #[test]
    fn only_what_ended_long_ago_is_over() {
        let good: std::collections::BTreeMap<String, serde_json::Value> =
            serde_saphyr::from_str(include_str!("../../crds/tests/good.yaml")).expect("YAML");
        let mut approval: Approval =
            serde_json::from_value(good["Approval"].clone()).expect("an Approval");
        let now: Timestamp = "2026-05-10T00:00:00Z".parse().expect("a time");
        let keep = Duration::from_secs(7 * 86_400);
        for (phase, decided_at, over) in [
            (None, None, false),
            (Some(ApprovalPhase::Pending), None, false),
            (
                Some(ApprovalPhase::Approved),
                Some("2026-05-09T00:00:00Z"),
                false,
            ),
            (
                Some(ApprovalPhase::Denied),
                Some("2026-05-02T00:00:00Z"),
                true,
            ),
            // Its expiry lies in the future, so it cannot have ended long ago.
            (Some(ApprovalPhase::Superseded), None, false),
        ] {
            approval.status = Some(ApprovalStatus {
                phase,
                decided_at: decided_at.map(str::to_owned),
                ..ApprovalStatus::default()
            });
            assert_eq!(is_over(&approval, keep, now), over, "{phase:?}");
        }
    }
}
