//! The operator as a program: waits for the types and for the lease, then works.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, select_all};
use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_controller::events::{Event, EventRecorder, EventType, Reporter};
use k8s_controller::{Controller, LeaderElection};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, controller, watcher};
use kube::{Client, Resource};
use mooring_crds::Approval;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::apply::WrittenSecrets;
use crate::approvals;
use crate::authority::Authority;
use crate::bot_secret;
use crate::build::ApiServer;
use crate::controller::Reconciler;
use crate::error::Error;
use crate::harness::Caller;
use crate::metrics::Metrics;
use crate::names::FIELD_MANAGER;
use crate::observe;
use crate::raw::RawWorkspace;
use crate::settings::Settings;

/// The Secret with the installation's authority, in the operator's namespace.
pub const AUTHORITY_SECRET: &str = "mooring-authority";
/// The lease that one replica holds.
pub const LEASE: &str = "mooring-operator";

const SWEEP_EVERY: Duration = Duration::from_secs(600);
const CRDS_CHECK_EVERY: Duration = Duration::from_secs(5);
/// Events of one object that come together are one pass.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// The pause after a watch broke, about a second each time. All watches share one
/// backoff: growing delays would add up to minutes after a restart of the API server.
struct WatchPause;

impl Iterator for WatchPause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(500).mul_f64(1.0 + rand::random::<f64>()))
    }
}

impl Backoff for WatchPause {
    fn reset(&mut self) {}
}

/// Why the operator ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not start.
    #[error("the operator could not start: {0}")]
    Start(#[from] Error),
    /// Another replica has the lease now; this one must not write any more.
    #[error("the lease {LEASE} was lost")]
    LeaseLost,
}

/// Works until the lease is lost. `identity` names this replica.
pub async fn run(
    client: Client,
    settings: Settings,
    metrics: Metrics,
    identity: &str,
) -> Result<(), RunError> {
    let settings = Arc::new(settings);
    wait_for_types(&client, &settings, &metrics, identity).await;
    let election = LeaderElection::new(client.clone(), &settings.namespace, LEASE, identity);
    let work = work(client, Arc::clone(&settings), metrics.clone(), identity);
    match election.with_lease(work).await {
        Some(ended) => Ok(ended?),
        None => Err(RunError::LeaseLost),
    }
}

/// Waits until the types of the chart mooring-crds are there. One Event says so.
async fn wait_for_types(client: &Client, settings: &Settings, metrics: &Metrics, identity: &str) {
    let namespace = settings.watch_namespaces.first();
    let mut told = false;
    loop {
        let one = ListParams::default().limit(1);
        let (workspaces, approvals) = (
            scoped::<RawWorkspace>(client, namespace.map(String::as_str)),
            scoped::<Approval>(client, namespace.map(String::as_str)),
        );
        let found = match workspaces.list_metadata(&one).await {
            Ok(_) => approvals.list_metadata(&one).await.map(drop),
            Err(error) => Err(error),
        };
        match found {
            Ok(()) => return metrics.crds_missing(false),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                metrics.crds_missing(true);
                if !told {
                    told = true;
                    tracing::warn!(
                        "the types of the chart mooring-crds are not installed; waiting"
                    );
                    tell_types_missing(client, settings, identity).await;
                }
            }
            Err(error) => tracing::warn!(%error, "the types could not be looked for; trying again"),
        }
        tokio::time::sleep(CRDS_CHECK_EVERY).await;
    }
}

async fn tell_types_missing(client: &Client, settings: &Settings, identity: &str) {
    let recorder = recorder(client, identity);
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some(identity.to_owned()),
            namespace: Some(settings.namespace.clone()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    };
    let event = Event {
        type_: EventType::Warning,
        reason: "TypesMissing".into(),
        action: "Start".into(),
        note: Some("install the chart mooring-crds; the operator waits for its types".into()),
        related: None,
    };
    if let Err(error) = recorder.publish(&pod, &event).await {
        tracing::warn!(%error, "no Event could be written");
    }
}

fn recorder(client: &Client, identity: &str) -> EventRecorder {
    let reporter = Reporter {
        controller: "mooring.dev/operator".into(),
        instance: Some(identity.to_owned()),
    };
    EventRecorder::new(client.clone(), reporter)
}

fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// All that the leader does. Ends only when it cannot go on.
async fn work(
    client: Client,
    settings: Arc<Settings>,
    metrics: Metrics,
    identity: &str,
) -> Result<(), Error> {
    metrics.leads(true);
    let authority = Arc::new(authority(&client, &settings.namespace).await?);
    let (sender, api_servers) = watch::channel(observe::api_servers(&client).await?);
    let reconciler = Reconciler {
        settings: Arc::clone(&settings),
        authority: Arc::clone(&authority),
        caller: Arc::new(Caller::new(Arc::clone(&authority), &settings.namespace)),
        secrets: Arc::new(WrittenSecrets::default()),
        api_servers,
        metrics: metrics.clone(),
    };
    // One controller for each namespace, or one for all.
    let scopes: Vec<Option<String>> = match settings.watch_namespaces.as_slice() {
        [] => vec![None],
        named => named.iter().cloned().map(Some).collect(),
    };
    let controllers = scopes.iter().map(|scope| {
        controller(&client, &reconciler, scope.as_deref(), identity)
            .run()
            .boxed()
    });
    let parts = vec![
        join_all(controllers).map(drop).boxed(),
        follow_api_servers(client.clone(), sender).boxed(),
        sweep_approvals(&client, &settings, &scopes, &metrics).boxed(),
        bot_secret::keep(&client, authority, &settings.namespace, &metrics).boxed(),
    ];
    select_all(parts).await;
    Ok(())
}

