//! The inbox by the rules: what is queued, and what boundaries place of it.

use super::{
    history::{self, Entry, Said},
    operation::When,
    rules::{Body, Fate, Submission, World},
};

impl World {
    pub fn says(&mut self, at: usize, entry: impl Into<Entry>) {
        self.conversations[at].history.push(entry.into());
    }

    pub fn fails(&mut self, at: usize) {
        let said = Said::Nothing("failed");
        self.says(
            at,
            Entry {
                failed: true,
                ..said.into()
            },
        );
    }

    pub fn queue(&mut self, at: usize, key: String, body: Body) {
        self.conversations[at].inbox.push(self.submissions.len());
        self.submissions.push(Submission {
            key,
            conversation: at,
            body,
            fate: Fate::Queued,
        });
    }

    pub fn inputs(&self, at: usize) -> Vec<usize> {
        let input = |which: &usize| matches!(self.submissions[*which].body, Body::Input { .. });
        self.conversations[at]
            .inbox
            .iter()
            .copied()
            .filter(input)
            .collect()
    }

    pub fn withdraw(&mut self, which: usize) {
        let submission = &mut self.submissions[which];
        if submission.fate == Fate::Queued {
            submission.fate = Fate::Unanswered("Withdrawn");
            let at = submission.conversation;
            self.conversations[at]
                .inbox
                .retain(|queued| *queued != which);
        }
    }

    pub fn write(&mut self, at: usize, key: String, entry: Entry, here: bool) {
        self.queue(at, key, Body::Write { entry, here });
        if self.conversations[at].run.is_none() {
            self.place_writes(at);
        }
    }

    /// Puts a submission into the history.
    pub fn place(&mut self, at: usize, which: usize) {
        self.conversations[at]
            .inbox
            .retain(|queued| *queued != which);
        let history = &self.conversations[at].history;
        let (here, begins) = (history.len(), history::begins_at(history));
        let stale = |head: Option<usize>| matches!((head, begins), (Some(head), Some(begins)) if head < begins);
        let (entry, fate) = match self.submissions[which].body.clone() {
            Body::Input { text, .. } => (Said::User(text).into(), Fate::Placed),
            Body::Write { entry, .. } if stale(entry.head) => {
                self.submissions[which].fate = Fate::Unanswered("Stale");
                return;
            }
            Body::Write { entry, here: true } => {
                let head = Some(here);
                (Entry { head, ..entry }, Fate::Done)
            }
            Body::Write { entry, .. } => (entry, Fate::Done),
            Body::Summary { cut, .. } if stale(Some(cut)) => {
                let said = Said::Nothing("compaction skipped");
                (said.into(), Fate::Unanswered("Stale"))
            }
            Body::Summary { text, cut } => {
                let said = Said::User(format!("summary {text}"));
                let head = Some(cut);
                (
                    Entry {
                        head,
                        ..said.into()
                    },
                    Fate::Done,
                )
            }
        };
        self.says(at, entry);
        self.submissions[which].fate = fate;
    }

    pub fn place_writes(&mut self, at: usize) {
        let inputs = self.inputs(at);
        let writes = self.conversations[at].inbox.clone().into_iter();
        let writes: Vec<_> = writes.filter(|which| !inputs.contains(which)).collect();
        writes.into_iter().for_each(|which| self.place(at, which));
    }

    /// Queued inputs that steer, or that do not.
    pub fn queued(&self, at: usize, steer: bool) -> Vec<usize> {
        let mut found = self.inputs(at);
        found.retain(|which| {
            let body = &self.submissions[*which].body;
            matches!(body, Body::Input { when, .. } if (*when == When::Steer) == steer)
        });
        if !self.conversations[at].all {
            found.truncate(1);
        }
        found
    }

    /// After a round: all writes, then steers, which join the run.
    pub fn after_tools(&mut self, at: usize) {
        self.place_writes(at);
        for which in self.queued(at, true) {
            self.place(at, which);
            self.run(at).inputs.push(which);
        }
    }

    /// After an answer: all writes, then steers, then follow-ups; what is placed runs.
    pub fn next_run(&mut self, at: usize) {
        self.place_writes(at);
        let steers = self.queued(at, true);
        let inputs = match steers.is_empty() {
            true => self.queued(at, false),
            false => steers,
        };
        self.start(at, inputs);
    }

    /// While idle the oldest input runs, with those that may run with it.
    pub fn start_idle(&mut self, at: usize) {
        self.place_writes(at);
        let oldest = self.inputs(at)[0];
        let steer = matches!(
            self.submissions[oldest].body,
            Body::Input {
                when: When::Steer,
                ..
            }
        );
        let inputs = self.queued(at, steer);
        self.start(at, inputs);
    }
}
