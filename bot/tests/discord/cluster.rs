//! The bot in a cluster: Workspaces by a watch, harnesses by mutual TLS, conditions by
//! server-side apply, and one bot that speaks. The API server is a small one of our
//! own, which keeps objects and their order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path as UrlPath, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use mooring_discord_standin::world::TEXT;
use mooring_wire::harness::harness_server::HarnessServer;
use mooring_wire::tls::{Authority, Credentials, Identity, Purpose, Role, incoming};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::double::Double;
use crate::service::Service;
use crate::stage::{BOUND, Program, Stage, get as ask};

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Default)]
struct Kept {
    workspaces: BTreeMap<String, Value>,
    lease: Option<Value>,
    /// What happened, for watches.
    events: Vec<Value>,
    /// Field managers of writes of status.
    managers: Vec<String>,
    version: u64,
}

#[derive(Clone)]
struct ApiServer {
    kept: Arc<Mutex<Kept>>,
    changed: Arc<watch::Sender<u64>>,
    address: String,
}

impl ApiServer {
    async fn start() -> ApiServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = ApiServer {
            kept: Arc::default(),
            changed: Arc::new(watch::Sender::new(0)),
            address: format!("http://{}", listener.local_addr().unwrap()),
        };
        let lease = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases";
        let router = Router::new()
            .route("/apis/mooring.dev/v1alpha1/workspaces", get(workspaces))
            .route(
                "/apis/mooring.dev/v1alpha1/namespaces/{namespace}/workspaces/{name}/status",
                axum::routing::patch(status),
            )
            .route(lease, axum::routing::post(put_lease))
            .route(&format!("{lease}/{{name}}"), get(lease_now).put(put_lease))
            .with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        api
    }

    fn act<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        let done = act(&mut self.kept.lock().unwrap());
        self.changed.send_modify(|count| *count += 1);
        done
    }

    /// Creates or changes a Workspace.
    fn apply(&self, name: &str, second: u32, endpoint: &str, discord: Value) {
        self.act(|kept| {
            let generation = kept
                .workspaces
                .get(name)
                .map_or(1, |known| known["metadata"]["generation"].as_i64().unwrap() + 1);
            let status = kept
                .workspaces
                .get(name)
                .map_or_else(|| json!({}), |known| known["status"].clone());
            let mut object = json!({
                "apiVersion": "mooring.dev/v1alpha1", "kind": "Workspace",
                "metadata": {"name": name, "namespace": "team", "uid": name, "generation": generation,
                             "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
                "spec": {"models": [{"name": "m", "provider": "rehearsal"}], "discord": discord},
                "status": status,
            });
            if discord_is_none(&object) {
                object["spec"].as_object_mut().unwrap().remove("discord");
            }
            object["status"]["endpoint"] = endpoint.into();
            kept.store(name, object);
        });
    }

    fn delete(&self, name: &str) {
        self.act(|kept| {
            let mut object = kept.workspaces.remove(name).unwrap();
            kept.version += 1;
            object["metadata"]["resourceVersion"] = kept.version.to_string().into();
            kept.events
                .push(json!({"type": "DELETED", "object": object}));
        });
    }

    /// Waits until a Workspace's condition has the reason; its whole.
    async fn condition(&self, name: &str, reason: &str) -> Value {
        let mut changes = self.changed.subscribe();
        let waiting = async {
            loop {
                let found = self.act_quietly(|kept| {
                    let all = kept.workspaces.get(name)?["status"]["conditions"]
                        .as_array()?
                        .clone();
                    all.into_iter().find(|one| one["type"] == "DiscordReady")
                });
                if let Some(found) = found.filter(|found| found["reason"] == reason) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(BOUND, waiting).await {
            Ok(found) => found,
            Err(_) => panic!(
                "{name} never had {reason}: {:#}",
                self.act_quietly(|kept| json!(kept.workspaces))
            ),
        }
    }

    fn act_quietly<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> T {
        look(&mut self.kept.lock().unwrap())
    }

    /// A file by which the bot finds this server.
    fn kubeconfig(&self, folder: &Path) -> std::path::PathBuf {
        let path = folder.join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": self.address}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "bot"}}],
            "users": [{"name": "bot", "user": {}}],
        });
        std::fs::write(&path, text.to_string()).unwrap();
        path
    }
}

