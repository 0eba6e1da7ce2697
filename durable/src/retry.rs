//! When a failed request is sent again.

use std::time::Duration;

use crate::id::Millis;

/// Most attempts of one generation.
pub const ATTEMPTS: u32 = 5;
/// Most recoveries of one attempt from a crash.
pub const RECOVERIES: u32 = 3;
/// The longest wait that a provider may ask for.
pub const LONGEST: Duration = Duration::from_secs(600);
const FIRST: Duration = Duration::from_secs(2);

/// What follows from a retryable error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another attempt after this delay.
    After(Duration),
    /// No more attempts.
    Exhausted,
    /// The provider asks for more than [`LONGEST`].
    TooLate(Duration),
}

/// Decides after attempt number `attempt` (from 1) failed. `jitter` lies in 0 to 1.
pub(crate) fn next(attempt: u32, retry_after: Option<Duration>, jitter: f64) -> Next {
    if attempt >= ATTEMPTS {
        return Next::Exhausted;
    }
    match retry_after {
        Some(asked) if asked > LONGEST => Next::TooLate(asked),
        Some(asked) => Next::After(asked),
        None => {
            let base = FIRST * 2_u32.pow(attempt.saturating_sub(1).min(16));
            // Up to a quarter more, so that those who failed together do not return together.
            Next::After(base.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 4.0))
        }
    }
}

/// A deadline further away than its own delay, after a jump of the clock, is cut back.
pub(crate) fn deadline(stored: Millis, delay_ms: i64, now: Millis) -> Millis {
    Millis(stored.0.min(now.0.saturating_add(delay_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_end_after_five_attempts() {
        let seconds = |seconds| Next::After(Duration::from_secs(seconds));
        for (attempt, retry_after, jitter, expected) in [
            (1, None, 0.0, seconds(2)),
            (2, None, 0.0, seconds(4)),
            (3, None, 0.0, seconds(8)),
            (4, None, 0.0, seconds(16)),
            (4, None, 1.0, seconds(20)),
            (5, None, 0.0, Next::Exhausted),
            (1, Some(30), 0.5, seconds(30)),
            (1, Some(0), 0.5, seconds(0)),
            (1, Some(600), 0.0, seconds(600)),
            (1, Some(601), 0.0, Next::TooLate(Duration::from_secs(601))),
            (5, Some(1), 0.0, Next::Exhausted),
        ] {
            assert_eq!(
                next(attempt, retry_after.map(Duration::from_secs), jitter),
                expected,
                "{attempt} {retry_after:?}"
            );
        }
    }

    #[test]
    fn a_clock_that_jumped_back_does_not_stretch_a_wait() {
        for (stored, delay, now, expected) in [
            (10_000, 2_000, 9_000, 10_000),
            (10_000, 2_000, 1_000, 3_000),
            (10_000, 2_000, 20_000, 10_000),
        ] {
            assert_eq!(
                deadline(Millis(stored), delay, Millis(now)),
                Millis(expected)
            );
        }
    }
}
