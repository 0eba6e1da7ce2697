//! What the engine shows, held against the rules.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Debug,
    time::Duration,
};

use mooring_durable::{id::SubmissionId, ledger::RunState, view::ConversationView};
use sqlx::Row as _;

use super::{
    driver::Driver,
    held::Holding,
    history::{Entry, Said, begins_at, may_cut},
    rules::{CallState, Fate, Phase, World},
    shown,
};

/// How much is looked at.
#[derive(Clone, Copy)]
pub enum Thorough {
    /// Also what had come to its end before.
    Yes,
    No,
}

/// What the engine shows at one moment.
struct Shown {
    holding: Holding,
    views: Vec<ConversationView>,
    fates: HashMap<String, Fate>,
}

impl Driver {
    /// Waits until the engine shows one of these worlds, and keeps all that it may be.
    pub async fn settle(&mut self, worlds: Vec<World>, thorough: Thorough) -> Result<(), String> {
        let deadline = tokio::time::Instant::now() + self.bound;
        loop {
            let late = tokio::time::Instant::now() > deadline;
            let holding = self.held.now();
            let held = |world| self.holds(world, &holding).is_ok();
            if !late && !worlds.iter().any(held) {
                // Nothing has to be read yet.
                tokio::time::sleep(Duration::from_micros(500)).await;
                continue;
            }
            let shown = self.look(&worlds, thorough).await?;
            let mut differs = String::new();
            let mut found = Vec::new();
            for world in &worlds {
                match self.compare(world, &shown) {
                    Ok(world) if found.contains(&world) => {}
                    Ok(world) => found.push(world),
                    Err(how) => differs = how,
                }
            }
            if !found.is_empty() {
                self.worlds = found;
                return self.learn(&shown).await;
            }
            if late {
                return Err(format!(
                    "of {} ways the last differs: {differs}",
                    worlds.len()
                ));
            }
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    }

    /// All that the engine shows.
    async fn look(&mut self, worlds: &[World], thorough: Thorough) -> Result<Shown, String> {
        let holding = self.held.now();
        let mut views = Vec::new();
        for id in &self.names.conversations {
            let view = self.engine.view(*id, 1_000, None).await;
            views.push(
                view.map_err(|error| error.to_string())?
                    .ok_or("a conversation is gone")?,
            );
        }
        let mut fates = HashMap::new();
        let last = worlds.last().map_or(&[][..], |world| &world.submissions);
        for submission in last.iter().filter(|submission| !submission.key.is_empty()) {
            let open = |world: &World| {
                let mut all = world.submissions.iter();
                let known = all.find(|known| known.key == submission.key);
                known.is_none_or(|known| matches!(known.fate, Fate::Queued | Fate::Placed))
            };
            if matches!(thorough, Thorough::No) && !self.worlds.iter().any(open) {
                continue;
            }
            if !self.names.submissions.contains_key(&submission.key) {
                let found = self
                    .number(
                        "SELECT id FROM submission WHERE request_id = ?",
                        &submission.key,
                    )
                    .await?;
                let Some(id) = found else { continue };
                self.names
                    .submissions
                    .insert(submission.key.clone(), SubmissionId(id));
            }
            let id = self.names.submissions[&submission.key];
            let stored = self
                .engine
                .submission(id)
                .await
                .map_err(|error| error.to_string())?;
            let stored = stored.ok_or_else(|| format!("submission {} is gone", submission.key))?;
            fates.insert(submission.key.clone(), shown::fate(&stored.state));
        }
        Ok(Shown {
            holding,
            views,
            fates,
        })
    }

    async fn number(&self, sql: &'static str, bind: &str) -> Result<Option<i64>, String> {
        let row = sqlx::query(sql)
            .bind(bind)
            .fetch_optional(self.engine.reader())
            .await;
        let row = row.map_err(|error| error.to_string())?;
        row.map(|row| row.try_get(0))
            .transpose()
            .map_err(|error| error.to_string())
    }

    /// Whether what is held is what the rules say.
    fn holds(&self, world: &World, holding: &Holding) -> Result<(), String> {
        for (at, conversation) in world.conversations.iter().enumerate() {
            let Some(id) = self.names.conversations.get(at) else {
                return Err(format!("conversation {at} is not there"));
            };
            let phase = conversation.run.as_ref().map(|run| &run.phase);
            let asked = holding.turns.get(id).map(shown::request);
            let words = match phase {
                Some(Phase::Request { words, .. }) => Some(words.clone()),
                _ => None,
            };
            differ(at, "the request", &asked, &words)?;
            let asked = holding.summaries.contains_key(id);
            let summary = conversation.summary.as_ref();
            differ(
                at,
                "the summary",
                &asked,
                &summary.is_some_and(|it| it.asked),
            )?;
            let calls = holding.calls.keys().filter(|(of, _)| of == id);
            let calls: BTreeSet<_> = calls.map(|(_, call)| call).collect();
            let running = match phase {
                Some(Phase::Tools { calls }) => calls.as_slice(),
                _ => &[],
            };
            let running = running
                .iter()
                .filter(|call| call.state == CallState::Running);
            let running: BTreeSet<_> = running.map(|call| &call.id).collect();
            differ(at, "what runs", &calls, &running)?;
        }
        Ok(())
    }

    /// The world as it is shown; its results may stand in another order.
    fn compare(&self, world: &World, shown: &Shown) -> Result<World, String> {
        self.holds(world, &shown.holding)?;
        let mut world = world.clone();
        for (at, view) in shown.views.iter().enumerate() {
            let inbox = |world: &World| {
                let keys = world.conversations[at]
                    .inbox
                    .iter()
                    .map(|which| world.submissions[*which].key.clone());
                keys.collect::<Vec<_>>()
            };
            let conversation = &mut world.conversations[at];
            let first = if conversation.own {
                conversation.inherited
            } else {
                0
            };
            let words: Vec<_> = view.entries.iter().map(shown::entry).collect();
            reorder(&mut conversation.history[first..], &words);
            let expected: Vec<_> = conversation.history[first..]
                .iter()
                .map(Entry::word)
                .collect();
            let same =
                |what, found: &dyn Debug, expected: &dyn Debug| differ(at, what, found, expected);
            same("the history", &words, &expected)?;
            let run = conversation.run.as_ref();
            let going = conversation.summary.is_some();
            same("the compaction", &view.compaction.is_some(), &going)?;
            let state = run.map(|run| match run.phase {
                Phase::Prepare => RunState::Preparing,
                Phase::Request { .. } => RunState::Requesting,
                Phase::Retry => RunState::Retrying,
                Phase::Compact { .. } => RunState::Compacting,
                Phase::Tools { .. } => RunState::Tools,
            });
            same("the run", &view.run.as_ref().map(|run| run.state), &state)?;
            let first = run.map(|run| {
                self.names
                    .submissions
                    .get(&world.submissions[run.inputs[0]].key)
                    .copied()
            });
            same(
                "the run's input",
                &view.run.as_ref().map(|run| Some(run.id)),
                &first,
            )?;
            same("the inbox", &keys(view), &inbox(&world))?;
        }
        for submission in &world.submissions {
            if let Some(fate) = shown.fates.get(&submission.key)
                && *fate != submission.fate
            {
                return Err(format!("{submission:?} is {fate:?}"));
            }
        }
        Ok(world)
    }

    /// What the engine calls what is new; ids ascend and never return.
    async fn learn(&mut self, shown: &Shown) -> Result<(), String> {
        let before = self.highest;
        let fresh = |highest: &mut i64, before: i64, id: i64| {
            *highest = id.max(*highest);
            match id > before {
                true => Ok(()),
                false => Err(format!("id {id} returned, after {before}")),
            }
        };
        for (at, view) in shown.views.iter().enumerate() {
            let conversation = &self.worlds[0].conversations[at];
            let first = if conversation.own {
                conversation.inherited
            } else {
                0
            };
            let ids: Vec<_> = view.entries.iter().map(|entry| entry.id).collect();
            let known = &mut self.names.entries[at];
            if known[first..] != ids[..known.len() - first] {
                return Err(format!(
                    "entries of conversation {at} are others than they were"
                ));
            }
            for id in &ids[known.len() - first..] {
                if known.last().is_some_and(|last| last >= id) {
                    return Err(format!("entries of conversation {at} do not ascend"));
                }
                fresh(&mut self.highest.entry, before.entry, id.0)?;
                known.push(*id);
            }
        }
        let submissions = self.names.submissions.values().map(|id| id.0);
        self.highest.submission = submissions.max().unwrap_or(0);
        for ((_, call), task) in &shown.holding.calls {
            match self.names.tasks.insert(call.clone(), *task) {
                None => fresh(&mut self.highest.task, before.task, task.0)?,
                Some(known) if known == *task => {}
                Some(known) => return Err(format!("call {call} is task {task}, and was {known}")),
            }
        }
        for at in 0..shown.views.len() {
            let chosen = |world: &World| {
                world.conversations[at]
                    .summary
                    .as_ref()
                    .is_none_or(|it| it.cut.is_some())
            };
            if self.worlds.iter().all(chosen) {
                continue;
            }
            let id = self.names.conversations[at].to_string();
            let cut = self.number("SELECT input->>'$.cut' FROM task WHERE kind = 'pi.compaction' AND ended_at IS NULL AND conversation = ?", &id).await?;
            let cut = self.names.entries[at]
                .iter()
                .position(|id| Some(id.0) == cut);
            let history = &self.worlds[0].conversations[at].history;
            let cut = cut.filter(|cut| {
                may_cut(history, *cut) && begins_at(history).is_none_or(|begins| begins <= *cut)
            });
            let cut = cut.ok_or_else(|| {
                format!("a compaction of conversation {at} cuts where it may not")
            })?;
            for world in &mut self.worlds {
                if let Some(summary) = &mut world.conversations[at].summary {
                    summary.cut = Some(cut);
                }
            }
        }
        Ok(())
    }
}

fn differ(at: usize, what: &str, found: &dyn Debug, expected: &dyn Debug) -> Result<(), String> {
    let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
    match found == expected {
        true => Ok(()),
        false => Err(format!(
            "{what} of conversation {at} is\n  {found}\nand by the rules\n  {expected}"
        )),
    }
}

/// Results and ends of compactions that stand side by side come in the order in which they
/// are shown: they do not depend on each other.
fn reorder(history: &mut [Entry], words: &[String]) {
    let is_free = |entry: &Entry| match entry.said {
        Said::Result { .. } => true,
        Said::Nothing(what) => what.starts_with("compaction"),
        _ => false,
    };
    for at in 0..history.len().min(words.len()) {
        let side_by_side = history[at..]
            .iter()
            .take_while(|entry| is_free(entry))
            .count();
        let found = history[at..at + side_by_side]
            .iter()
            .position(|entry| entry.word() == words[at]);
        if let Some(found) = found {
            history.swap(at, at + found);
        }
    }
}

/// Request ids of an inbox; summaries have one of the engine's.
fn keys(view: &ConversationView) -> Vec<String> {
    let keys = view
        .inbox
        .iter()
        .map(|queued| queued.request_id.as_ref().map(|id| id.0.clone()));
    keys.map(|key| {
        key.filter(|key| !key.starts_with("task:"))
            .unwrap_or_default()
    })
    .collect()
}
