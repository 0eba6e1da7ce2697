//! Requests to the git host: connected to by the one way to the world, with the
//! credential that only the harness has.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use axum::body::Body;
use hyper::{
    Method, Request, StatusCode,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::{
    address::{Address, Service},
    connector::{self, Answered, Connector, timely, unreachable},
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
pub struct Learnt {
    /// Where the repository is, if it was redirected.
    pub moved: Option<Address>,
    /// The value of the `Authorization` field.
    pub field: Option<Zeroizing<String>>,
}

impl Learnt {
    /// The field for a request at `at`; none where that is another host than the
    /// repository's.
    pub fn field_for(&self, at: &Address, repository: &Address) -> Option<HeaderValue> {
        let here = at.host == repository.host && at.tls >= repository.tls;
        let field = self.field.as_ref().filter(|_| here)?;
        let mut field = HeaderValue::from_str(field).ok()?;
        field.set_sensitive(true);
        Some(field)
    }
}

/// The git hosts.
pub struct Upstream {
    pub(super) connector: Connector,
    credentials: Source,
    pub(super) patience: Patience,
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
            connector: Connector::new(world, tls),
            credentials,
            patience,
            learnt: Mutex::default(),
        }
    }

    fn learnt(&self, key: &str) -> Learnt {
        let learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        learnt.get(key).cloned().unwrap_or_default()
    }

    fn learn(&self, key: String, what: Learnt) {
        let mut learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
        learnt.insert(key, what);
    }

    /// What was learnt for large files, which a host may want to be asked for otherwise;
    /// with the credential where it is at hand.
    pub(super) fn learnt_of_large(&self, address: &Address, secret: Option<&str>) -> Learnt {
        let mut learnt = self.learnt(&format!("lfs {address}"));
        if learnt.moved.is_none() {
            learnt.moved = self.learnt(&address.to_string()).moved;
        }
        if learnt.field.is_none() {
            let ready = self.credentials.ready(address, secret);
            learnt.field = ready.map(|it| it.field(None));
        }
        learnt
    }

    /// Remembers it.
    pub(super) fn learn_of_large(&self, address: &Address, what: Learnt) {
        self.learn(format!("lfs {address}"), what);
    }

    /// Sends a request that is about large files.
    pub(super) async fn large(
        &self,
        at: &Address,
        request: Request<Body>,
    ) -> Result<Answered, Failure> {
        let patience = self.patience.answer;
        let sent = self.connector.exchange(at, request);
        tokio::time::timeout(patience, sent)
            .await
            .map_err(|_| silent(at, patience))?
    }

    /// The body of an answer, whose pieces come in time.
    pub(super) fn timely(&self, at: &Address, answer: Answered) -> Body {
        timely(at.authority(), answer, self.patience.piece)
    }

    /// What there is to be fetched, or pushed to. It asks for a credential where the
    /// host wants one, and follows the host's own redirects.
    pub async fn refs(&self, ask: &Ask) -> Result<Answer, Failure> {
        let mut learnt = self.learnt(&ask.address.to_string());
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
            self.learn(ask.address.to_string(), learnt);
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
        let mut learnt = self.learnt(&ask.address.to_string());
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
            self.learn(ask.address.to_string(), Learnt::default());
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

    pub(super) async fn credential(
        &self,
        address: &Address,
        secret: Option<&str>,
    ) -> Option<Credential> {
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
    ) -> Result<Answered, Failure> {
        let pushes = method == Method::POST && ask.service == Service::ReceivePack;
        let patience = match pushes {
            true => self.patience.push,
            false => self.patience.answer,
        };
        let mut request = connector::request(at, method.clone(), path, ask.fields.clone(), body)?;
        let fields = request.headers_mut();
        let value =
            |text: &str| HeaderValue::from_str(text).map_err(|error| unreachable(at, error));
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
        if let Some(field) = learnt.field_for(at, &ask.address) {
            fields.insert(header::AUTHORIZATION, field);
        }
        let sent = self.connector.exchange(at, request);
        tokio::time::timeout(patience, sent)
            .await
            .map_err(|_| silent(at, patience))?
    }

    fn checked(
        &self,
        at: &Address,
        service: Service,
        what: &str,
        answer: Answered,
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
        Ok(Answer {
            encoding,
            body: timely(at.authority(), answer, piece),
        })
    }

    pub(super) fn no_credential(&self, at: &Address) -> Failure {
        Failure::NoCredential {
            host: at.authority(),
            path: at.path.clone(),
            advice: self.credentials.advice(),
        }
    }

    pub(super) fn status(&self, at: &Address, status: StatusCode) -> Failure {
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

pub fn silent(at: &Address, patience: Duration) -> Failure {
    Failure::Silent {
        host: at.authority(),
        seconds: patience.as_secs(),
    }
}

pub fn challenges(fields: &HeaderMap) -> String {
    let all = fields.get_all(header::WWW_AUTHENTICATE).iter();
    let all: Vec<&str> = all.filter_map(|value| value.to_str().ok()).collect();
    all.join(", ")
}

pub fn location(fields: &HeaderMap) -> String {
    let value = fields.get(header::LOCATION);
    let text = value
        .and_then(|value| value.to_str().ok())
        .unwrap_or("nowhere");
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// Where a repository is by its host's own redirect.
fn moved(at: &Address, service: Service, fields: &HeaderMap) -> Result<Address, Failure> {
    let end = format!("/info/refs?service={}", service.name());
    let repository = |whole: &str| whole.strip_suffix(&end).map(str::to_owned);
    moved_to(at, &location(fields), repository)
}

/// Where a repository is that its own host has led on; `repository` finds its address in
/// that of what was asked for.
pub fn moved_to(
    at: &Address,
    to: &str,
    repository: impl FnOnce(&str) -> Option<String>,
) -> Result<Address, Failure> {
    let elsewhere = || Failure::Redirected {
        host: at.authority(),
        path: at.path.clone(),
        to: to.to_owned(),
    };
    let whole = match to.starts_with('/') {
        true => {
            let scheme = if at.tls { "https" } else { "http" };
            format!("{scheme}://{}{to}", at.authority())
        }
        false => to.to_owned(),
    };
    let base = repository(&whole).ok_or_else(elsewhere)?;
    let address = Address::parse(&base).ok_or_else(elsewhere)?;
    let same = address.host == at.host
        && (address.port == at.port || (address.tls && !at.tls))
        && address.tls >= at.tls;
    if same { Ok(address) } else { Err(elsewhere()) }
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