fn discord_is_none(object: &Value) -> bool {
    object["spec"]["discord"].is_null()
}

impl Kept {
    fn store(&mut self, name: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let kind = if self.workspaces.contains_key(name) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.events.push(json!({"type": kind, "object": object}));
        self.workspaces.insert(name.to_owned(), object);
    }
}

async fn workspaces(
    State(api): State<ApiServer>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    if !query.contains_key("watch") {
        return api.act_quietly(|kept| {
            let items: Vec<_> = kept.workspaces.values().cloned().collect();
            Json(json!({
                "apiVersion": "mooring.dev/v1alpha1", "kind": "WorkspaceList",
                "metadata": {"resourceVersion": kept.version.to_string()}, "items": items,
            }))
            .into_response()
        });
    }
    let after: u64 = query["resourceVersion"].parse().unwrap();
    let changes = api.changed.subscribe();
    let lines = futures::stream::unfold(
        (api, changes, after),
        |(api, mut changes, after)| async move {
            loop {
                let version = |event: &Value| -> u64 {
                    let text = event["object"]["metadata"]["resourceVersion"].as_str();
                    text.unwrap().parse().unwrap()
                };
                let next = api.act_quietly(|kept| {
                    kept.events
                        .iter()
                        .find(|event| version(event) > after)
                        .cloned()
                });
                if let Some(event) = next {
                    let line = format!("{event}\n");
                    let seen = version(&event);
                    return Some((Ok::<_, std::io::Error>(line), (api, changes, seen)));
                }
                changes.changed().await.ok()?;
            }
        },
    );
    Body::from_stream(lines).into_response()
}

async fn status(
    State(api): State<ApiServer>,
    UrlPath((_, name)): UrlPath<(String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
    body: axum::body::Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(query["force"], "true");
    api.act(|kept| {
        let Some(mut object) = kept.workspaces.get(&name).cloned() else {
            return StatusCode::NOT_FOUND.into_response();
        };
        kept.managers.push(query["fieldManager"].clone());
        object["status"]["conditions"] = body["status"]["conditions"].clone();
        kept.store(&name, object.clone());
        Json(object).into_response()
    })
}

async fn lease_now(State(api): State<ApiServer>) -> Response {
    api.act_quietly(|kept| match &kept.lease {
        Some(lease) => Json(lease.clone()).into_response(),
        None => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "reason": "NotFound", "code": 404, "message": "no lease", "metadata": {}});
            (StatusCode::NOT_FOUND, Json(status)).into_response()
        }
    })
}

async fn put_lease(State(api): State<ApiServer>, Json(mut lease): Json<Value>) -> Response {
    api.act(|kept| {
        let known = kept.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        let given = &lease["metadata"]["resourceVersion"];
        if known.is_some_and(|known| !given.is_null() && *given != known) {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "reason": "Conflict", "code": 409, "message": "another was faster", "metadata": {}});
            return (StatusCode::CONFLICT, Json(status)).into_response();
        }
        kept.version += 1;
        lease["metadata"]["resourceVersion"] = kept.version.to_string().into();
        kept.lease = Some(lease.clone());
        Json(lease).into_response()
    })
}

/// An installation's authority, and the folders of certificates.
struct Installation {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Installation {
    fn new() -> Installation {
        Installation {
            folder: tempfile::tempdir().unwrap(),
            authority: Authority::generate("mooring").unwrap(),
        }
    }

