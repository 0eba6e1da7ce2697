//! Discord's limits before the wire: requests of one route and channel go one
//! after the other and wait for their window; all together keep below the global
//! limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// Requests a second over all where nothing else is said; Discord allows 50, and more
/// to the bots of many guilds.
/// <https://discord.com/developers/docs/topics/rate-limits#global-rate-limit>
pub const GLOBAL: u32 = 45;
/// Buckets that are remembered before idle ones are forgotten.
const BUCKETS: usize = 10_000;

/// The window of one route and channel.
#[derive(Debug)]
pub(super) struct Window {
    remaining: u32,
    reset: Instant,
}

/// Held while a request of its bucket is under way.
pub(super) type Permit = OwnedMutexGuard<Window>;

struct Global {
    used: u32,
    since: Instant,
    stopped: Instant,
}

pub(super) struct Limits {
    /// Requests a second over all.
    allowed: u32,
    buckets: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Window>>>>,
    global: Mutex<Global>,
}

impl Limits {
    /// With so many requests a second over all.
    pub fn new(allowed: u32) -> Limits {
        let now = Instant::now();
        Limits {
            allowed: allowed.max(1),
            buckets: Mutex::default(),
            global: Mutex::new(Global {
                used: 0,
                since: now,
                stopped: now,
            }),
        }
    }

    /// Waits until a request of the bucket may go.
    pub async fn wait(&self, bucket: &str) -> Permit {
        let window = {
            let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            if buckets.len() >= BUCKETS {
                let now = Instant::now();
                buckets.retain(|_, window| {
                    Arc::strong_count(window) > 1
                        || window.try_lock().is_ok_and(|window| window.reset > now)
                });
            }
            buckets
                .entry(bucket.to_owned())
                .or_insert_with(|| {
                    Arc::new(tokio::sync::Mutex::new(Window {
                        remaining: 1,
                        reset: Instant::now(),
                    }))
                })
                .clone()
        };
        let window = window.lock_owned().await;
        if window.remaining == 0 && window.reset > Instant::now() {
            tokio::time::sleep_until(window.reset).await;
        }
        while let Some(until) = self.take_global() {
            tokio::time::sleep_until(until).await;
        }
        window
    }

    /// One request of all; when there is none left, when to ask again.
    fn take_global(&self) -> Option<Instant> {
        let mut global = self.global.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if global.stopped > now {
            return Some(global.stopped);
        }
        if now.duration_since(global.since) >= Duration::from_secs(1) {
            global.since = now;
            global.used = 0;
        }
        if global.used >= self.allowed {
            return Some(global.since + Duration::from_secs(1));
        }
        global.used += 1;
        None
    }

    /// Discord said that the global limit is reached.
    pub fn stop_all(&self, pause: Duration) {
        self.global
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stopped = Instant::now() + pause;
    }

    /// Takes over what the answer says of its bucket.
    pub fn learn(&self, mut permit: Permit, headers: &HeaderMap) {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<f64>().ok();
        if let (Some(remaining), Some(after)) = (
            number("x-ratelimit-remaining"),
            number("x-ratelimit-reset-after"),
        ) {
            permit.remaining = remaining as u32;
            permit.reset = Instant::now() + Duration::from_secs_f64(after.clamp(0.0, 3_600.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(remaining: &str, after: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset-after", after),
        ] {
            headers.insert(name, value.parse().expect("a header value"));
        }
        headers
    }

    #[tokio::test(start_paused = true)]
    async fn an_exhausted_bucket_waits_for_its_window_and_others_do_not() {
        let limits = Limits::new(GLOBAL);
        let before = Instant::now();
        let permit = limits.wait("a").await;
        limits.learn(permit, &headers("0", "5"));
        drop(limits.wait("b").await);
        assert!(before.elapsed() < Duration::from_millis(100));
        drop(limits.wait("a").await);
        assert!(before.elapsed() >= Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn all_buckets_together_keep_below_the_global_limit() {
        let limits = Limits::new(GLOBAL);
        let before = Instant::now();
        for n in 0..GLOBAL * 2 {
            drop(limits.wait(&n.to_string()).await);
        }
        assert!(before.elapsed() < Duration::from_secs(2));
        drop(limits.wait("last").await);
        assert!(before.elapsed() >= Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_global_429_stops_everything() {
        let limits = Limits::new(GLOBAL);
        limits.stop_all(Duration::from_secs(7));
        let before = Instant::now();
        drop(limits.wait("a").await);
        assert!(before.elapsed() >= Duration::from_secs(7));
    }
}
