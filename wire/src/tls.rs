//! Mutual TLS between the programs in a cluster.
//!
//! One private authority per installation issues a certificate per program.
//! Who a program is stands in its DNS name ([`Identity`]), and each side checks
//! that name, not just the chain: the sandbox of one workspace takes its own
//! harness and nobody else. Certificates are read anew when their files
//! change, so that a renewal needs no restart.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::WireError;

/// A handshake that takes longer is given up.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes at a time; further connections wait in the kernel's backlog.
const HANDSHAKES: usize = 64;
/// Files are looked at for changes at most this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
pub(crate) const ALPN: &[u8] = b"h2";

/// Makes `ring` the process's provider. Two providers are linked in, and
/// rustls chooses none by itself; a second call changes nothing.
pub fn install_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The harness of a workspace.
    Harness,
    /// The sandbox of a workspace.
    Sandbox,
    /// The gateway to Discord.
    Bot,
    /// The operator.
    Operator,
    /// A person's terminal.
    Terminal,
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Self::Harness => "harness",
            Self::Sandbox => "sandbox",
            Self::Bot => "bot",
            Self::Operator => "operator",
            Self::Terminal => "terminal",
        }
    }
}

/// Who a certificate speaks for: a role, and where. Its text is a DNS name,
/// `<role>.<workspace>.<namespace>.mooring.internal`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The role.
    pub role: Role,
    /// The workspace's name; programs of the whole installation have none.
    pub workspace: Option<String>,
    /// The Kubernetes namespace.
    pub namespace: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.role.as_str())?;
        if let Some(workspace) = &self.workspace {
            write!(f, "{workspace}.")?;
        }
        write!(f, "{}.mooring.internal", self.namespace)
    }
}

/// Whether a certificate may only answer calls or also make them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Serving only: stolen, it opens nothing.
    Serve,
    /// Serving and calling.
    ServeAndCall,
    /// Calling only.
    Call,
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The key; whoever has it is the identity.
    pub key: String,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// The private authority of one installation.
#[derive(Debug)]
pub struct Authority {
    issued: Issued,
}

impl Authority {
    /// A new one with a new key.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn generate(name: &str) -> Result<Self, WireError> {
        let key = rcgen::KeyPair::generate().map_err(tls)?;
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).map_err(tls)?;
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).map_err(tls)?;
        Ok(Self {
            issued: Issued {
                certificate: certificate.pem(),
                key: key.serialize_pem(),
            },
        })
    }

    /// One that was stored.
    ///
    /// # Errors
    /// Certificate or key cannot be read, shown by issuing with them.
    pub fn from_pem(issued: Issued) -> Result<Self, WireError> {
        let key = rcgen::KeyPair::from_pem(&issued.key).map_err(tls)?;
        rcgen::Issuer::from_ca_cert_pem(&issued.certificate, key).map_err(tls)?;
        Ok(Self { issued })
    }

    /// To be stored; the certificate alone is what the programs trust.
    pub fn pem(&self) -> &Issued {
        &self.issued
    }

    /// A certificate for an identity, valid from an hour ago (clocks differ) for `validity`.
    /// `addresses` are further DNS names that it serves under, such as a Service's.
    ///
    /// # Errors
    /// A name that is no DNS name.
    pub fn issue(
        &self,
        identity: &Identity,
        purpose: Purpose,
        addresses: &[String],
        validity: Duration,
    ) -> Result<Issued, WireError> {
        use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let key = rcgen::KeyPair::from_pem(&self.issued.key).map_err(tls)?;
        let issuer = rcgen::Issuer::from_ca_cert_pem(&self.issued.certificate, key).map_err(tls)?;
        let mut names = vec![identity.to_string()];
        names.extend(addresses.iter().cloned());
        let mut params = rcgen::CertificateParams::new(names).map_err(tls)?;
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, identity.role.as_str());
        params.is_ca = rcgen::IsCa::ExplicitNoCa;
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match purpose {
            Purpose::Serve => vec![ServerAuth],
            Purpose::ServeAndCall => vec![ServerAuth, ClientAuth],
            Purpose::Call => vec![ClientAuth],
        };
        let now = SystemTime::now();
        params.not_before = (now - Duration::from_secs(3600)).into();
        params.not_after = (now + validity).into();
        let key = rcgen::KeyPair::generate().map_err(tls)?;
        let certificate = params.signed_by(&key, &issuer).map_err(tls)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn tls(error: impl fmt::Display) -> WireError {
    WireError::Tls(error.to_string())
}

