//! One pass over a Workspace: observe → validate → build → apply → conclude.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_controller::events::{Event, EventType};
use k8s_controller::{Context, Phase, TraceMetadata};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Client, Resource};
use mooring_crds::{Problem, RunState, Workspace, WorkspaceStatus};
use serde_json::json;
use tokio::sync::watch;

use crate::apply::{Mounted, WrittenSecrets, apply};
use crate::authority::Authority;
use crate::build::{self, ApiServer, Input, Kind, Object};
use crate::conclude::{Findings, Harness, OWNED, conclude};
use crate::error::{Category, Error};
use crate::growth::grow;
use crate::harness::Caller;
use crate::metrics::Metrics;
use crate::names::{Component, FIELD_MANAGER, Names};
use crate::observe;
use crate::raw::RawWorkspace;
use crate::settings::Settings;
use crate::validate::{Valid, validate};

/// The longest time between two passes over a Workspace that nobody touches.
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// How often a harness is asked that is well.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How soon one is asked again that is just coming up.
const SHORTEST_LOOK: Duration = Duration::from_millis(200);

/// What all passes share.
#[derive(Clone)]
pub struct Reconciler {
    /// What the installation decides.
    pub settings: Arc<Settings>,
    /// Issues certificates.
    pub authority: Arc<Authority>,
    /// Asks harnesses how they are.
    pub caller: Arc<Caller>,
    /// What was written into Secrets.
    pub secrets: Arc<WrittenSecrets>,
    /// The API server's addresses, kept current.
    pub api_servers: watch::Receiver<Vec<ApiServer>>,
    /// Counters.
    pub metrics: Metrics,
}

impl Reconciler {
    /// One pass. Answers when the next one is due if nothing happens before.
    pub async fn reconcile(&self, client: &Client, raw: &RawWorkspace) -> Result<Duration, Error> {
        if raw.metadata.deletion_timestamp.is_some() {
            return Ok(LONGEST_REST); // what belongs to it goes with it
        }
        let names = raw.names();
        let before = serde_json::from_value(raw.status.clone()).unwrap_or_default();
        let (wanted, outcome) = match validate(&raw.spec) {
            Ok(valid) => {
                let outcome = self.bring_up(client, raw, &names, &valid, &before).await;
                let wanted = Wanted {
                    problems: Vec::new(),
                    only_warn: valid.spec.sandbox.egress_verification.is_warn(),
                    run_state: valid.spec.run_state,
                    policy_digest: Some(valid.spec.policy.digest()),
                };
                (wanted, outcome)
            }
            Err(problems) => {
                let wanted = Wanted {
                    problems,
                    only_warn: false,
                    run_state: RunState::Running,
                    policy_digest: None,
                };
                (wanted, Ok(LONGEST_REST))
            }
        };
        let error = outcome.as_ref().err();
        let look_again = self
            .report(client, raw, &names, &wanted, error, &before)
            .await?;
        Ok(outcome?.min(look_again))
    }

    /// Applies all objects of a valid Workspace. Answers when the next certificates are due.
    async fn bring_up(
        &self,
        client: &Client,
        raw: &RawWorkspace,
        names: &Names,
        valid: &Valid,
        before: &WorkspaceStatus,
    ) -> Result<Duration, Error> {
        let owner = raw.owner();
        let now = Timestamp::now();
        let created = raw
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(now, |time| time.0);
        let certificates = self
            .authority
            .certificates(names, &owner.uid, created, now)?;
        let api_servers = self.api_servers.borrow().clone();
        let objects = build::objects(&Input {
            names,
            owner: Some(&owner),
            valid,
            settings: &self.settings,
            api_servers: &api_servers,
            certificates: &certificates,
        });
        let mounted = match before.phase {
            Some(mooring_crds::Phase::Ready | mooring_crds::Phase::Suspended) => Mounted::Yes,
            _ => Mounted::No,
        };
        for step in objects.chunk_by(|a, b| a.kind.step() == b.kind.step()) {
            let applied = step
                .iter()
                .map(|object| self.bring(client, object, names, &owner.uid, mounted));
            // All of a step are tried: one that fails keeps only later steps back.
            for result in join_all(applied).await {
                result?;
            }
        }
        let until_next = certificates.next.duration_since(now);
        Ok(Duration::try_from(until_next)
            .unwrap_or_default()
            .min(LONGEST_REST))
    }

    /// Applies one object.
    async fn bring(
        &self,
        client: &Client,
        object: &Object,
        names: &Names,
        owner_uid: &str,
        mounted: Mounted,
    ) -> Result<(), Error> {
        if object.kind == Kind::StatefulSet {
            let component = build::COMPONENTS
                .into_iter()
                .find(|component| names.of(*component) == object.name)
                .unwrap_or(Component::Harness);
            if grow(client, object, &names.claim(component), owner_uid).await? {
                self.metrics.wrote("delete", object.kind.as_str());
            }
        }
        if apply(client, object, owner_uid, &self.secrets, mounted).await? {
            self.metrics.wrote("apply", object.kind.as_str());
        }
        Ok(())
    }

