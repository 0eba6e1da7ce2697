//! Metrics and health of the operator, over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use k8s_controller::PrometheusMetrics;
use prometheus::{IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

use crate::error::Category;

/// Counters of the operator, and whether it is ready.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    passes: PrometheusMetrics,
    writes: IntCounterVec,
    failures: IntCounterVec,
    approvals_removed: prometheus::IntCounter,
    crds_missing: IntGauge,
    leader: IntGauge,
    ready: AtomicBool,
}

impl Metrics {
    /// Registers all metrics.
    pub fn new() -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let passes = PrometheusMetrics::new("mooring_operator")?;
        let writes = IntCounterVec::new(
            Opts::new("mooring_operator_writes_total", "Writes to the API server."),
            &["verb", "kind"],
        )?;
        let failures = IntCounterVec::new(
            Opts::new(
                "mooring_operator_failures_total",
                "Passes that ended early, by what is done about it.",
            ),
            &["category", "reason"],
        )?;
        let approvals_removed = prometheus::IntCounter::new(
            "mooring_operator_approvals_removed_total",
            "Terminal Approval objects that were removed after their time.",
        )?;
        let crds_missing = IntGauge::new(
            "mooring_operator_crds_missing",
            "1 while the types of the chart mooring-crds are not installed.",
        )?;
        let leader = IntGauge::new("mooring_operator_leader", "1 on the replica that works.")?;
        registry.register(Box::new(passes.clone()))?;
        registry.register(Box::new(writes.clone()))?;
        registry.register(Box::new(failures.clone()))?;
        registry.register(Box::new(approvals_removed.clone()))?;
        registry.register(Box::new(crds_missing.clone()))?;
        registry.register(Box::new(leader.clone()))?;
        Ok(Metrics(Arc::new(Inner {
            registry,
            passes,
            writes,
            failures,
            approvals_removed,
            crds_missing,
            leader,
            ready: AtomicBool::new(false),
        })))
    }

    /// The observer of passes.
    pub fn passes(&self) -> PrometheusMetrics {
        self.0.passes.clone()
    }

    /// Counts a write.
    pub fn wrote(&self, verb: &str, kind: &str) {
        self.0.writes.with_label_values(&[verb, kind]).inc();
    }

    /// Counts a pass that ended early.
    pub fn failed(&self, category: Category, reason: &str) {
        self.0
            .failures
            .with_label_values(&[category.as_str(), reason])
            .inc();
    }

    /// Counts Approval objects that were removed.
    pub fn removed_approvals(&self, count: u64) {
        self.0.approvals_removed.inc_by(count);
    }

    /// Says whether the types are installed; without them the operator is not ready.
    pub fn crds_missing(&self, missing: bool) {
        self.0.crds_missing.set(i64::from(missing));
        self.0.ready.store(!missing, Ordering::Relaxed);
    }

    /// Says whether this replica holds the lease.
    pub fn leads(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
    }

    /// All metrics in Prometheus' text format.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.0.registry.gather())
    }

    /// `/healthz`, `/readyz` and `/metrics`.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self.clone())
    }
}

async fn readyz(State(metrics): State<Metrics>) -> (StatusCode, &'static str) {
    if metrics.0.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the types of the chart mooring-crds are not installed\n",
        )
    }
}

async fn metrics(State(metrics): State<Metrics>) -> Result<String, StatusCode> {
    metrics.text().map_err(|error| {
        tracing::error!(%error, "metrics could not be written");
        StatusCode::INTERNAL_SERVER_ERROR
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Names of this operator's metrics in a text.
    fn names(text: &str) -> BTreeSet<&str> {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("mooring_operator_"))
            .collect()
    }

    #[test]
    fn alerts_ask_only_for_metrics_that_there_are() {
        let metrics = Metrics::new().expect("registered");
        metrics.wrote("apply", "Service");
        metrics.failed(Category::BackOff, "ApiServer");
        let text = metrics.text().expect("written");
        let rules = include_str!("../../charts/mooring/templates/prometheus-rule.yaml");
        let asked = names(rules);
        assert!(asked.len() >= 3, "{asked:?}");
        let there = names(&text);
        let missing: Vec<_> = asked.difference(&there).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
