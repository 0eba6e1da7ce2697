//! The rules of conversations in memory: what an operation comes to, commit by commit.
//!
//! It knows the contract and not the engine: histories are lists that forks copy, the
//! inbox is a list, and what follows by itself is looked for anew after each commit.

use super::{
    history::{Entry, Said},
    operation::{End, Failing, When},
};

/// Most attempts of one generation, and most times that one may be lost.
pub const ATTEMPTS: u32 = 5;
pub const LOSSES: u32 = 3;

/// What becomes of a submission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    Queued,
    Placed,
    Done,
    Unanswered(&'static str),
}

/// A submission, named by its request id.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    pub key: String,
    pub conversation: usize,
    pub body: Body,
    pub fate: Fate,
}

/// What is handed in.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Input {
        text: String,
        when: When,
    },
    Write {
        entry: Entry,
        here: bool,
    },
    /// A summary of what stands before a place.
    Summary {
        text: String,
        cut: usize,
    },
}

/// What goes on by an operation of the test.
#[derive(Clone, Debug)]
pub enum Act {
    Submit {
        at: usize,
        key: String,
        text: String,
        when: When,
    },
    Write {
        at: usize,
        key: String,
        entry: Entry,
        here: bool,
    },
    Answer {
        at: usize,
        text: String,
    },
    Call {
        at: usize,
        calls: Vec<(String, bool)>,
    },
    Fail {
        at: usize,
        how: Failing,
    },
    EndCall {
        at: usize,
        call: String,
        end: End,
        text: String,
    },
    Summary {
        at: usize,
        text: String,
        failing: Option<Failing>,
    },
    Abort {
        at: usize,
        all: bool,
    },
    Withdraw {
        which: usize,
        key: String,
    },
    Fork {
        at: usize,
        through: usize,
        own: bool,
        all: bool,
    },
    Reset {
        at: usize,
        key: String,
        brief: Option<String>,
    },
    Compact {
        at: usize,
    },
    Wait,
}

/// A call of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: String,
    pub safe: bool,
    pub state: CallState,
    pub last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CallState {
    Proposed,
    Running,
    Ended,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    Prepare,
    Request {
        words: Vec<String>,
        losses: u32,
        lost: bool,
    },
    Retry,
    Compact {
        overflow: bool,
    },
    Tools {
        calls: Vec<Call>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub inputs: Vec<usize>,
    pub phase: Phase,
    pub attempts: u32,
    pub compacted: bool,
    pub ending: Option<&'static str>,
}

/// A summary that is being written.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Where the context will begin: what the engine chose.
    pub cut: Option<usize>,
    /// Its request is on its way, and not waiting for another attempt.
    pub asked: bool,
    pub attempts: u32,
    pub losses: u32,
    pub lost: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    pub history: Vec<Entry>,
    /// Entries from before its fork, which a side chat does not show.
    pub inherited: usize,
    pub own: bool,
    /// A boundary places all steers and follow-ups, not the oldest.
    pub all: bool,
    pub inbox: Vec<usize>,
    pub run: Option<Run>,
    pub summary: Option<Summary>,
}

impl Conversation {
    pub fn new(all: bool) -> Conversation {
        Conversation {
            history: Vec::new(),
            inherited: 0,
            own: false,
            all,
            inbox: Vec::new(),
            run: None,
            summary: None,
        }
    }
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    pub conversations: Vec<Conversation>,
    pub submissions: Vec<Submission>,
    pub section: String,
}

impl World {
    /// The states that an operation leads to, one for each commit, the last one at rest.
    /// Where the engine has a choice that it does not have to explain, there are several.
    pub fn after(&self, act: &Act) -> Vec<Vec<World>> {
        let mut ways = vec![self.clone()];
        match act {
            Act::Compact { at } if self.conversations[*at].summary.is_none() => {
                ways.push(self.clone());
                ways[0].begin_summary(*at);
                ways[1].says(*at, Said::Nothing("compaction skipped"));
            }
            Act::Fail {
                at,
                how: Failing::Overflow,
            } => {
                ways.push(self.clone());
                ways[0].overflow(*at, true);
                ways[1].overflow(*at, false);
            }
            act => ways[0].act(act),
        }
        ways.into_iter().map(World::rest).collect()
    }

    /// What follows by itself, commit by commit.
    fn rest(self) -> Vec<World> {
        let mut states = vec![self];
        while let Some(next) = states.last().and_then(World::follow) {
            states.push(next);
        }
        states
    }

