//! Metrics and health of the operator, over HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use k8s_controller::PrometheusMetrics;
use kube::runtime::reflector::Store;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

use crate::error::Category;
use crate::raw::RawWorkspace;

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
    workspaces: IntGaugeVec,
    pending: IntGaugeVec,
    /// What the watches know; the two above are made from it when they are asked for.
    known: Mutex<Vec<Store<RawWorkspace>>>,
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
        let workspaces = IntGaugeVec::new(
            Opts::new(
                "mooring_operator_workspaces",
                "1 for each Workspace (NAMESPACE/NAME), with the phase it is in.",
            ),
            &["workspace", "phase"],
        )?;
        let pending = IntGaugeVec::new(
            Opts::new(
                "mooring_operator_approvals_pending",
                "Approvals of a Workspace (NAMESPACE/NAME) that wait for a person.",
            ),
            &["workspace"],
        )?;
        registry.register(Box::new(workspaces.clone()))?;
        registry.register(Box::new(pending.clone()))?;
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
            workspaces,
            pending,
            known: Mutex::default(),
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

    /// Workspaces that a watch knows are told of from now on.
    pub fn follow(&self, store: Store<RawWorkspace>) {
        self.known().push(store);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Vec<Store<RawWorkspace>>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All metrics in Prometheus' text format.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let known = self.known();
        self.0.workspaces.reset();
        self.0.pending.reset();
        for workspace in known.iter().flat_map(Store::state) {
            let names = workspace.names();
            let name = format!("{}/{}", names.namespace, names.workspace);
            let phase = workspace.status["phase"].as_str().unwrap_or("Progressing");
            self.0.workspaces.with_label_values(&[&name, phase]).set(1);
            if let Some(pending) = workspace.status["pendingApprovals"].as_i64() {
                self.0.pending.with_label_values(&[&name]).set(pending);
            }
        }
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

    use prometheus::core::Collector as _;

    use super::*;

    /// Names of this operator's metrics in a text.
    fn names(text: &str) -> BTreeSet<&str> {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("mooring_operator_"))
            .collect()
    }

    #[test]
    fn alerts_and_dashboard_ask_only_for_metrics_that_there_are() {
        let metrics = Metrics::new().expect("registered");
        metrics.wrote("apply", "Service");
        metrics.failed(Category::BackOff, "ApiServer");
        let (reader, mut writer) = kube::runtime::reflector::store();
        let workspace: RawWorkspace = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "platform", "namespace": "agents"},
            "status": {"phase": "Stalled", "pendingApprovals": 2},
        }))
        .expect("a Workspace");
        writer.apply_watcher_event(&kube::runtime::watcher::Event::Apply(workspace));
        metrics.follow(reader);
        let text = metrics.text().expect("written");
        for line in [
            "mooring_operator_workspaces{phase=\"Stalled\",workspace=\"agents/platform\"} 1",
            "mooring_operator_approvals_pending{workspace=\"agents/platform\"} 2",
        ] {
            assert!(text.lines().any(|there| there == line), "{line}: {text}");
        }
        let passes = metrics.passes();
        let described: Vec<_> = passes.desc().iter().map(|d| d.fq_name.clone()).collect();
        let buckets: Vec<_> = described.iter().map(|n| format!("{n}_bucket")).collect();
        let mut there = names(&text);
        there.extend(described.iter().chain(&buckets).map(String::as_str));
        for (file, asks) in [
            (
                "rules",
                include_str!("../../charts/mooring/templates/prometheus-rule.yaml"),
            ),
            (
                "dashboard",
                include_str!("../../charts/mooring/files/dashboard.json"),
            ),
        ] {
            let asked = names(asks);
            assert!(asked.len() >= 3, "{file}: {asked:?}");
            let missing: Vec<_> = asked.difference(&there).collect();
            assert!(missing.is_empty(), "{file}: {missing:?}");
        }
    }
}
