//! Probes, metrics and conditions.
//!
//! Ready: the gateway said READY and what was said before was caught up with. Live:
//! a heartbeat was acknowledged lately, and the supervision goes on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::BotError;
use crate::api::Api;

/// Time without an open connection that is still alive: a restart of Discord's
/// gateway takes a few minutes.
const WITHOUT_CONNECTION: Duration = Duration::from_secs(600);

/// What a workspace's Discord side is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Whether it works.
    pub ready: bool,
    /// A stable word.
    pub reason: String,
    /// What to do.
    pub message: String,
}

struct Gateway {
    connected: bool,
    beat: Instant,
    allowed: Duration,
    supervised: Instant,
}

/// What is known of the bot's health.
pub struct Health {
    gateway: Mutex<Gateway>,
    caught_up: AtomicBool,
    identifies_left: AtomicU64,
    conditions: Mutex<BTreeMap<String, Condition>>,
    /// Counts changes of conditions and of what is ready.
    changes: watch::Sender<u64>,
    counters: Mutex<BTreeMap<&'static str, u64>>,
}

impl Default for Health {
    fn default() -> Self {
        let now = Instant::now();
        Health {
            gateway: Mutex::new(Gateway {
                connected: false,
                beat: now,
                allowed: WITHOUT_CONNECTION,
                supervised: now,
            }),
            caught_up: AtomicBool::new(false),
            identifies_left: AtomicU64::new(0),
            conditions: Mutex::default(),
            changes: watch::Sender::new(0),
            counters: Mutex::default(),
        }
    }
}

impl Health {
    fn gateway(&self) -> std::sync::MutexGuard<'_, Gateway> {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The supervision went round.
    pub fn supervised(&self) {
        self.gateway().supervised = Instant::now();
    }

    /// A heartbeat was acknowledged.
    pub fn heartbeat(&self, interval: Duration) {
        let mut gateway = self.gateway();
        gateway.beat = Instant::now();
        gateway.allowed = interval * 2 + Duration::from_secs(10);
    }

    /// READY or RESUMED came.
    pub fn connected(&self) {
        self.gateway().connected = true;
        self.changed();
        self.count("gateway_connections_total", 1);
    }

    /// The connection ended.
    pub fn disconnected(&self) {
        self.gateway().connected = false;
        self.changed();
    }

    /// Whether what was said before is caught up with.
    pub fn caught_up(&self, done: bool) {
        self.caught_up.store(done, Ordering::Release);
        self.changed();
    }

    /// Identifies left of the day.
    pub fn identifies_left(&self, left: u64) {
        self.identifies_left.store(left, Ordering::Relaxed);
    }

    /// Adds to a counter.
    pub fn count(&self, name: &'static str, more: u64) {
        *self
            .counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name)
            .or_default() += more;
    }

    /// Sets the condition of a workspace, and logs it when it is another.
    pub fn condition(&self, workspace: &str, condition: Condition) {
        let mut conditions = self
            .conditions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = conditions.insert(workspace.to_owned(), condition.clone());
        drop(conditions);
        if before.as_ref() == Some(&condition) {
            return;
        }
        self.changed();
        let Condition {
            ready,
            reason,
            message,
        } = condition;
        if ready {
            tracing::info!(workspace, reason, message, "DiscordReady");
        } else {
            tracing::error!(workspace, reason, message, "DiscordReady is false");
        }
    }

    /// The workspace is not served any more.
    pub fn forget(&self, workspace: &str) {
        self.conditions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(workspace);
        self.changed();
    }

    /// Whether the workspace's condition is false.
    pub fn is_faulty(&self, workspace: &str) -> bool {
        let conditions = self
            .conditions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        conditions
            .get(workspace)
            .is_some_and(|condition| !condition.ready)
    }

    /// The conditions of all workspaces.
    pub fn conditions(&self) -> BTreeMap<String, Condition> {
        self.conditions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Told when a condition, or whether the bot is ready, is another.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Whether events come and nothing from before is missing.
    pub fn is_ready(&self) -> bool {
        self.gateway().connected && self.caught_up.load(Ordering::Acquire)
    }

    /// Whether the process still does its work.
    pub fn is_live(&self) -> bool {
        let gateway = self.gateway();
        if gateway.connected {
            gateway.beat.elapsed() <= gateway.allowed
        } else {
            gateway.supervised.elapsed() <= WITHOUT_CONNECTION
        }
    }

    fn metrics(&self, api: &Api) -> String {
        let mut text = String::new();
        let (requests, limited) = api.rest().counted();
        let beat = self.gateway().beat.elapsed().as_secs_f64();
        let ready = u8::from(self.is_ready());
        let left = self.identifies_left.load(Ordering::Relaxed);
        for (name, value) in [
            ("discord_requests_total", requests.to_string()),
            ("discord_rate_limited_total", limited.to_string()),
            ("gateway_heartbeat_age_seconds", format!("{beat:.3}")),
            ("gateway_identifies_left", left.to_string()),
            ("ready", ready.to_string()),
        ] {
            let _ = writeln!(text, "mooring_bot_{name} {value}");
        }
        for (name, value) in &*self.counters.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = writeln!(text, "mooring_bot_{name} {value}");
        }
        text
    }
}

type Shared = (Arc<Health>, Api);

fn status(good: bool) -> impl IntoResponse {
    if good {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no\n")
    }
}

/// Serves the probes; the address that was taken.
pub async fn serve(
    address: SocketAddr,
    health: Arc<Health>,
    api: Api,
) -> Result<SocketAddr, BotError> {
    let listen = |source| BotError::Listen {
        address: address.to_string(),
        source,
    };
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .map_err(listen)?;
    let taken = listener.local_addr().map_err(listen)?;
    let router = Router::new()
        .route(
            "/healthz",
            get(|State((health, _)): State<Shared>| async move { status(health.is_live()) }),
        )
        .route(
            "/readyz",
            get(|State((health, _)): State<Shared>| async move { status(health.is_ready()) }),
        )
        .route(
            "/metrics",
            get(|State((health, api)): State<Shared>| async move { health.metrics(&api) }),
        )
        .route(
            "/conditions",
            get(|State((health, _)): State<Shared>| async move { Json(health.conditions()) }),
        )
        .with_state((health, api));
    tokio::spawn(async move {
        let _ = axum::serve(listener, router).await;
    });
    Ok(taken)
}
