//! Figures for operators, in Prometheus' base units. They count what is committed.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use mooring_durable::{
    clock::{Clock, SystemClock},
    gate::ApprovalState,
    id::{Millis, TaskId},
    ledger::{Change, RunOutcome},
    model::Usage,
};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, core::Collector,
};

use crate::books::state_word;

/// Tools that have a row of their own; a model can make up any other name.
const TOOLS: [&str; 7] = ["bash", "edit", "find", "grep", "ls", "read", "write"];

/// Counters and gauges of one harness.
pub struct Metrics {
    registry: Registry,
    runs: IntCounterVec,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    tokens: IntCounterVec,
    cost: prometheus::CounterVec,
    calls: IntCounterVec,
    approvals: IntCounterVec,
    approval_seconds: Histogram,
    commit_seconds: Histogram,
    started: Mutex<HashMap<(TaskId, u32), Millis>>,
    runs_open: IntGaugeVec,
    approvals_pending: IntGauge,
    outbox_rows: IntGauge,
    inputs_queued: IntGauge,
    database_bytes: IntGauge,
    sandbox_ready: IntGauge,
    keys_missing: IntGauge,
    server_up: IntGaugeVec,
    egress_connections: IntCounterVec,
    egress_bytes: IntCounterVec,
    egress_open: IntGauge,
}

/// What stands at this moment.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Runs that work.
    pub running: usize,
    /// Runs that wait for a person, a key or a time.
    pub waiting: usize,
    /// Approvals that nobody has decided.
    pub approvals: i64,
    /// Rows that wait to be shown.
    pub outbox: i64,
    /// Inputs that wait for their turn.
    pub queued: u64,
    /// The database and its write-ahead log.
    pub database_bytes: u64,
    /// Whether tools may run.
    pub sandbox_ready: bool,
    /// Keys that models and MCP servers take and that are not there.
    pub keys_missing: usize,
    /// MCP servers by name, and whether they answer.
    pub servers: Vec<(String, bool)>,
}

impl Metrics {
    /// All at nought.
    pub fn new() -> Metrics {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            registered(&registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauge = |name: &str, help: &str| registered(&registry, IntGauge::new(name, help));
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            registered(&registry, Histogram::with_opts(options))
        };
        Metrics {
            runs: counter(
                "mooring_runs_total",
                "Runs that ended, by outcome: answered, or why not.",
                &["outcome"],
            ),
            requests: counter(
                "mooring_model_requests_total",
                "Requests to models, by model and by how they ended.",
                &["model", "outcome"],
            ),
            request_seconds: registered(
                &registry,
                HistogramVec::new(
                    HistogramOpts::new(
                        "mooring_model_request_duration_seconds",
                        "From a request's commit to its answer's.",
                    )
                    .buckets(vec![
                        0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0,
                    ]),
                    &["model"],
                ),
            ),
            tokens: counter(
                "mooring_model_tokens_total",
                "Tokens, by model and kind: input (cached ones included), cached, output.",
                &["model", "kind"],
            ),
            cost: registered(
                &registry,
                prometheus::CounterVec::new(
                    Opts::new(
                        "mooring_model_cost_dollars_total",
                        "US dollars spent, by model, where its price is known.",
                    ),
                    &["model"],
                ),
            ),
            calls: counter(
                "mooring_tool_calls_total",
                "Tool calls that ended, by tool and outcome.",
                &["tool", "outcome"],
            ),
            approvals: counter(
                "mooring_approvals_total",
                "Approvals that ended, by outcome.",
                &["outcome"],
            ),
            approval_seconds: histogram(
                "mooring_approval_wait_seconds",
                "From the question to a person's decision.",
                &[5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0],
            ),
            commit_seconds: histogram(
                "mooring_commit_duration_seconds",
                "From the request of a commit until it is on the disk.",
                &[0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0],
            ),
            started: Mutex::default(),
            egress_connections: counter(
                "mooring_egress_connections_total",
                "Connections that commands asked for, by the policy's verdict.",
                &["verdict"],
            ),
            egress_bytes: counter(
                "mooring_egress_bytes_total",
                "Bytes of connections of commands, by direction: sent, received.",
                &["direction"],
            ),
            egress_open: gauge(
                "mooring_egress_connections",
                "Connections of commands that are open.",
            ),
            runs_open: registered(
                &registry,
                IntGaugeVec::new(
                    Opts::new("mooring_runs", "Runs that are going on, by state."),
                    &["state"],
                ),
            ),
            approvals_pending: gauge(
                "mooring_approvals_pending",
                "Approvals that nobody has decided.",
            ),
            outbox_rows: gauge("mooring_outbox_rows", "Rows that wait to be shown."),
            inputs_queued: gauge(
                "mooring_inputs_queued",
                "Inputs that wait for the run before them.",
            ),
            database_bytes: gauge(
                "mooring_database_bytes",
                "The database and its write-ahead log.",
            ),
            sandbox_ready: gauge(
                "mooring_sandbox_ready",
                "1 while the sandbox is reached and proved to have no network.",
            ),
            keys_missing: gauge(
                "mooring_keys_missing",
                "Keys that models of the Workspace take and that are not there.",
            ),
            server_up: registered(
                &registry,
                IntGaugeVec::new(
                    Opts::new(
                        "mooring_mcp_server_up",
                        "1 while an MCP server answers, by its name in the Workspace.",
                    ),
                    &["server"],
                ),
            ),
            registry,
        }
    }

