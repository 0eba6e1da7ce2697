//! A sandbox on another machine: how this project's harness is known there, and
//! what it knows the sandbox by.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use mooring_wire::{
    WireError,
    pairing::{self, Certificate, Code, Fingerprint, PairingError, Standing},
    private_file,
};
use tonic::transport::Channel;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One sandbox on another machine, and the folder of this side's certificate and
/// of what was paired with it.
#[derive(Clone, Debug)]
pub struct Remote {
    address: String,
    folder: PathBuf,
}

impl Remote {
    /// The sandbox at `address`; the folder belongs to the project that uses it.
    ///
    /// # Errors
    /// The address is not of the form `HOST:PORT`; the text is for people.
    pub fn new(address: &str, folder: &Path) -> Result<Remote, String> {
        let wrong = || format!("`{address}` is no address of a sandbox: it has the form HOST:PORT");
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let host_fits = !host.is_empty()
            && host
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-._[]:%".contains(c))
            && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
        match port.parse::<u16>() {
            Ok(port) if port > 0 && host_fits => Ok(Remote {
                address: address.to_owned(),
                folder: folder.to_owned(),
            }),
            _ => Err(wrong()),
        }
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What the sandbox is known by, once it was paired.
    pub fn pin(&self) -> Option<Fingerprint> {
        self.pins().remove(&self.address)
    }

    /// Asks the sandbox who it is.
    ///
    /// # Errors
    /// Nobody answers, somebody else, another version, or one that is not the paired one.
    pub async fn greet(&self) -> Result<Standing, PairingError> {
        let greeting = pairing::greet(&self.address, &self.certificate()?, VERSION).await?;
        match self.pin() {
            Some(known) if known != greeting.fingerprint => Err(PairingError::Changed {
                address: self.address.clone(),
                known,
                found: greeting.fingerprint,
            }),
            // Paired there, and not here: it has to be done again.
            None if greeting.paired == Standing::You => Ok(Standing::Nobody),
            _ => Ok(greeting.paired),
        }
    }

    /// Pairs with the sandbox and keeps what it is known by from then on.
    ///
    /// # Errors
    /// As with [`Remote::greet`], or the code is not taken.
    pub async fn pair(&self, code: &Code) -> Result<Fingerprint, PairingError> {
        let certificate = self.certificate()?;
        let pin = pairing::pair(&self.address, &certificate, VERSION, code).await?;
        let mut pins = self.pins();
        pins.insert(self.address.clone(), pin);
        self.keep(&pins)?;
        Ok(pin)
    }

    /// Forgets what was paired; `false` where nothing was.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn forget(&self) -> Result<bool, PairingError> {
        let mut pins = self.pins();
        let known = pins.remove(&self.address).is_some();
        if known {
            self.keep(&pins)?;
        }
        Ok(known)
    }

    /// A channel to the paired sandbox; it is asked first who it is, so that what
    /// stands against it can be told.
    pub(super) async fn connect(&self) -> Result<Channel, PairingError> {
        let address = self.address.clone();
        let Some(pin) = self.pin() else {
            return Err(PairingError::Unpaired { address });
        };
        match self.greet().await? {
            Standing::You => {}
            Standing::Another => return Err(PairingError::Another { address }),
            Standing::Nobody => return Err(PairingError::Unpaired { address }),
        }
        Ok(pairing::connect_lazy(&address, &self.certificate()?, pin)?)
    }

    fn certificate(&self) -> Result<Certificate, WireError> {
        Certificate::load_or_make(&self.folder.join("identity.pem"))
    }

    fn pins_file(&self) -> PathBuf {
        self.folder.join("paired.json")
    }

    fn pins(&self) -> BTreeMap<String, Fingerprint> {
        let text = std::fs::read(self.pins_file()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn keep(&self, pins: &BTreeMap<String, Fingerprint>) -> Result<(), WireError> {
        let path = self.pins_file();
        let text = serde_json::to_vec_pretty(pins).expect("names and digits are always JSON");
        let written = private_file::write(&path, &text);
        written.map_err(|source| WireError::File { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (address, fits) in [
            ("build.example.com:7443", true),
            ("127.0.0.1:7443", true),
            ("[::1]:7443", true),
            ("[fe80::1%eth0]:7443", true),
            ("build.example.com", false),
            ("build.example.com:", false),
            ("build.example.com:0", false),
            ("build.example.com:70000", false),
            (":7443", false),
            ("::1:7443", false),
            ("https://build:7443", false),
            ("a b:7443", false),
        ] {
            let remote = Remote::new(address, Path::new("/s"));
            assert_eq!(remote.is_ok(), fits, "{address}");
        }
    }
}
