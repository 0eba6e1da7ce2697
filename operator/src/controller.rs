//! One pass over a Workspace: observe → validate → build → apply → conclude.

use std::sync::Arc;
use std::time::Duration;

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
use crate::build::{self, ApiServer, Input, Kind};
use crate::conclude::{Findings, OWNED, conclude};
use crate::error::{Category, Error};
use crate::growth::grow;
use crate::metrics::Metrics;
use crate::names::{Component, FIELD_MANAGER, Names};
use crate::observe;
use crate::raw::RawWorkspace;
use crate::settings::Settings;
use crate::validate::{Valid, validate};

/// The longest time between two passes over a Workspace that nobody touches.
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// What all passes share.
#[derive(Clone)]
pub struct Reconciler {
    /// What the installation decides.
    pub settings: Arc<Settings>,
    /// Issues certificates.
    pub authority: Arc<Authority>,
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
        let (problems, run_state, outcome) = match validate(&raw.spec) {
            Ok(valid) => {
                let run_state = valid.spec.run_state;
                let outcome = self.bring_up(client, raw, &names, &valid, &before).await;
                (Vec::new(), run_state, outcome)
            }
            Err(problems) => (problems, RunState::Running, Ok(LONGEST_REST)),
        };
        let error = outcome.as_ref().err();
        self.report(client, raw, &names, &problems, run_state, error, &before)
            .await?;
        outcome
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
        for object in &objects {
            if object.kind == Kind::StatefulSet {
                let component = build::COMPONENTS
                    .into_iter()
                    .find(|component| names.of(*component) == object.name)
                    .unwrap_or(Component::Harness);
                if grow(client, object, &names.claim(component), &owner.uid).await? {
                    self.metrics.wrote("delete", object.kind.as_str());
                }
            }
            if apply(client, object, &owner.uid, &self.secrets, mounted).await? {
                self.metrics.wrote("apply", object.kind.as_str());
            }
        }
        let until_next = certificates.next.duration_since(now);
        Ok(Duration::try_from(until_next)
            .unwrap_or_default()
            .min(LONGEST_REST))
    }

    /// Writes the status, if it differs.
    #[allow(clippy::too_many_arguments)]
    async fn report(
        &self,
        client: &Client,
        raw: &RawWorkspace,
        names: &Names,
        problems: &[Problem],
        run_state: RunState,
        error: Option<&Error>,
        before: &WorkspaceStatus,
    ) -> Result<(), Error> {
        let pods = observe::pods(client, names).await?;
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
            problems,
            run_state,
            pods: &pods,
            error,
            pending_approvals: pending,
        };
        if says_so(before, &conclude(&findings, before)) {
            return Ok(());
        }
        // The watch may not have brought the last status yet: look before writing it again.
        let api: Api<RawWorkspace> = Api::namespaced(client.clone(), &names.namespace);
        let live = api
            .get_opt(&names.workspace)
            .await
            .map_err(|error| Error::from_api("get", "Workspace", &names.workspace, error))?;
        let Some(live) = live.filter(|live| live.metadata.uid == raw.metadata.uid) else {
            return Ok(());
        };
        let before = serde_json::from_value(live.status).unwrap_or_default();
        let after = conclude(&findings, &before);
        if says_so(&before, &after) {
            return Ok(());
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
        Ok(())
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
            rest.mul_f64(spread).max(Duration::from_secs(1)),
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
