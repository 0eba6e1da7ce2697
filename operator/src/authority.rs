//! The installation's certificate authority, and the certificates of each workspace.
//!
//! Nobody but pods may read a workspace's Secrets, the operator included; so it
//! cannot look up what it issued. It need not: a certificate follows from the
//! authority's key, the Workspace and the period alone. The same bytes come out
//! of every pass and after every restart, until the period ends and the next
//! certificate takes over, well before the last one expires.

use std::time::Duration;

use k8s_openapi::jiff::{self, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, SerialNumber,
};
use ring::hkdf;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::names::{Component, Names};

/// How long one certificate is handed out.
pub const PERIOD: Duration = Duration::from_secs(30 * 86_400);
/// How long it is valid: a pod that misses two rotations still serves.
pub const VALIDITY: Duration = Duration::from_secs(90 * 86_400);
/// How far clocks may differ.
const SKEW: i64 = 3600;

/// One certificate with its key and the authority that issued it, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The authority's certificate.
    pub ca: String,
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate(..)")
    }
}

/// The certificates of one workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// The harness's: it serves, and is the sandbox's client.
    pub harness: Certificate,
    /// The sandbox's: it only serves.
    pub sandbox: Certificate,
    /// That of people's terminals: it only calls the harness.
    pub terminal: Certificate,
    /// When the next ones take over.
    pub next: Timestamp,
}

impl Certificates {
    /// One component's.
    pub fn of(&self, component: Component) -> &Certificate {
        match component {
            Component::Harness => &self.harness,
            Component::Sandbox => &self.sandbox,
        }
    }

    /// What a dry run shows in their place.
    pub fn placeholder() -> Certificates {
        let text = || "made by the operator\n".to_owned();
        let one = || Certificate {
            ca: text(),
            certificate: text(),
            key: text(),
        };
        Certificates {
            harness: one(),
            sandbox: one(),
            terminal: one(),
            next: Timestamp::UNIX_EPOCH,
        }
    }
}

/// The installation's authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    secret: hkdf::Prk,
}

