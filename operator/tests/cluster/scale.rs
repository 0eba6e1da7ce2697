//! A thousand Workspaces. Their pods are never scheduled: there is no node.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{ListParams, PostParams};
use mooring_crds::Workspace;
use serde_json::json;

use crate::audit;
use crate::namespace::TestNamespace;
use crate::process::Operator;

const WORKSPACES: usize = 1000;
/// From nothing to the last object; measured at a fraction of it.
const BOUND: Duration = Duration::from_secs(900);
/// How long nothing may be written afterwards: `MOORING_QUIET` seconds, or 30.
fn quiet() -> Duration {
    let named = std::env::var("MOORING_QUIET").ok();
    Duration::from_secs(named.map_or(30, |text| text.parse().unwrap()))
}

/// Memory that a process holds itself, in bytes: without the pages of its program,
/// which is not an optimised one here and many times as large as what is shipped.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[tokio::test]
async fn a_thousand_workspaces_are_brought_up_and_then_left_alone() {
    let namespace = TestNamespace::new("thousand").await;
    let api = namespace.api::<Workspace>();
    // Suspended: a thousand pods would measure Kubernetes' own controllers.
    let made: Vec<_> = stream::iter(0..WORKSPACES)
        .map(|index| {
            let workspace: Workspace = serde_json::from_value(json!({
                "apiVersion": "mooring.dev/v1alpha1",
                "kind": "Workspace",
                "metadata": {"name": format!("w{index}")},
                "spec": {"models": [{"name": "main", "provider": "rehearsal"}], "runState": "Suspended"},
            }))
            .unwrap();
            let api = api.clone();
            async move { api.create(&PostParams::default(), &workspace).await }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    assert!(made.iter().all(Result::is_ok));

    let start = Instant::now();
    let operator = Operator::start(&namespace).await;
    let sets = namespace.api::<StatefulSet>();
    let settled = loop {
        let list = api.list(&ListParams::default()).await.unwrap();
        let settled = list.items.iter().filter(|workspace| {
            workspace.status.as_ref().is_some_and(|status| {
                status
                    .conditions
                    .iter()
                    .any(|c| c.type_ == "Reconciling" && c.status == "False")
            })
        });
        if settled.count() == WORKSPACES {
            break start.elapsed();
        }
        assert!(start.elapsed() < BOUND, "not settled in {BOUND:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    assert_eq!(
        sets.list_metadata(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        2 * WORKSPACES
    );

    let before = audit::writes("thousand").len();
    let quiet_from = Instant::now();
    while quiet_from.elapsed() < quiet() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let written = audit::writes("thousand");
    assert_eq!(written[before..], [] as [String; 0]);
    let resident = resident(operator.pid());
    println!(
        "{WORKSPACES} Workspaces settled after {:.1} s with {before} writes; the operator holds {} MB; no write in the {} s after",
        settled.as_secs_f64(),
        resident >> 20,
        quiet().as_secs(),
    );
    assert!(resident < 60 << 20, "{} MB", resident >> 20);
    namespace.delete().await;
}
