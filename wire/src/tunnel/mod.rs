//! Many connections in one stream of frames, so that a slow one never stalls the
//! others.
//!
//! Both sides use the same [`Mux`]; the daemon's opens connections, the harness's
//! takes them. Flow control is per connection: a side sends what the other gave it
//! credit for, so that whoever reads the frames never has to wait. Connections
//! take turns frame by frame. What a connection holds in memory is bounded by its
//! window, which grows where its reader keeps up.
//!
//! What comes from the other side is untrusted: [`Mux::take`] checks ids, numbers,
//! windows and order, and whoever breaks them loses the whole stream.

mod carry;
mod connection;
mod mux;

pub use carry::{Direction, carry};
pub use connection::Connection;
pub use mux::{Mux, Outgoing, Side, Violation};

/// What may be sent on a new connection before there is credit, in bytes.
pub const WINDOW: usize = 64 << 10;
/// Bytes of one frame, at most.
pub const PIECE: usize = 32 << 10;
/// To which a window grows, in bytes.
const LARGEST_WINDOW: usize = 1 << 20;
/// By how much all windows of a side together may have grown, in bytes.
const ALL_GROWTH: usize = 4 << 20;
/// What a connection takes from its writer before it is sent, in bytes.
const OUTBOX: usize = 64 << 10;
/// More credit than any window has, in bytes.
const MOST_CREDIT: usize = 16 << 20;
/// Characters of a reason that are kept.
const REASON: usize = 200;
