//! A push: decided, asked about where the policy says so, sent on byte by byte as it
//! was spooled, and reported in git's own words.

use std::{future::pending, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt;
use mooring_durable::{
    clock::{Clock, SystemClock},
    gate::{Approval, ApprovalState},
    id::Hash,
    on_the_way::{OnTheWay, Passing},
};
use mooring_policy::{Decision, Push as Fact, Verdict, decide_push, escape_for_display};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::io::ReaderStream;

use super::{
    Gateway, Repository,
    address::Service,
    lfs::{self, Held, Pointer},
    mirror::{self, Objects, blocking, reader},
    pkt::{self, Band, Pkt},
    receive::{Advert, Push, Update},
    summary::{self, Effect},
};
use crate::{
    boundary::Origin,
    card::{Card, one_line},
    record::audit,
};

/// How often a push that waits says that it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long it may take to find out what a push does.
const LOOK: Duration = Duration::from_secs(180);
/// Bytes of the host's report.
const MOST_REPORT: usize = 4 << 20;
/// The name that stands on cards in place of a tool's.
pub const WHAT: &str = "git push";

/// What became of a push.
enum End {
    /// The host has taken all of it.
    Pushed,
    /// The host has not taken all of it.
    Partly(String),
    /// Not sent; the reason stands at each ref.
    Denied(String),
    /// The host gave no report.
    Failed(String),
    /// The pusher has gone.
    Gone,
}

/// The pusher's end.
struct Line {
    to: mpsc::Sender<Result<Bytes, std::io::Error>>,
}

impl Line {
    async fn send(&self, bytes: Bytes) -> Result<(), End> {
        self.to.send(Ok(bytes)).await.map_err(|_| End::Gone)
    }

    async fn progress(&self, text: &str) -> Result<(), End> {
        self.send(pkt::band(Band::Progress, format!("{text}\n").as_bytes()))
            .await
    }

    /// Waits for `work`, with signs of life for the pusher; ends with it where it goes.
    async fn while_alive<T>(&self, work: impl Future<Output = T>) -> Result<T, End> {
        tokio::pin!(work);
        let mut tick = tokio::time::interval(KEEP_ALIVE);
        tick.tick().await;
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = self.to.closed() => return Err(End::Gone),
                _ = tick.tick() => self.send(pkt::band(Band::Data, b"")).await?,
            }
        }
    }

    /// The report of a push that did not go: no ref goes without the others.
    async fn deny(&self, push: &Push, why: &str) -> Result<(), End> {
        let mut report = pkt::line(b"unpack ok\n").to_vec();
        for update in &push.updates {
            report.extend_from_slice(&pkt::line(
                format!("ng {} {}\n", update.name, one_line(why)).as_bytes(),
            ));
        }
        report.extend_from_slice(pkt::FLUSH);
        self.send(pkt::band(Band::Data, &report)).await?;
        self.send(Bytes::from_static(pkt::FLUSH)).await
    }
}

struct Story {
    gateway: Arc<Gateway>,
    origin: Origin,
    repository: Repository,
    push: Push,
    line: Line,
    effects: Vec<Effect>,
    /// What could not be computed, and why.
    unknown: Option<String>,
    /// The large files that it names, once that was looked for; they stay meanwhile.
    large: Option<(Vec<Pointer>, Held)>,
}

/// Begins to answer a push: the body of the answer, and what goes on meanwhile.
pub(super) fn begin(
    gateway: Arc<Gateway>,
    origin: Origin,
    repository: Repository,
    push: Push,
) -> (Body, impl Future<Output = ()> + Send) {
    let (to, from) = mpsc::channel(8);
    let body = Body::from_stream(ReceiverStream::new(from));
    let effects = vec![Effect::default(); push.updates.len()];
    let mut story = Story {
        gateway,
        origin,
        repository,
        push,
        line: Line { to },
        effects,
        unknown: None,
        large: None,
    };
    let story = async move {
        let mut told = Told::default();
        let end = story.tell(&mut told).await;
        if let End::Denied(why) = &end {
            let _ = story.line.deny(&story.push, why).await;
        }
        if let End::Failed(why) = &end {
            let text = format!("{why}\n");
            let _ = story
                .line
                .send(pkt::band(Band::Error, text.as_bytes()))
                .await;
        }
        story.record(&told, &end).await;
    };
    (body, story)
}

