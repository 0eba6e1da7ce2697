//! The stand-in's time and its ids.
//!
//! Time runs like the machine's and can be moved forward, so that what Discord
//! does after minutes or hours (nonces forgotten, old edits refused, threads
//! archived, links expired) is met without waiting.

use std::time::{SystemTime, UNIX_EPOCH};

/// Discord's epoch, in milliseconds since 1970 (2015-01-01T00:00:00Z).
pub const EPOCH_MS: u64 = 1_420_070_400_000;

/// A Discord id. Ids grow with time: the upper 42 bits are milliseconds since
/// [`EPOCH_MS`].
pub type Id = u64;

/// Time that can be moved forward, and the source of ids.
#[derive(Debug, Default)]
pub struct Clock {
    ahead_ms: u64,
    last: Id,
}

impl Clock {
    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX) + self.ahead_ms
    }

    /// Moves time forward.
    pub fn advance(&mut self, ms: u64) {
        self.ahead_ms += ms;
    }

    /// A new id, larger than all before.
    pub fn id(&mut self) -> Id {
        let id = (self.now_ms() - EPOCH_MS) << 22;
        self.last = id.max(self.last + 1);
        self.last
    }

    /// When an id was made, in milliseconds since 1970.
    pub fn made_ms(id: Id) -> u64 {
        (id >> 22) + EPOCH_MS
    }
}

/// A time as Discord writes it (`2026-01-02T03:04:05.678000+00:00`).
pub fn timestamp(ms: u64) -> String {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(ms).unwrap_or(i64::MAX))
        .unwrap_or(jiff::Timestamp::MAX);
    format!("{}+00:00", at.strftime("%Y-%m-%dT%H:%M:%S.%6f"))
}

/// Reads a time that a client sent, in milliseconds since 1970.
pub fn parse_timestamp(text: &str) -> Option<u64> {
    let at: jiff::Timestamp = text.replace(' ', "+").parse().ok()?;
    u64::try_from(at.as_millisecond()).ok()
}
