//! git for the sandbox: commands fetch from the Workspace's repository and push to it
//! through the harness, which alone has the credential, and in which a push waits for
//! its human.
//!
//! | part | what |
//! |---|---|
//! | `address` | which repositories there are, and what a request asks of one |
//! | `credential` | where the credential comes from |
//! | `upstream`, `connector` | requests to the git host |
//! | `receive` | what a push says, read before a byte goes on |
//! | `push` | a push from its first byte to its report |
//! | `mirror`, `summary` | what a push does |
//! | `lfs` | large files, which lie beside git |
//!
//! What comes from the sandbox is untrusted, and so is what the git host says: of both
//! only what is understood goes on.

mod address;
mod connector;
mod credential;
mod lfs;
mod mirror;
mod pkt;
mod push;
mod receive;
mod summary;
mod upstream;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use axum::body::Body;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use mooring_crds::Repo;
use mooring_durable::Engine;
use tokio::io::{AsyncRead, AsyncWrite};

pub use address::{Address, Service};
pub use credential::{Source as Credentials, VARIABLES};
pub use upstream::{Failure, Patience, World};

use crate::{
    boundary::{Hold, Origin, Outside},
    workspace::Source,
};
use address::{Asks, route};
use lfs::Large;
use mirror::Mirrors;
use upstream::{Answer, Ask, Upstream};

/// Bytes of a host's list of refs.
const MOST_REFS: usize = 64 << 20;

/// What `git lfs install` writes to a person's own configuration, which the sandbox does
/// not see. It counts only for files that a repository's attributes name.
const LARGE_FILES: [(&str, &str); 3] = [
    ("filter.lfs.process", "git-lfs filter-process"),
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.smudge", "git-lfs smudge -- %f"),
];

/// What a gateway is made from.
pub struct Parts {
    /// The Workspace in use.
    pub source: Arc<Source>,
    /// The way to the git host.
    pub world: Arc<dyn World>,
    /// The credential.
    pub credentials: Credentials,
    /// Which certificates the host may have; those of the machine where it is `None`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// How long the host may take.
    pub patience: Patience,
    /// A folder of the harness's volume, for mirrors and pushes on their way.
    pub folder: PathBuf,
    /// The project on this machine, whose `origin` is the repository of a Workspace
    /// that names none.
    pub project: Option<PathBuf>,
}

#[async_trait::async_trait]
impl World for Outside {
    async fn connect(&self, host: &str, port: u16) -> Result<tokio::net::TcpStream, String> {
        let connected = Outside::connect(self, host, port).await;
        connected.map_err(|refusal| refusal.to_string())
    }
}

/// The gateway to the Workspace's repositories.
pub struct Gateway {
    source: Arc<Source>,
    upstream: Upstream,
    mirrors: Mirrors,
    large: Large,
    project: Option<PathBuf>,
    /// Who asks people; without it nobody is asked.
    engine: OnceLock<Engine>,
    /// Time limits of commands that wait for them.
    pub hold: Hold,
}

/// A repository of the Workspace.
struct Repository {
    address: Address,
    secret: Option<String>,
    /// It may be pushed to.
    own: bool,
}

impl Gateway {
    /// A gateway of these parts.
    pub fn new(parts: Parts) -> Arc<Gateway> {
        Arc::new(Gateway {
            source: parts.source,
            upstream: Upstream::new(parts.world, parts.credentials, parts.tls, parts.patience),
            large: Large::new(parts.folder.join("large")),
            mirrors: Mirrors::new(parts.folder),
            project: parts.project,
            engine: OnceLock::new(),
            hold: Hold::default(),
        })
    }

    /// The engine is open: pushes can be asked about from now on.
    pub fn opened(&self, engine: Engine) {
        let _ = self.engine.set(engine);
    }