/// What is kept of a push.
#[derive(Default)]
struct Told {
    decision: Option<Decision>,
    approval: Option<Approval>,
}

impl Story {
    fn rules(&self) -> mooring_policy::Rules {
        self.gateway.source.current().rules.clone()
    }

    /// Whether an update counts as forced: unless it is known to lose nothing.
    fn forced(update: &Update, effect: &Effect) -> bool {
        !update.deletes()
            && !update.creates()
            && (update.is_tag() || effect.fast_forward != Some(true))
    }

    fn decide(&self) -> Decision {
        let updates: Vec<Fact<'_>> = self
            .push
            .updates
            .iter()
            .zip(&self.effects)
            .map(|(update, effect)| Fact {
                reference: &update.name,
                force: Self::forced(update, effect),
                delete: update.deletes(),
            })
            .collect();
        decide_push(&self.rules(), &updates)
    }

    async fn tell(&mut self, told: &mut Told) -> End {
        match self.go(told).await {
            Ok(end) | Err(end) => end,
        }
    }

    async fn go(&mut self, told: &mut Told) -> Result<End, End> {
        // What only makes and removes refs can be decided as it is.
        let plain = |it: &Update| it.creates() || it.deletes() || it.is_tag();
        let mut decision = self.decide();
        if !self.push.updates.iter().all(plain) || decision.verdict == Verdict::Ask {
            self.look().await?;
            decision = self.decide();
        }
        told.decision = Some(decision.clone());
        match decision.verdict {
            Verdict::Deny => return Ok(End::Denied(decision.reason)),
            Verdict::Allow => {}
            Verdict::Ask => {
                let asked = self.ask(decision).await;
                told.decision = Some(self.decide());
                told.approval = asked?;
            }
        }
        self.forward(told).await
    }

    /// Finds out what the push does.
    async fn look(&mut self) -> Result<(), End> {
        let looked = tokio::time::timeout(LOOK, self.looked());
        match self.line.while_alive(looked).await? {
            Ok((named, effects)) => {
                if let Ok(named) = named {
                    self.hold(named);
                }
                match effects {
                    Ok(effects) => self.effects = effects,
                    Err(why) => self.unknown = Some(why),
                }
            }
            Err(_) => self.unknown = Some(format!("it took more than {} s", LOOK.as_secs())),
        }
        Ok(())
    }

    async fn looked(&self) -> (Result<Vec<Pointer>, String>, Result<Vec<Effect>, String>) {
        match self.objects().await {
            Err(why) => (Err(why.clone()), Err(why)),
            Ok(objects) => {
                let named = named(&objects).await;
                (named, self.effects(objects).await)
            }
        }
    }

    fn hold(&mut self, named: Vec<Pointer>) {
        let held = self.gateway.hold_large(&self.repository, &named);
        self.large = Some((named, held));
    }

    /// The push's own objects, and what the mirror has.
    async fn objects(&self) -> Result<Objects, String> {
        let pack = self.push.pack.as_ref();
        let pack = pack.map(|pack| pack.open()).transpose();
        let pack = pack.map_err(|error| error.to_string())?;
        let repository = self.repository.address.to_string();
        self.gateway.mirrors.open(&repository, pack).await
    }

    async fn effects(&self, objects: Objects) -> Result<Vec<Effect>, String> {
        let repository = self.repository.address.to_string();
        let mirrors = &self.gateway.mirrors;
        let updates = self.push.updates.clone();
        let from = objects.clone();
        let wants = blocking(move || Ok(mirror::wanted(&from.opened()?, &updates))).await?;
        let objects = match wants.is_empty() {
            true => objects,
            false => {
                let ask = mirror::asks(&self.repository.address, self.repository.secret.clone());
                let fetched = mirrors.fetch(&self.gateway.upstream, &ask, &repository, wants);
                fetched.await?;
                drop(objects);
                self.objects().await?
            }
        };
        let updates = self.push.updates.clone();
        blocking(move || {
            let opened = objects.opened()?;
            let effects = updates.iter();
            Ok(effects
                .map(|update| summary::effect(&opened, update))
                .collect())
        })
        .await
    }

