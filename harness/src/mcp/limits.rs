//! How long and how much a server may take.

use std::time::Duration;

/// How long and how much a server may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until it has said what it is and which tools it has.
    pub start: Duration,
    /// A call without an answer or a sign of progress.
    pub call: Duration,
    /// A call in all.
    pub whole: Duration,
    /// How often a quiet server is asked whether it is there.
    pub pulse: Duration,
    /// Bytes of one message.
    pub message: usize,
    /// Tools that are taken from one server.
    pub tools: usize,
    /// The first pause before another try; each is twice as long.
    pub pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// Between two looks at something that is full.
    pub step: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            start: Duration::from_secs(30),
            call: Duration::from_secs(300),
            whole: Duration::from_secs(3600),
            pulse: Duration::from_secs(30),
            message: 8 << 20,
            tools: 512,
            pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(60),
            step: Duration::from_millis(50),
        }
    }
}