/// The certificate of one program and the authority that it trusts: from
/// `tls.crt`, `tls.key`, `ca.crt` in a folder, as a Kubernetes Secret is mounted,
/// or from memory.
pub struct Credentials {
    /// `None` where they stay as they are.
    folder: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    loaded: Arc<Loaded>,
    stamp: Stamp,
    looked: Instant,
}

type Stamp = [Option<(SystemTime, u64)>; 3];

struct Loaded {
    key: Arc<CertifiedKey>,
    clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<WebPkiServerVerifier>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

impl Credentials {
    /// Reads the folder.
    ///
    /// # Errors
    /// A file that is missing or is not what its name says.
    pub fn load(folder: &Path) -> Result<Arc<Self>, WireError> {
        let stamp = stamp(folder);
        let state = State {
            loaded: Arc::new(Loaded::read(folder)?),
            stamp,
            looked: Instant::now(),
        };
        Ok(Arc::new(Self {
            folder: Some(folder.to_owned()),
            state: Mutex::new(state),
        }))
    }

    /// Takes a certificate with its key, and the certificate of the authority, PEM.
    ///
    /// # Errors
    /// A text that is not what its name says.
    pub fn from_pem(issued: &Issued, authority: &str) -> Result<Arc<Self>, WireError> {
        let state = State {
            loaded: Arc::new(Loaded::parse(issued, authority)?),
            stamp: [None; 3],
            looked: Instant::now(),
        };
        Ok(Arc::new(Self {
            folder: None,
            state: Mutex::new(state),
        }))
    }

    /// What is in force now. Files that have changed but cannot be read leave
    /// the old ones in force: a renewal writes them one after the other.
    fn current(&self) -> Arc<Loaded> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &self.folder
            && state.looked.elapsed() >= LOOK_EVERY
        {
            state.looked = Instant::now();
            let stamp = stamp(folder);
            if stamp != state.stamp
                && let Ok(loaded) = Loaded::read(folder)
            {
                state.loaded = Arc::new(loaded);
                state.stamp = stamp;
            }
        }
        Arc::clone(&state.loaded)
    }
}

fn stamp(folder: &Path) -> Stamp {
    FILES.map(|name| {
        let metadata = std::fs::metadata(folder.join(name)).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

impl Loaded {
    fn read(folder: &Path) -> Result<Self, WireError> {
        let text = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|source| WireError::File { path, source })
        };
        let issued = Issued {
            certificate: text(FILES[0])?,
            key: text(FILES[1])?,
        };
        Self::parse(&issued, &text(FILES[2])?).map_err(|error| match error {
            WireError::Tls(message) => tls(format!("{}: {message}", folder.display())),
            other => other,
        })
    }

    fn parse(issued: &Issued, authority: &str) -> Result<Self, WireError> {
        let failed = |name: &str, error: &dyn fmt::Display| tls(format!("{name}: {error}"));
        let certificates = |name: &str, text: &str| {
            CertificateDer::pem_slice_iter(text.as_bytes())
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| failed(name, &error))
        };
        let chain = certificates(FILES[0], &issued.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes())
            .map_err(|error| failed(FILES[1], &error))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(FILES[2], authority)? {
            roots.add(root).map_err(tls)?;
        }
        let roots = Arc::new(roots);
        let provider = provider();
        let key = CertifiedKey::from_der(chain, key, &provider)
            .map_err(|error| failed(FILES[0], &error))?;
        Ok(Self {
            key: Arc::new(key),
            clients: WebPkiClientVerifier::builder_with_provider(
                Arc::clone(&roots),
                Arc::clone(&provider),
            )
            .build()
            .map_err(tls)?,
            servers: WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(tls)?,
        })
    }
}

impl ResolvesServerCert for Credentials {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current().key))
    }
}

impl ResolvesClientCert for Credentials {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current().key))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ServerCertVerifier for Credentials {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let servers = Arc::clone(&self.current().servers);
        servers.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current()
            .servers
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current()
            .servers
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().servers.supported_verify_schemes()
    }
}

