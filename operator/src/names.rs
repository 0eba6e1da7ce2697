//! The names of everything that belongs to one workspace.

use std::collections::BTreeMap;

/// The label that carries the workspace's name, on every object of it.
pub const WORKSPACE_LABEL: &str = "mooring.dev/workspace";
/// The label that tells harness, sandbox, bot and operator apart.
pub const COMPONENT_LABEL: &str = "mooring.dev/component";
/// The field manager of everything that the operator writes.
pub const FIELD_MANAGER: &str = "mooring-operator";
/// The port that harness and sandbox serve gRPC on.
pub const GRPC_PORT: i32 = 7443;
/// The port of health and metrics.
pub const HTTP_PORT: i32 = 9090;

/// The two pods of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// Conversations, policy, credentials.
    Harness,
    /// The project and the commands.
    Sandbox,
}

impl Component {
    /// As it stands in names and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Component::Harness => "harness",
            Component::Sandbox => "sandbox",
        }
    }
}

/// A workspace's name and namespace, and what is named after them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Names {
    /// The workspace's name, at most 40 characters.
    pub workspace: String,
    /// Its namespace.
    pub namespace: String,
}

impl Names {
    /// The name of a component's ServiceAccount, StatefulSet, Service,
    /// NetworkPolicy and PodDisruptionBudget (`platform-harness`).
    pub fn of(&self, component: Component) -> String {
        format!("{}-{}", self.workspace, component.as_str())
    }

    /// The Secret with a component's certificate (`platform-harness-tls`).
    pub fn tls_secret(&self, component: Component) -> String {
        format!("{}-tls", self.of(component))
    }

    /// The Secret with the certificate by which terminals are attached
    /// (`platform-terminal-tls`).
    pub fn terminal_secret(&self) -> String {
        format!("{}-terminal-tls", self.workspace)
    }

    /// Who a terminal is, in that certificate.
    pub fn terminal_identity(&self) -> String {
        format!(
            "terminal.{}.{}.mooring.internal",
            self.workspace, self.namespace
        )
    }

    /// The claim of a component's volume; its StatefulSet has one pod and one volume.
    pub fn claim(&self, component: Component) -> String {
        format!("data-{}-0", self.of(component))
    }

    /// Who a component is, in its certificate: each side of a connection asks for it.
    pub fn identity(&self, component: Component) -> String {
        format!(
            "{}.{}.{}.mooring.internal",
            component.as_str(),
            self.workspace,
            self.namespace
        )
    }

    /// The DNS name by which a component is reached; its certificate carries it too.
    pub fn host(&self, component: Component) -> String {
        format!("{}.{}.svc", self.of(component), self.namespace)
    }

    /// The labels by which a component's pod is selected. They never change.
    pub fn selector(&self, component: Component) -> BTreeMap<String, String> {
        BTreeMap::from([
            (WORKSPACE_LABEL.to_owned(), self.workspace.clone()),
            (COMPONENT_LABEL.to_owned(), component.as_str().to_owned()),
        ])
    }

    /// All labels of a component's objects.
    pub fn labels(&self, component: Component) -> BTreeMap<String, String> {
        let mut labels = self.selector(component);
        labels.insert("app.kubernetes.io/name".into(), "mooring".into());
        labels.insert(
            "app.kubernetes.io/component".into(),
            component.as_str().into(),
        );
        labels.insert("app.kubernetes.io/managed-by".into(), FIELD_MANAGER.into());
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_fits_every_object() {
        let names = Names {
            workspace: "w".repeat(40),
            namespace: "n".repeat(63),
        };
        // A StatefulSet's pod gets a hash of up to 11 characters into its labels, which hold 63.
        assert!(names.of(Component::Harness).len() + 11 <= 63);
        assert!(names.host(Component::Sandbox).len() <= 253);
        assert!(names.tls_secret(Component::Harness).len() <= 253);
        assert!(names.terminal_secret().len() <= 253);
    }
}