fn controller(
    client: &Client,
    reconciler: &Reconciler,
    scope: Option<&str>,
    identity: &str,
) -> Controller<Reconciler> {
    let config = watcher::Config::default();
    let controller = match scope {
        Some(namespace) => {
            Controller::namespaced(client.clone(), reconciler.clone(), namespace, config)
        }
        None => Controller::namespaced_all(client.clone(), reconciler.clone(), config),
    };
    let ours =
        watcher::Config::default().labels(&format!("app.kubernetes.io/managed-by={FIELD_MANAGER}"));
    let api_servers = WatchStream::from_changes(reconciler.api_servers.clone()).map(drop);
    let settings = &reconciler.settings;
    controller
        .with_name("workspace")
        .with_observer(Arc::new(reconciler.metrics.passes()))
        .with_event_recorder(Arc::new(recorder(client, identity)))
        .with_controller(|inner| {
            reconciler.metrics.follow(inner.store());
            inner
                .trigger_backoff(WatchPause)
                .with_config(
                    controller::Config::default()
                        .concurrency(settings.concurrency)
                        .debounce(DEBOUNCE),
                )
                .owns(scoped::<StatefulSet>(client, scope), ours.clone())
                .owns(scoped::<Service>(client, scope), ours.clone())
                .owns(scoped::<ServiceAccount>(client, scope), ours.clone())
                .owns(scoped::<Role>(client, scope), ours.clone())
                .owns(scoped::<RoleBinding>(client, scope), ours.clone())
                .owns(scoped::<NetworkPolicy>(client, scope), ours.clone())
                .owns(scoped::<PodDisruptionBudget>(client, scope), ours.clone())
                .watches(
                    scoped::<Approval>(client, scope),
                    watcher::Config::default(),
                    |approval| {
                        let workspace = &approval.spec.request.workspace_ref.name;
                        let namespace = approval.metadata.namespace.unwrap_or_default();
                        Some(ObjectRef::new(workspace).within(&namespace))
                    },
                )
                .reconcile_all_on(api_servers)
        })
}

/// The installation's authority, made once.
async fn authority(client: &Client, namespace: &str) -> Result<Authority, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = api
        .get_opt(AUTHORITY_SECRET)
        .await
        .map_err(|error| Error::from_api("get", "Secret", AUTHORITY_SECRET, error))?;
    let secret = match found {
        Some(secret) => secret,
        None => {
            let (certificate, key) = Authority::generate(Timestamp::now())?;
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(AUTHORITY_SECRET.into()),
                    ..ObjectMeta::default()
                },
                type_: Some("kubernetes.io/tls".into()),
                data: Some(
                    [("tls.crt", certificate), ("tls.key", key)]
                        .map(|(name, pem)| (name.to_owned(), ByteString(pem.into_bytes())))
                        .into(),
                ),
                ..Secret::default()
            };
            api.create(&PostParams::default(), &secret)
                .await
                .map_err(|error| Error::from_api("create", "Secret", AUTHORITY_SECRET, error))?
        }
    };
    let text = |name: &str| -> Result<String, Error> {
        let bytes = secret.data.as_ref().and_then(|data| data.get(name));
        let text = bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        text.ok_or_else(|| Error::Certificate {
            name: "the installation's authority".into(),
            message: format!("Secret {namespace}/{AUTHORITY_SECRET} has no {name}"),
        })
    };
    Authority::load(&text("tls.crt")?, &text("tls.key")?)
}

/// Keeps the API server's addresses current.
async fn follow_api_servers(client: Client, sender: watch::Sender<Vec<ApiServer>>) {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let config = watcher::Config::default().labels("kubernetes.io/service-name=kubernetes");
    let changes = watcher(api, config).default_backoff();
    let mut changes = std::pin::pin!(changes);
    loop {
        match changes.try_next().await {
            Ok(Some(_)) => match observe::api_servers(&client).await {
                // None at all is a restart on its way, not a change of address.
                Ok(servers) if !servers.is_empty() => {
                    sender.send_if_modified(|known| {
                        let changed = *known != servers;
                        *known = servers;
                        changed
                    });
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "the API server's addresses are not known"),
            },
            Ok(None) => return,
            Err(error) => tracing::debug!(%error, "the watch of the API server's addresses broke"),
        }
    }
}

/// Removes old Approval objects, again and again.
async fn sweep_approvals(
    client: &Client,
    settings: &Settings,
    scopes: &[Option<String>],
    metrics: &Metrics,
) {
    let keep = Duration::from_secs(u64::from(settings.approval_days) * 86_400);
    loop {
        for scope in scopes {
            match approvals::sweep(client, scope.as_deref(), keep, Timestamp::now()).await {
                Ok(removed) => metrics.removed_approvals(removed),
                Err(error) => tracing::warn!(%error, "old approvals could not be removed"),
            }
        }
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}
