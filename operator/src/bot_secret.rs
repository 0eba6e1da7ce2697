//! The Secret with the bot's certificate, in the operator's namespace: there before
//! a bot is installed, and renewed for as long as the operator runs.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::authority::Authority;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::names::FIELD_MANAGER;

/// Its name.
pub const BOT_SECRET: &str = "mooring-bot-tls";
/// How often it is written again where it could not be.
const AGAIN: Duration = Duration::from_secs(30);

/// Keeps it current, for ever.
pub async fn keep(client: &Client, authority: Arc<Authority>, namespace: &str, metrics: &Metrics) {
    loop {
        let rest = match write(client, &authority, namespace).await {
            Ok(next) => {
                metrics.wrote("apply", "Secret");
                let left = next.duration_since(Timestamp::now());
                Duration::try_from(left).unwrap_or_default().max(AGAIN)
            }
            Err(error) => {
                tracing::warn!(%error, "the bot's certificate could not be written");
                AGAIN
            }
        };
        tokio::time::sleep(rest).await;
    }
}

async fn write(
    client: &Client,
    authority: &Authority,
    namespace: &str,
) -> Result<Timestamp, Error> {
    let (certificate, next) = authority.program("bot", namespace, Timestamp::now())?;
    let encode = |text: &str| ByteString(text.into());
    let body = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": BOT_SECRET,
            "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER},
        },
        "type": "kubernetes.io/tls",
        "data": {
            "ca.crt": encode(&certificate.ca),
            "tls.crt": encode(&certificate.certificate),
            "tls.key": encode(&certificate.key),
        },
    });
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    api.patch(
        BOT_SECRET,
        &PatchParams::apply(FIELD_MANAGER).force(),
        &Patch::Apply(body),
    )
    .await
    .map_err(|error| Error::from_api("patch", "Secret", BOT_SECRET, error))?;
    Ok(next)
}
