//! The daemon as it runs in a pod: over mutual TLS, held by Landlock.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mooring_wire::sandbox::attach_frame::Frame;
use mooring_wire::sandbox::sandbox_client::SandboxClient;
use mooring_wire::sandbox::{AttachRequest, ProbeRequest, ReadRequest, StatusRequest, Target};
use mooring_wire::tls::{Authority, Credentials, Identity, Purpose, Role, connect_lazy};
use tonic::Code;
use tonic::transport::Channel;

use crate::support::{PATIENCE, program, request};

const DAY: Duration = Duration::from_secs(86_400);

struct Pod {
    folder: tempfile::TempDir,
    child: Child,
    authority: Authority,
    address: std::net::SocketAddr,
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn identity(role: Role, workspace: &str) -> Identity {
    Identity {
        role,
        workspace: Some(workspace.into()),
        namespace: "agents".into(),
    }
}

impl Pod {
    fn start() -> Self {
        // Not below /tmp, which commands may write.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let authority = Authority::generate("test").unwrap();
        let place = |name: &str| folder.path().join(name);
        for name in ["project", "state", "home"] {
            std::fs::create_dir(place(name)).unwrap();
        }
        let sandbox = identity(Role::Sandbox, "shop");
        store(&authority, &place("certificates"), &sandbox, Purpose::Serve);
        // A free port: taken by the kernel, given back, and asked for again.
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let child = Command::new(program())
            .arg("pod")
            .arg("--project")
            .arg(place("project"))
            .arg("--state")
            .arg(place("state"))
            .arg("--home")
            .arg(place("home"))
            .arg("--certificates")
            .arg(place("certificates"))
            .arg("--harness")
            .arg(identity(Role::Harness, "shop").to_string())
            .arg("--listen")
            .arg(address.to_string())
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        Self {
            folder,
            child,
            authority,
            address,
        }
    }

    fn client(&self, who: &Identity) -> SandboxClient<Channel> {
        let folder = self.folder.path().join(who.to_string());
        store(&self.authority, &folder, who, Purpose::ServeAndCall);
        let credentials: Arc<Credentials> = Credentials::load(&folder).unwrap();
        let name = identity(Role::Sandbox, "shop").to_string();
        SandboxClient::new(connect_lazy(self.address, &name, credentials).unwrap())
    }

    async fn harness(&self) -> SandboxClient<Channel> {
        let mut client = self.client(&identity(Role::Harness, "shop"));
        let since = Instant::now();
        while client.status(StatusRequest {}).await.is_err() {
            assert!(since.elapsed() < PATIENCE, "the daemon does not answer");
        }
        client
    }
}

fn store(authority: &Authority, folder: &std::path::Path, who: &Identity, purpose: Purpose) {
    let issued = authority.issue(who, purpose, &[], DAY).unwrap();
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("tls.crt"), &issued.certificate).unwrap();
    std::fs::write(folder.join("tls.key"), &issued.key).unwrap();
    std::fs::write(folder.join("ca.crt"), &authority.pem().certificate).unwrap();
}

async fn output(client: &mut SandboxClient<Channel>, id: &str, command: &str) -> String {
    client.exec(request(id, command)).await.unwrap();
    let attach = AttachRequest {
        execution_id: id.into(),
        offset: 0,
    };
    let mut frames = client.attach(attach).await.unwrap().into_inner();
    let mut text = String::new();
    while let Some(frame) = frames.message().await.unwrap() {
        if let Some(Frame::Output(output)) = frame.frame {
            text.push_str(&String::from_utf8_lossy(&output.data));
        }
    }
    text
}

#[tokio::test]
async fn in_a_pod_only_the_harness_is_served_and_keys_stay_out_of_sight() {
    let pod = Pod::start();
    let mut harness = pod.harness().await;
    for other in [
        identity(Role::Harness, "blog"),
        identity(Role::Bot, "shop"),
        identity(Role::Sandbox, "shop"),
    ] {
        let error = pod
            .client(&other)
            .status(StatusRequest {})
            .await
            .unwrap_err();
        assert_ne!(error.code(), Code::Unimplemented);
        assert_ne!(error.code(), Code::Ok);
    }

    let early = harness.exec(request("early", "true")).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition, "{early}");
    // Nobody listens there: a target that is out of reach.
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let target = Target {
        name: "harness".into(),
        address: closed.to_string(),
        udp: false,
    };
    let probe = ProbeRequest {
        targets: vec![target],
        timeout_ms: 500,
    };
    let results = harness.probe(probe).await.unwrap().into_inner().results;
    assert!(!results[0].reached);

    let place = |name: &str| pod.folder.path().join(name).display().to_string();
    let command = format!(
        "cat {0}/tls.key {1}/records/journal 2>&1 | grep -v denied; ls {0} {1} 2>&1 | grep -v denied; kill -KILL $PPID 2>/dev/null && echo killed; cat /proc/$PPID/environ 2>/dev/null; echo x > file; cat file",
        place("certificates"),
        place("state"),
    );
    assert_eq!(output(&mut harness, "first", &command).await, "x\n");
    for path in [
        format!("{}/tls.key", place("certificates")),
        format!("{}/records/journal", place("state")),
    ] {
        let error = harness
            .read(ReadRequest {
                path,
                ..ReadRequest::default()
            })
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
    }
}