/// Takes clients of the authority that carry one of the names.
#[derive(Debug)]
struct Named {
    credentials: Arc<Credentials>,
    names: Vec<ServerName<'static>>,
}

impl ClientCertVerifier for Named {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let clients = Arc::clone(&self.credentials.current().clients);
        let verified = clients.verify_client_cert(end_entity, intermediates, now)?;
        if self.names.iter().any(|name| carries(end_entity, name)) {
            return Ok(verified);
        }
        Err(rustls::Error::InvalidCertificate(
            rustls::CertificateError::ApplicationVerificationFailure,
        ))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.credentials
            .current()
            .clients
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.credentials
            .current()
            .clients
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.credentials
            .current()
            .clients
            .supported_verify_schemes()
    }
}

fn carries(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    ParsedCertificate::try_from(certificate)
        .is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, name).is_ok())
}

/// Which of the identities a peer's verified certificate carries, for servers that
/// take several roles (tonic's `Request::peer_certs`).
pub fn peer<'a>(certificate: &CertificateDer<'_>, known: &'a [Identity]) -> Option<&'a Identity> {
    known.iter().find(|identity| {
        ServerName::try_from(identity.to_string()).is_ok_and(|name| carries(certificate, &name))
    })
}

/// The connections of a listener whose client carries one of `names`, for
/// `serve_with_incoming`; all others are closed in the handshake.
///
/// # Errors
/// A name that is no DNS name.
pub fn incoming(
    listener: TcpListener,
    credentials: Arc<Credentials>,
    names: &[String],
) -> Result<ReceiverStream<std::io::Result<TlsStream<TcpStream>>>, WireError> {
    let names = names
        .iter()
        .map(|name| {
            ServerName::try_from(name.clone()).map_err(|_| tls(format!("`{name}` is no DNS name")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let verifier = Named {
        credentials: Arc::clone(&credentials),
        names,
    };
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(credentials);
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A session that is resumed would be one whose name is not checked again.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Ok(connections(listener, move |socket| {
        let acceptor = acceptor.clone();
        async move {
            let handshake = tokio::time::timeout(HANDSHAKE, acceptor.accept(socket));
            handshake.await.ok()?.ok()
        }
    }))
}

/// The connections of a listener that come out of their handshake.
pub(crate) fn connections<C, H, F>(
    listener: TcpListener,
    handshake: H,
) -> ReceiverStream<std::io::Result<C>>
where
    C: Send + 'static,
    H: Fn(TcpStream) -> F + Send + 'static,
    F: Future<Output = Option<C>> + Send + 'static,
{
    let (connections, stream) = mpsc::channel(HANDSHAKES);
    tokio::spawn(async move {
        let permits = Arc::new(tokio::sync::Semaphore::new(HANDSHAKES));
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = connections.closed() => return,
            };
            let Ok((socket, _)) = accepted else {
                // Out of descriptors, mostly: others must end first.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let _ = socket.set_nodelay(true);
            let (handshake, connections) = (handshake(socket), connections.clone());
            tokio::spawn(async move {
                if let Some(connection) = handshake.await {
                    let _ = connections.send(Ok(connection)).await;
                }
                drop(permit);
            });
        }
    });
    ReceiverStream::new(stream)
}

/// A channel to a server that must carry `name`; it connects at the first call,
/// and again after the connection was lost. An address by name (`HOST:PORT`) is
/// looked up at each of them.
///
/// # Errors
/// A name that is no DNS name.
pub fn connect_lazy(
    address: impl ToSocketAddrs + Clone + Send + 'static,
    name: &str,
    credentials: Arc<Credentials>,
) -> Result<Channel, WireError> {
    let name = ServerName::try_from(name.to_owned())
        .map_err(|_| tls(format!("`{name}` is no DNS name")))?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&credentials) as Arc<dyn ServerCertVerifier>)
        .with_client_cert_resolver(credentials);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    let connector = TlsConnector::from(Arc::new(config));
    let connect = tower::service_fn(move |_| {
        let (connector, name) = (connector.clone(), name.clone());
        let address = address.clone();
        async move {
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            connector.connect(name, socket).await.map(TokioIo::new)
        }
    });
    // TLS is done by the connector: for tonic this is a plain connection.
    Ok(Endpoint::from_static("http://mooring.invalid")
        .connect_timeout(HANDSHAKE)
        .connect_with_connector_lazy(connect))
}
