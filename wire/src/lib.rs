//! The protobuf contracts of Mooring, [`sandbox`] and [`harness`], and how
//! they travel: over Unix sockets ([`uds`]) under
//! `mooring dev`, over mutual TLS ([`tls`]) in a cluster, and between a harness
//! and a sandbox on another machine that were paired ([`pairing`]). What commands
//! send to the world travels inside the sandbox's contract ([`tunnel`]).

pub mod code;
mod error;
mod message;
pub mod pairing;
pub mod private_file;
pub mod shown;
pub mod tls;
pub mod tunnel;
pub mod uds;

pub use error::WireError;

/// The sandbox daemon's contract (`proto/sandbox.proto`).
#[allow(missing_docs, clippy::all)]
pub mod sandbox {
    tonic::include_proto!("mooring.sandbox.v1");
}

/// The harness's contract (`proto/harness.proto`).
#[allow(missing_docs, clippy::all)]
pub mod harness {
    tonic::include_proto!("mooring.harness.v1");
}
