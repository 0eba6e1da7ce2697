//! What the demonstration claims, and what committed state and files say of it.

use mooring_wire::harness::{Call, Entry};

use crate::format;
use crate::text::one_line;

/// What a search prints before and after its half.
const HALVES: [&str; 2] = ["(half of it is searched)", "(and the other half)"];

/// How things stood at one moment.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// The harness's process.
    pub pid: u32,
    /// Counts the owners of the database.
    pub generation: u64,
    /// The subagent's conversation.
    pub child: i64,
    /// The subagent's calls.
    pub calls: Vec<Call>,
}

/// All that the checks are made of.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Just before the kill.
    pub before: Moment,
    /// When the next harness had read its database.
    pub after: Moment,
    /// For each place what its search noted in its file, in the end.
    pub notes: Vec<(&'static str, String)>,
    /// The conversation in the end.
    pub parent: Vec<Entry>,
    /// The subagent's conversation in the end.
    pub child: Vec<Entry>,
    /// The exact request of the conversation's last answer.
    pub parent_request: String,
    /// The exact request of the subagent's last answer.
    pub child_request: String,
    /// What the subagent was told meanwhile.
    pub told: &'static str,
}

/// One claim, and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Whether it does.
    pub holds: bool,
    /// For people.
    pub claim: String,
    /// What was found.
    pub seen: String,
}

impl Check {
    fn new(holds: bool, claim: impl Into<String>, seen: impl Into<String>) -> Check {
        Check {
            holds,
            claim: claim.into(),
            seen: seen.into(),
        }
    }
}

/// The call that searches `place`.
pub fn search<'a>(calls: &'a [Call], place: &str) -> Option<&'a Call> {
    let word = format!("search.sh {place}");
    calls.iter().find(|call| call.summary.ends_with(&word))
}

impl Evidence {
    /// All claims, in the order of what happened.
    pub fn checks(&self) -> Vec<Check> {
        let mut checks = vec![self.killed()];
        checks.extend(self.notes.iter().map(|(place, notes)| {
            let before = search(&self.before.calls, place).cloned();
            match before.unwrap_or_default() {
                call if call.state == "done" => self.kept(place, &call, notes),
                call => self.continued(place, &call, notes),
            }
        }));
        checks.extend([
            self.alone(),
            self.steered(),
            self.compacted(),
            self.answered(),
        ]);
        checks
    }

    fn killed(&self) -> Check {
        let (before, after) = (&self.before, &self.after);
        Check::new(
            before.pid != after.pid && after.generation > before.generation,
            "The harness was killed, and another one took over the same database.",
            format!(
                "process {}, then {}; owner {} of the database, then {}",
                before.pid, after.pid, before.generation, after.generation
            ),
        )
    }

    fn kept(&self, place: &str, before: &Call, notes: &str) -> Check {
        let after = search(&self.after.calls, place)
            .cloned()
            .unwrap_or_default();
        let same = after == *before;
        let result = self.result(before.task);
        let mentions = result.map_or(0, |entry| entry.text.lines().count());
        Check::new(
            same && once(notes) && mentions > 0,
            format!(
                "The search of {place} had finished: its result was kept, and it did not run again."
            ),
            format!(
                "{} before and after the kill; its result has {}; its file: {}",
                stand(before, &after),
                format::count(mentions as u64, "line"),
                one_line(notes, 60)
            ),
        )
    }

    fn continued(&self, place: &str, before: &Call, notes: &str) -> Check {
        let after = search(&self.after.calls, place)
            .cloned()
            .unwrap_or_default();
        let same = (after.task, after.started_ms) == (before.task, before.started_ms);
        let text = self
            .result(before.task)
            .map(|entry| entry.text.as_str())
            .unwrap_or_default();
        let halves = HALVES.map(|half| text.matches(half).count());
        Check::new(
            same && before.state == "running" && once(notes) && halves == [1, 1],
            format!(
                "The search of {place} had not: the same one was continued, from the middle, and not begun again."
            ),
            format!(
                "{}; its result has each half {}; its file: {}",
                stand(before, &after),
                match halves {
                    [1, 1] => "once".to_owned(),
                    [first, second] => format!("{first} and {second} times"),
                },
                one_line(notes, 60)
            ),
        )
    }

