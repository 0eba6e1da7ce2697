//! Against a real API server: `tests/cluster/run` starts one, installs the charts
//! and sets what these tests need (KUBECONFIG, MOORING_AUDIT_LOG).
#![allow(clippy::unwrap_used)]

mod admission;
mod audit;
mod dry_run;
mod namespace;
mod permissions;
mod process;
mod reconcile;
mod rules;
mod scale;
