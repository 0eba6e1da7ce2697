//! With which harness a sandbox on another machine is paired, and the code that
//! pairs one: files in a folder of the state that commands do not see.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mooring_wire::pairing::{Certificate, Code, Desk, Fingerprint, Proof, Refusal};
use rustix::fs::{AtFlags, FlockOperation};
use serde::{Deserialize, Serialize};

use crate::error::SandboxError;
use crate::folders::{folder, open_folder};
use crate::record;

/// How long a code is taken.
pub const CODE_LIFE: Duration = Duration::from_secs(10 * 60);
/// So many wrong codes make the right one void.
const TRIES: u32 = 5;

const IDENTITY: &str = "identity.pem";
const HARNESS: &str = "harness.json";
const CODE: &str = "code.json";

/// The pairing of one sandbox.
#[derive(Debug)]
pub struct Pairing {
    path: PathBuf,
    /// Paths are of no use once the daemon has its own file system.
    folder: OwnedFd,
    certificate: Certificate,
}

/// The harness that may call.
#[derive(Debug, Serialize, Deserialize)]
struct Paired {
    fingerprint: Fingerprint,
}

/// What has become of the code.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ticket {
    Open {
        code: Code,
        expires_ms: u128,
        tries: u32,
    },
    /// The harness may have been cut off before it heard the answer: it hears it again.
    Used {
        harness: Fingerprint,
        proof: Proof,
        answer: Proof,
    },
    Void,
}

impl Pairing {
    /// The pairing of the sandbox with this state folder, which is there. A
    /// certificate is made where there is none.
    ///
    /// # Errors
    /// A folder or a file that cannot be used.
    pub fn open(state: &Path) -> Result<Self, SandboxError> {
        let path = state.join("pairing");
        folder(&path, 0o700)?;
        Ok(Self {
            folder: open_folder(&path)?,
            certificate: Certificate::load_or_make(&path.join(IDENTITY))?,
            path,
        })
    }