    fn result(&self, task: i64) -> Option<&Entry> {
        self.child
            .iter()
            .find(|entry| entry.kind == "pi.tool-result" && entry.task == task)
    }

    fn alone(&self) -> Check {
        let results = of_kind(&self.child, "pi.tool-result");
        let known = results
            .iter()
            .filter(|(_, entry)| self.before.calls.iter().any(|call| call.task == entry.task))
            .count();
        let wanted = self.notes.len();
        Check::new(
            (results.len(), known, self.before.calls.len()) == (wanted, wanted, wanted),
            "There were these searches and no others.",
            format!(
                "{} results in the subagent's conversation, {known} of them of the calls from before the kill",
                results.len()
            ),
        )
    }

    fn steered(&self) -> Check {
        let told = of_kind(&self.child, "pi.user")
            .into_iter()
            .find(|(_, entry)| entry.text == self.told)
            .map(|(at, _)| at);
        let results = of_kind(&self.child, "pi.tool-result");
        let last_result = results.last().map(|(at, _)| *at);
        let answer = of_kind(&self.child, "pi.assistant")
            .last()
            .map(|(at, _)| *at);
        let placed = last_result < told && told < answer;
        let asked = self.child_request.contains(self.told);
        let same = self.before.child == self.after.child && self.after.child != 0;
        Check::new(
            placed && asked && same,
            "The subagent is the same one, and what it was told before the kill came to it after its searches.",
            format!(
                "conversation {}, then {}; the message stands {}; the request of its answer {} it",
                self.before.child,
                self.after.child,
                if placed {
                    "between results and answer"
                } else {
                    "elsewhere or nowhere"
                },
                if asked { "has" } else { "does not have" },
            ),
        )
    }

    fn compacted(&self) -> Check {
        let made = of_kind(&self.parent, "pi.compaction");
        let outcome = made.last().map_or("none", |(_, entry)| {
            if entry.json.contains(r#""outcome":"compacted""#) {
                "compacted"
            } else {
                "not compacted"
            }
        });
        // What was read at the beginning, by a line of it.
        let read = of_kind(&self.parent, "pi.tool-result")
            .first()
            .and_then(|(_, entry)| entry.text.lines().max_by_key(|line| line.len()))
            .unwrap_or_default();
        let sees_summary = self.parent_request.contains("was compacted");
        let sees_read = self.parent_request.contains(read);
        Check::new(
            outcome == "compacted" && sees_summary && !read.is_empty() && !sees_read,
            "The conversation was compacted: the model was last sent a summary of its beginning, and the beginning itself is still there to be read.",
            format!(
                "{outcome}; the last request {} the summary and {} the file that was read first, which {} in the transcript",
                if sees_summary { "has" } else { "does not have" },
                if sees_read { "has" } else { "does not have" },
                if read.is_empty() { "is not" } else { "stands" },
            ),
        )
    }

    fn answered(&self) -> Check {
        let text = |entries: &[Entry]| {
            let last = entries.last().filter(|entry| entry.kind == "pi.assistant");
            last.map(|entry| entry.text.clone()).unwrap_or_default()
        };
        let (answer, found) = (text(&self.parent), text(&self.child));
        let handed_on = of_kind(&self.parent, "pi.tool-result")
            .iter()
            .any(|(_, entry)| !found.is_empty() && entry.text == found);
        Check::new(
            handed_on && !answer.is_empty(),
            "The subagent's answer came to the conversation that asked, and that was answered.",
            match answer.as_str() {
                "" => "there is no answer".to_owned(),
                answer => one_line(answer, 120),
            },
        )
    }
}

/// Whether a search began and ended once.
fn once(notes: &str) -> bool {
    notes == "began\nended\n"
}

/// A call before and after the kill.
fn stand(before: &Call, after: &Call) -> String {
    let one = |call: &Call| match call.ended_ms {
        _ if call.task == 0 => "no such call".to_owned(),
        0 => format!("task {}, {}", call.task, one_line(&call.state, 20)),
        end => format!("task {}, ended at {}", call.task, clock(end)),
    };
    match (one(before), one(after)) {
        (before, after) if before == after => before,
        (before, after) => format!("{before}, then {after}"),
    }
}

