//! Requests to the git host: connected to by the one way to the world, with the
//! credential that only the harness has.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use hyper::{
    Method, Request, StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::{
    address::{Address, Service},
    credential::{Credential, Source},
};

/// Redirects that are followed, all on the same host.
const MOST_REDIRECTS: usize = 3;

/// The one way to the world.
#[async_trait]
pub trait World: Send + Sync {
    /// A connection to `host`; the error is for people.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String>;
}

/// How long the git host may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until it answers.
    pub answer: Duration,
    /// Between two pieces of an answer.
    pub piece: Duration,
    /// Until it answers to a push, whose hooks may run long.
    pub push: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            answer: Duration::from_secs(60),
            piece: Duration::from_secs(120),
            push: Duration::from_secs(600),
        }
    }
}

/// Why the git host gave nothing. Each names what to do, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It wants a credential, and there is none.
    #[error("{host} wants a credential for {path} and the harness has none: {advice}")]
    NoCredential {
        /// The host.
        host: String,
        /// The repository.
        path: String,
        /// What a person does.
        advice: &'static str,
    },
    /// It does not take the credential.
    #[error("{host} does not take the harness's credential for {path} (401): renew it ({advice})")]
    Refused {
        /// The host.
        host: String,
        /// The repository.
        path: String,
        /// What a person does.
        advice: &'static str,
    },
    /// The credential may not do this.
    #[error(
        "{host} does not let the harness's credential do this in {path} (403): give it the right there"
    )]
    Forbidden {
        /// The host.
        host: String,
        /// The repository.
        path: String,
    },
    /// There is no such repository for this credential.
    #[error(
        "{host} has no {path}, or does not show it to the harness's credential (404): check repo.url, and what the credential may see"
    )]
    NotFound {
        /// The host.
        host: String,
        /// The repository.
        path: String,
    },
    /// It leads elsewhere.
    #[error(
        "{host} sends {path} on to {to}: if that is right, name that address in the Workspace's repo"
    )]
    Redirected {
        /// The host.
        host: String,
        /// The repository.
        path: String,
        /// Where to.
        to: String,
    },
    /// It answers with an error.
    #[error("{host} answered {status} for {path}: try again later, or see what its operators say")]
    Status {
        /// The host.
        host: String,
        /// The repository.
        path: String,
        /// Which.
        status: u16,
    },
    /// It does not answer.
    #[error("{host} did not answer within {seconds} s: try again later")]
    Silent {
        /// The host.
        host: String,
        /// How long.
        seconds: u64,
    },
    /// It cannot be reached, or not safely.
    #[error("{host} is not reached: {why}")]
    Unreachable {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// What it says is no git.
    #[error("{host} does not speak git's smart HTTP for {path}: {why}")]
    NotGit {
        /// The host.
        host: String,
        /// The repository.
        path: String,
        /// What it said instead.
        why: String,
    },
}

/// What is asked.
pub struct Ask {
    /// The repository.
    pub address: Address,
    /// The Secret of its credential, in a cluster.
    pub secret: Option<String>,
    /// The service.
    pub service: Service,
    /// Fields for the host, beside those that every request has.
    pub fields: HeaderMap,
}

/// An answer that is git's.
pub struct Answer {
    /// `content-encoding`, where it has one.
    pub encoding: Option<HeaderValue>,
    /// The body; its pieces come in time, or it ends with an error.
    pub body: Body,
}

/// What was learnt of a host, so that the next request asks rightly at once.
#[derive(Clone, Default)]
struct Learnt {
    /// Where the repository is, if it was redirected.
    moved: Option<Address>,
    field: Option<Zeroizing<String>>,
}

/// The git hosts.
pub struct Upstream {
    world: Arc<dyn World>,
    credentials: Source,
    tls: OnceLock<Arc<rustls::ClientConfig>>,
    patience: Patience,
    learnt: Mutex<HashMap<String, Learnt>>,
}

