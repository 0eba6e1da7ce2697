//! The harness's side: looking who is there, pairing, connecting.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use super::certificate::{Held, tls};
use super::{
    ALPN, Answer, Asked, Certificate, Code, Fingerprint, Hello, PairingError, Standing, read_line,
    write_line,
};
use crate::{WireError, tls as mutual};

/// How long the other side may take for the whole exchange; it waits a moment
/// after each wrong code, whoever has sent it.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a sandbox says of itself to whoever connects.
#[derive(Clone, Copy, Debug)]
pub struct Greeting {
    /// Its certificate. That it has the key is shown.
    pub fingerprint: Fingerprint,
    /// With whom it is paired.
    pub paired: Standing,
}

/// Asks who is at `address` (`HOST:PORT`) and whether it is of this `version`.
///
/// # Errors
/// Nobody is there, or somebody else, or another version.
pub async fn greet(
    address: &str,
    certificate: &Certificate,
    version: &str,
) -> Result<Greeting, PairingError> {
    let exchange = begin(address, certificate, version);
    let (_, greeting) = within(address, exchange).await?;
    Ok(greeting)
}

/// Pairs with the sandbox at `address`, and returns what to know it by from then on.
///
/// # Errors
/// As with [`greet`]; the code is not taken; or what answers does not know it.
pub async fn pair(
    address: &str,
    certificate: &Certificate,
    version: &str,
    code: &Code,
) -> Result<Fingerprint, PairingError> {
    within(address, async {
        let stranger = |source| PairingError::Stranger {
            address: address.to_owned(),
            source,
        };
        let (mut stream, Greeting { fingerprint, .. }) =
            begin(address, certificate, version).await?;
        let harness = certificate.fingerprint();
        let proof = code.harness_proof(harness, fingerprint);
        write_line(&mut stream, &Asked { proof })
            .await
            .map_err(stranger)?;
        let answer = read_line(&mut stream).await.map_err(stranger)?;
        match answer.ok_or_else(|| stranger(io::ErrorKind::UnexpectedEof.into()))? {
            Answer::Proof(proof) if proof == code.sandbox_proof(harness, fingerprint) => {
                Ok(fingerprint)
            }
            Answer::Proof(_) => Err(PairingError::Unproved {
                address: address.to_owned(),
            }),
            Answer::Refused(refusal) => Err(PairingError::Refused {
                address: address.to_owned(),
                refusal,
            }),
        }
    })
    .await
}

/// A channel to the sandbox that is known by `pin`; it connects at the first call,
/// and again after the connection was lost.
///
/// # Errors
/// A certificate that TLS does not take.
pub fn connect_lazy(
    address: &str,
    certificate: &Certificate,
    pin: Fingerprint,
) -> Result<Channel, WireError> {
    let connector = connector(certificate, Some(pin), mutual::ALPN)?;
    let address = address.to_owned();
    let connect = tower::service_fn(move |_| {
        let (connector, address) = (connector.clone(), address.clone());
        async move {
            let socket = TcpStream::connect(&address).await?;
            socket.set_nodelay(true)?;
            connector.connect(name(), socket).await.map(TokioIo::new)
        }
    });
    Ok(Endpoint::from_static("http://mooring.invalid")
        .connect_timeout(mutual::HANDSHAKE)
        .connect_with_connector_lazy(connect))
}

async fn within<T>(
    address: &str,
    exchange: impl Future<Output = Result<T, PairingError>>,
) -> Result<T, PairingError> {
    let answered = tokio::time::timeout(PATIENCE, exchange).await;
    answered.unwrap_or_else(|_| {
        Err(PairingError::Unreachable {
            address: address.to_owned(),
            source: io::ErrorKind::TimedOut.into(),
        })
    })
}

async fn begin(
    address: &str,
    certificate: &Certificate,
    version: &str,
) -> Result<(TlsStream<TcpStream>, Greeting), PairingError> {
    let unreachable = |source| PairingError::Unreachable {
        address: address.to_owned(),
        source,
    };
    let stranger = |source| PairingError::Stranger {
        address: address.to_owned(),
        source,
    };
    let connector = connector(certificate, None, ALPN)?;
    let socket = tokio::time::timeout(mutual::HANDSHAKE, TcpStream::connect(address))
        .await
        .map_err(|_| unreachable(io::ErrorKind::TimedOut.into()))?
        .map_err(unreachable)?;
    socket.set_nodelay(true).map_err(unreachable)?;
    let mut stream = connector.connect(name(), socket).await.map_err(stranger)?;
    let fingerprint = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(<[_]>::first)
        .map(Fingerprint::of)
        .ok_or_else(|| stranger(io::Error::other("it has no certificate")))?;
    let hello: Option<Hello> = read_line(&mut stream).await.map_err(stranger)?;
    let hello = hello.ok_or_else(|| stranger(io::ErrorKind::UnexpectedEof.into()))?;
    if hello.version != version {
        return Err(PairingError::Version {
            address: address.to_owned(),
            theirs: shown(&hello.version),
            ours: version.to_owned(),
        });
    }
    let greeting = Greeting {
        fingerprint,
        paired: hello.paired,
    };
    Ok((stream, greeting))
}

/// What a stranger calls a version cannot steer a terminal.
fn shown(version: &str) -> String {
    let characters = version.chars().filter(char::is_ascii_graphic);
    characters.take(40).collect()
}

/// No name is checked, and none is sent.
pub(super) fn name() -> ServerName<'static> {
    ServerName::try_from("mooring.invalid").expect("the constant is a DNS name")
}

pub(super) fn connector(
    certificate: &Certificate,
    pin: Option<Fingerprint>,
    alpn: &[u8],
) -> Result<TlsConnector, WireError> {
    let mut config = ClientConfig::builder_with_provider(mutual::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .dangerous()
        .with_custom_certificate_verifier(Held::by(pin))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(
            &certificate.key,
        ))));
    config.alpn_protocols = vec![alpn.to_vec()];
    config.enable_sni = false;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}
