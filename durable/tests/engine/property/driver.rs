//! Carries operations out, on the engine and by the rules, and compares after each.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mooring_durable::{
    Durability, Engine, Options, Ports,
    compaction::Asked,
    error::SubmitError,
    gate::{Approval, Gate, Verdict},
    ledger::NoLedger,
    tool::Call,
};
use serde_json::Value;

use super::{
    comparing::Thorough,
    held::Held,
    operation::{Op, When},
    performing::{Answered, Names, modes, note, perform, said, written},
    rules::{Act, Body, Conversation, World},
    shown,
};
use crate::support::TestClock;

/// Most conversations of one sequence.
pub const MOST: usize = 6;

struct Open;

#[async_trait::async_trait]
impl Gate for Open {
    async fn decide(&self, _call: &Call, _approvals: &[Approval]) -> Verdict {
        Verdict::Allow {
            record: Value::Null,
        }
    }
}

/// Ids ascend, each kind for itself.
#[derive(Clone, Copy, Default)]
pub struct Highest {
    pub entry: i64,
    pub submission: i64,
    pub task: i64,
}

pub struct Driver {
    _folder: tempfile::TempDir,
    path: PathBuf,
    clock: Arc<TestClock>,
    pub engine: Engine,
    pub held: Held,
    pub names: Names,
    /// All that the engine may be by what it has shown.
    pub worlds: Vec<World>,
    /// The highest ids that were seen.
    pub highest: Highest,
    pub operations: usize,
    /// The longest wait for the engine to come to rest.
    pub bound: Duration,
}

impl Driver {
    pub async fn begin(bound: Duration) -> Driver {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mooring.db");
        let (clock, held) = (TestClock::new(), Held::default());
        let engine = open(&path, &clock, &held).await;
        let mut driver = Driver {
            _folder: folder,
            path,
            clock,
            engine,
            held,
            names: Names::default(),
            worlds: vec![World::default()],
            highest: Highest::default(),
            operations: 0,
            bound,
        };
        driver.tell(0);
        for all in [false, true] {
            let settings = modes(all);
            let created = driver.engine.create_conversation("m", settings, Vec::new());
            driver.names.conversations.push(created.await.unwrap());
            driver.names.entries.push(Vec::new());
            driver.worlds[0].conversations.push(Conversation::new(all));
        }
        driver
    }

    pub async fn end(mut self) -> Result<(), String> {
        let worlds = self.worlds.clone();
        self.settle(worlds, Thorough::Yes).await?;
        self.engine.close().await.map_err(|error| error.to_string())
    }

    fn tell(&mut self, text: usize) {
        let section = format!("role {text}");
        self.held.tell(&section);
        self.worlds
            .iter_mut()
            .for_each(|world| world.section.clone_from(&section));
    }

    pub async fn step(&mut self, op: &Op) -> Result<(), String> {
        self.operations += 1;
        match op {
            Op::Prompt { text } => self.tell(*text),
            Op::Again { which, as_write } => return self.again(*which, *as_write).await,
            Op::Crash { cleanly } => {
                match cleanly {
                    true => self
                        .engine
                        .close()
                        .await
                        .map_err(|error| error.to_string())?,
                    false => self.engine.abandon().await,
                }
                self.reopen().await;
                let worlds = self.worlds.iter().map(World::crashed).collect();
                return self.settle(worlds, Thorough::Yes).await;
            }
            Op::During { op, turns } => match self.resolve(op) {
                Some(Act::Fork { .. } | Act::Wait) | None => {}
                Some(act) => return self.crash_during(act, *turns).await,
            },
            op => {
                if let Some(act) = self.resolve(op) {
                    return self.carry_out(act).await;
                }
            }
        }
        Ok(())
    }

    async fn reopen(&mut self) {
        self.held = Held::default();
        self.held.tell(&self.worlds[0].section);
        self.engine = open(&self.path, &self.clock, &self.held).await;
    }

