//! A certificate that its owner made, and how the other side knows it again.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use serde::{Deserialize, Serialize};

use crate::tls::provider;
use crate::{WireError, private_file};

/// The SHA-256 of a certificate. Its text is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(pub(super) [u8; 32]);

impl Fingerprint {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        super::secret::digits(&text)
            .map(Self)
            .ok_or("a fingerprint has 64 hexadecimal digits")
    }
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({})", self.fingerprint)
    }
}

impl Certificate {
    /// A new one, PEM: the certificate, then its key.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn generate() -> Result<String, WireError> {
        let key = rcgen::KeyPair::generate().map_err(tls)?;
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).map_err(tls)?;
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "mooring");
        let certificate = params.self_signed(&key).map_err(tls)?;
        Ok(format!("{}{}", certificate.pem(), key.serialize_pem()))
    }

    /// Reads what [`Certificate::generate`] made.
    ///
    /// # Errors
    /// The text holds no certificate with its key.
    pub fn from_pem(pem: &str) -> Result<Self, WireError> {
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(tls)?;
        let first = chain
            .first()
            .ok_or_else(|| tls("there is no certificate"))?;
        let fingerprint = Fingerprint::of(first);
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(tls)?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(tls)?;
        Ok(Self {
            key: Arc::new(key),
            fingerprint,
        })
    }

    /// Reads the file, which is made, with mode 0600 in a folder of mode 0700,
    /// where it is not there.
    ///
    /// # Errors
    /// A folder that cannot be written, or a file that is something else.
    pub fn load_or_make(path: &Path) -> Result<Self, WireError> {
        let failed = |source| WireError::File {
            path: path.to_owned(),
            source,
        };
        let pem = match std::fs::read_to_string(path) {
            Ok(pem) => pem,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let pem = Self::generate()?;
                private_file::write(path, pem.as_bytes()).map_err(failed)?;
                pem
            }
            Err(error) => return Err(failed(error)),
        };
        Self::from_pem(&pem).map_err(|error| tls(format!("{}: {error}", path.display())))
    }

    /// What the other side knows it by.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

pub(super) fn tls(error: impl fmt::Display) -> WireError {
    WireError::Tls(error.to_string())
}

/// Takes the certificate that is expected, or, where none is, any: the handshake
/// shows that the other side has its key, and nothing else. Who that is, the
/// caller decides by the fingerprint.
#[derive(Debug)]
pub(super) struct Held {
    expected: Option<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl Held {
    pub(super) fn by(expected: Option<Fingerprint>) -> Arc<Self> {
        Arc::new(Self {
            expected,
            provider: provider(),
        })
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        match self.expected {
            Some(expected) if Fingerprint::of(certificate) != expected => {
                Err(rustls::Error::InvalidCertificate(
                    rustls::CertificateError::ApplicationVerificationFailure,
                ))
            }
            _ => Ok(()),
        }
    }

    fn signed(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Neither side offers TLS 1.2.
fn too_old() -> Result<HandshakeSignatureValid, rustls::Error> {
    Err(rustls::Error::General("TLS 1.2 is not spoken here".into()))
}

impl ServerCertVerifier for Held {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        too_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Held {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        too_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
