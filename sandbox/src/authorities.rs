//! Certificates that commands trust beside the system's: one file with all of them,
//! which every common tool is told of.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use sha2::{Digest, Sha256};

/// Where systems keep what they trust; the first that is there counts.
const SYSTEM: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// What tells the tools of it. Each replaces the system's, so that the file holds both.
const VARIABLES: &[&str] = &[
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    // Where the machine's npmrc names a file, npm looks at nothing else.
    "npm_config_cafile",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
];

/// Writes the file where it is not there yet; the variables that name it.
/// `seen` is the folder as commands see it.
pub fn install(folder: &OwnedFd, seen: &Path, bundle: &[u8]) -> io::Result<Vec<(String, String)>> {
    let mut all = SYSTEM
        .iter()
        .find_map(|path| std::fs::read(path).ok())
        .unwrap_or_default();
    if !all.is_empty() && !all.ends_with(b"\n") {
        all.push(b'\n');
    }
    all.extend_from_slice(bundle);
    // A leading dot keeps it from the output files that make room.
    let name = format!(
        ".authorities-{}.pem",
        hex::encode(&Sha256::digest(&all)[..10])
    );
    if rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        let part = format!("{name}.part");
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, &part, flags, Mode::from_raw_mode(0o644))?;
        std::fs::File::from(file).write_all(&all)?;
        rustix::fs::renameat(folder, &part, folder, &name)?;
    }
    let path = seen.join(name).display().to_string();
    Ok(VARIABLES
        .iter()
        .map(|variable| ((*variable).to_owned(), path.clone()))
        .collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_bundle_is_written_once_and_named_to_every_tool() {
        let folder = tempfile::tempdir().unwrap();
        let open = || OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
        let seen = Path::new("/run/mooring/output");
        let first = install(&open(), seen, b"-----A-----\n").unwrap();
        let again = install(&open(), seen, b"-----A-----\n").unwrap();
        let other = install(&open(), seen, b"-----B-----\n").unwrap();
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert_eq!(first.len(), VARIABLES.len());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let name = Path::new(&first[0].1).file_name().unwrap();
        let text = std::fs::read(folder.path().join(name)).unwrap();
        assert!(text.ends_with(b"-----A-----\n"));
    }
}
