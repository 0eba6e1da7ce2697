//! What is there, beside the Workspace itself.

use std::net::IpAddr;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use mooring_crds::Approval;

use crate::build::{ApiServer, COMPONENTS};
use crate::error::Error;
use crate::names::{Component, Names};

/// One component's StatefulSet, as far as conclusions are drawn from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodState {
    /// Pods that are wanted.
    pub wanted: i32,
    /// Pods that are ready and of the newest revision.
    pub ready: i32,
    /// Pods there are at all.
    pub present: i32,
    /// Whether its controller has seen its newest spec.
    pub current: bool,
}

impl PodState {
    /// Reads a StatefulSet.
    pub fn of(set: &StatefulSet) -> PodState {
        let wanted = set
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
        let Some(status) = &set.status else {
            return PodState {
                wanted,
                ..PodState::default()
            };
        };
        let current = status.observed_generation >= set.metadata.generation;
        let updated = status.update_revision == status.current_revision
            || status.updated_replicas.unwrap_or(0) >= wanted;
        PodState {
            wanted,
            ready: if updated {
                status.ready_replicas.unwrap_or(0)
            } else {
                0
            },
            present: status.replicas,
            current,
        }
    }
}

/// The state of both pods; nothing where there is no StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// The harness's.
    pub harness: Option<PodState>,
    /// The sandbox's.
    pub sandbox: Option<PodState>,
}

/// Reads both StatefulSets.
pub async fn pods(client: &Client, names: &Names) -> Result<Pods, Error> {
    let api: Api<StatefulSet> = Api::namespaced(client.clone(), &names.namespace);
    let mut pods = Pods::default();
    for component in COMPONENTS {
        let name = names.of(component);
        let set = api
            .get_opt(&name)
            .await
            .map_err(|error| Error::from_api("get", "StatefulSet", &name, error))?;
        let state = set.as_ref().map(PodState::of);
        match component {
            Component::Harness => pods.harness = state,
            Component::Sandbox => pods.sandbox = state,
        }
    }
    Ok(pods)
}

/// Counts the approvals of a workspace that wait for a person.
pub async fn pending_approvals(client: &Client, names: &Names) -> Result<u32, Error> {
    let api: Api<Approval> = Api::namespaced(client.clone(), &names.namespace);
    let params = ListParams::default().fields(&format!(
        "spec.request.workspaceRef.name={},status.phase=Pending",
        names.workspace
    ));
    let list = api
        .list_metadata(&params)
        .await
        .map_err(|error| Error::from_api("list", "Approval", &names.workspace, error))?;
    Ok(u32::try_from(list.items.len()).unwrap_or(u32::MAX))
}

/// The API server's addresses. A NetworkPolicy cannot select them in any other way.
pub async fn api_servers(client: &Client) -> Result<Vec<ApiServer>, Error> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let params = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let slices = api
        .list(&params)
        .await
        .map_err(|error| Error::from_api("list", "EndpointSlice", "kubernetes", error))?;
    Ok(addresses(&slices.items))
}

/// The addresses in some EndpointSlices, sorted, each once.
pub fn addresses(slices: &[EndpointSlice]) -> Vec<ApiServer> {
    let mut servers = Vec::new();
    for slice in slices {
        for port in slice.ports.iter().flatten().filter_map(|port| port.port) {
            let Ok(port) = u16::try_from(port) else {
                continue;
            };
            let endpoints = slice.endpoints.iter().flatten();
            for text in endpoints.flat_map(|endpoint| &endpoint.addresses) {
                match text.parse::<IpAddr>() {
                    Ok(address) => servers.push(ApiServer { address, port }),
                    Err(_) => tracing::warn!(slice = slice.name_any(), text, "no address"),
                }
            }
        }
    }
    servers.sort();
    servers.dedup();
    servers
}