    /// Asks a person, and waits; `Err` where it does not go on.
    async fn ask(&mut self, mut decision: Decision) -> Result<Option<Approval>, End> {
        let mut changes = self.gateway.source.changes();
        loop {
            changes.borrow_and_update();
            let Some(mut passing) = self.question(&decision).await? else {
                return Err(End::Denied(format!(
                    "{} Nobody can be asked for this command, so it is denied.",
                    decision.reason
                )));
            };
            let approval = passing.approval().clone();
            if !passing.is_settled() {
                let text = format!(
                    "waiting for approval {} ({})",
                    approval.task,
                    decision.reason.trim_end_matches('.')
                );
                self.line.progress(&text).await?;
            }
            let waited = async {
                let settled = self.line.while_alive(passing.settled());
                self.gateway
                    .hold
                    .during(&self.origin.execution, settled)
                    .await
            };
            tokio::pin!(waited);
            let settled = loop {
                tokio::select! {
                    settled = &mut waited => break settled?,
                    changed = changes.changed() => {
                        if changed.is_err() {
                            pending::<()>().await;
                        }
                        let now = self.decide();
                        if now.verdict != Verdict::Ask || now.rule != decision.rule {
                            self.supersede(&approval).await;
                            decision = now;
                            break Ok(Approval { state: ApprovalState::Superseded, ..approval.clone() });
                        }
                    }
                }
            };
            let settled = settled.map_err(|error| {
                End::Failed(format!(
                    "the harness ended while the push waited for approval {} ({error}): push \
                     again, it is asked for only once",
                    approval.task
                ))
            })?;
            match settled.state {
                ApprovalState::Approved => {
                    let now = self.decide();
                    if now.verdict == Verdict::Deny {
                        return Err(End::Denied(now.reason));
                    }
                    return Ok(Some(settled));
                }
                ApprovalState::Superseded => match decision.verdict {
                    Verdict::Allow => return Ok(None),
                    Verdict::Deny => return Err(End::Denied(decision.reason)),
                    Verdict::Ask if self.line.to.is_closed() => return Err(End::Gone),
                    // Another rule asks now, or somebody took the question back.
                    Verdict::Ask => {}
                },
                state => return Err(End::Denied(no(&settled, state))),
            }
        }
    }

    async fn supersede(&self, approval: &Approval) {
        if let Some(engine) = self.gateway.engine.get()
            && let Err(error) = engine.supersede(approval).await
        {
            tracing::warn!(%error, "a question about a push stays open");
        }
    }

    async fn question(&self, decision: &Decision) -> Result<Option<Passing>, End> {
        let engine = self.gateway.engine.get();
        let Some(engine) = engine.filter(|_| !self.origin.autonomous) else {
            return Ok(None);
        };
        let workspace = self.gateway.source.current();
        let content = self.push.content(&self.repository.address.to_string());
        let ask = OnTheWay {
            conversation: self.origin.conversation,
            call: self.origin.task,
            what: WHAT.into(),
            hash: Hash::of(content.to_string().as_bytes()),
            question: self
                .card(decision, &workspace)
                .question(&workspace, SystemClock.now()),
        };
        let asked = engine.ask_on_the_way(ask).await;
        asked.map_err(|error| End::Failed(format!("the push cannot be asked about: {error}")))
    }

