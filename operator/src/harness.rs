//! Asks harnesses how they are, over mutual TLS, as the operator.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mooring_wire::harness::harness_client::HarnessClient;
use mooring_wire::harness::{StatusRequest, StatusResponse};
use mooring_wire::tls::{Credentials, Issued, connect_lazy};

use crate::authority::Authority;
use crate::error::Error;
use crate::names::{Component, GRPC_PORT, Names};

/// How long a harness may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The operator as a caller of harnesses.
pub struct Caller {
    authority: Arc<Authority>,
    namespace: String,
    /// The certificate in use, and when the next one takes over.
    credentials: Mutex<Option<(Timestamp, Arc<Credentials>)>>,
}

impl Caller {
    /// A caller of this installation.
    pub fn new(authority: Arc<Authority>, namespace: &str) -> Caller {
        Caller {
            authority,
            namespace: namespace.to_owned(),
            credentials: Mutex::new(None),
        }
    }

    /// What a workspace's harness says of itself; nothing where it does not answer.
    pub async fn status(&self, names: &Names) -> Result<Option<StatusResponse>, Error> {
        let credentials = self.credentials()?;
        match tokio::time::timeout(PATIENCE, ask(names, credentials)).await {
            Ok(Ok(status)) => Ok(Some(status)),
            Ok(Err(why)) => {
                tracing::debug!(
                    workspace = names.workspace,
                    why,
                    "a harness does not answer"
                );
                Ok(None)
            }
            Err(_) => Ok(None),
        }
    }

    fn credentials(&self) -> Result<Arc<Credentials>, Error> {
        let now = Timestamp::now();
        let mut held = self
            .credentials
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((next, credentials)) = &*held
            && now < *next
        {
            return Ok(Arc::clone(credentials));
        }
        let (certificate, next) = self.authority.program("operator", &self.namespace, now)?;
        let issued = Issued {
            certificate: certificate.certificate,
            key: certificate.key,
        };
        let credentials = Credentials::from_pem(&issued, &certificate.ca).map_err(|error| {
            Error::Certificate {
                name: "the operator".into(),
                message: error.to_string(),
            }
        })?;
        *held = Some((next, Arc::clone(&credentials)));
        Ok(credentials)
    }
}

async fn ask(names: &Names, credentials: Arc<Credentials>) -> Result<StatusResponse, String> {
    let address = format!("{}:{GRPC_PORT}", names.host(Component::Harness));
    let channel = connect_lazy(address, &names.identity(Component::Harness), credentials)
        .map_err(|error| error.to_string())?;
    let answer = HarnessClient::new(channel).status(StatusRequest {}).await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| status.message().to_owned())
}