impl Upstream {
    /// Git hosts in this world.
    pub fn new(
        world: Arc<dyn World>,
        credentials: Source,
        tls: Option<Arc<rustls::ClientConfig>>,
        patience: Patience,
    ) -> Upstream {
        Upstream {
            world,
            credentials,
            tls: tls.map_or_else(OnceLock::new, OnceLock::from),
            patience,
            learnt: Mutex::default(),
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

    fn learnt(&self, address: &Address) -> Learnt {
        let learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        learnt
            .get(&address.to_string())
            .cloned()
            .unwrap_or_default()
    }

    fn learn(&self, address: &Address, what: Learnt) {
        let mut learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        learnt.insert(address.to_string(), what);
    }

    /// What there is to be fetched, or pushed to. It asks for a credential where the
    /// host wants one, and follows the host's own redirects.
    pub async fn refs(&self, ask: &Ask) -> Result<Answer, Failure> {
        let mut learnt = self.learnt(&ask.address);
        let mut challenge: Option<String> = None;
        let mut tried = false;
        for _ in 0..=MOST_REDIRECTS + 2 {
            let at = learnt.moved.clone().unwrap_or(ask.address.clone());
            if learnt.field.is_none() {
                let ready = self.credentials.ready(&ask.address, ask.secret.as_deref());
                learnt.field = ready.map(|it| it.field(challenge.as_deref()));
            }
            let path = format!("{}/info/refs?service={}", at.path, ask.service.name());
            let answer = self
                .send(&at, ask, Method::GET, &path, Body::empty(), &learnt)
                .await?;
            let status = answer.status();
            if status == StatusCode::UNAUTHORIZED && !tried {
                tried = true;
                challenge = Some(challenges(answer.headers()));
                learnt.field = self
                    .credential(&ask.address, ask.secret.as_deref())
                    .await
                    .map(|it| it.field(challenge.as_deref()));
                if learnt.field.is_none() {
                    return Err(self.no_credential(&at));
                }
                continue;
            }
            if status.is_redirection() {
                learnt.moved = Some(moved(&at, ask.service, answer.headers())?);
                continue;
            }
            let answer = self.checked(&at, ask.service, "advertisement", answer)?;
            self.learn(&ask.address, learnt);
            return Ok(answer);
        }
        Err(self.status(&ask.address, StatusCode::LOOP_DETECTED))
    }

    /// The service itself. Its body is sent once: a credential, and where the
    /// repository is, were learnt from [`Upstream::refs`].
    pub async fn serve(
        &self,
        ask: &Ask,
        body: Body,
        length: Option<u64>,
    ) -> Result<Answer, Failure> {
        let mut learnt = self.learnt(&ask.address);
        if learnt.field.is_none() {
            let ready = self.credentials.ready(&ask.address, ask.secret.as_deref());
            learnt.field = ready.map(|it| it.field(None));
        }
        let at = learnt.moved.clone().unwrap_or(ask.address.clone());
        let path = format!("{}/{}", at.path, ask.service.name());
        let mut fields = ask.fields.clone();
        if let Some(length) = length {
            fields.insert(header::CONTENT_LENGTH, length.into());
        }
        let ask = Ask {
            address: ask.address.clone(),
            secret: ask.secret.clone(),
            service: ask.service,
            fields,
        };
        let answer = self
            .send(&at, &ask, Method::POST, &path, body, &learnt)
            .await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            // What was learnt is not right any more.
            self.learn(&ask.address, Learnt::default());
            if learnt.field.is_none() {
                return Err(self.no_credential(&at));
            }
        }
        if answer.status().is_redirection() {
            let to = location(answer.headers());
            return Err(Failure::Redirected {
                host: at.authority(),
                path: at.path,
                to,
            });
        }
        self.checked(&at, ask.service, "result", answer)
    }

    async fn credential(&self, address: &Address, secret: Option<&str>) -> Option<Credential> {
        match self.credentials.ready(address, secret) {
            Some(credential) => Some(credential),
            None => self.credentials.find(address).await,
        }
    }

    async fn send(
        &self,
        at: &Address,
        ask: &Ask,
        method: Method,
        path: &str,
        body: Body,
        learnt: &Learnt,
    ) -> Result<hyper::Response<hyper::body::Incoming>, Failure> {
        let pushes = method == Method::POST && ask.service == Service::ReceivePack;
        let patience = match pushes {
            true => self.patience.push,
            false => self.patience.answer,
        };
        let mut request = Request::builder()
            .method(&method)
            .uri(path)
            .body(body)
            .map_err(|error| unreachable(at, error))?;
        let fields = request.headers_mut();
        fields.extend(ask.fields.clone());
        let value =
            |text: &str| HeaderValue::from_str(text).map_err(|error| unreachable(at, error));
        fields.insert(header::HOST, value(&at.authority())?);
        // Some hosts answer otherwise to what is no git.
        fields.insert(
            header::USER_AGENT,
            value(concat!(
                "git/2.45 (mooring ",
                env!("CARGO_PKG_VERSION"),
                ")"
            ))?,
        );
        let name = ask.service.name();
        if method == Method::POST {
            fields.insert(
                header::CONTENT_TYPE,
                value(&format!("application/x-{name}-request"))?,
            );
            fields.insert(
                header::ACCEPT,
                value(&format!("application/x-{name}-result"))?,
            );
        } else {
            fields.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        }
        if let Some(field) = &learnt.field
            && at.host == ask.address.host
            && at.tls >= ask.address.tls
        {
            let mut field = value(field)?;
            field.set_sensitive(true);
            fields.insert(header::AUTHORIZATION, field);
        }
        let silent = || Failure::Silent {
            host: at.authority(),
            seconds: patience.as_secs(),
        };
        let sent = async {
            let tcp = self.world.connect(&at.host, at.port).await;
            let tcp = tcp.map_err(|why| unreachable(at, why))?;
            let _ = tcp.set_nodelay(true);
            if at.tls {
                let name = ServerName::try_from(at.host.clone());
                let name = name.map_err(|error| unreachable(at, error))?;
                let tls = tokio_rustls::TlsConnector::from(self.tls());
                let tls = tls.connect(name, tcp).await;
                exchange(at, tls.map_err(|error| unreachable(at, error))?, request).await
            } else {
                let peer = tcp.peer_addr().map_err(|error| unreachable(at, error))?;
                if !is_private(peer.ip()) {
                    return Err(unreachable(
                        at,
                        "plain http is only for privateDestinations; write https",
                    ));
                }
                exchange(at, tcp, request).await
            }
        };
        tokio::time::timeout(patience, sent)
            .await
            .map_err(|_| silent())?
    }

    fn checked(
        &self,
        at: &Address,
        service: Service,
        what: &str,
        answer: hyper::Response<hyper::body::Incoming>,
    ) -> Result<Answer, Failure> {
        if answer.status() != StatusCode::OK {
            return Err(self.status(at, answer.status()));
        }
        let kind = answer.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind != format!("application/x-{}-{what}", service.name()) {
            return Err(Failure::NotGit {
                host: at.authority(),
                path: at.path.clone(),
                why: format!(
                    "its answer is {:?}",
                    kind.chars().take(80).collect::<String>()
                ),
            });
        }
        let encoding = answer.headers().get(header::CONTENT_ENCODING).cloned();
        let piece = match (service, what) {
            (Service::ReceivePack, "result") => self.patience.push,
            _ => self.patience.piece,
        };
        let host = at.authority();
        let pieces = Body::new(answer.into_body()).into_data_stream();
        let pieces = futures::stream::unfold(Some(pieces), move |pieces| {
            let host = host.clone();
            async move {
                let mut pieces = pieces?;
                let stuck = |why: String| Some((Err::<Bytes, _>(std::io::Error::other(why)), None));
                match tokio::time::timeout(piece, pieces.next()).await {
                    Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some(pieces))),
                    Ok(Some(Err(error))) => stuck(format!("{host} broke off: {error}")),
                    Ok(None) => None,
                    Err(_) => stuck(format!("{host} sent nothing for {} s", piece.as_secs())),
                }
            }
        });
        Ok(Answer {
            encoding,
            body: Body::from_stream(pieces),
        })
    }

    fn no_credential(&self, at: &Address) -> Failure {
        Failure::NoCredential {
            host: at.authority(),
            path: at.path.clone(),
            advice: self.credentials.advice(),
        }
    }

    fn status(&self, at: &Address, status: StatusCode) -> Failure {
        let (host, path) = (at.authority(), at.path.clone());
        match status.as_u16() {
            401 => Failure::Refused {
                host,
                path,
                advice: self.credentials.advice(),
            },
            403 => Failure::Forbidden { host, path },
            404 | 410 => Failure::NotFound { host, path },
            status => Failure::Status { host, path, status },
        }
    }
}