    fn card(&self, decision: &Decision, workspace: &crate::workspace::Loaded) -> Card {
        let (update, effect) = (&self.push.updates[0], &self.effects[0]);
        let names: Vec<_> = decision
            .facts
            .iter()
            .map(|fact| fact.text.as_str())
            .collect();
        let mut summary = names[..names.len().min(3)].join(", ");
        if names.len() > 3 {
            summary.push_str(&format!(" and {} more", names.len() - 3));
        }
        if names.len() == 1 && self.unknown.is_none() {
            summary = format!("{summary} ({})", summary::line(update, effect));
        }
        let mut detail = format!("to {}\n", self.repository.address);
        if let Some(why) = &self.unknown {
            detail.push_str(&format!(
                "What the push does could not be found out, so it counts as forced: {}\n",
                escape_for_display(why)
            ));
        }
        for (update, effect) in self.push.updates.iter().zip(&self.effects) {
            detail.push_str(&summary::detail(update, effect));
        }
        if let Some((named, _)) = &self.large {
            detail.push_str(&lfs::detail(named));
        }
        for option in &self.push.options {
            detail.push_str(&format!("push option {}\n", escape_for_display(option)));
        }
        let mut card = Card::written(decision, &summary, &detail, workspace.rules.digest());
        card.no_grant =
            "a push is approved once, for exactly these commits; a rule of the git table \
             allows more"
                .into();
        card
    }

    /// Sends what was spooled, and nothing else.
    async fn forward(&mut self, told: &Told) -> Result<End, End> {
        let advert = self.gateway.advert(&self.repository);
        let advert = self.line.while_alive(advert).await?.map_err(End::Denied)?;
        for update in &self.push.updates {
            let now = advert.of(&update.name);
            if now != update.old {
                return Err(End::Denied(format!(
                    "{} is {} there by now: fetch, and push again",
                    update.name,
                    &now[..10]
                )));
            }
        }
        self.send_large().await?;
        if let Some(approval) = &told.approval {
            self.use_approval(approval).await?;
        }
        let sent = self.send(&advert);
        let answer = self.line.while_alive(sent).await??;
        self.report(&advert, answer).await
    }

    /// Large files go before the push that names them. What is approved or allowed is the
    /// push, and by their names in it also these.
    async fn send_large(&mut self) -> Result<(), End> {
        if self.large.is_none() && self.gateway.has_large(&self.repository) {
            let named = async { named(&self.objects().await?).await };
            let named = self.line.while_alive(named).await?;
            let told = |why| format!("whether large files go with the push is not known: {why}");
            self.hold(named.map_err(|why| End::Failed(told(why)))?);
        }
        let Some((named, _)) = self.large.as_ref().filter(|(named, _)| !named.is_empty()) else {
            return Ok(());
        };
        let reference = &self.push.updates[0].name;
        let sent = self.gateway.send_large(&self.repository, reference, named);
        let sent = self.line.while_alive(sent).await?;
        sent.map_err(End::Denied)
    }

    async fn use_approval(&self, approval: &Approval) -> Result<(), End> {
        let engine = self.gateway.engine.get().expect("it has asked");
        match engine.use_approval(approval, Vec::new()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(End::Denied(format!(
                "approval {} was used by another push of the same; push again to ask anew",
                approval.task
            ))),
            Err(error) => Err(End::Failed(format!("the push is not sent: {error}"))),
        }
    }

    async fn send(&self, advert: &Advert) -> Result<Body, End> {
        let head = advert.head(&self.push);
        let mut length = head.len() as u64;
        let head = futures::stream::once(async { Ok::<_, std::io::Error>(Bytes::from(head)) });
        let body = match &self.push.pack {
            None => Body::from_stream(head),
            Some(pack) => {
                let broken = |error| End::Failed(format!("the spooled push is gone: {error}"));
                let file = pack.open().map_err(broken)?;
                length += pack.bytes;
                let file = tokio::fs::File::from_std(file);
                Body::from_stream(head.chain(ReaderStream::with_capacity(file, 64 << 10)))
            }
        };
        let ask = self.repository.ask(Service::ReceivePack);
        let sent = self.gateway.upstream.serve(&ask, body, Some(length)).await;
        sent.map(|answer| answer.body)
            .map_err(|failure| End::Failed(failure.to_string()))
    }