    /// Counts what a commit made true. `cost` tells the price of tokens of a
    /// model, in millionths of a US dollar, where it is known.
    pub fn committed(
        &self,
        at: Millis,
        changes: &[Change],
        cost: impl Fn(&str, Usage) -> Option<i64>,
    ) {
        let now = SystemClock.now();
        self.commit_seconds.observe(seconds(at, now));
        for change in changes {
            match change {
                Change::AttemptStarted { task, attempt, .. } => {
                    self.started().insert((*task, *attempt), at);
                }
                Change::AttemptEnded {
                    task,
                    attempt,
                    model,
                    usage,
                    ended,
                    ..
                } => {
                    let started = self.started().remove(&(*task, *attempt));
                    if let Some(started) = started {
                        self.request_seconds
                            .with_label_values(&[model])
                            .observe(seconds(started, now));
                    }
                    self.requests
                        .with_label_values(&[model.as_str(), ended.word()])
                        .inc();
                    if let Some(usage) = usage {
                        for (kind, tokens) in [
                            ("input", usage.input),
                            ("cached", usage.cached),
                            ("output", usage.output),
                        ] {
                            self.tokens
                                .with_label_values(&[model.as_str(), kind])
                                .inc_by(tokens);
                        }
                        if let Some(micros) = cost(model, *usage) {
                            self.cost
                                .with_label_values(&[model])
                                .inc_by(micros.max(0) as f64 / 1e6);
                        }
                    }
                }
                Change::CallEnded { call, outcome, .. } => {
                    let tool = TOOLS
                        .into_iter()
                        .find(|tool| *tool == call.tool)
                        .unwrap_or("other");
                    self.calls.with_label_values(&[tool, outcome.word()]).inc();
                }
                Change::ApprovalSettled { approval } => {
                    self.approvals
                        .with_label_values(&[state_word(approval.state)])
                        .inc();
                    if matches!(
                        approval.state,
                        ApprovalState::Approved | ApprovalState::Denied
                    ) {
                        self.approval_seconds
                            .observe(seconds(approval.asked_at, now));
                    }
                }
                Change::RunEnded { outcome, .. } => {
                    let word = match outcome {
                        RunOutcome::Answered { .. } => "answered".to_owned(),
                        RunOutcome::Unanswered { reason, .. } => {
                            let word = serde_json::to_value(reason).unwrap_or_default();
                            word.as_str().unwrap_or("unanswered").to_owned()
                        }
                    };
                    self.runs.with_label_values(&[&word]).inc();
                }
                _ => {}
            }
        }
    }

    /// A command asked for a connection; `verdict` is the policy's.
    pub fn egress_asked(&self, verdict: &str) {
        self.egress_connections.with_label_values(&[verdict]).inc();
    }

    /// Bytes of connections went one way: `sent` or `received`.
    pub fn egress_moved(&self, direction: &str, bytes: u64) {
        self.egress_bytes
            .with_label_values(&[direction])
            .inc_by(bytes);
    }

    /// So many connections of commands are open.
    pub fn egress_open(&self, count: u32) {
        self.egress_open.set(i64::from(count));
    }

    /// All of them in Prometheus' text format.
    pub fn text(&self, standing: Standing) -> String {
        let set =
            |gauge: &IntGauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        self.runs_open
            .with_label_values(&["running"])
            .set(standing.running as i64);
        self.runs_open
            .with_label_values(&["waiting"])
            .set(standing.waiting as i64);
        self.approvals_pending.set(standing.approvals);
        self.outbox_rows.set(standing.outbox);
        set(&self.inputs_queued, standing.queued);
        set(&self.database_bytes, standing.database_bytes);
        self.sandbox_ready.set(i64::from(standing.sandbox_ready));
        set(&self.keys_missing, standing.keys_missing as u64);
        // One that is not in the Workspace any more has no figure.
        self.server_up.reset();
        for (server, up) in &standing.servers {
            self.server_up
                .with_label_values(&[server])
                .set(i64::from(*up));
        }
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .expect("names and labels are valid: a test encodes all of them")
    }

    fn started(&self) -> std::sync::MutexGuard<'_, HashMap<(TaskId, u32), Millis>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

/// Registers a collector whose name and labels stand in this file.
fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: Result<C, prometheus::Error>,
) -> C {
    let collector = made.expect("names and labels in this file are valid");
    registry
        .register(Box::new(collector.clone()))
        .expect("each name stands in this file once");
    collector
}

fn seconds(from: Millis, to: Millis) -> f64 {
    (to.0 - from.0).max(0) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_is_in_the_text() {
        let text = Metrics::new().text(Standing {
            running: 2,
            waiting: 1,
            approvals: 3,
            outbox: 4,
            queued: 5,
            database_bytes: 6,
            sandbox_ready: true,
            keys_missing: 7,
            servers: vec![("db".into(), true), ("tracker".into(), false)],
        });
        for line in [
            "mooring_runs{state=\"running\"} 2",
            "mooring_runs{state=\"waiting\"} 1",
            "mooring_approvals_pending 3",
            "mooring_outbox_rows 4",
            "mooring_inputs_queued 5",
            "mooring_database_bytes 6",
            "mooring_sandbox_ready 1",
            "mooring_keys_missing 7",
            "mooring_mcp_server_up{server=\"db\"} 1",
            "mooring_mcp_server_up{server=\"tracker\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