    /// How commands find the repositories: git's configuration as its environment
    /// variables have it. `base` is the listener with the execution's credential
    /// (`http://EXECUTION:SECRET@127.0.0.1:PORT`).
    pub fn environment(&self, base: &str) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        let bare = base.rsplit_once('@').map_or(base, |(_, address)| address);
        for (number, address) in self.addresses().iter().enumerate() {
            let key = format!("url.{base}/git/{number}/.insteadOf");
            let spellings = address.spellings().into_iter();
            settings.extend(spellings.map(|spelling| (key.clone(), spelling)));
        }
        if settings.is_empty() {
            return Vec::new();
        }
        settings.extend(LARGE_FILES.map(|(key, value)| (key.into(), value.into())));
        // git-lfs would find these out by itself, and write them to the repository's own
        // configuration.
        settings.push((format!("lfs.http://{bare}/.access"), "basic".into()));
        settings.push((format!("lfs.http://{bare}/.locksverify"), "false".into()));
        // The listener is no proxy for itself, and wants the credential at once.
        settings.push((format!("http.{base}/.proxy"), String::new()));
        settings.push(("http.proactiveAuth".into(), "basic".into()));
        // As the daemon has it for commands without these variables.
        settings.push(("branch.autoSetupMerge".into(), "false".into()));
        settings.push(("safe.directory".into(), "*".into()));
        let mut all = vec![("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string())];
        for (at, (key, value)) in settings.into_iter().enumerate() {
            all.push((format!("GIT_CONFIG_KEY_{at}"), key));
            all.push((format!("GIT_CONFIG_VALUE_{at}"), value));
        }
        all
    }

    /// The repository that commands fetch from and push to.
    pub fn own(&self) -> Option<Address> {
        self.addresses().into_iter().next()
    }

    /// The Workspace's repository, or the folder's own.
    fn repo(&self) -> Option<Repo> {
        let named = self.source.current().spec.repo.clone();
        match named {
            Some(repo) if !repo.url.is_empty() => Some(repo),
            // Of a repository without an address only the folder's own is known.
            _ => Some(Repo {
                url: origin_of(self.project.as_deref()?)?,
                reference: None,
                credentials_secret_ref: None,
                partial_clone: false,
                also_fetch: Vec::new(),
                worktrees: Default::default(),
            }),
        }
    }

    /// The repositories by their numbers: the Workspace's own, then those that may be
    /// fetched from.
    fn addresses(&self) -> Vec<Address> {
        self.repo()
            .map_or_else(Vec::new, |repo| addresses_of(&repo))
    }

    fn repository(&self, number: usize) -> Option<Repository> {
        let repo = self.repo()?;
        let addresses = addresses_of(&repo);
        let address = addresses.get(number)?.clone();
        let own = addresses.first()?;
        let secret = repo.credentials_secret_ref;
        Some(Repository {
            secret: secret.filter(|_| address.is_at(own)).map(|it| it.name),
            address,
            own: number == 0,
        })
    }

    /// Serves the requests of one connection to its end.
    pub async fn serve(
        self: Arc<Self>,
        origin: Origin,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) {
        let gateway = self;
        let service = service_fn(move |request| {
            let (gateway, origin) = (gateway.clone(), origin.clone());
            async move { Ok::<_, std::convert::Infallible>(gateway.answer(origin, request).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "a git connection ended");
        }
    }

    async fn answer(self: Arc<Self>, origin: Origin, request: Request<Incoming>) -> Response<Body> {
        let uri = request.uri().clone();
        if let Some(asks) = lfs::route(uri.path()) {
            return self.large(&origin, asks, request).await;
        }
        let Some((number, asks)) = route(uri.path(), uri.query()) else {
            let text = "nothing of this address is served; only spec.repo.url and \
                        spec.repo.alsoFetch of the Workspace are\n";
            return plain(StatusCode::NOT_FOUND, text);
        };
        let Some(repository) = self.repository(number) else {
            return plain(
                StatusCode::NOT_FOUND,
                "the Workspace names no such repository (any more)\n",
            );
        };
        let right = match asks {
            Asks::Refs(_) => Method::GET,
            Asks::Serve(_) => Method::POST,
        };
        if *request.method() != right {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "git asks otherwise\n");
        }
        match asks {
            Asks::Refs(Service::UploadPack) => self.fetch_refs(&repository, &request).await,
            Asks::Serve(Service::UploadPack) => self.fetch(&repository, request).await,
            Asks::Refs(service) | Asks::Serve(service) if !repository.own => {
                let text = format!(
                    "{} may only be fetched from: pushes go to spec.repo.url of the Workspace",
                    repository.address
                );
                refused(service, asks, &text)
            }
            Asks::Refs(Service::ReceivePack) => self.push_refs(&repository).await,
            Asks::Serve(Service::ReceivePack) => self.push(origin, repository, request).await,
        }
    }

    async fn fetch_refs(
        &self,
        repository: &Repository,
        request: &Request<Incoming>,
    ) -> Response<Body> {
        let ask = Ask {
            fields: upstream::protocol(request.headers()),
            ..repository.ask(Service::UploadPack)
        };
        match self.upstream.refs(&ask).await {
            Ok(answer) => passed_on(Service::UploadPack, "advertisement", answer),
            Err(failure) => refused(
                Service::UploadPack,
                Asks::Refs(Service::UploadPack),
                &failure.to_string(),
            ),
        }
    }

    async fn fetch(&self, repository: &Repository, request: Request<Incoming>) -> Response<Body> {
        let mut fields = upstream::protocol(request.headers());
        let encoding = request.headers().get(header::CONTENT_ENCODING);
        if let Some(encoding) = encoding.filter(|it| it.as_bytes() == b"gzip") {
            fields.insert(header::CONTENT_ENCODING, encoding.clone());
        }
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|it| it.to_str().ok()?.parse().ok());
        let ask = Ask {
            fields,
            ..repository.ask(Service::UploadPack)
        };
        let body = Body::new(request.into_body());
        match self.upstream.serve(&ask, body, length).await {
            Ok(answer) => passed_on(Service::UploadPack, "result", answer),
            Err(failure) => refused(
                Service::UploadPack,
                Asks::Serve(Service::UploadPack),
                &failure.to_string(),
            ),
        }
    }

    /// What the host offers to pushers, or why there is none.
    async fn advert(&self, repository: &Repository) -> Result<receive::Advert, String> {
        let ask = repository.ask(Service::ReceivePack);
        let answer = self.upstream.refs(&ask).await;
        let answer = answer.map_err(|failure| failure.to_string())?;
        let mut from = mirror::reader(answer.body);
        receive::Advert::read(&mut from, MOST_REFS)
            .await
            .map_err(|why| format!("{} cannot be pushed to: {why}", repository.address))
    }

    async fn push_refs(&self, repository: &Repository) -> Response<Body> {
        let asks = Asks::Refs(Service::ReceivePack);
        match self.advert(repository).await {
            Ok(advert) => git(
                Service::ReceivePack,
                "advertisement",
                Body::from(advert.offered()),
            ),
            Err(why) => refused(Service::ReceivePack, asks, &why),
        }
    }

    async fn push(
        self: Arc<Self>,
        origin: Origin,
        repository: Repository,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let asks = Asks::Serve(Service::ReceivePack);
        if request.headers().contains_key(header::CONTENT_ENCODING) {
            return refused(Service::ReceivePack, asks, "a compressed push is not taken");
        }
        let mut from = mirror::reader(Body::new(request.into_body()));
        let read = receive::read(&mut from, &self.mirrors.spool(), receive::MOST_PACK).await;
        match read {
            // git asks this once before a long push, to see whether it is let in.
            Ok(None) => git(Service::ReceivePack, "result", Body::empty()),
            Ok(Some(push)) => {
                let (body, story) = push::begin(self, origin, repository, push);
                tokio::spawn(story);
                git(Service::ReceivePack, "result", body)
            }
            Err(why) => refused(Service::ReceivePack, asks, &why.to_string()),
        }
    }
}

/// Where the Workspace's own cannot be read there are none: another one would take its
/// number, and with it its credential and its pushes.
fn addresses_of(repo: &Repo) -> Vec<Address> {
    let Some(own) = Address::parse(&repo.url) else {
        return Vec::new();
    };
    let others = repo.also_fetch.iter().filter_map(|url| Address::parse(url));
    std::iter::once(own).chain(others).collect()
}

impl Repository {
    fn ask(&self, service: Service) -> Ask {
        Ask {
            address: self.address.clone(),
            secret: self.secret.clone(),
            service,
            fields: hyper::HeaderMap::new(),
        }
    }
}

/// The `https` address that a folder's own repository has as its `origin`.
fn origin_of(folder: &std::path::Path) -> Option<String> {
    let repository = gix::open(folder).ok()?;
    let url = repository.config_snapshot().string("remote.origin.url")?;
    let url = String::from_utf8(url.to_vec()).ok()?;
    let address = Address::parse(&url)?;
    address.tls.then_some(url)
}

/// An answer of git's own kind; none of the host's fields is in it.
fn git(service: Service, what: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let kind = format!("application/x-{}-{what}", service.name());
    let fields = response.headers_mut();
    if let Ok(kind) = HeaderValue::from_str(&kind) {
        fields.insert(header::CONTENT_TYPE, kind);
    }
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn passed_on(service: Service, what: &str, answer: Answer) -> Response<Body> {
    let mut response = git(service, what, answer.body);
    if let Some(encoding) = answer.encoding {
        response
            .headers_mut()
            .insert(header::CONTENT_ENCODING, encoding);
    }
    response
}

/// A refusal that git shows as the remote's own words.
fn refused(service: Service, asks: Asks, why: &str) -> Response<Body> {
    let error = pkt::line(format!("ERR {why}\n").as_bytes());
    let (what, bytes) = match asks {
        Asks::Refs(_) => {
            let first = pkt::line(format!("# service={}\n", service.name()).as_bytes());
            ("advertisement", [&first[..], pkt::FLUSH, &error].concat())
        }
        Asks::Serve(Service::UploadPack) => ("result", error.to_vec()),
        // The answer to a push is read from the side band.
        Asks::Serve(Service::ReceivePack) => (
            "result",
            pkt::band(pkt::Band::Error, format!("{why}\n").as_bytes()).to_vec(),
        ),
    };
    git(service, what, Body::from(bytes))
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(url: &str, also_fetch: &[&str]) -> Repo {
        Repo {
            url: url.into(),
            reference: None,
            credentials_secret_ref: None,
            partial_clone: false,
            also_fetch: also_fetch.iter().map(|url| (*url).to_owned()).collect(),
            worktrees: Default::default(),
        }
    }

    #[test]
    fn no_other_repository_takes_the_number_of_the_workspaces_own() {
        let other = "https://git.example.com/acme/protos.git";
        let own = "https://git.example.com/acme/platform.git";
        let both = addresses_of(&repo(own, &[other]));
        assert_eq!(
            both,
            [own, other].map(|url| Address::parse(url).expect("an address"))
        );
        // What is accepted as a url and is no address.
        for own in [
            "https://git.example.com/acme?x",
            "https://git.example.com/a/../b",
        ] {
            assert_eq!(addresses_of(&repo(own, &[other])), [], "{own}");
        }
    }
}
