//! Workspaces from the API server: found by a watch, each told by its condition
//! `DiscordReady`, and served while this bot holds the lease.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use k8s_controller::LeaderElection;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as Shown;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use mooring_crds::{DiscordSpec, Workspace, condition};
use mooring_wire::tls::{Credentials, Identity, Role};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::BotError;
use crate::bot::Front;
use crate::harness::Address;
use crate::health::{Condition, Health};
use crate::workspace::{Rejected, Roster, Wanted};

/// The field manager of the conditions.
pub const FIELD_MANAGER: &str = "mooring-bot";
/// The lease of the bot that speaks.
pub const LEASE: &str = "mooring-bot";
/// The port that harnesses serve gRPC on.
const PORT: u16 = 7443;
/// Until a condition that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// What the bot needs in a cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// Folder with `tls.crt`, `tls.key` and `ca.crt`: the bot's certificate, by which
    /// harnesses know it.
    #[arg(long, env = "MOORING_TLS", value_name = "DIR")]
    pub tls: Option<PathBuf>,

    /// The bot's own namespace: its lease is there.
    #[arg(long, env = "POD_NAMESPACE", default_value = "mooring-system")]
    pub namespace: String,

    /// Who holds the lease.
    #[arg(long, env = "POD_NAME", default_value = "mooring-bot")]
    pub pod: String,

    /// Namespaces whose Workspaces are served; all when none is named.
    #[arg(
        long = "watch-namespace",
        env = "MOORING_WATCH_NAMESPACES",
        value_delimiter = ','
    )]
    pub watch_namespaces: Vec<String>,
}

fn cluster(error: impl std::fmt::Display) -> BotError {
    BotError::Cluster(error.to_string())
}

