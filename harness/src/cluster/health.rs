//! `/healthz`, `/readyz` and `/metrics`.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::sync::watch;

use crate::{sandbox, service::Service};

/// How long an answer about readiness waits for it; the kubelet waits for a second.
const MOMENT: Duration = Duration::from_millis(700);

/// How the process stands, for the kubelet and for people.
#[derive(Clone, Default)]
pub struct Health(Arc<Inner>);

#[derive(Default)]
struct Inner {
    service: OnceLock<Arc<Service>>,
    why: Mutex<String>,
    opened: watch::Sender<bool>,
}

impl Health {
    /// Not ready yet, and why.
    pub fn waits(&self, why: &str) {
        *self.0.why.lock().unwrap_or_else(PoisonError::into_inner) = why.to_owned();
    }

    /// The database is open and callers are served.
    pub fn serves(&self, service: Arc<Service>) {
        let _ = self.0.service.set(service);
        self.0.opened.send_replace(true);
    }

    /// The HTTP routes.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/healthz", get(async || "alive\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self.clone())
    }
}

/// Ready is: callers are served. The sandbox may be away; the text says so.
async fn ready(State(health): State<Health>) -> (StatusCode, String) {
    // A probe that comes a little early need not be made again a second later.
    let mut opened = health.0.opened.subscribe();
    let _ = tokio::time::timeout(MOMENT, opened.wait_for(|opened| *opened)).await;
    match health.0.service.get() {
        None => {
            let why = health.0.why.lock().unwrap_or_else(PoisonError::into_inner);
            (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
        }
        Some(service) => {
            let sandbox = match service.link.state() {
                sandbox::State::Ready(_) => "sandbox: ready".to_owned(),
                sandbox::State::Unproved { reason, .. }
                | sandbox::State::Refused { reason, .. } => format!("sandbox: {reason}"),
                sandbox::State::Down { error, .. } => format!("sandbox: {error}"),
            };
            (StatusCode::OK, format!("database: open\n{sandbox}\n"))
        }
    }
}

async fn metrics(State(health): State<Health>) -> (StatusCode, String) {
    match health.0.service.get() {
        None => (StatusCode::SERVICE_UNAVAILABLE, "starting\n".into()),
        Some(service) => match service.standing().await {
            Ok(standing) => (StatusCode::OK, service.metrics.text(standing)),
            Err(status) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("{}\n", status.message()),
            ),
        },
    }
}
