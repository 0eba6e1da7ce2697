//! Whether a group waits for more members.
//!
//! Those whose commits stood together come back, a little apart. Without a wait the first
//! of them would have a flush of its own and the others the next one, and so on for ever:
//! twice as many flushes as are needed. So a group waits for the conversations that were
//! in the last two, for no longer than a part of what a flush takes.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::id::ConversationId;

/// The longest wait.
const LONGEST: Duration = Duration::from_millis(3);
/// How often it looks meanwhile.
const LOOKS: u32 = 8;

/// What the last groups were.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// Whose commits were in the last two.
    last: [HashSet<ConversationId>; 2],
    /// What the last one took, its flush included.
    took: Duration,
}

impl Gather {
    /// A group of these conversations took so long.
    pub fn flushed(&mut self, members: HashSet<ConversationId>, took: Duration) {
        let [_, newer] = std::mem::take(&mut self.last);
        self.last = [newer, members];
        self.took = took;
    }

    /// How many are expected.
    fn expected(&self) -> usize {
        self.last[0].union(&self.last[1]).count()
    }

    /// Waits a little for more than the `members` that there are, as long as that is worth
    /// while. `look` takes what has come meanwhile and says how many there are; `None`
    /// ends the wait.
    pub fn wait(&self, members: usize, mut look: impl FnMut() -> Option<usize>) {
        let expected = self.expected();
        if members == 0 || members >= expected {
            return;
        }
        let most = (self.took / 2).min(LONGEST);
        let until = Instant::now() + most;
        // Asleep, because those that are waited for need the processor.
        while Instant::now() < until {
            std::thread::sleep(most / LOOKS);
            if look().is_none_or(|members| members >= expected) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After groups of the conversations from one id to before another.
    fn gather(groups: &[(i64, i64)]) -> Gather {
        let mut gather = Gather::default();
        for &(first, end) in groups {
            let members = (first..end).map(ConversationId).collect();
            gather.flushed(members, Duration::from_millis(1));
        }
        gather
    }

    #[test]
    fn those_of_the_last_two_groups_are_expected() {
        for (groups, expected) in [
            (vec![], 0),
            (vec![(1, 2)], 1),
            (vec![(1, 2), (1, 2)], 1),
            (vec![(0, 16), (16, 32)], 32),
            (vec![(0, 32), (0, 32)], 32),
            (vec![(0, 32), (5, 6), (7, 8)], 2),
        ] {
            assert_eq!(gather(&groups).expected(), expected, "{groups:?}");
        }
    }

    #[test]
    fn a_group_waits_until_all_are_there_and_never_for_ever() {
        let gather = gather(&[(0, 2), (2, 4)]);
        let mut looks = 0;
        gather.wait(1, || {
            looks += 1;
            Some(looks + 1)
        });
        assert!(looks <= 3, "{looks}");
        // Nobody comes.
        gather.wait(1, || Some(1));
        // The line is to end.
        gather.wait(1, || None);
        for (members, why) in [(0, "nothing is asked for"), (4, "all are there")] {
            gather.wait(members, || unreachable!("{why}"));
        }
    }
}