/// Serves the cluster's Workspaces until the lease is lost, SIGTERM, or an error
/// that is final.
///
/// # Errors
/// The API server or the certificate cannot be used, the lease was lost, and what
/// ends the bot itself.
pub async fn run(front: Front, settings: Settings) -> Result<(), BotError> {
    // First of all: the first process of a container has no default for a signal, so
    // one that came before this would be lost and the pod would take its whole grace.
    let mut terminate = signal(SignalKind::terminate()).map_err(cluster)?;
    let tls = settings.tls.as_deref().ok_or_else(|| {
        cluster(
            "MOORING_TLS names no folder with the bot's certificate; \
             without a cluster give --workspaces DIR",
        )
    })?;
    let credentials = Credentials::load(tls).map_err(cluster)?;
    let client = Client::try_default().await.map_err(cluster)?;
    let health = front.health.clone();
    // Who waits for the lease is alive.
    let waiting = health.clone();
    let waiting = tokio::spawn(async move {
        loop {
            waiting.supervised();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    let (sender, roster) = mpsc::channel(1);
    let watched = Watched {
        client: client.clone(),
        credentials,
        health,
        sender,
        objects: BTreeMap::new(),
        told: HashMap::new(),
        last: None,
    };
    let namespaces = settings.watch_namespaces.clone();
    let work = async move {
        waiting.abort();
        tracing::info!("this bot has the lease");
        tokio::select! {
            ended = front.run(roster) => ended,
            never = watched.follow(namespaces) => match never {},
        }
    };
    let election = LeaderElection::new(client, &settings.namespace, LEASE, &settings.pod);
    tokio::select! {
        ended = election.with_lease(work) => ended.unwrap_or(Err(BotError::LeaseLost(LEASE))),
        _ = terminate.recv() => {
            tracing::info!("asked to end");
            election.release().await;
            Ok(())
        }
    }
}

/// A Workspace as it came last.
struct Object {
    created: Timestamp,
    generation: i64,
    /// What is wanted; `None` without `spec.discord`.
    discord: Option<Result<Wanted, Rejected>>,
    /// What its status shows.
    shown: Option<Shown>,
}

/// Namespace and name.
type Key = (String, String);

fn name(key: &Key) -> String {
    format!("{}/{}", key.0, key.1)
}

struct Watched {
    client: Client,
    credentials: Arc<Credentials>,
    health: Arc<Health>,
    sender: mpsc::Sender<Roster>,
    objects: BTreeMap<Key, Object>,
    /// What was written; the watch brings it a little later.
    told: HashMap<Key, (Condition, i64)>,
    /// The roster that was given on.
    last: Option<Roster>,
}

impl Watched {
    fn api(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        // Untyped, so that one object that cannot be read does not stop the watch.
        let resource = ApiResource::erase::<Workspace>(&());
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    async fn follow(mut self, namespaces: Vec<String>) -> std::convert::Infallible {
        let named = namespaces.into_iter().filter(|name| !name.is_empty());
        let mut scopes: Vec<Option<String>> = named.map(Some).collect();
        if scopes.is_empty() {
            scopes.push(None);
        }
        let streams = scopes.into_iter().enumerate().map(|(at, scope)| {
            let api = self.api(scope.as_deref());
            watcher::watcher(api, watcher::Config::default())
                .default_backoff()
                .map(move |event| (at, scope.clone(), event))
                .boxed()
        });
        let mut missing: Vec<bool> = Vec::new();
        let mut streams: Vec<_> = streams.inspect(|_| missing.push(true)).collect();
        let mut events = stream::select_all(streams.drain(..));
        let mut changes = self.health.changes();
        // Those of a list that goes on.
        let mut listed: HashMap<usize, BTreeMap<Key, Object>> = HashMap::new();
        loop {
            tokio::select! {
                Some((at, scope, event)) = events.next() => match event {
                    Ok(Event::Init) => {
                        listed.insert(at, BTreeMap::new());
                    }
                    Ok(Event::InitApply(object)) => {
                        if let Some((key, object)) = self.read(&object) {
                            listed.entry(at).or_default().insert(key, object);
                        }
                    }
                    Ok(Event::InitDone) => {
                        self.objects
                            .retain(|(namespace, _), _| scope.as_ref().is_some_and(|scope| scope != namespace));
                        self.objects.extend(listed.remove(&at).unwrap_or_default());
                        missing[at] = false;
                    }
                    Ok(Event::Apply(object)) => {
                        if let Some((key, object)) = self.read(&object) {
                            self.objects.insert(key, object);
                        }
                    }
                    Ok(Event::Delete(object)) => {
                        let key = (object.namespace().unwrap_or_default(), object.name_any());
                        self.objects.remove(&key);
                        self.told.remove(&key);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "Workspaces cannot be watched now; trying again");
                        continue;
                    }
                },
                _ = changes.changed() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
            if missing.iter().any(|missing| *missing) {
                continue;
            }
            self.give_on().await;
            self.tell().await;
        }
    }

    fn read(&self, object: &DynamicObject) -> Option<(Key, Object)> {
        let key = (object.namespace()?, object.name_any());
        let discord = &object.data["spec"]["discord"];
        let discord = (!discord.is_null()).then(|| {
            let invalid = |message| Rejected::invalid(&name(&key), message);
            let spec: DiscordSpec = serde_json::from_value(discord.clone())
                .map_err(|error| invalid(format!("spec.discord: {error}")))?;
            let identity = Identity {
                role: Role::Harness,
                workspace: Some(key.1.clone()),
                namespace: key.0.clone(),
            };
            let service = format!("{}-harness.{}.svc:{PORT}", key.1, key.0);
            let address = match object.data["status"]["endpoint"].as_str() {
                Some(endpoint) if !endpoint.is_empty() => endpoint.to_owned(),
                _ => service,
            };
            let harness = Address::tls(address, identity.to_string(), self.credentials.clone())
                .map_err(invalid)?;
            Wanted::read(name(&key), &name(&key), &spec, harness)
        });
        let shown = object.data["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| serde_json::from_value::<Shown>(one.clone()).ok())
            .find(|one| one.type_ == condition::DISCORD_READY);
        let created = object
            .creation_timestamp()
            .map_or(Timestamp::MAX, |time| time.0);
        let generation = object.metadata.generation.unwrap_or(0);
        Some((
            key,
            Object {
                created,
                generation,
                discord,
                shown,
            },
        ))
    }

    /// Gives the roster on where it is another: who claimed a channel first is the
    /// older Workspace.
    async fn give_on(&mut self) {
        let mut objects: Vec<_> = self.objects.iter().collect();
        objects.sort_by(|(a, one), (b, other)| (one.created, a).cmp(&(other.created, b)));
        let roster: Roster = objects
            .into_iter()
            .filter_map(|(_, object)| object.discord.clone())
            .collect();
        if self.last.as_ref() != Some(&roster) && self.sender.send(roster.clone()).await.is_ok() {
            self.last = Some(roster);
        }
    }

    /// Writes each condition that is not shown yet.
    async fn tell(&mut self) {
        let conditions = self.health.conditions();
        for (key, object) in &self.objects {
            let api = self.api(Some(&key.0));
            if object.discord.is_none() {
                // It left Discord; its condition goes.
                if object.shown.is_some() && self.told.remove(key).is_some() {
                    let _ = write(&api, &key.1, json!([])).await;
                }
                continue;
            }
            let Some(wanted) = conditions.get(&name(key)) else {
                continue;
            };
            let now = (wanted.clone(), object.generation);
            if self.told.get(key) == Some(&now) {
                continue;
            }
            if object
                .shown
                .as_ref()
                .is_some_and(|shown| is_shown(shown, &now))
            {
                self.told.insert(key.clone(), now);
                continue;
            }
            let condition = shown_as(&now, object.shown.as_ref());
            match write(&api, &key.1, json!([condition])).await {
                Ok(()) => {
                    self.told.insert(key.clone(), now);
                }
                Err(error) => {
                    tracing::warn!(workspace = name(key), %error, "the condition could not be written yet");
                }
            }
        }
    }
}

fn word(ready: bool) -> &'static str {
    if ready { "True" } else { "False" }
}

fn is_shown(shown: &Shown, (condition, generation): &(Condition, i64)) -> bool {
    shown.status == word(condition.ready)
        && shown.reason == condition.reason
        && shown.message == condition.message
        && shown.observed_generation == Some(*generation)
}

/// The condition as it is written; its time is that of the last change of `status`.
fn shown_as((condition, generation): &(Condition, i64), before: Option<&Shown>) -> Value {
    let status = word(condition.ready);
    let since = before
        .filter(|before| before.status == status)
        .map_or_else(Timestamp::now, |before| before.last_transition_time.0);
    json!({
        "type": condition::DISCORD_READY,
        "status": status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    })
}

/// Writes the bot's part of the status: this condition, or none.
async fn write(api: &Api<DynamicObject>, name: &str, conditions: Value) -> Result<(), kube::Error> {
    let resource = ApiResource::erase::<Workspace>(&());
    let body = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "status": {"conditions": conditions},
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch_status(name, &params, &Patch::Apply(body))
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_time_of_a_condition_is_that_of_its_last_change_of_status() {
        let condition = |ready| Condition {
            ready,
            reason: "Connected".into(),
            message: String::new(),
        };
        let first = shown_as(&(condition(true), 1), None);
        let before: Shown = serde_json::from_value(json!({
            "type": "DiscordReady", "status": "True", "reason": "Connected", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-02T03:04:05Z",
        }))
        .unwrap();
        assert!(is_shown(&before, &(condition(true), 1)));
        assert!(
            !is_shown(&before, &(condition(true), 2)),
            "another generation"
        );
        let second = shown_as(&(condition(true), 2), Some(&before));
        assert_eq!(second["lastTransitionTime"], "2026-01-02T03:04:05Z");
        let third = shown_as(&(condition(false), 2), Some(&before));
        assert_ne!(third["lastTransitionTime"], "2026-01-02T03:04:05Z");
        assert_eq!(
            (&first["status"], &third["status"]),
            (&"True".into(), &"False".into())
        );
    }
}