    /// Writes the status, if it differs. Answers when to ask the harness again.
    async fn report(
        &self,
        client: &Client,
        raw: &RawWorkspace,
        names: &Names,
        wanted: &Wanted,
        error: Option<&Error>,
        before: &WorkspaceStatus,
    ) -> Result<Duration, Error> {
        let pods = observe::pods(client, names).await?;
        let is_up = wanted.run_state == RunState::Running
            && pods.harness.as_ref().is_some_and(|pod| pod.ready > 0);
        let harness = match is_up {
            false => Harness::NotAsked,
            true => match self.caller.status(names).await? {
                Some(status) => Harness::Told(Box::new(status)),
                None => Harness::Silent,
            },
        };
        let pending = match observe::pending_approvals(client, names).await {
            Ok(pending) => Some(pending),
            Err(error) => {
                tracing::warn!(%error, "approvals could not be counted");
                None
            }
        };
        let findings = Findings {
            names,
            generation: raw.metadata.generation,
            problems: &wanted.problems,
            run_state: wanted.run_state,
            pods: &pods,
            error,
            pending_approvals: pending,
            harness: &harness,
            only_warn: wanted.only_warn,
            policy_digest: wanted.policy_digest.as_deref(),
        };
        let after = conclude(&findings, before);
        let look_again = match is_up {
            true => until_next_look(&after, Timestamp::now()),
            // Its StatefulSet is watched.
            false => LONGEST_REST,
        };
        if says_so(before, &after) {
            return Ok(look_again);
        }
        // The watch may not have brought the last status yet: look before writing it again.
        let api: Api<RawWorkspace> = Api::namespaced(client.clone(), &names.namespace);
        let live = api
            .get_opt(&names.workspace)
            .await
            .map_err(|error| Error::from_api("get", "Workspace", &names.workspace, error))?;
        let Some(live) = live.filter(|live| live.metadata.uid == raw.metadata.uid) else {
            return Ok(LONGEST_REST);
        };
        let before = serde_json::from_value(live.status).unwrap_or_default();
        let after = conclude(&findings, &before);
        if says_so(&before, &after) {
            return Ok(look_again);
        }
        let patch = json!({
            "apiVersion": Workspace::api_version(&()),
            "kind": Workspace::kind(&()),
            "metadata": {"name": names.workspace},
            "status": after,
        });
        api.patch_status(
            &names.workspace,
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(patch),
        )
        .await
        .map_err(|error| Error::from_api("patch", "Workspace", &names.workspace, error))?;
        self.metrics.wrote("status", "Workspace");
        Ok(look_again)
    }
}

/// What the spec wants, as far as conclusions are drawn from it.
struct Wanted {
    problems: Vec<Problem>,
    only_warn: bool,
    run_state: RunState,
    policy_digest: Option<String>,
}

/// How long a harness is left alone: for half a minute where all is well, and for a
/// tenth of the time that it has not been well for where not.
fn until_next_look(status: &WorkspaceStatus, now: Timestamp) -> Duration {
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == mooring_crds::condition::READY);
    match ready {
        Some(ready) if ready.status == "False" => {
            let since = now.duration_since(ready.last_transition_time.0);
            let since = Duration::try_from(since).unwrap_or_default();
            (since / 10).clamp(SHORTEST_LOOK, LOOK_EVERY)
        }
        _ => LOOK_EVERY,
    }
}

/// Whether a status already says, in the operator's part of it, what was concluded.
fn says_so(before: &WorkspaceStatus, after: &WorkspaceStatus) -> bool {
    let mut own = before.clone();
    let place = |type_: &str| OWNED.iter().position(|owned| *owned == type_);
    own.conditions
        .retain(|condition| place(&condition.type_).is_some());
    own.conditions
        .sort_by_key(|condition| place(&condition.type_));
    own == *after
}

/// The error of the pass itself; there is no finalizer that could fail.
fn inner(error: &k8s_controller::Error<Error>) -> Option<&Error> {
    match error {
        k8s_controller::Error::ControllerError(error) => Some(error),
        k8s_controller::Error::FinalizerError(_) => None,
    }
}

#[async_trait::async_trait]
impl Context for Reconciler {
    type Resource = RawWorkspace;
    type Error = Error;

    async fn apply(
        &self,
        client: Client,
        resource: &RawWorkspace,
        _metadata: &mut TraceMetadata,
    ) -> Result<Option<Action>, Error> {
        let rest = self.reconcile(&client, resource).await?;
        let spread = 0.9 + 0.1 * rand::random::<f64>();
        Ok(Some(Action::requeue(
            rest.mul_f64(spread).max(SHORTEST_LOOK),
        )))
    }

    fn error_action(
        self: Arc<Self>,
        _resource: Arc<RawWorkspace>,
        error: &k8s_controller::Error<Error>,
        failures: u32,
    ) -> Action {
        match inner(error) {
            Some(error) => {
                self.metrics.failed(error.category(), error.reason());
                Action::requeue(error.delay(failures, rand::random()))
            }
            None => Action::requeue(Duration::from_secs(5)),
        }
    }

    fn failure_event(
        &self,
        _resource: &RawWorkspace,
        _phase: Phase,
        error: &k8s_controller::Error<Error>,
    ) -> Option<Event> {
        let error = inner(error)?;
        if error.category() == Category::RetrySoon {
            return None;
        }
        Some(Event {
            type_: EventType::Warning,
            reason: error.reason().to_owned(),
            action: "Reconcile".to_owned(),
            note: Some(error.to_string()),
            related: None,
        })
    }
}
