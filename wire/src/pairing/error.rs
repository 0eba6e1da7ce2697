//! Why a sandbox on another machine is not reached, and the way out.

use serde::{Deserialize, Serialize};

use super::Fingerprint;
use crate::WireError;

/// Why a sandbox does not take a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "lowercase")]
pub enum Refusal {
    /// It was made with another code, or there is somebody in between.
    #[error("the code is wrong, or somebody is between this machine and that one")]
    Wrong,
    /// The code has paired a harness already.
    #[error("the code was used already; `mooring sandbox pair --new` there makes another")]
    Used,
    /// It was not used in time.
    #[error("the code has expired; `mooring sandbox pair --new` there makes another")]
    Expired,
    /// Too many wrong ones were tried.
    #[error(
        "wrong codes were tried too often, so that the right one is no longer taken; \
         `mooring sandbox pair --new` there makes another"
    )]
    Void,
    /// There is none.
    #[error("no code is open there; `mooring sandbox pair --new` there makes one")]
    Closed,
}

/// Why a sandbox on another machine is not reached.
#[derive(Debug, thiserror::Error)]
pub enum PairingError {
    /// Nobody answers.
    #[error(
        "nothing answers at {address}: {source}; `mooring sandbox serve` there starts a sandbox"
    )]
    Unreachable {
        /// `HOST:PORT`.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Somebody else answers.
    #[error("what answers at {address} is no sandbox that can be paired: {source}")]
    Stranger {
        /// `HOST:PORT`.
        address: String,
        /// What was said, or not.
        source: std::io::Error,
    },
    /// It is another version.
    #[error(
        "the sandbox at {address} has version {theirs}, this machine has {ours}; \
         install the same version on both"
    )]
    Version {
        /// `HOST:PORT`.
        address: String,
        /// What runs there.
        theirs: String,
        /// What runs here.
        ours: String,
    },
    /// It is not the one that this project was paired with.
    #[error(
        "the sandbox at {address} has another certificate ({found}) than the one that was \
         paired ({known}): somebody is in between, or it was set up anew. If you have done \
         that, `mooring sandbox forget {address}` and pair it again"
    )]
    Changed {
        /// `HOST:PORT`.
        address: String,
        /// What was paired.
        known: Fingerprint,
        /// What is there now.
        found: Fingerprint,
    },
    /// It was never paired, or has forgotten this harness.
    #[error(
        "the sandbox at {address} is not paired with this project; `mooring dev --sandbox {address}` asks for its code"
    )]
    Unpaired {
        /// `HOST:PORT`.
        address: String,
    },
    /// It takes another harness.
    #[error(
        "the sandbox at {address} is paired with another harness; `mooring sandbox pair --new` \
         there makes a code with which this one takes its place"
    )]
    Another {
        /// `HOST:PORT`.
        address: String,
    },
    /// It does not take the code.
    #[error("{address} was not paired: {refusal}")]
    Refused {
        /// `HOST:PORT`.
        address: String,
        /// Why.
        refusal: Refusal,
    },
    /// It took the proof and has none of its own.
    #[error(
        "{address} was not paired: what answers there does not know the code, so somebody is \
         between this machine and that one"
    )]
    Unproved {
        /// `HOST:PORT`.
        address: String,
    },
    /// A certificate of this side.
    #[error(transparent)]
    Wire(#[from] WireError),
}
