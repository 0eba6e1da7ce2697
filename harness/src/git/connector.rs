//! One request on a connection of its own, to a host that the harness itself chose.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use hyper::{
    HeaderMap, Method, Request, Response,
    body::Incoming,
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;

use super::{
    address::Address,
    upstream::{Failure, World},
};
use crate::boundary::is_public;

/// An answer of a host.
pub type Answered = Response<Incoming>;

/// Connects to hosts by the one way to the world.
pub struct Connector {
    world: Arc<dyn World>,
    tls: OnceLock<Arc<rustls::ClientConfig>>,
}

impl Connector {
    /// A connector whose hosts have certificates by `tls`; those that this machine
    /// trusts where it is `None`.
    pub fn new(world: Arc<dyn World>, tls: Option<Arc<rustls::ClientConfig>>) -> Connector {
        Connector {
            world,
            tls: tls.map_or_else(OnceLock::new, OnceLock::from),
        }
    }

    /// Certificates as this machine trusts them, looked at when they are first needed.
    fn tls(&self) -> Arc<rustls::ClientConfig> {
        let made = self.tls.get_or_init(|| {
            let mut roots = rustls::RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("ring has all of them");
            Arc::new(config.with_root_certificates(roots).with_no_client_auth())
        });
        made.clone()
    }

    /// Sends a request to the host of `at`. It waits for the answer's head as long as it
    /// takes; whoever asks has a bound for it.
    pub async fn exchange(
        &self,
        at: &Address,
        request: Request<Body>,
    ) -> Result<Answered, Failure> {
        let tcp = self.world.connect(&at.host, at.port).await;
        let tcp = tcp.map_err(|why| unreachable(at, why))?;
        let _ = tcp.set_nodelay(true);
        if at.tls {
            let name = ServerName::try_from(at.host.clone());
            let name = name.map_err(|error| unreachable(at, error))?;
            let tls = tokio_rustls::TlsConnector::from(self.tls());
            let tls = tls.connect(name, tcp).await;
            return send(at, tls.map_err(|error| unreachable(at, error))?, request).await;
        }
        // Only what an installation has named leads to another than a public address.
        let peer = tcp.peer_addr().map_err(|error| unreachable(at, error))?;
        if is_public(peer.ip()) {
            return Err(unreachable(
                at,
                "plain http is only for privateDestinations; write https",
            ));
        }
        send(at, tcp, request).await
    }
}

async fn send<S>(at: &Address, stream: S, request: Request<Body>) -> Result<Answered, Failure>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(at, error))?;
    tokio::spawn(async move {
        // What goes wrong on it shows in the answer.
        let _ = connection.await;
    });
    let answer = sender.send_request(request).await;
    answer.map_err(|error| unreachable(at, error))
}

/// A request to a host, with these fields and those that every request has.
pub fn request(
    at: &Address,
    method: Method,
    path: &str,
    fields: HeaderMap,
    body: Body,
) -> Result<Request<Body>, Failure> {
    let request = Request::builder().method(method).uri(path).body(body);
    let mut request = request.map_err(|error| unreachable(at, error))?;
    let host = HeaderValue::from_str(&at.authority()).map_err(|error| unreachable(at, error))?;
    *request.headers_mut() = fields;
    request.headers_mut().insert(header::HOST, host);
    request
        .headers_mut()
        .insert(header::USER_AGENT, user_agent());
    Ok(request)
}

/// What the harness calls itself: some hosts answer otherwise to what is no git.
fn user_agent() -> HeaderValue {
    HeaderValue::from_static(concat!(
        "git/2.45 (mooring ",
        env!("CARGO_PKG_VERSION"),
        ")"
    ))
}

/// The host is not reached, or not safely.
pub fn unreachable(at: &Address, why: impl std::fmt::Display) -> Failure {
    Failure::Unreachable {
        host: at.authority(),
        why: why.to_string(),
    }
}

/// The body of an answer, whose pieces come within `patience` each, or it ends with an
/// error.
pub fn timely(host: String, answer: Answered, patience: Duration) -> Body {
    let pieces = Body::new(answer.into_body()).into_data_stream();
    let pieces = futures::stream::unfold(Some(pieces), move |pieces| {
        let host = host.clone();
        async move {
            let mut pieces = pieces?;
            let stuck = |why: String| Some((Err::<Bytes, _>(std::io::Error::other(why)), None));
            match tokio::time::timeout(patience, pieces.next()).await {
                Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some(pieces))),
                Ok(Some(Err(error))) => stuck(format!("{host} broke off: {error}")),
                Ok(None) => None,
                Err(_) => stuck(format!("{host} sent nothing for {} s", patience.as_secs())),
            }
        }
    });
    Body::from_stream(pieces)
}
