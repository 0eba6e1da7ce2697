//! The engine's clock, so that tests drive throttles and timers.

use async_trait::async_trait;

use crate::id::Millis;

/// Tells the time and waits for it.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Millis;
    /// Returns at or after `deadline`.
    async fn until(&self, deadline: Millis);
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Millis {
        Millis(jiff::Timestamp::now().as_millisecond())
    }

    async fn until(&self, deadline: Millis) {
        // In steps, so that a clock that is set is noticed.
        loop {
            let left = deadline.0 - self.now().0;
            if left <= 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(left.min(60_000) as u64)).await;
        }
    }
}