    /// At rest after the process ended in this state and another one began.
    pub fn crashed(&self) -> World {
        let mut world = self.clone();
        for conversation in &mut world.conversations {
            if let Some(summary) = &mut conversation.summary {
                summary.lost = summary.asked;
            }
            let Some(run) = &mut conversation.run else {
                continue;
            };
            match &mut run.phase {
                _ if run.ending.is_some() => {}
                Phase::Request { lost, .. } => *lost = true,
                Phase::Tools { calls } => {
                    let unknown = |call: &&mut Call| call.state == CallState::Running && !call.safe;
                    for call in calls.iter_mut().filter(unknown) {
                        call.state = CallState::Ended;
                        let (call, end) = (call.id.clone(), "interrupted".into());
                        conversation.history.push(Said::Result { call, end }.into());
                    }
                }
                _ => {}
            }
        }
        world.rest().pop().unwrap()
    }

    fn act(&mut self, act: &Act) {
        match act.clone() {
            Act::Submit {
                at,
                key,
                text,
                when,
            } => {
                if self.conversations[at].run.is_some() && when == When::Reject {
                    return;
                }
                self.queue(at, key, Body::Input { text, when });
                if self.conversations[at].run.is_none() {
                    self.start_idle(at);
                }
            }
            Act::Write {
                at,
                key,
                entry,
                here,
            } => self.write(at, key, entry, here),
            Act::Answer { at, text } => {
                self.says(at, Said::Answer(text));
                self.answered(at);
            }
            Act::Call { at, calls } => {
                let ids = calls.iter().map(|(id, _)| id.clone()).collect();
                self.says(at, Said::Calls(ids));
                let call = |(id, safe)| Call {
                    id,
                    safe,
                    state: CallState::Proposed,
                    last: false,
                };
                let calls = calls.into_iter().map(call).collect();
                self.run(at).phase = Phase::Tools { calls };
            }
            Act::Fail { at, how } => {
                self.fails(at);
                match how {
                    Failing::Retryable if self.run(at).attempts < ATTEMPTS => {
                        self.run(at).phase = Phase::Retry;
                    }
                    _ => self.end(at, Fate::Unanswered("ModelError")),
                }
            }
            Act::EndCall {
                at,
                call,
                end,
                text,
            } => self.end_call(at, &call, end, text),
            Act::Summary { at, text, failing } => self.summarized(at, text, failing),
            Act::Abort { at, all } => {
                if all {
                    let inputs: Vec<_> = self.inputs(at);
                    inputs.into_iter().for_each(|which| self.withdraw(which));
                    self.mark(at, "Aborted");
                    self.stop_summary(at);
                } else {
                    self.mark(at, "Aborted");
                }
            }
            Act::Withdraw { which, .. } => self.withdraw(which),
            Act::Fork {
                at,
                through,
                own,
                all,
            } => {
                let history = self.conversations[at].history[..=through].to_vec();
                self.conversations.push(Conversation {
                    inherited: history.len(),
                    history,
                    own,
                    ..Conversation::new(all)
                });
                self.says(self.conversations.len() - 1, Said::System("a fork".into()));
            }
            Act::Reset { at, key, brief } => {
                self.mark(at, "Reset");
                self.stop_summary(at);
                let said = brief.map_or(Said::Nothing("pi.reset"), Said::User);
                self.write(at, key, said.into(), true);
            }
            Act::Wait => {
                for conversation in &mut self.conversations {
                    if let Some(run) = &mut conversation.run
                        && run.phase == Phase::Retry
                    {
                        run.phase = Phase::Prepare;
                    }
                    if let Some(summary) = &mut conversation.summary
                        && !summary.asked
                    {
                        summary.asked = true;
                        summary.attempts += 1;
                        summary.losses = 0;
                    }
                }
            }
            Act::Compact { .. } => {}
        }
    }

    /// One commit that follows by itself.
    fn follow(&self) -> Option<World> {
        for (at, conversation) in self.conversations.iter().enumerate() {
            let mut next = self.clone();
            if let Some(summary) = &mut next.conversations[at].summary
                && summary.lost
            {
                summary.lost = false;
                summary.losses += 1;
                if summary.losses > LOSSES {
                    next.no_summary(at, "compaction failed");
                }
                return Some(next);
            }
            let Some(run) = &conversation.run else {
                continue;
            };
            if let Some(reason) = run.ending {
                next.ended(at, reason);
                return Some(next);
            }
            match &run.phase {
                Phase::Prepare => next.prepare(at),
                Phase::Request { lost: true, .. } => next.lost(at),
                Phase::Compact { .. } if conversation.summary.is_none() => next.prepare(at),
                Phase::Tools { calls }
                    if calls.iter().all(|call| call.state == CallState::Ended) =>
                {
                    next.end_round(at);
                }
                Phase::Tools { calls }
                    if calls.iter().any(|call| call.state == CallState::Proposed) =>
                {
                    let Phase::Tools { calls } = &mut next.run(at).phase else {
                        unreachable!()
                    };
                    let proposed = calls
                        .iter_mut()
                        .filter(|call| call.state == CallState::Proposed);
                    proposed.for_each(|call| call.state = CallState::Running);
                }
                _ => continue,
            }
            return Some(next);
        }
        None
    }
}