    /// The sandbox's certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// A new code. One that was open is taken no more; a harness that is paired
    /// stays so until another one uses the code.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn new_code(&self) -> Result<Code, SandboxError> {
        let code = Code::random();
        let ticket = Ticket::Open {
            code: code.clone(),
            expires_ms: now_ms() + CODE_LIFE.as_millis(),
            tries: TRIES,
        };
        self.locked(|| self.write(CODE, &ticket))
            .map_err(self.failed("writing the pairing code"))?;
        Ok(code)
    }

    /// From now on no harness may call, and no code is open.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn forget(&self) -> Result<(), SandboxError> {
        let removed = self.locked(|| {
            for name in [HARNESS, CODE] {
                match rustix::fs::unlinkat(&self.folder, name, AtFlags::empty()) {
                    Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        });
        removed.map_err(self.failed("forgetting the harness"))
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(std::io::Error) -> SandboxError {
        SandboxError::path(self.path.clone(), what)
    }

    /// Another process may make a code at this moment.
    fn locked<T>(&self, work: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
        rustix::fs::flock(self.folder.as_fd(), FlockOperation::LockExclusive)?;
        let done = work();
        rustix::fs::flock(self.folder.as_fd(), FlockOperation::Unlock)?;
        done
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        record::read(&self.folder, name)
    }

    fn write(&self, name: &str, value: &impl Serialize) -> std::io::Result<()> {
        record::write(&self.folder, name, value)
    }

    fn decide(
        &self,
        harness: Fingerprint,
        proof: &Proof,
    ) -> std::io::Result<Result<Proof, Refusal>> {
        Ok(match self.read(CODE) {
            None => Err(Refusal::Closed),
            Some(Ticket::Void) => Err(Refusal::Void),
            Some(Ticket::Used {
                harness: known,
                proof: shown,
                answer,
            }) if known == harness && shown == *proof => Ok(answer),
            Some(Ticket::Used { .. }) => Err(Refusal::Used),
            Some(Ticket::Open { expires_ms, .. }) if now_ms() > expires_ms => Err(Refusal::Expired),
            Some(Ticket::Open {
                code,
                expires_ms,
                tries,
            }) => {
                let own = self.certificate.fingerprint();
                if *proof == code.harness_proof(harness, own) {
                    let answer = code.sandbox_proof(harness, own);
                    // In this order: after a crash in between the same harness tries again.
                    self.write(
                        HARNESS,
                        &Paired {
                            fingerprint: harness,
                        },
                    )?;
                    self.write(
                        CODE,
                        &Ticket::Used {
                            harness,
                            proof: *proof,
                            answer,
                        },
                    )?;
                    tracing::info!(%harness, "paired");
                    Ok(answer)
                } else {
                    let tries = tries.saturating_sub(1);
                    let left = match tries {
                        0 => Ticket::Void,
                        tries => Ticket::Open {
                            code,
                            expires_ms,
                            tries,
                        },
                    };
                    self.write(CODE, &left)?;
                    tracing::warn!(%harness, tries, "a wrong pairing code");
                    Err(Refusal::Wrong)
                }
            }
        })
    }
}

impl Desk for Pairing {
    fn paired(&self) -> Option<Fingerprint> {
        self.read(HARNESS).map(|Paired { fingerprint }| fingerprint)
    }

    fn take(&self, harness: Fingerprint, proof: &Proof) -> Result<Proof, Refusal> {
        self.locked(|| self.decide(harness, proof))
            .unwrap_or_else(|error| {
                // What cannot be recorded has not happened.
                tracing::error!(%error, "the pairing is not recorded");
                Err(Refusal::Closed)
            })
    }
}

fn now_ms() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn fingerprint(digit: char) -> Fingerprint {
        Fingerprint::try_from(digit.to_string().repeat(64)).unwrap()
    }

    fn proof(pairing: &Pairing, code: &Code, harness: Fingerprint) -> Proof {
        code.harness_proof(harness, pairing.certificate().fingerprint())
    }

    #[test]
    fn a_code_pairs_once_and_only_who_used_it_hears_the_answer_again() {
        let state = tempfile::tempdir().unwrap();
        let pairing = Pairing::open(state.path()).unwrap();
        let (a, b) = (fingerprint('a'), fingerprint('b'));
        let own = pairing.certificate().fingerprint();
        let closed = proof(&pairing, &Code::random(), a);
        assert_eq!(pairing.take(a, &closed), Err(Refusal::Closed));
        let code = pairing.new_code().unwrap();
        let right = proof(&pairing, &code, a);
        // A proof of another harness's is of no use.
        assert_eq!(pairing.take(b, &right), Err(Refusal::Wrong));
        assert_eq!(pairing.paired(), None);
        for _ in 0..2 {
            assert_eq!(pairing.take(a, &right), Ok(code.sandbox_proof(a, own)));
            assert_eq!(pairing.paired(), Some(a));
        }
        let second = proof(&pairing, &code, b);
        assert_eq!(pairing.take(b, &second), Err(Refusal::Used));
        // A daemon that is started again knows all that.
        let again = Pairing::open(state.path()).unwrap();
        assert_eq!(again.certificate().fingerprint(), own);
        assert_eq!(again.paired(), Some(a));
        assert_eq!(again.take(b, &second), Err(Refusal::Used));
        // Another code hands the sandbox over.
        let code = again.new_code().unwrap();
        assert_eq!(pairing.paired(), Some(a));
        assert!(pairing.take(b, &proof(&pairing, &code, b)).is_ok());
        assert_eq!(again.paired(), Some(b));
        again.forget().unwrap();
        assert_eq!(pairing.paired(), None);
        let late = proof(&pairing, &code, b);
        assert_eq!(pairing.take(b, &late), Err(Refusal::Closed));
    }

    #[test]
    fn a_code_ends_with_its_time_and_after_five_wrong_ones() {
        let state = tempfile::tempdir().unwrap();
        let pairing = Pairing::open(state.path()).unwrap();
        let a = fingerprint('a');
        let code = pairing.new_code().unwrap();
        let right = proof(&pairing, &code, a);
        let wrong = proof(&pairing, &Code::random(), a);
        for _ in 0..TRIES {
            assert_eq!(pairing.take(a, &wrong), Err(Refusal::Wrong));
        }
        assert_eq!(pairing.take(a, &right), Err(Refusal::Void));
        let late = Ticket::Open {
            code: code.clone(),
            expires_ms: now_ms() - 1,
            tries: TRIES,
        };
        pairing.write(CODE, &late).unwrap();
        assert_eq!(pairing.take(a, &right), Err(Refusal::Expired));
        assert_eq!(pairing.paired(), None);
        use std::os::unix::fs::PermissionsExt;
        for name in [IDENTITY, CODE] {
            let path = state.path().join("pairing").join(name);
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