    fn certificate(
        &self,
        role: Role,
        workspace: Option<&str>,
        purpose: Purpose,
    ) -> std::path::PathBuf {
        let identity = Identity {
            role,
            workspace: workspace.map(str::to_owned),
            namespace: if workspace.is_some() {
                "team"
            } else {
                "mooring-system"
            }
            .into(),
        };
        let issued = self.authority.issue(&identity, purpose, &[], DAY).unwrap();
        let folder = self.folder.path().join(identity.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("tls.crt", &issued.certificate),
            ("tls.key", &issued.key),
            ("ca.crt", &self.authority.pem().certificate),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        folder
    }

    /// A harness that takes the bot alone; its `HOST:PORT`.
    async fn harness(&self, workspace: &str, double: &Arc<Double>) -> String {
        let folder = self.certificate(Role::Harness, Some(workspace), Purpose::ServeAndCall);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let names = ["bot.mooring-system.mooring.internal".to_owned()];
        let connections = incoming(listener, Credentials::load(&folder).unwrap(), &names).unwrap();
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(HarnessServer::new(Service(double.clone())))
                .serve_with_incoming(connections),
        );
        address
    }

    fn bot(&self, stage: &Stage, api: &ApiServer, pod: &str) -> Program {
        let tls = self.certificate(Role::Bot, None, Purpose::Call);
        let variables = [
            (
                "KUBECONFIG",
                api.kubeconfig(self.folder.path()).display().to_string(),
            ),
            ("MOORING_TLS", tls.display().to_string()),
            ("POD_NAMESPACE", "mooring-system".to_owned()),
            ("POD_NAME", pod.to_owned()),
            ("MOORING_WATCH_NAMESPACES", String::new()),
        ];
        Program::with(&stage.standin, &variables, &["--sweep", "300"])
    }
}

#[tokio::test]
async fn workspaces_of_the_cluster_are_served_and_each_has_its_condition() {
    let (installation, api) = (Installation::new(), ApiServer::start().await);
    let mut stage = Stage::set(TEXT, "").await;
    let discord = |channel: u64| json!({"guildId": stage.guild.to_string(), "channelId": channel.to_string()});
    let platform = installation.harness("platform", &stage.double).await;
    api.apply("platform", 1, &platform, discord(stage.channel));
    let second = Double::start().await;
    let rival = installation.harness("rival", &second).await;
    api.apply("rival", 2, &rival, discord(stage.channel));
    api.apply("wrong", 3, "", json!({"guildId": "x", "channelId": "1"}));
    api.apply("unreadable", 4, "", json!({"guildId": 7}));
    api.apply("quiet", 5, "", Value::Null);
    stage.bot = Some(installation.bot(&stage, &api, "bot-0"));
    stage.bot.as_mut().unwrap().ready().await;
    // Through the watch, TLS and the harness that the certificate names.
    let thread = stage.conversation().await;
    let connected = api.condition("platform", "Connected").await;
    assert_eq!(
        (&connected["status"], &connected["observedGeneration"]),
        (&"True".into(), &1.into())
    );
    let taken = api.condition("rival", "ChannelTaken").await;
    assert_eq!(taken["status"], "False");
    assert!(
        taken["message"]
            .as_str()
            .unwrap()
            .contains("belongs to Workspace team/platform"),
        "{taken}"
    );
    for (name, text) in [
        ("wrong", "`x` is no Discord id"),
        ("unreadable", "spec.discord:"),
    ] {
        let invalid = api.condition(name, "Invalid").await;
        assert!(
            invalid["message"].as_str().unwrap().contains(text),
            "{invalid}"
        );
    }
    api.act_quietly(|kept| {
        assert!(
            kept.workspaces["quiet"]["status"]
                .get("conditions")
                .is_none()
        );
        assert!(kept.managers.iter().all(|manager| manager == "mooring-bot"));
    });
    // A condition is written when it is another, not for each event.
    let written = api.act_quietly(|kept| kept.managers.len());
    api.apply("quiet", 5, "", Value::Null);
    stage.post(thread, "once more");
    stage.answered(thread, "answer to once more").await;
    assert_eq!(api.act_quietly(|kept| kept.managers.len()), written);
    // The channel of one that is deleted goes to who waits for it.
    api.delete("platform");
    api.condition("rival", "Connected").await;
    let next = stage.mention("whose are you?");
    stage.answered(next, "answer to whose are you?").await;
    assert!(second.look(|state| state.input(&next.to_string()).is_some()));
    // One that is changed is served anew, and its condition tells of its generation.
    api.apply("rival", 2, &rival, {
        let mut spec = discord(stage.channel);
        spec["respondTo"] = "All".into();
        spec
    });
    let mut changes = api.changed.subscribe();
    while api.condition("rival", "Connected").await["observedGeneration"] != 2 {
        changes.changed().await.unwrap();
    }
    let open = stage.post(stage.channel, "no mention");
    stage.answered(open, "answer to no mention").await;
    second
        .until("every row is closed", |state| state.settled().then_some(()))
        .await;
    stage.check().await;
}

#[tokio::test]
async fn one_bot_speaks_and_the_next_takes_over_when_it_ends_or_loses_the_lease() {
    let (installation, api) = (Installation::new(), ApiServer::start().await);
    let mut stage = Stage::set(TEXT, "").await;
    let address = installation.harness("platform", &stage.double).await;
    let discord =
        json!({"guildId": stage.guild.to_string(), "channelId": stage.channel.to_string()});
    api.apply("platform", 1, &address, discord);
    stage.bot = Some(installation.bot(&stage, &api, "bot-0"));
    stage.bot.as_mut().unwrap().ready().await;
    let thread = stage.conversation().await;
    let mut second = installation.bot(&stage, &api, "bot-1");
    let health = second.health().await;
    let mut changes = api.changed.subscribe();
    // It looks at the lease, and waits.
    changes.changed().await.unwrap();
    assert!(ask(&health, "/healthz").await.0 && !ask(&health, "/readyz").await.0);
    let identifies =
        |world: &mooring_discord_standin::world::World| world.ledger.gateway_count("identify");
    assert_eq!(stage.standin.look(identifies), 1);
    // One that is asked to end hands the lease over at once.
    stage.bot.take().unwrap().terminate().await;
    stage.bot = Some(second);
    stage.bot.as_mut().unwrap().ready().await;
    stage.post(thread, "who are you now?");
    stage.answered(thread, "answer to who are you now?").await;
    assert_eq!(stage.standin.look(identifies), 2);
    stage.settled().await;
    // Somebody else has the lease: this one must not speak any more.
    api.act(|kept| {
        let lease = kept.lease.as_mut().unwrap();
        lease["spec"]["holderIdentity"] = "bot-2".into();
        kept.version += 1;
        lease["metadata"]["resourceVersion"] = kept.version.to_string().into();
    });
    let (status, said) = stage.bot.take().unwrap().ended().await;
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("another bot speaks now"), "{said}");
    stage.check().await;
}

