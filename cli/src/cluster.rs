//! Workspaces in a cluster, by way of `kubectl`: whoever can use that can use this,
//! with the same contexts, credentials and proxies.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use mooring_wire::tls::{Credentials, Identity, Issued, Role, connect_lazy, install_provider};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tonic::transport::Channel;

use crate::error::Error;

/// How long `kubectl` may take to open a way to the pod.
const FORWARD_BOUND: Duration = Duration::from_secs(15);
/// The port at which harnesses serve.
const PORT: u16 = 7443;

/// Which cluster and namespace, as `kubectl` takes it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClusterArgs {
    /// The namespace in the cluster; the context's own when absent.
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The context of the kubeconfig.
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
}

impl ClusterArgs {
    /// Whether a cluster is meant, not the project of this folder.
    pub fn is_named(&self) -> bool {
        self.namespace.is_some() || self.context.is_some() || is_plugin()
    }

    /// `kubectl` with these.
    fn kubectl(&self) -> Command {
        let mut command = Command::new("kubectl");
        if let Some(context) = &self.context {
            command.args(["--context", context]);
        }
        if let Some(namespace) = &self.namespace {
            command.args(["--namespace", namespace]);
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs `kubectl` to its end; its standard output.
    pub async fn run(&self, arguments: &[&str]) -> Result<String, Error> {
        let output = self
            .kubectl()
            .args(arguments)
            .output()
            .await
            .map_err(no_kubectl)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Kubectl(told))
    }

    /// The namespace that is meant.
    pub async fn namespace(&self) -> Result<String, Error> {
        if let Some(namespace) = &self.namespace {
            return Ok(namespace.clone());
        }
        let arguments = [
            "config",
            "view",
            "--minify",
            "--output=jsonpath={..namespace}",
        ];
        let found = self.run(&arguments).await?;
        Ok(match found.trim() {
            "" => "default".into(),
            namespace => namespace.into(),
        })
    }
}

/// Whether this program was started as a plugin: `kubectl mooring …`.
fn is_plugin() -> bool {
    std::env::args_os().next().is_some_and(|program| {
        Path::new(&program)
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("kubectl-"))
    })
}

fn no_kubectl(error: std::io::Error) -> Error {
    Error::Kubectl(format!(
        "kubectl cannot be started ({error}); it has to be in PATH"
    ))
}

/// One workspace in a cluster, and the way to its harness.
pub struct Target {
    cluster: ClusterArgs,
    /// Its name.
    pub workspace: String,
    /// Its namespace.
    pub namespace: String,
    credentials: Arc<Credentials>,
    /// The way that is open now; it ends when this is dropped.
    forward: Mutex<Option<Child>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("workspace", &self.workspace)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Target {
    /// Finds a workspace and the certificate by which its terminals are known.
    pub async fn find(cluster: ClusterArgs, workspace: &str) -> Result<Arc<Target>, Error> {
        install_provider();
        let namespace = cluster.namespace().await?;
        let name = format!("{workspace}-terminal-tls");
        let text = cluster
            .run(&["get", "secret", &name, "--output=json"])
            .await?;
        let secret: Value = serde_json::from_str(&text)
            .map_err(|error| Error::Kubectl(format!("Secret {name}: {error}")))?;
        let field = |key: &str| {
            let encoded = secret["data"][key].as_str().unwrap_or_default();
            base64::engine::general_purpose::STANDARD
                .decode(encoded)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .filter(|text| !text.is_empty())
                .ok_or_else(|| Error::Kubectl(format!("Secret {name} has no {key}")))
        };
        let issued = Issued {
            certificate: field("tls.crt")?,
            key: field("tls.key")?,
        };
        let credentials = Credentials::from_pem(&issued, &field("ca.crt")?)
            .map_err(|error| Error::Kubectl(format!("Secret {name}: {error}")))?;
        Ok(Arc::new(Target {
            cluster,
            workspace: workspace.to_owned(),
            namespace,
            credentials,
            forward: Mutex::new(None),
        }))
    }

    /// A channel to the harness, through a new way to its pod.
    pub async fn connect(&self) -> Result<Channel, Error> {
        let mut held = self.forward.lock().await;
        // The old one may lead to a pod that is gone.
        *held = None;
        let mut child = self
            .cluster
            .kubectl()
            .args([
                "port-forward",
                "--address=127.0.0.1",
                &format!("pod/{}-harness-0", self.workspace),
                &format!(":{PORT}"),
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(no_kubectl)?;
        let opened = tokio::time::timeout(FORWARD_BOUND, local_port(&mut child)).await;
        let port = opened.map_err(|_| {
            Error::Broken(format!(
                "kubectl has opened no way to the harness within {} s",
                FORWARD_BOUND.as_secs()
            ))
        })??;
        *held = Some(child);
        let harness = Identity {
            role: Role::Harness,
            workspace: Some(self.workspace.clone()),
            namespace: self.namespace.clone(),
        };
        connect_lazy(
            (std::net::Ipv4Addr::LOCALHOST, port),
            &harness.to_string(),
            self.credentials.clone(),
        )
        .map_err(|error| Error::Broken(error.to_string()))
    }
}

/// The port that `kubectl` listens on, from the line in which it says so.
async fn local_port(child: &mut Child) -> Result<u16, Error> {
    let output = child.stdout.take().expect("it was asked to be piped");
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(port) = port_of(&line) {
            // It says a line for each connection, for which somebody has to read on.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            if let Some(errors) = child.stderr.take() {
                let mut errors = BufReader::new(errors).lines();
                tokio::spawn(async move { while let Ok(Some(_)) = errors.next_line().await {} });
            }
            return Ok(port);
        }
    }
    let mut told = String::new();
    if let Some(mut errors) = child.stderr.take() {
        use tokio::io::AsyncReadExt;
        errors.read_to_string(&mut told).await?;
    }
    Err(Error::Broken(format!(
        "kubectl opened no way to the harness: {}",
        told.trim()
    )))
}

fn port_of(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once("127.0.0.1:")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_what_kubectl_says() {
        assert_eq!(
            port_of("Forwarding from 127.0.0.1:40123 -> 7443"),
            Some(40_123)
        );
        assert_eq!(port_of("Forwarding from [::1]:40123 -> 7443"), None);
        assert_eq!(port_of("error: lost connection to pod"), None);
    }
}
