//! Approvals as objects of the cluster: each open one is shown there, decisions
//! written there are taken, and what became of them is told.
//!
//! The database is the authority. While the API server is away approvals are
//! asked and decided all the same; what was missed is made up for afterwards.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        events::{Event, EventType, Recorder, Reporter},
        watcher,
    },
};
use mooring_crds::{Approval, ApprovalPhase, DecisionScope, DecisionVerdict, Workspace};
use mooring_durable::{Approvals, gate};
use mooring_wire::harness as wire;
use serde_json::json;

use super::approval_object as object;
use crate::{members::kubernetes_actor, service::Service};

/// How long the API server may take at the start.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// How often all is compared, whether or not anything was heard of.
const COMPARE_EVERY: Duration = Duration::from_secs(60);
/// How soon after the API server refused something.
const AGAIN: Duration = Duration::from_secs(2);

/// The mirror of one harness's approvals.
pub struct Mirror {
    service: Arc<Service>,
    api: Api<Approval>,
    events: Recorder,
    workspace: String,
    owner: OwnerReference,
    /// Decisions that did not count, and about which that was said.
    told: HashSet<String>,
}

impl Mirror {
    /// The mirror of `service` in the namespace of `workspace`.
    pub fn new(client: Client, service: Arc<Service>, workspace: &Workspace) -> Mirror {
        let namespace = workspace.namespace().unwrap_or_default();
        let reporter = Reporter {
            controller: "mooring.dev/harness".into(),
            instance: Some(workspace.name_any()),
        };
        Mirror {
            service,
            api: Api::namespaced(client.clone(), &namespace),
            events: Recorder::new(client, reporter),
            owner: OwnerReference {
                api_version: Workspace::api_version(&()).into_owned(),
                kind: Workspace::kind(&()).into_owned(),
                name: workspace.name_any(),
                uid: workspace.uid().unwrap_or_default(),
                ..OwnerReference::default()
            },
            workspace: workspace.name_any(),
            told: HashSet::new(),
        }
    }

    fn selector(&self) -> String {
        format!("spec.request.workspaceRef.name={}", self.workspace)
    }

    /// Takes the decisions that were written while no harness ran. Called before
    /// anything expires and before anybody is served.
    pub async fn catch_up(&mut self) {
        let params = ListParams::default().fields(&self.selector());
        let listed = tokio::time::timeout(START_PATIENCE, self.api.list(&params)).await;
        match listed {
            Ok(Ok(list)) => {
                let known = list
                    .items
                    .into_iter()
                    .map(|approval| (approval.name_any(), approval))
                    .collect();
                if let Err(error) = self.take_decisions(&known).await {
                    tracing::warn!(error, "decisions could not be taken");
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "decisions of the cluster are not known yet");
            }
            Err(_) => tracing::warn!("decisions of the cluster are not known yet"),
        }
    }

    /// Mirrors for ever.
    pub async fn run(mut self) {
        let config = watcher::Config::default().fields(&self.selector());
        let mut changes = Box::pin(watcher(self.api.clone(), config).default_backoff());
        let mut known: BTreeMap<String, Approval> = BTreeMap::new();
        let mut listed: Option<BTreeMap<String, Approval>> = None;
        let mut complete = false;
        let books = self.service.books.clone();
        loop {
            let moved = books.moved.notified();
            tokio::pin!(moved);
            // Armed before the comparison, so that nothing falls between.
            moved.as_mut().enable();
            let mut rest = COMPARE_EVERY;
            if complete && let Err(error) = self.compare(&known).await {
                tracing::warn!(error, "approvals are not mirrored yet");
                rest = AGAIN;
            }
            tokio::select! {
                () = moved => {}
                () = tokio::time::sleep(rest) => {}
                change = changes.next() => match change {
                    Some(Ok(watcher::Event::Init)) => listed = Some(BTreeMap::new()),
                    Some(Ok(watcher::Event::InitApply(approval))) => {
                        listed.get_or_insert_default().insert(approval.name_any(), approval);
                    }
                    Some(Ok(watcher::Event::InitDone)) => {
                        known = listed.take().unwrap_or_default();
                        complete = true;
                    }
                    Some(Ok(watcher::Event::Apply(approval))) => {
                        known.insert(approval.name_any(), approval);
                    }
                    Some(Ok(watcher::Event::Delete(approval))) => {
                        known.remove(&approval.name_any());
                    }
                    Some(Err(error)) => tracing::debug!(%error, "the watch of approvals broke"),
                    None => return,
                },
            }
        }
    }

    /// Brings both sides together. The error says what could not be done yet.
    async fn compare(&mut self, known: &BTreeMap<String, Approval>) -> Result<(), String> {
        self.take_decisions(known).await?;
        let pending = self.service.engine.approvals(None, Approvals::Pending);
        let pending = pending.await.map_err(|error| error.to_string())?;
        for approval in &pending {
            let name = self.service.books.approval_id(approval);
            match known.get(&name) {
                None => self.show(&name, approval).await?,
                Some(shown) if phase(shown).is_none() => self.tell(&name, approval, None).await?,
                Some(_) => {}
            }
        }
        let waits = |name: &String| {
            pending
                .iter()
                .any(|approval| self.service.books.approval_id(approval) == *name)
        };
        for (name, shown) in known {
            let ended = is_open(shown) && !waits(name);
            if !ended && !is_unsaid(shown) {
                continue;
            }
            // One of another database, which was lost with its volume, stays as it is.
            let Some(approval) = self.approval(name).await? else {
                continue;
            };
            let executed = self.executed(&approval).await?;
            if ended || executed.is_some() {
                self.tell(name, &approval, executed).await?;
            }
            if ended {
                self.name_the_winner(shown, &approval).await;
            }
        }
        Ok(())
    }

