//! `--check HOST:PORT`: whether an installation is well, for `helm test`.

use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, PostParams};
use mooring_crds::Approval;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long an operator may take to become ready.
const LONG: Duration = Duration::from_secs(60);
const BETWEEN: Duration = Duration::from_millis(500);
/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read.
const MOST: u64 = 4096;

/// What is not well.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The operator is not ready.
    #[error("the operator at {address} is not ready: {said}")]
    NotReady {
        /// Where it was asked.
        address: String,
        /// What it said.
        said: String,
    },
    /// Somebody who is no harness could make an Approval.
    #[error(
        "anybody with RBAC permission can make Approvals: the admission policy mooring-approvals \
         is not in force (admission.enabled of the chart)"
    )]
    NoAdmission,
    /// The API server answered with something else.
    #[error("whether the admission policy is in force cannot be told: {0}")]
    Admission(#[source] Box<kube::Error>),
}

/// Waits until the operator at `address` (`HOST:PORT`) says that it is ready, at
/// most a minute.
pub async fn is_ready(address: &str) -> Result<(), CheckError> {
    let end = Instant::now() + LONG;
    loop {
        let said = match tokio::time::timeout(ANSWER, readyz(address)).await {
            Ok(Ok(answer)) if answer.starts_with("HTTP/1.0 200") => return Ok(()),
            Ok(Ok(answer)) => answer
                .trim_end()
                .rsplit('\n')
                .next()
                .unwrap_or("")
                .to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        if Instant::now() >= end {
            let address = address.to_owned();
            return Err(CheckError::NotReady { address, said });
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

async fn readyz(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Whether making an Approval is refused to whoever is no harness. Asks in a dry
/// run, with the permission to create Approvals; nothing is made.
pub async fn approvals_are_guarded(client: Client, namespace: &str) -> Result<(), CheckError> {
    let api: Api<Approval> = Api::namespaced(client, namespace);
    let digest = "0".repeat(64);
    let approval = serde_json::from_value(json!({
        "metadata": {"name": "mooring-check"},
        "spec": {"request": {
            "workspaceRef": {"name": "mooring-check"},
            "conversation": 1,
            "task": 1,
            "tool": "bash",
            "summary": "nothing: a check of the installation",
            "arguments": "{}",
            "argumentsSha256": digest,
            "policyDigest": digest,
            "rule": "none",
            "requesters": [{"name": "nobody"}],
            "requesterMayApprove": false,
        }},
    }));
    let approval: Approval = approval.expect("an Approval as its type says");
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api.create(&dry, &approval).await {
        Ok(_) => Err(CheckError::NoAdmission),
        Err(kube::Error::Api(status))
            if status.message.contains("only the harness of the workspace") =>
        {
            Ok(())
        }
        Err(error) => Err(CheckError::Admission(Box::new(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn an_operator_is_ready_when_it_has_its_types() {
        let metrics = Metrics::new().expect("registered");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(axum::serve(listener, metrics.routes()).into_future());
        let answer = readyz(&address).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.0 503"), "{answer}");
        metrics.crds_missing(false);
        is_ready(&address).await.expect("ready");
    }
}