/// A time of day in UTC, with its milliseconds.
fn clock(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    time.strftime("%H:%M:%S%.3f").to_string()
}

fn of_kind<'a>(entries: &'a [Entry], kind: &str) -> Vec<(usize, &'a Entry)> {
    entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.kind == kind)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TOLD: &str = "Files alone will do.";

    fn call(task: i64, place: &str, state: &str, ended_ms: i64) -> Call {
        Call {
            task,
            summary: format!("./search.sh {place}"),
            state: state.into(),
            started_ms: 1,
            ended_ms,
            ..Call::default()
        }
    }

    fn entry(kind: &str, task: i64, text: &str) -> Entry {
        Entry {
            kind: kind.into(),
            task,
            text: text.into(),
            ..Entry::default()
        }
    }

    /// A demonstration in which all went well.
    fn whole() -> Evidence {
        let calls = vec![
            call(11, "src", "done", 5),
            call(12, "docs", "done", 6),
            call(13, "tests", "running", 0),
        ];
        let moment = |pid, generation| Moment {
            pid,
            generation,
            child: 9,
            calls: calls.clone(),
        };
        let mut compaction = entry("pi.compaction", 0, "");
        compaction.json = r#"{"data":{"outcome":"compacted"}}"#.into();
        Evidence {
            before: moment(100, 1),
            after: moment(200, 2),
            notes: ["src", "docs", "tests"]
                .map(|place| (place, "began\nended\n".to_owned()))
                .to_vec(),
            parent: vec![
                entry("pi.assistant", 1, "I read."),
                entry("pi.tool-result", 2, "A ferry."),
                entry("pi.assistant", 3, "A subagent."),
                entry("pi.tool-result", 4, "three files"),
                compaction,
                entry("pi.assistant", 5, "They can go."),
            ],
            child: vec![
                entry("pi.user", 0, "Search"),
                entry("pi.assistant", 10, "Three."),
                entry("pi.tool-result", 11, "a: legacy_login"),
                entry("pi.tool-result", 12, "b: legacy_login"),
                entry("pi.tool-result", 13, &HALVES.join("\n")),
                entry("pi.user", 0, TOLD),
                entry("pi.assistant", 14, "three files"),
            ],
            parent_request: "was compacted".into(),
            child_request: TOLD.into(),
            told: TOLD,
        }
    }

    fn broken(evidence: &Evidence) -> Vec<usize> {
        let checks = evidence.checks();
        (0..checks.len()).filter(|at| !checks[*at].holds).collect()
    }

    #[test]
    fn all_claims_hold_where_all_went_well() {
        assert_eq!(whole().checks().len(), 8);
        assert_eq!(broken(&whole()), Vec::<usize>::new());
    }

    #[test]
    fn whatever_differs_breaks_its_claim() {
        type Change = fn(&mut Evidence);
        let rows: [(usize, Change); 16] = [
            (0, |e| e.after.pid = 100),
            (0, |e| e.after.generation = 1),
            (1, |e| e.notes[0].1 = "began\nbegan\nended\nended\n".into()),
            (1, |e| e.after.calls[0].ended_ms = 99),
            (1, |e| e.child[2].text.clear()),
            (2, |e| e.notes[1].1 = "began\n".into()),
            (2, |e| e.after.calls[1].state = "running".into()),
            (3, |e| e.notes[2].1 = "began\nbegan\nended\n".into()),
            (3, |e| e.after.calls[2].started_ms = 7),
            (3, |e| e.child[4].text.push_str(HALVES[0])),
            (4, |e| {
                e.child.insert(5, entry("pi.tool-result", 99, "one more"));
            }),
            (5, |e| {
                e.child.remove(5);
            }),
            (5, |e| e.child_request.clear()),
            (5, |e| e.after.child = 8),
            (6, |e| e.parent_request.push_str("A ferry.")),
            (7, |e| {
                e.parent.pop();
            }),
        ];
        for (at, (claim, change)) in rows.into_iter().enumerate() {
            let mut evidence = whole();
            change(&mut evidence);
            assert_eq!(broken(&evidence), [claim], "row {at}");
        }
    }
}
