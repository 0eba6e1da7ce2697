//! Pairing with a sandbox on another machine, by the code that is shown there.

use std::io::{IsTerminal, Read, Write};
use std::path::Path;

use mooring_harness::Remote;
use mooring_wire::pairing::{Code, PairingError, Refusal, Standing};

use crate::error::Error;
use crate::processes::PAIRING_CODE;

/// How often a person may mistype.
const TRIES: usize = 3;

/// Pairs with the sandbox where that was not done yet; asks for the code where it is
/// neither in the file nor in the environment.
pub async fn agree(remote: &Remote, file: Option<&Path>) -> Result<(), Error> {
    let standing = match remote.greet().await {
        // The harness tells it, and waits.
        Err(PairingError::Unreachable { .. }) if remote.pin().is_some() => return Ok(()),
        other => other?,
    };
    if standing == Standing::You {
        return Ok(());
    }
    let address = remote.address();
    if let Some(text) = given(file)? {
        let code = Code::parse(&text).ok_or_else(|| {
            Error::Usage("the pairing code has 20 letters and digits, as it is shown there".into())
        })?;
        return paired(remote, &code).await;
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(match standing {
            Standing::Another => PairingError::Another {
                address: address.to_owned(),
            }
            .into(),
            _ => Error::Usage(format!(
                "the sandbox at {address} is not paired with this project: give the code that \
                 `mooring sandbox serve` shows there by --pairing-code FILE or {PAIRING_CODE}"
            )),
        });
    }
    for left in (0..TRIES).rev() {
        let mut err = std::io::stderr();
        write!(err, "Pairing code that is shown at {address}: ")?;
        err.flush()?;
        let mut typed = String::new();
        if std::io::stdin().read_line(&mut typed)? == 0 {
            break;
        }
        let Some(code) = Code::parse(&typed) else {
            writeln!(err, "A code has 20 letters and digits.")?;
            continue;
        };
        match paired(remote, &code).await {
            Err(Error::Pairing(
                refused @ PairingError::Refused {
                    refusal: Refusal::Wrong,
                    ..
                },
            )) if left > 0 => writeln!(err, "{refused}")?,
            other => return other,
        }
    }
    Err(PairingError::Unpaired {
        address: address.to_owned(),
    }
    .into())
}

async fn paired(remote: &Remote, code: &Code) -> Result<(), Error> {
    let fingerprint = remote.pair(code).await?;
    eprintln!(
        "paired with the sandbox at {} ({fingerprint})",
        remote.address()
    );
    Ok(())
}

/// The code that a script gives.
fn given(file: Option<&Path>) -> Result<Option<String>, Error> {
    let Some(path) = file else {
        return Ok(std::env::var(PAIRING_CODE).ok());
    };
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().read_line(&mut text),
        _ => std::fs::File::open(path).and_then(|file| file.take(1024).read_to_string(&mut text)),
    };
    read.map_err(|error| Error::Path {
        path: path.to_owned(),
        why: error.to_string(),
    })?;
    Ok(Some(text))
}
