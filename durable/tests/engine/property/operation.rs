//! Random operations. They name things by position, so that any part of a sequence is a
//! sequence too: that is what lets a failing one shrink.

/// Numbers from a seed, the same on every machine (SplitMix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Less than `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        (self.next() % sides as u64) as usize
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }
}

/// What an input does while a run is going.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    Steer,
    FollowUp,
    Reject,
}

/// How a model's request ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Failing {
    Fatal,
    Retryable,
    Overflow,
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Well,
    WithError,
    /// It asks for the end of the run.
    Last,
}

/// One operation. `at` is a conversation, other numbers are entries, calls, submissions;
/// all of them modulo what there is.
#[derive(Clone, Debug)]
pub enum Op {
    Submit {
        at: usize,
        when: When,
    },
    /// A request id that was used before.
    Again {
        which: usize,
        as_write: bool,
    },
    Note {
        at: usize,
    },
    /// A write that begins the context, at itself or at an entry.
    Head {
        at: usize,
        from: Option<usize>,
    },
    /// A write that leaves an entry out, or replaces it.
    Edit {
        at: usize,
        target: usize,
        replace: bool,
    },
    /// The model answers.
    Answer {
        at: usize,
    },
    /// The model calls tools; whether each may run again.
    Calls {
        at: usize,
        safe: Vec<bool>,
    },
    Fail {
        at: usize,
        how: Failing,
    },
    EndCall {
        at: usize,
        end: End,
    },
    /// A summary is written, or fails.
    Summary {
        at: usize,
        failing: Option<Failing>,
    },
    Abort {
        at: usize,
        all: bool,
    },
    Withdraw {
        which: usize,
    },
    Fork {
        at: usize,
        entry: usize,
        own: bool,
    },
    Reset {
        at: usize,
        brief: bool,
    },
    Compact {
        at: usize,
    },
    /// The prompt's section changes.
    Prompt {
        text: usize,
    },
    /// Time passes, more than any retry waits for.
    Wait,
    /// The process ends at rest, cleanly or not.
    Crash {
        cleanly: bool,
    },
    /// The process ends while it is at this, after some turns of the runtime.
    During {
        op: Box<Op>,
        turns: usize,
    },
}

/// A sequence from a seed.
pub fn sequence(seed: u64, length: usize) -> Vec<Op> {
    let mut dice = Dice::new(seed);
    (0..length).map(|_| any(&mut dice)).collect()
}

fn any(dice: &mut Dice) -> Op {
    match dice.roll(100) {
        0..5 => Op::Crash {
            cleanly: dice.one_in(3),
        },
        5..13 => Op::During {
            op: Box::new(plain(dice)),
            turns: dice.roll(400),
        },
        _ => plain(dice),
    }
}

fn plain(dice: &mut Dice) -> Op {
    let at = dice.roll(64);
    match dice.roll(104) {
        0..22 => Op::Submit {
            at,
            when: [When::Steer, When::FollowUp, When::FollowUp, When::Reject][dice.roll(4)],
        },
        22..25 => Op::Again {
            which: dice.roll(1_000),
            as_write: dice.one_in(3),
        },
        25..29 => Op::Note { at },
        29..32 => Op::Head {
            at,
            from: (!dice.one_in(3)).then(|| dice.roll(1_000)),
        },
        32..35 => Op::Edit {
            at,
            target: dice.roll(1_000),
            replace: dice.one_in(2),
        },
        35..51 => Op::Answer { at },
        51..63 => Op::Calls {
            at,
            safe: (0..1 + dice.roll(3)).map(|_| !dice.one_in(3)).collect(),
        },
        63..67 => Op::Fail {
            at,
            how: [Failing::Fatal, Failing::Retryable, Failing::Overflow][dice.roll(3)],
        },
        67..83 => Op::EndCall {
            at,
            end: [End::Well, End::WithError, End::Last][dice.roll(3)],
        },
        83..87 => Op::Summary {
            at,
            failing: [None, None, Some(Failing::Fatal), Some(Failing::Retryable)][dice.roll(4)],
        },
        87..90 => Op::Abort {
            at,
            all: dice.one_in(2),
        },
        90..92 => Op::Withdraw {
            which: dice.roll(1_000),
        },
        92..94 => Op::Fork {
            at,
            entry: dice.roll(1_000),
            own: dice.one_in(3),
        },
        94..96 => Op::Reset {
            at,
            brief: dice.one_in(2),
        },
        96..100 => Op::Compact { at },
        100..102 => Op::Prompt { text: dice.roll(3) },
        _ => Op::Wait,
    }
}