#[tokio::test]
async fn a_message_that_waits_while_its_workspace_moves_is_taken_at_the_new_place() {
    let (installation, api) = (Installation::new(), ApiServer::start().await);
    let mut stage = Stage::set(TEXT, "").await;
    let first = installation.harness("platform", &stage.double).await;
    let second = installation.harness("platform", &stage.double).await;
    let discord =
        json!({"guildId": stage.guild.to_string(), "channelId": stage.channel.to_string()});
    api.apply("platform", 1, &first, discord.clone());
    stage.bot = Some(installation.bot(&stage, &api, "bot-0"));
    stage.bot.as_mut().unwrap().ready().await;
    stage.kill().await;
    // Said to nobody; the catch-up finds it, and the harness takes nothing.
    let thread = stage.mention("said to nobody");
    let before = stage.double.look(|state| state.submits);
    stage.double.act(|state| state.takes_nothing = true);
    stage.bot = Some(installation.bot(&stage, &api, "bot-0"));
    stage
        .double
        .until("it is tried", |state| {
            (state.submits > before).then_some(())
        })
        .await;
    api.apply("platform", 1, &second, discord);
    stage.bot.as_mut().unwrap().said_times("is served", 2).await;
    stage.double.act(|state| state.takes_nothing = false);
    stage.answered(thread, "answer to said to nobody").await;
    stage.check().await;
}
