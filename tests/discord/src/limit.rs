//! Discord's REST limits: a bucket for each route and major id, and 50 requests
//! a second over all.
//!
//! Figures are those that Discord's headers gave in 2025; they are not in its
//! documentation, which is why a client must read the headers.

use std::collections::HashMap;

use crate::clock::Id;

/// What a request is told of its bucket.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub bucket: String,
    pub limit: u32,
    pub remaining: u32,
    pub reset_ms: u64,
    /// Set when the request is refused.
    pub refused: Option<Scope>,
}

/// Which limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    User,
    Global,
}

#[derive(Debug, Default)]
struct Window {
    used: u32,
    reset_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Limits {
    windows: HashMap<(Id, String), Window>,
    global: HashMap<Id, Window>,
}

const GLOBAL: u32 = 50;

/// Requests and milliseconds of a route's bucket.
fn of_route(route: &str) -> (u32, u64) {
    match route {
        "POST message" | "PATCH message" | "DELETE message" | "GET messages" | "GET message" => {
            (5, 5_000)
        }
        "POST typing" => (5, 5_000),
        "reaction" => (1, 250),
        "POST thread" => (50, 300_000),
        "PATCH channel" => (5, 15_000),
        "GET member" => (5, 1_000),
        "PUT commands" => (2, 30_000),
        _ => (10, 10_000),
    }
}

impl Limits {
    /// Takes one request of the application from the bucket of the route and the
    /// major id (channel, guild, webhook).
    pub(crate) fn take(
        &mut self,
        now_ms: u64,
        application: Id,
        route: &str,
        major: &str,
        exempt_from_global: bool,
    ) -> Told {
        let (limit, span_ms) = of_route(route);
        let key = format!("{route}:{major}");
        if self.windows.len() > 100_000 {
            self.windows.retain(|_, window| window.reset_ms > now_ms);
        }
        let bucket = format!("{:016x}", fold(route));
        let window = self.windows.entry((application, key)).or_default();
        if window.reset_ms <= now_ms {
            *window = Window {
                used: 0,
                reset_ms: now_ms + span_ms,
            };
        }
        if window.used >= limit {
            let reset_ms = window.reset_ms;
            return Told {
                bucket,
                limit,
                remaining: 0,
                reset_ms,
                refused: Some(Scope::User),
            };
        }
        if !exempt_from_global {
            let global = self.global.entry(application).or_default();
            if global.reset_ms <= now_ms {
                *global = Window {
                    used: 0,
                    reset_ms: now_ms + 1_000,
                };
            }
            if global.used >= GLOBAL {
                let reset_ms = global.reset_ms;
                return Told {
                    bucket,
                    limit,
                    remaining: 0,
                    reset_ms,
                    refused: Some(Scope::Global),
                };
            }
            global.used += 1;
        }
        window.used += 1;
        Told {
            bucket,
            limit,
            remaining: limit - window.used,
            reset_ms: window.reset_ms,
            refused: None,
        }
    }
}

/// A name for a bucket that says nothing about the route, as Discord's do.
fn fold(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