    async fn approval(&self, name: &str) -> Result<Option<gate::Approval>, String> {
        let Some(id) = self.service.books.approval_of(name) else {
            return Ok(None);
        };
        let found = self.service.engine.approval(id).await;
        found.map_err(|error| error.to_string())
    }

    async fn executed(&self, approval: &gate::Approval) -> Result<Option<bool>, String> {
        let found = self.service.engine.executed(approval).await;
        found.map_err(|error| error.to_string())
    }

    /// Makes the object of an approval that waits.
    async fn show(&self, name: &str, approval: &gate::Approval) -> Result<(), String> {
        let members = self.service.source.current().spec.members.clone();
        let made = object::of(&self.workspace, &self.owner, name, approval, &members);
        match self.api.create(&PostParams::default(), &made).await {
            Ok(_) => {}
            // The watch has not brought it yet.
            Err(kube::Error::Api(status)) if status.code == 409 => return Ok(()),
            Err(error) => return Err(format!("{name}: {error}")),
        }
        self.tell(name, approval, None).await
    }

    /// Writes where an approval stands, and its call where that is known.
    async fn tell(
        &self,
        name: &str,
        approval: &gate::Approval,
        executed: Option<bool>,
    ) -> Result<(), String> {
        let patch = json!({ "status": object::status(approval, executed) });
        let written = self
            .api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        match written {
            Ok(_) => Ok(()),
            // Somebody has deleted it; the database has it still.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(format!("{name}: {error}")),
        }
    }

    /// Takes decisions of open approvals, each as its decider at its time.
    async fn take_decisions(&mut self, known: &BTreeMap<String, Approval>) -> Result<(), String> {
        let members = self.service.source.current().spec.members.clone();
        for (name, shown) in known.iter().filter(|(_, shown)| is_open(shown)) {
            let Some(request) = decision(name, shown) else {
                continue;
            };
            let uid = shown.uid().unwrap_or_default();
            if self.told.contains(&uid) {
                continue;
            }
            let user = decider(shown);
            let actor = kubernetes_actor(&members, user);
            let at = object::decided_at(shown).unwrap_or_else(|| self.service.clock.now());
            match self.service.decide(actor, request, at).await {
                Ok(answer) if answer.first => {
                    tracing::info!(approval = name, user, "decided in the cluster");
                }
                // Somebody was first; the object's status says who.
                Ok(_) => {}
                Err(status) if status.code() == tonic::Code::NotFound => {}
                Err(status) if status.code() == tonic::Code::Unavailable => {
                    return Err(status.message().to_owned());
                }
                Err(status) => {
                    self.told.insert(uid);
                    self.say(shown, "DecisionRefused", status.message()).await;
                }
            }
        }
        Ok(())
    }

    /// A decision that came second stays as it was written; an Event says whose counted.
    async fn name_the_winner(&self, shown: &Approval, approval: &gate::Approval) {
        let Some(lost) = &shown.spec.decision else {
            return;
        };
        let won = approval.decision.as_ref();
        let own = won.is_some_and(|won| {
            won.via == object::VIA
                && matches!(&won.by, mooring_durable::submission::Requester::Kubernetes { user }
                    if Some(user.as_str()) == lost.decided_by.as_deref())
        });
        if own {
            return;
        }
        let who = won.map_or_else(
            || format!("it is {}", crate::books::state_word(approval.state)),
            |won| format!("{} decided before, by {}", won.by, won.via),
        );
        let text = format!("the decision of {} does not count: {who}", decider(shown));
        self.say(shown, "DecisionLost", &text).await;
    }

    async fn say(&self, shown: &Approval, reason: &str, note: &str) {
        tracing::info!(approval = shown.name_any(), reason, note, "told");
        let event = Event {
            type_: EventType::Warning,
            reason: reason.into(),
            note: Some(note.chars().take(1000).collect()),
            action: "Decide".into(),
            secondary: None,
        };
        if let Err(error) = self.events.publish(&event, &shown.object_ref(&())).await {
            tracing::warn!(%error, "no Event could be written");
        }
    }
}

fn phase(shown: &Approval) -> Option<ApprovalPhase> {
    shown.status.as_ref()?.phase
}

fn is_open(shown: &Approval) -> bool {
    matches!(phase(shown), None | Some(ApprovalPhase::Pending))
}

/// Whether it was approved, and what became of the call has not been told.
fn is_unsaid(shown: &Approval) -> bool {
    let status = shown.status.as_ref();
    phase(shown) == Some(ApprovalPhase::Approved) && status.is_some_and(|it| it.executed.is_none())
}

fn decider(shown: &Approval) -> &str {
    shown
        .spec
        .decision
        .as_ref()
        .and_then(|decision| decision.decided_by.as_deref())
        .unwrap_or_default()
}

/// The request that an object's decision makes.
fn decision(name: &str, shown: &Approval) -> Option<wire::DecideRequest> {
    let decision = shown.spec.decision.as_ref()?;
    Some(wire::DecideRequest {
        id: name.to_owned(),
        approve: decision.verdict == DecisionVerdict::Approved,
        scope: match decision.scope.unwrap_or_default() {
            DecisionScope::Once => wire::Scope::Once,
            DecisionScope::Conversation => wire::Scope::Conversation,
            DecisionScope::Workspace => wire::Scope::Workspace,
        }
        .into(),
        reason: decision.reason.clone().unwrap_or_default(),
        via: object::VIA.into(),
        ..wire::DecideRequest::default()
    })
}
