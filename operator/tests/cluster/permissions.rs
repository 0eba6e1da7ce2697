//! What the operator may do, and why.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;

use crate::namespace::client;

/// Every permission, and the code that needs it.
const NEEDED: &[(&str, &str, &str)] = &[
    (
        "mooring.dev/workspaces",
        "get list watch",
        "run::controller watches them; granted on to harnesses (build::role)",
    ),
    (
        "mooring.dev/workspaces/status",
        "patch",
        "controller::report",
    ),
    (
        "mooring.dev/approvals",
        "get list watch create delete",
        "observe::pending_approvals, approvals::sweep; create is granted on (build::role)",
    ),
    (
        "mooring.dev/approvals/status",
        "patch",
        "granted on (build::role)",
    ),
    (
        "/serviceaccounts",
        "get list watch create patch",
        "apply::apply, run::controller",
    ),
    (
        "/services",
        "get list watch create patch",
        "apply::apply, run::controller",
    ),
    ("/secrets", "create patch", "apply::apply; never read"),
    (
        "rbac.authorization.k8s.io/roles",
        "get list watch create patch",
        "apply::apply, run::controller",
    ),
    (
        "rbac.authorization.k8s.io/rolebindings",
        "get list watch create patch",
        "apply::apply, run::controller",
    ),
    (
        "networking.k8s.io/networkpolicies",
        "get list watch create patch",
        "apply::apply, run::controller",
    ),
    (
        "policy/poddisruptionbudgets",
        "get list watch create patch",
        "apply::apply, run::controller",
    ),
    (
        "apps/statefulsets",
        "get list watch create patch delete",
        "apply::apply, run::controller, observe::pods, growth::grow",
    ),
    ("/persistentvolumeclaims", "get patch", "growth::grow"),
    (
        "events.k8s.io/events",
        "create patch",
        "controller::failure_event; granted on to harnesses (build::role)",
    ),
];

/// In its own namespace and in `default`, by name where a verb can be held to one.
const NEEDED_BY_NAME: &[(&str, &str, &str, &str)] = &[
    ("mooring-system", "coordination.k8s.io/leases", "", "create"),
    (
        "mooring-system",
        "coordination.k8s.io/leases",
        "mooring-operator",
        "get patch update",
    ),
    ("mooring-system", "/secrets", "", "create"),
    ("mooring-system", "/secrets", "mooring-authority", "get"),
    ("mooring-system", "/secrets", "mooring-bot-tls", "patch"),
    ("mooring-system", "events.k8s.io/events", "", "create patch"),
    (
        "default",
        "discovery.k8s.io/endpointslices",
        "",
        "get list watch",
    ),
];

type Permission = (String, String, String);

fn permissions(rules: &[PolicyRule]) -> BTreeSet<Permission> {
    let mut all = BTreeSet::new();
    for rule in rules {
        let empty = vec![String::new()];
        let names = rule.resource_names.clone().unwrap_or(empty);
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for name in &names {
                    for verb in &rule.verbs {
                        all.insert((format!("{group}/{resource}"), name.clone(), verb.clone()));
                    }
                }
            }
        }
    }
    all
}

fn expected<'a>(rows: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> BTreeSet<Permission> {
    rows.flat_map(|(resource, name, verbs)| {
        verbs
            .split(' ')
            .map(move |verb| (resource.to_owned(), name.to_owned(), verb.to_owned()))
    })
    .collect()
}

#[tokio::test]
async fn the_operator_has_the_permissions_that_its_code_needs_and_no_others() {
    let client = client(None).await;
    let cluster: Api<ClusterRole> = Api::all(client.clone());
    let role = cluster.get("mooring-operator-workspaces").await.unwrap();
    let found = permissions(&role.rules.unwrap());
    assert_eq!(
        found,
        expected(
            NEEDED
                .iter()
                .map(|(resource, verbs, _)| (*resource, "", *verbs))
        )
    );

    for (namespace, name) in [
        ("mooring-system", "mooring-operator"),
        ("default", "mooring-operator-mooring-system"),
    ] {
        let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
        let found = permissions(&roles.get(name).await.unwrap().rules.unwrap());
        let rows = NEEDED_BY_NAME.iter().filter(|row| row.0 == namespace);
        assert_eq!(
            found,
            expected(rows.map(|row| (row.1, row.2, row.3))),
            "{namespace}"
        );
    }
    let all = permissions(
        &cluster
            .get("mooring-approver")
            .await
            .unwrap()
            .rules
            .unwrap(),
    );
    assert!(all.iter().chain(&found).all(|(resource, name, verb)| {
        ![resource, name, verb].iter().any(|part| part.contains('*'))
    }));
}
