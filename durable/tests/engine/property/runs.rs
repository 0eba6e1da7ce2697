//! Runs and compactions by the rules.

use super::{
    history::{self, Said},
    operation::{End, Failing},
    rules::{ATTEMPTS, Body, CallState, Fate, LOSSES, Phase, Run, Summary, World},
};

impl World {
    pub fn run(&mut self, at: usize) -> &mut Run {
        self.conversations[at].run.as_mut().unwrap()
    }

    pub fn start(&mut self, at: usize, inputs: Vec<usize>) {
        if inputs.is_empty() {
            return;
        }
        inputs.iter().for_each(|which| self.place(at, *which));
        self.conversations[at].run = Some(Run {
            inputs,
            phase: Phase::Prepare,
            attempts: 0,
            compacted: false,
            ending: None,
        });
    }

    pub fn prepare(&mut self, at: usize) {
        if let Some(said) = history::section(&self.conversations[at].history, &self.section) {
            self.says(at, said);
        }
        let words = history::request(&self.conversations[at].history);
        let run = self.run(at);
        run.attempts += 1;
        run.phase = Phase::Request {
            words,
            losses: 0,
            lost: false,
        };
    }

    pub fn lost(&mut self, at: usize) {
        let Phase::Request { losses, lost, .. } = &mut self.run(at).phase else {
            unreachable!()
        };
        *lost = false;
        *losses += 1;
        if *losses > LOSSES {
            self.end(at, Fate::Unanswered("ModelError"));
        }
    }

    /// The run is over; its inputs have this fate.
    pub fn end(&mut self, at: usize, fate: Fate) {
        let run = self.conversations[at].run.take().unwrap();
        for which in run.inputs {
            self.submissions[which].fate = fate;
        }
    }

    pub fn answered(&mut self, at: usize) {
        self.end(at, Fate::Done);
        self.next_run(at);
    }

    pub fn end_call(&mut self, at: usize, id: &str, end: End, text: String) {
        let Phase::Tools { calls } = &mut self.run(at).phase else {
            unreachable!()
        };
        let call = calls.iter_mut().find(|call| call.id == id).unwrap();
        call.state = CallState::Ended;
        call.last = end == End::Last;
        let end = match end {
            End::WithError => format!("!{text}"),
            End::Well | End::Last => text,
        };
        let over = calls.iter().all(|call| call.state == CallState::Ended);
        let call = id.to_owned();
        self.says(at, Said::Result { call, end });
        if over {
            self.end_round(at);
        }
    }

    pub fn end_round(&mut self, at: usize) {
        let Phase::Tools { calls } = &self.run(at).phase else {
            unreachable!()
        };
        if calls.iter().all(|call| call.last) {
            return self.answered(at);
        }
        let run = self.run(at);
        (run.phase, run.attempts, run.compacted) = (Phase::Prepare, 0, false);
        self.after_tools(at);
    }

    pub fn mark(&mut self, at: usize, reason: &'static str) {
        if let Some(run) = &mut self.conversations[at].run {
            run.ending = Some(reason);
        }
    }

    /// A marked run ends: what it did, bottom-up, then its inputs.
    pub fn ended(&mut self, at: usize, reason: &'static str) {
        match self.run(at).phase.clone() {
            Phase::Tools { calls } => {
                for call in calls
                    .into_iter()
                    .filter(|call| call.state != CallState::Ended)
                {
                    let (call, end) = (call.id, "aborted".into());
                    self.says(at, Said::Result { call, end });
                }
            }
            Phase::Compact { .. } => self.stop_summary(at),
            _ => {}
        }
        self.end(at, Fate::Unanswered(reason));
        if reason == "Reset" {
            self.next_run(at);
        }
    }

    pub fn begin_summary(&mut self, at: usize) {
        self.conversations[at].summary = Some(Summary {
            cut: None,
            asked: true,
            attempts: 1,
            losses: 0,
            lost: false,
        });
    }

    /// The request was too long. `cuts`: there is something to cut off.
    pub fn overflow(&mut self, at: usize, cuts: bool) {
        self.fails(at);
        let going = self.conversations[at].summary.is_some();
        let run = self.run(at);
        if run.compacted {
            return self.end(at, Fate::Unanswered("ModelError"));
        }
        run.compacted = true;
        if going || cuts {
            // The next request is the same attempt.
            run.attempts -= 1;
            run.phase = Phase::Compact { overflow: true };
            if !going {
                self.begin_summary(at);
            }
        } else {
            self.says(at, Said::Nothing("compaction skipped"));
            self.end(at, Fate::Unanswered("ModelError"));
        }
    }

    pub fn stop_summary(&mut self, at: usize) {
        if self.conversations[at].summary.is_some() {
            self.no_summary(at, "compaction aborted");
        }
    }

    /// A compaction ends without a summary.
    pub fn no_summary(&mut self, at: usize, how: &'static str) {
        self.conversations[at].summary = None;
        self.says(at, Said::Nothing(how));
        let waits = self.conversations[at]
            .run
            .as_mut()
            .filter(|run| run.ending.is_none());
        match waits.map(|run| run.phase.clone()) {
            Some(Phase::Compact { overflow: true }) => {
                self.end(at, Fate::Unanswered("ModelError"));
            }
            Some(Phase::Compact { .. }) => self.run(at).phase = Phase::Prepare,
            _ => {}
        }
    }

    pub fn summarized(&mut self, at: usize, text: String, failing: Option<Failing>) {
        let summary = self.conversations[at].summary.as_mut().unwrap();
        match failing {
            Some(Failing::Retryable) if summary.attempts < ATTEMPTS => summary.asked = false,
            Some(_) => self.no_summary(at, "compaction failed"),
            None => {
                let cut = summary.cut.expect("the engine has chosen");
                self.conversations[at].summary = None;
                self.queue(at, String::new(), Body::Summary { text, cut });
                match &mut self.conversations[at].run {
                    None => self.place_writes(at),
                    Some(run) if matches!(run.phase, Phase::Compact { .. }) => {
                        run.phase = Phase::Prepare;
                        self.place(at, self.submissions.len() - 1);
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
