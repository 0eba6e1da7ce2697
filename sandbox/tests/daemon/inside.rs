//! What must be true from inside `bash`: what fails, and what works.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mooring_wire::sandbox::{ProbeRequest, Target};

use crate::support::{As, Sandbox, host, users};

#[tokio::test]
async fn nothing_leads_out() {
    let outside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let socket = sandbox.socket.display().to_string();
        let state = sandbox.state.display().to_string();
        let table = [
            (
                "curl",
                format!("curl -sS --max-time 5 http://127.0.0.1:{port}/"),
            ),
            (
                "curl by address",
                "curl -sS --max-time 5 http://93.184.216.34/".into(),
            ),
            ("name service", "getent hosts example.com".into()),
            (
                "a port of the host",
                format!("exec 3<>/dev/tcp/127.0.0.1/{port}"),
            ),
            ("the daemon's socket", format!("ls {socket}")),
            ("the state folder", format!("ls {state}")),
            (
                "the records",
                "find / -name 'journal*' -path '*records*' 2>/dev/null | grep .".into(),
            ),
            (
                "service-account secrets",
                "ls -A /var/run/secrets 2>/dev/null | grep .".into(),
            ),
            ("a shadow file", "grep . /etc/shadow".into()),
            (
                "writing to the system",
                "touch /usr/x || touch /etc/x || touch /x || touch /run/x || touch /opt/x".into(),
            ),
            (
                "writing to output",
                "touch /run/mooring/output/x || echo x >> /run/mooring/output/*".into(),
            ),
            (
                "another network",
                "test \"$(ls /sys/class/net 2>/dev/null | grep -v lo)\"".into(),
            ),
            (
                "host processes",
                "test $(ls /proc | grep -c '^[0-9]') -gt 12".into(),
            ),
            (
                "kernel settings",
                "echo x > /proc/sys/kernel/core_pattern || echo 1 > /proc/sys/vm/drop_caches"
                    .into(),
            ),
            ("a user namespace", "unshare -U true".into()),
            (
                "a mount",
                "mount -t tmpfs x /tmp || mount -o remount,rw /usr".into(),
            ),
        ];
        for (what, command) in table {
            let ran = sandbox.run(&command).await;
            assert_ne!(ran.end().1, 0, "{what} worked: {}", ran.text());
            assert!(!ran.text().contains("SECRET"), "{what}: {}", ran.text());
        }
        let text = sandbox
            .run("ls -A ~/.ssh 2>/dev/null; ls -A ~; env; cat /proc/*/environ 2>/dev/null; cat /proc/1/environ 2>&1; true")
            .await
            .ok();
        assert!(!text.contains("SECRET"), "{text}");
        assert!(!text.contains("id_ed25519"), "{text}");
    }
}

#[tokio::test]
async fn a_probe_reaches_nothing() {
    let outside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = |name: &str, address: String, udp| Target {
        name: name.into(),
        address,
        udp,
    };
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let request = ProbeRequest {
            targets: vec![
                target("harness", outside.local_addr().unwrap().to_string(), false),
                target("dns-udp", udp.local_addr().unwrap().to_string(), true),
                target("public", "93.184.216.34:443".into(), false),
            ],
            timeout_ms: 500,
        };
        let results = sandbox
            .client()
            .await
            .probe(request)
            .await
            .unwrap()
            .into_inner()
            .results;
        assert_eq!(results.len(), 3);
        for result in results {
            assert!(!result.reached, "{}: {}", result.name, result.detail);
        }
    }
}

#[tokio::test]
async fn a_server_on_loopback_and_its_client_work() {
    for user in users() {
        let sandbox = Sandbox::start(user, &[]).await;
        let text = sandbox
            .run(
                "echo hello > index.html
                /usr/bin/python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &
                for i in $(seq 200); do curl -sf http://127.0.0.1:8123/index.html && exit 0; sleep 0.05; done; exit 1",
            )
            .await
            .ok();
        assert_eq!(text, "hello\n");
    }
}

#[tokio::test]
async fn git_commit_works() {
    for user in users() {
        let sandbox = Sandbox::prepare(user, &[], |sandbox| {
            host("git", &["init", "-q", "-b", "main"], &sandbox.project);
        })
        .await;
        sandbox
            .run("echo a > a && git add a && git commit -q -m first && git switch -q -c topic && echo b >> a && git commit -q -a -m second && git log --format='%an %s'")
            .await
            .ok();
        let log = sandbox
            .run("git log --format='%an %s'; git status --short")
            .await
            .ok();
        assert_eq!(log, "Mooring second\nMooring first\n");
    }
}

#[tokio::test]
async fn npm_test_works() {
    for user in users() {
        let sandbox = Sandbox::prepare(user, &[], |sandbox| {
            let package = r#"{"name":"x","version":"1.0.0","scripts":{"test":"node -e \"console.log(6*7)\""}}"#;
            std::fs::write(sandbox.project.join("package.json"), package).unwrap();
        })
        .await;
        let text = sandbox.run("npm test 2>&1").await.ok();
        assert!(text.contains("42"), "{text}");
    }
}

#[tokio::test]
async fn cargo_test_offline_works_with_a_read_only_toolchain() {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let toolchain = toolchain(place.path());
    let path = format!("{}/bin:/usr/bin:/bin", toolchain.display());
    for user in users() {
        let arguments = ["--read-only", toolchain.to_str().unwrap(), "--path", &path];
        let sandbox = Sandbox::prepare(user, &arguments, |sandbox| {
            std::fs::write(
                sandbox.project.join("Cargo.toml"),
                "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
            )
            .unwrap();
            std::fs::create_dir(sandbox.project.join("src")).unwrap();
            std::fs::write(
                sandbox.project.join("src/lib.rs"),
                "#[test]\nfn adds() { assert_eq!(1 + 1, 2); }\n",
            )
            .unwrap();
        })
        .await;
        let text = sandbox.run("cargo test --offline 2>&1").await.ok();
        assert!(text.contains("1 passed"), "{text}");
        // The writable cache over it: commands may write, the machine sees nothing of it.
        let inside = toolchain.join("written-inside");
        let write = format!("echo x > {0} && cat {0}", inside.display());
        if user == As::Caller {
            assert_eq!(sandbox.run(&write).await.ok(), "x\n");
        }
        assert!(!inside.exists());
    }
}

/// The compiler's toolchain at a place that every user may read: hard links, no copy.
fn toolchain(place: &Path) -> PathBuf {
    let sysroot = host("rustc", &["--print", "sysroot"], place);
    let target = place.join("toolchain");
    std::fs::create_dir(&target).unwrap();
    for part in ["bin", "lib"] {
        let source = Path::new(sysroot.trim()).join(part);
        let linked = Command::new("cp")
            .arg("-al")
            .arg(&source)
            .arg(&target)
            .status()
            .unwrap();
        if !linked.success() {
            host(
                "cp",
                &["-a", source.to_str().unwrap(), target.to_str().unwrap()],
                place,
            );
        }
    }
    target
}
