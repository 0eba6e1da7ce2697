//! What clients wrote and what became of it, for tests to count.

use serde::Serialize;
use serde_json::Value;

use crate::clock::Id;
use crate::world::Pings;

/// One REST request.
#[derive(Clone, Debug, Serialize)]
pub struct Write {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The application that sent it; 0 for none.
    pub application: Id,
    /// `POST`, …
    pub method: String,
    /// Without the base address.
    pub path: String,
    /// Its JSON.
    pub body: Value,
    /// The status that was computed, also when the client did not get it.
    pub status: u16,
    /// Discord's code of an error.
    pub code: Option<u64>,
    /// The message that was made or changed.
    pub message: Option<Id>,
    /// Whom it notified.
    pub pings: Pings,
    /// The nonce had been seen: nothing was made.
    pub repeated_nonce: bool,
    /// The fault that it met.
    pub fault: Option<String>,
}

/// One thing that happened at the gateway.
#[derive(Clone, Debug, Serialize)]
pub struct GatewayEvent {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// `connect`, `identify`, `resume`, `resumed`, `invalid`, `heartbeat`, `close`, `budget-exhausted`.
    pub what: String,
    /// The session, or the close code.
    pub detail: String,
}

/// Both, in order. Bounded: the oldest go first.
#[derive(Debug, Default)]
pub struct Ledger {
    /// All REST requests, reads too.
    pub writes: Vec<Write>,
    /// All that happened at the gateway, without heartbeats.
    pub gateway: Vec<GatewayEvent>,
    /// Number of heartbeats.
    pub heartbeats: u64,
}

/// Rows kept of each kind.
const KEPT: usize = 200_000;

impl Ledger {
    pub(crate) fn write(&mut self, write: Write) {
        if self.writes.len() >= KEPT {
            self.writes.drain(..KEPT / 10);
        }
        self.writes.push(write);
    }

    pub(crate) fn gateway(&mut self, at_ms: u64, what: &str, detail: impl Into<String>) {
        if self.gateway.len() >= KEPT {
            self.gateway.drain(..KEPT / 10);
        }
        self.gateway.push(GatewayEvent {
            at_ms,
            what: what.into(),
            detail: detail.into(),
        });
    }

    /// How often this happened at the gateway.
    pub fn gateway_count(&self, what: &str) -> usize {
        self.gateway
            .iter()
            .filter(|event| event.what == what)
            .count()
    }

    /// Requests with this method whose path ends so, with this status.
    pub fn count(&self, method: &str, path_end: &str, status: u16) -> usize {
        self.writes
            .iter()
            .filter(|write| {
                write.method == method && write.path.ends_with(path_end) && write.status == status
            })
            .count()
    }

    /// Answers 429.
    pub fn limited(&self) -> usize {
        self.writes
            .iter()
            .filter(|write| write.status == 429)
            .count()
    }
}
