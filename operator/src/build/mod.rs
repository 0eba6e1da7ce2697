//! From a valid Workspace to its objects. Pure, and it cannot fail.
//!
//! An object is JSON with only what the operator decides: no nulls, no empty
//! lists, nothing that moves by itself. A file per object.

mod disruption_budget;
mod network_policy;
mod object;
mod pod;
mod role;
mod service;
mod service_account;
mod stateful_set;
mod tls_secret;

pub use network_policy::{ApiServer, PRIVATE_V4, PRIVATE_V6};
pub use object::{Kind, Object};
pub use stateful_set::{HARNESS_SIZE, SANDBOX_SIZE};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::authority::Certificates;
use crate::names::{Component, Names};
use crate::settings::Settings;
use crate::validate::Valid;

/// All that objects are made from.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// Whose they are.
    pub names: &'a Names,
    /// The Workspace, as owner; without it in a dry run.
    pub owner: Option<&'a OwnerReference>,
    /// What is wanted.
    pub valid: &'a Valid,
    /// What the installation decides.
    pub settings: &'a Settings,
    /// The API server's addresses, which no NetworkPolicy can select otherwise.
    pub api_servers: &'a [ApiServer],
    /// The certificates.
    pub certificates: &'a Certificates,
}

/// The two pods, in the order in which their objects are made.
pub const COMPONENTS: [Component; 2] = [Component::Sandbox, Component::Harness];

/// All objects of a workspace, in the order in which they are applied: what a pod
/// needs comes before it, and policies come before what they hold back. Objects of one
/// [`Kind::step`] stand together.
pub fn objects(input: &Input<'_>) -> Vec<Object> {
    let mut objects = Vec::new();
    for component in COMPONENTS {
        objects.push(service_account::build(input, component));
    }
    objects.push(role::build(input));
    objects.push(tls_secret::build_terminal(input));
    for component in COMPONENTS {
        objects.push(tls_secret::build(input, component));
        objects.push(network_policy::build(input, component));
        objects.push(service::build(input, component));
        objects.push(disruption_budget::build(input, component));
    }
    objects.push(role::build_binding(input));
    for component in COMPONENTS {
        objects.push(stateful_set::build(input, component));
    }
    objects
}

#[cfg(test)]
mod tests;