    /// An operation to its end.
    async fn carry_out(&mut self, act: Act) -> Result<(), String> {
        let answered = perform(
            self.engine.clone(),
            self.held.clone(),
            self.clock.clone(),
            self.names.clone(),
            act.clone(),
        );
        let answered = answered.await?;
        let mut worlds = Vec::new();
        for world in &self.worlds {
            worlds.extend(
                world
                    .after(&act)
                    .into_iter()
                    .filter_map(|mut states| states.pop()),
            );
        }
        match (&act, &answered) {
            (
                Act::Submit { key, .. } | Act::Write { key, .. } | Act::Reset { key, .. },
                Answered::Submission(id, fate),
            ) => {
                if id.0 <= self.highest.submission {
                    return Err(format!("submission {id} returned"));
                }
                self.names.submissions.insert(key.clone(), *id);
                let first = self.worlds[0].after(&act).swap_remove(0).swap_remove(0);
                let told = first
                    .submissions
                    .iter()
                    .find(|submission| submission.key == *key);
                let told = told.ok_or("an input that had to be refused was admitted")?;
                if told.fate != *fate {
                    return Err(format!(
                        "{act:?} was answered with {fate:?} in place of {:?}",
                        told.fate
                    ));
                }
            }
            (Act::Submit { at, when, .. }, Answered::Busy)
                if *when != When::Reject || self.worlds[0].conversations[*at].run.is_none() =>
            {
                return Err(format!("{act:?} was refused"));
            }
            (Act::Fork { at, through, .. }, Answered::Conversation(id)) => {
                if self.names.conversations.iter().any(|known| known >= id) {
                    return Err(format!("conversation {id} returned"));
                }
                self.names.conversations.push(*id);
                let inherited = self.names.entries[*at][..=*through].to_vec();
                self.names.entries.push(inherited);
            }
            (Act::Compact { at }, Answered::Compaction(asked)) => {
                let going = |world: &World| world.conversations[*at].summary.is_some();
                worlds.retain(|world| going(world) == matches!(asked, Asked::Going(_)));
            }
            (Act::Abort { at, all }, Answered::Withdrawn(keys)) => {
                let world = &self.worlds[0];
                let inbox = world.conversations[*at]
                    .inbox
                    .iter()
                    .map(|which| &world.submissions[*which]);
                let inputs =
                    inbox.filter(|queued| *all && matches!(queued.body, Body::Input { .. }));
                let expected: Vec<_> = inputs.map(|queued| queued.key.clone()).collect();
                if *keys != expected {
                    return Err(format!(
                        "{act:?} withdrew {keys:?} in place of {expected:?}"
                    ));
                }
            }
            _ => {}
        }
        self.settle(worlds, Thorough::No).await
    }

    /// The process ends in the middle of an operation. What was answered stands.
    async fn crash_during(&mut self, act: Act, turns: usize) -> Result<(), String> {
        let operation = tokio::spawn(perform(
            self.engine.clone(),
            self.held.clone(),
            self.clock.clone(),
            self.names.clone(),
            act.clone(),
        ));
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        self.engine.abandon().await;
        let outcome = operation.await.map_err(|error| error.to_string())?;
        let stands = matches!(&outcome, Ok(answered) if !matches!(answered, Answered::Nothing));
        if let (
            Ok(Answered::Submission(id, _)),
            Act::Submit { key, .. } | Act::Write { key, .. } | Act::Reset { key, .. },
        ) = (&outcome, &act)
        {
            self.names.submissions.insert(key.clone(), *id);
        }
        let mut worlds: Vec<World> = Vec::new();
        for world in &self.worlds {
            let states = world.after(&act).into_iter().flatten();
            let before = (!stands).then(|| world.clone());
            for state in before.into_iter().chain(states) {
                let world = state.crashed();
                if !worlds.contains(&world) {
                    worlds.push(world);
                }
            }
        }
        self.reopen().await;
        self.settle(worlds, Thorough::Yes).await
    }

    /// A request id that was used before finds its submission, and changes nothing.
    async fn again(&mut self, which: usize, as_write: bool) -> Result<(), String> {
        let world = &self.worlds[0];
        let known: Vec<_> = world
            .submissions
            .iter()
            .filter(|it| !it.key.is_empty())
            .collect();
        let Some(known) = known.get(which % known.len().max(1)) else {
            return Ok(());
        };
        let conversation = self.names.conversations[known.conversation];
        let input = matches!(known.body, Body::Input { .. });
        let outcome = match as_write {
            false => {
                self.engine
                    .submit(said(conversation, &known.key, "again", When::Reject))
                    .await
            }
            true => {
                self.engine
                    .write(written(conversation, &known.key, note("again")))
                    .await
            }
        };
        match outcome {
            Ok(found) if input != as_write => {
                let id = self.names.submissions[&known.key];
                let fate = shown::fate(&found.submission.state);
                if !found.repeated || found.submission.id != id || fate != known.fate {
                    return Err(format!("{} is not found again, but {found:?}", known.key));
                }
            }
            Err(SubmitError::OtherType(_)) if input == as_write => {}
            outcome => return Err(format!("{} again is {outcome:?}", known.key)),
        }
        let worlds = self.worlds.clone();
        self.settle(worlds, Thorough::No).await
    }
}

async fn open(path: &std::path::Path, clock: &Arc<TestClock>, held: &Held) -> Engine {
    let options = Options {
        durability: Durability::Normal,
        clock: clock.clone(),
        components: Vec::new(),
    };
    let ports = Ports {
        models: Arc::new(held.clone()),
        tools: Arc::new(held.clone()),
        gate: Arc::new(Open),
        ledger: Arc::new(NoLedger),
        prompt: Arc::new(held.clone()),
    };
    let engine = Engine::open(path, options, ports).await.unwrap();
    engine.start();
    engine
}