impl Authority {
    /// Makes a new authority: its certificate and its key, in PEM.
    pub fn generate(now: Timestamp) -> Result<(String, String), Error> {
        let failed = failed("the installation's authority");
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(&failed)?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "Mooring installation");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(
            &mut params,
            now.as_second() - SKEW,
            now.as_second() + 3650 * 86_400,
        );
        let certificate = params.self_signed(&key).map_err(&failed)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// Takes up an authority from its certificate and key, in PEM.
    pub fn load(certificate: &str, key: &str) -> Result<Authority, Error> {
        let failed = failed("the installation's authority");
        let key = KeyPair::from_pem(key).map_err(&failed)?;
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"mooring certificates v1")
            .extract(key.serialized_der());
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(&failed)?;
        Ok(Authority {
            issuer,
            certificate: certificate.to_owned(),
            secret,
        })
    }

    /// The authority's certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The certificates of a workspace with this UID, made at `created`, as of `now`.
    pub fn certificates(
        &self,
        names: &Names,
        uid: &str,
        created: Timestamp,
        now: Timestamp,
    ) -> Result<Certificates, Error> {
        let (start, next) = period(created, now);
        let of = |component| {
            let host = names.host(component);
            let (unit, usages) = match component {
                Component::Harness => (
                    "harness",
                    vec![
                        ExtendedKeyUsagePurpose::ServerAuth,
                        ExtendedKeyUsagePurpose::ClientAuth,
                    ],
                ),
                Component::Sandbox => ("sandbox", vec![ExtendedKeyUsagePurpose::ServerAuth]),
            };
            let served = vec![
                names.identity(component),
                host.clone(),
                format!("{host}.cluster.local"),
                names.of(component),
            ];
            self.issue(&host, uid, unit, served, usages, start)
        };
        let terminal = names.terminal_identity();
        Ok(Certificates {
            harness: of(Component::Harness)?,
            sandbox: of(Component::Sandbox)?,
            terminal: self.issue(
                &terminal,
                uid,
                "terminal",
                vec![terminal.clone()],
                vec![ExtendedKeyUsagePurpose::ClientAuth],
                start,
            )?,
            next,
        })
    }

    /// The certificate of a program of the whole installation (`operator`, `bot`),
    /// as of `now`, and when the next one takes over. It only calls.
    pub fn program(
        &self,
        role: &str,
        namespace: &str,
        now: Timestamp,
    ) -> Result<(Certificate, Timestamp), Error> {
        let (start, next) = period(Timestamp::UNIX_EPOCH, now);
        let name = format!("{role}.{namespace}.mooring.internal");
        let certificate = self.issue(
            &name,
            "installation",
            role,
            vec![name.clone()],
            vec![ExtendedKeyUsagePurpose::ClientAuth],
            start,
        )?;
        Ok((certificate, next))
    }

    fn issue(
        &self,
        name: &str,
        uid: &str,
        unit: &str,
        names: Vec<String>,
        usages: Vec<ExtendedKeyUsagePurpose>,
        start: i64,
    ) -> Result<Certificate, Error> {
        let failed = failed(name);
        let identity = format!("{name}\n{uid}\n{start}");
        let key = self.derive_key(&identity).map_err(&failed)?;

        let mut params = CertificateParams::new(names).map_err(&failed)?;
        // A common name holds 64 characters; who it is stands in the DNS names.
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationalUnitName, unit);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        let mut serial = Sha256::digest(&identity)[..16].to_vec();
        serial[0] &= 0x7f; // a serial number is positive
        params.serial_number = Some(SerialNumber::from(serial));
        let validity = i64::try_from(VALIDITY.as_secs()).expect("a validity is a few months");
        set_validity(&mut params, start - SKEW, start + validity);

        let certificate = params.signed_by(&key, &self.issuer).map_err(&failed)?;
        Ok(Certificate {
            ca: self.certificate.clone(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// An Ed25519 key, whose signatures are the same every time.
    fn derive_key(&self, identity: &str) -> Result<KeyPair, rcgen::Error> {
        let mut seed = [0; 32];
        self.secret
            .expand(&[identity.as_bytes()], hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut seed))
            .expect("32 bytes are what HKDF-SHA256 yields");
        // RFC 8410: an OCTET STRING in the OCTET STRING of a PKCS #8 key.
        let mut der = vec![
            0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22,
            0x04, 0x20,
        ];
        der.extend_from_slice(&seed);
        KeyPair::from_pkcs8_der_and_sign_algo(&der.as_slice().into(), &PKCS_ED25519)
    }
}

/// When the period began in which `now` lies, counted from `from`, in seconds since
/// 1970, and when the next one begins.
fn period(from: Timestamp, now: Timestamp) -> (i64, Timestamp) {
    let length = i64::try_from(PERIOD.as_secs()).expect("a period is a few weeks");
    let age = (now.as_second() - from.as_second()).max(0);
    let start = from.as_second() + age / length * length;
    let next = Timestamp::from_second(start + length).unwrap_or(Timestamp::MAX);
    (start, next)
}

fn failed(name: &str) -> impl Fn(rcgen::Error) -> Error + use<> {
    let name = name.to_owned();
    move |error| Error::Certificate {
        name: name.clone(),
        message: error.to_string(),
    }
}

fn set_validity(params: &mut CertificateParams, from: i64, to: i64) {
    let moment = |second: i64| {
        let civil = Timestamp::from_second(second)
            .unwrap_or(Timestamp::MAX)
            .to_zoned(jiff::tz::TimeZone::UTC);
        let day = rcgen::date_time_ymd(
            i32::from(civil.year()),
            u8::try_from(civil.month()).expect("a month is 1 to 12"),
            u8::try_from(civil.day()).expect("a day is 1 to 31"),
        );
        let since_midnight = u64::try_from(second.rem_euclid(86_400)).expect("it is not negative");
        day + Duration::from_secs(since_midnight)
    };
    params.not_before = moment(from);
    params.not_after = moment(to);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            workspace: "platform".into(),
            namespace: "agents".into(),
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a test's time")
    }

    #[test]
    fn the_same_certificates_come_out_until_the_period_ends() {
        let (certificate, key) = Authority::generate(at("2026-01-01T00:00:00Z")).expect("made");
        let created = at("2026-02-01T10:11:12Z");
        let issue = |now: &str, uid: &str| {
            let authority = Authority::load(&certificate, &key).expect("loaded");
            authority
                .certificates(&names(), uid, created, at(now))
                .expect("issued")
        };
        let first = issue("2026-02-01T10:11:12Z", "a");
        assert_eq!(first, issue("2026-03-03T10:11:11Z", "a"));
        assert_eq!(first.next, at("2026-03-03T10:11:12Z"));
        let second = issue("2026-03-03T10:11:12Z", "a");
        assert_ne!(first.harness.certificate, second.harness.certificate);
        assert_ne!(first.harness.key, second.harness.key);
        assert_ne!(
            first.harness.key,
            issue("2026-02-01T10:11:12Z", "b").harness.key
        );
        assert_ne!(first.harness.key, first.sandbox.key);
        assert_ne!(first.harness.key, first.terminal.key);
        // A clock that runs behind the API server's changes nothing.
        assert_eq!(first, issue("2026-02-01T10:00:00Z", "a"));
    }

    #[test]
    fn another_authority_makes_other_keys() {
        let now = at("2026-02-01T10:11:12Z");
        let issue = || {
            let (certificate, key) = Authority::generate(now).expect("made");
            let authority = Authority::load(&certificate, &key).expect("loaded");
            authority
                .certificates(&names(), "a", now, now)
                .expect("issued")
        };
        assert_ne!(issue().harness.key, issue().harness.key);
    }

    #[test]
    fn the_programs_can_read_their_certificates_and_know_each_other_by_them() {
        let now = Timestamp::now();
        let (certificate, key) = Authority::generate(now).expect("made");
        let authority = Authority::load(&certificate, &key).expect("loaded");
        let issued = authority
            .certificates(&names(), "a", now, now)
            .expect("issued");
        for (component, role) in [
            (Component::Harness, mooring_wire::tls::Role::Harness),
            (Component::Sandbox, mooring_wire::tls::Role::Sandbox),
        ] {
            let identity = mooring_wire::tls::Identity {
                role,
                workspace: Some("platform".into()),
                namespace: "agents".into(),
            };
            assert_eq!(names().identity(component), identity.to_string());
            let folder = tempfile::tempdir().expect("a folder");
            let one = issued.of(component);
            for (name, text) in [
                ("ca.crt", &one.ca),
                ("tls.crt", &one.certificate),
                ("tls.key", &one.key),
            ] {
                std::fs::write(folder.path().join(name), text).expect("written");
            }
            mooring_wire::tls::Credentials::load(folder.path()).expect("read by the program");
        }
    }
}
