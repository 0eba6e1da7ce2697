//! The operator as a program, with the permissions that its chart gives it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::namespace::TestNamespace;

/// Whom the chart makes for the operator; it is bound there to cluster-wide roles.
pub const OPERATOR_USER: &str = "system:serviceaccount:mooring-system:mooring-operator";

pub struct Operator {
    child: Child,
    _files: tempfile::TempDir,
    pub http: String,
}

impl Operator {
    /// Starts an operator for one namespace, in which its lease and authority lie too.
    pub async fn start(namespace: &TestNamespace) -> Operator {
        let own: Api<Role> = Api::namespaced(namespace.client.clone(), "mooring-system");
        let mut role = own
            .get("mooring-operator")
            .await
            .expect("the chart is installed");
        role.metadata = serde_json::from_value(json!({"name": "mooring-operator"})).unwrap();
        let roles = namespace.api::<Role>();
        if roles.get_opt("mooring-operator").await.unwrap().is_none() {
            roles.create(&PostParams::default(), &role).await.unwrap();
            namespace
                .bind(OPERATOR_USER, "Role", "mooring-operator")
                .await;
        }
        Operator::spawn(&[
            "--watch-namespace",
            &namespace.name,
            "--namespace",
            &namespace.name,
        ])
    }

    pub fn spawn(arguments: &[&str]) -> Operator {
        let files = tempfile::tempdir().unwrap();
        let kubeconfig = std::env::var("KUBECONFIG").expect("KUBECONFIG names the test cluster");
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        config["users"][0]["user"]["as"] = json!(OPERATOR_USER);
        let own = files.path().join("kubeconfig");
        std::fs::write(&own, config.to_string()).unwrap();

        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let http = port.to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_mooring-operator"))
            .args(arguments)
            .args(["--http", &http])
            .env("KUBECONFIG", own)
            .env("POD_NAME", "operator-under-test")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        // Its log goes to the test's output, which is shown where the test fails.
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| println!("{line}"))
        });
        Operator {
            child,
            _files: files,
            http,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