    /// Passes the host's report on, and reads it.
    async fn report(&self, advert: &Advert, body: Body) -> Result<End, End> {
        let mut from = reader(body);
        let mut report = Vec::new();
        let broken = |error: std::io::Error| {
            End::Failed(format!(
                "what the host did with the push is not known: {error}"
            ))
        };
        if !advert.has("side-band-64k") {
            // Its report stands alone; the pusher reads it from the side band.
            while let Some(packet) = pkt::read(&mut from).await.map_err(broken)? {
                let Pkt::Data(data) = packet else { break };
                report.extend_from_slice(&pkt::line(&data));
                if report.len() > MOST_REPORT {
                    break;
                }
            }
            report.extend_from_slice(pkt::FLUSH);
            self.line.send(pkt::band(Band::Data, &report)).await?;
        } else {
            loop {
                let packet = self.line.while_alive(pkt::read(&mut from)).await?;
                let Some(Pkt::Data(data)) = packet.map_err(broken)? else {
                    break;
                };
                let (band, content) = match data.split_first() {
                    Some((1, content)) => (Band::Data, content),
                    Some((2, content)) => (Band::Progress, content),
                    Some((3, content)) => {
                        let text = String::from_utf8_lossy(content);
                        return Err(End::Failed(one_line(text.trim_end())));
                    }
                    _ => continue,
                };
                if band == Band::Data {
                    report.extend_from_slice(content);
                    if report.len() > MOST_REPORT {
                        return Err(End::Failed("the host's report has no end".into()));
                    }
                }
                self.line.send(pkt::band(band, content)).await?;
            }
        }
        self.line.send(Bytes::from_static(pkt::FLUSH)).await?;
        let mut from = report.as_slice();
        let mut wrong = Vec::new();
        let mut taken = 0;
        while let Ok(Some(Pkt::Data(line))) = pkt::read(&mut from).await {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            match line.split_once(' ') {
                Some(("ok", _)) => taken += 1,
                Some(("unpack", "ok")) => {}
                _ => wrong.push(line),
            }
        }
        Ok(match wrong.is_empty() && taken == self.push.updates.len() {
            true => End::Pushed,
            false => End::Partly(one_line(&wrong.join("; "))),
        })
    }

    /// Keeps what became of the push.
    async fn record(&self, told: &Told, end: &End) {
        let (verdict, outcome) = match end {
            End::Pushed => ("allow", "pushed".to_owned()),
            End::Partly(why) => ("allow", format!("partly: {why}")),
            End::Denied(why) => ("deny", format!("denied: {why}")),
            End::Failed(why) => ("allow", format!("failed: {why}")),
            End::Gone => ("allow", "the pusher went away".to_owned()),
        };
        tracing::info!(
            conversation = %self.origin.conversation,
            repository = %self.repository.address,
            updates = self.push.updates.len(),
            outcome,
            "a push has ended"
        );
        let Some(engine) = self.gateway.engine.get() else {
            return;
        };
        let facts = told.decision.iter().flat_map(|decision| &decision.facts);
        let facts: Vec<_> = facts.map(|fact| fact.text.as_str()).collect();
        let record = json!({
            "call": { "git": facts },
            "decision": told.decision,
            "push": self.push.content(&self.repository.address.to_string()),
            "bytes": self.push.pack.as_ref().map_or(0, |pack| pack.bytes),
            "policyDigest": self.rules().digest(),
            "approval": told.approval.as_ref().map(|approval| approval.task.0),
        });
        let statement = audit::pushed(SystemClock.now(), &self.origin, verdict, &record, &outcome);
        if let Err(error) = engine.commit("audit", vec![statement]).await {
            tracing::warn!(%error, "what became of a push is not kept");
        }
    }
}

/// The large files that the push among these objects names.
async fn named(objects: &Objects) -> Result<Vec<Pointer>, String> {
    let objects = objects.clone();
    blocking(move || lfs::named(&objects.opened()?)).await
}

/// A person's no, or nobody's yes, as git shows it.
fn no(approval: &Approval, state: ApprovalState) -> String {
    let id = approval.task;
    match (state, &approval.decision) {
        (ApprovalState::Denied, Some(by)) if !by.reason.is_empty() => {
            format!("{} denied it (approval {id}): {}", by.by, by.reason)
        }
        (ApprovalState::Denied, Some(by)) => format!("{} denied it (approval {id})", by.by),
        (ApprovalState::Expired, _) => {
            format!("nobody decided on approval {id} in time; push again to ask anew")
        }
        _ => format!("approval {id} ended without a decision; push again to ask anew"),
    }
}