/// Sends a request on a connection of its own.
async fn exchange<S>(
    at: &Address,
    stream: S,
    request: Request<Body>,
) -> Result<hyper::Response<hyper::body::Incoming>, Failure>
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

fn unreachable(at: &Address, why: impl std::fmt::Display) -> Failure {
    Failure::Unreachable {
        host: at.authority(),
        why: why.to_string(),
    }
}

fn challenges(fields: &HeaderMap) -> String {
    let all = fields.get_all(header::WWW_AUTHENTICATE).iter();
    let all: Vec<&str> = all.filter_map(|value| value.to_str().ok()).collect();
    all.join(", ")
}

fn location(fields: &HeaderMap) -> String {
    let value = fields.get(header::LOCATION);
    let text = value
        .and_then(|value| value.to_str().ok())
        .unwrap_or("nowhere");
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// Where a repository is by its host's own redirect.
fn moved(at: &Address, service: Service, fields: &HeaderMap) -> Result<Address, Failure> {
    let to = location(fields);
    let elsewhere = || Failure::Redirected {
        host: at.authority(),
        path: at.path.clone(),
        to: to.clone(),
    };
    let whole = match to.starts_with('/') {
        true => {
            let scheme = if at.tls { "https" } else { "http" };
            format!("{scheme}://{}{to}", at.authority())
        }
        false => to.clone(),
    };
    let base = whole
        .strip_suffix(&format!("/info/refs?service={}", service.name()))
        .ok_or_else(elsewhere)?;
    let address = Address::parse(base).ok_or_else(elsewhere)?;
    let same = address.host == at.host
        && (address.port == at.port || (address.tls && !at.tls))
        && address.tls >= at.tls;
    if same { Ok(address) } else { Err(elsewhere()) }
}

/// Whether plain `http` may go there: only what an installation has named leads to
/// such an address at all.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// The field that names git's protocol, where a command asks for a version of it.
pub fn protocol(fields: &HeaderMap) -> HeaderMap {
    let name = HeaderName::from_static("git-protocol");
    let mut kept = HeaderMap::new();
    if let Some(value) = fields.get(&name)
        && let Ok(text @ ("version=0" | "version=1" | "version=2")) = value.to_str()
    {
        kept.insert(
            name,
            HeaderValue::from_static(match text {
                "version=0" => "version=0",
                "version=1" => "version=1",
                _ => "version=2",
            }),
        );
    }
    kept
}
