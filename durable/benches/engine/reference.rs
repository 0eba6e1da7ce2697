//! The raw reference: the same records with the same flushes, by hand on rusqlite.

use std::path::Path;

use mooring_durable::message::Message;
use rusqlite::{Connection, params};

use crate::turn::{ANSWER, CALLS, Turn, assistant, result, user};

const SCHEMA: &str = include_str!("../../migrations/0001_records.sql");

/// One conversation's place.
#[derive(Clone, Copy, Default)]
pub struct Place {
    conversation: i64,
    seq: i64,
    submission: i64,
    generation: i64,
    calls: i64,
}

/// A file, and the counters of its ids.
pub struct Reference {
    file: Connection,
    commit: i64,
    entry: i64,
    task: i64,
    submission: i64,
    at: i64,
}

fn json(message: &Message) -> String {
    serde_json::to_string(message).expect("plain data")
}

/// A checkpoint as the engine writes it, about as long.
fn checkpoint(submission: i64, phase: &str) -> String {
    format!(
        "{{\"run\":{{\"id\":{submission},\"conversation\":1,\"requesters\":[{{\"type\":\"local\",\"name\":\"anna\"}}],\"started_at\":1700000000000,\"turns\":1,\"tool_calls\":5,\"usage\":{{\"input\":10,\"cached\":0,\"output\":5}},\"active_ms\":0,\"model\":\"m\",\"state\":\"requesting\",\"note\":\"\"}},\"inputs\":[{submission}],\"autonomous\":false,\"phase\":{{\"at\":\"{phase}\"}},\"attempt\":1,\"uncounted\":0}}"
    )
}

impl Reference {
    pub fn open(path: &Path, conversations: i64) -> (Reference, Vec<Place>) {
        let file = Connection::open(path).expect("a new file");
        file.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -4096; PRAGMA foreign_keys = OFF;")
            .expect("pragmas");
        file.set_prepared_statement_cache_capacity(128);
        file.execute_batch(SCHEMA).expect("the schema");
        file.execute(
            "INSERT INTO session VALUES (1, 'x', 1, 0, 1, 1, 1, 1, 0)",
            [],
        )
        .expect("a session");
        let places = (1..=conversations)
            .map(|id| {
                file.execute(
                    "INSERT INTO conversation VALUES (?1, NULL, NULL, NULL, 0, 'title', '{}', 'm', 0, 0, 0, NULL)",
                    [id],
                )
                .expect("a conversation");
                Place { conversation: id, ..Place::default() }
            })
            .collect();
        (
            Reference {
                file,
                commit: 0,
                entry: 0,
                task: 0,
                submission: 0,
                at: 1_700_000_000_000,
            },
            places,
        )
    }

    /// Commits per turn.
    pub const COMMITS: usize = 7;

    /// One turn of each conversation; those that are at the same commit share its flush.
    pub fn turns(&mut self, places: &mut [Place], turn: &Turn) {
        for step in 0..Self::COMMITS {
            self.file.execute_batch("BEGIN IMMEDIATE").expect("begin");
            for place in places.iter_mut() {
                self.step(step, place, turn);
            }
            self.file.execute_batch("COMMIT").expect("commit");
        }
    }

    fn run(&self, sql: &str, binds: impl rusqlite::Params) {
        self.file
            .prepare_cached(sql)
            .expect("SQL")
            .execute(binds)
            .expect("a row");
    }

    fn entry(
        &mut self,
        place: &mut Place,
        kind: &str,
        message: &Message,
        writer: Option<i64>,
        submission: Option<i64>,
    ) {
        self.entry += 1;
        place.seq += 1;
        self.run(
            "INSERT INTO entry VALUES (?, ?, ?, ?, '', ?, NULL, NULL, NULL, ?, ?, ?, ?)",
            params![
                self.entry,
                place.conversation,
                place.seq,
                kind,
                json(message),
                writer,
                submission,
                self.at,
                self.commit
            ],
        );
    }

    fn new_task(
        &mut self,
        place: &Place,
        owner: Option<i64>,
        kind: &str,
        input: Option<&str>,
        check: Option<&str>,
    ) -> i64 {
        self.task += 1;
        self.run(
            "INSERT INTO task VALUES (?, ?, ?, ?, 1, 0, 'pending', 0, NULL, NULL, ?, ?, NULL, ?, NULL, ?, ?)",
            params![self.task, place.conversation, owner, kind, input, check, self.at, self.commit, self.commit],
        );
        self.task
    }

    fn move_task(&self, id: i64, status: &str, check: Option<&str>, outcome: Option<&str>) {
        self.run(
            "UPDATE task SET status = ?, checkpoint = ?, outcome = ?, changed_commit = ? WHERE id = ?",
            params![status, check, outcome, self.commit, id],
        );
    }

    fn open_work(&self, place: &Place, what: i64, id: i64, wake: Option<i64>) {
        self.run(
            "INSERT INTO open_work VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET wake_at = excluded.wake_at",
            params![place.conversation, what, id, wake],
        );
    }

    fn close_work(&self, place: &Place, what: i64, id: i64) {
        self.run(
            "DELETE FROM open_work WHERE conversation = ? AND what = ? AND id = ?",
            params![place.conversation, what, id],
        );
    }

    fn step(&mut self, step: usize, place: &mut Place, turn: &Turn) {
        self.commit += 1;
        self.run(
            "UPDATE session SET generation = 1, commit_no = ?, next_conversation = 1, next_entry = ?, next_task = ?, next_submission = ?",
            params![self.commit, self.entry + 1, self.task + 1, self.submission + 1],
        );
        match step {
            0 => {
                self.submission += 1;
                place.submission = self.submission;
                self.run(
                    "INSERT INTO submission VALUES (?, ?, 'input', NULL, '{\"type\":\"local\",\"name\":\"anna\"}', NULL, 'followUp', 0, NULL, 'placed', NULL, NULL, ?, NULL, ?, ?, NULL)",
                    params![self.submission, place.conversation, self.entry + 1, self.at, self.commit],
                );
                self.run(
                    "UPDATE conversation SET last_at = ? WHERE id = ?",
                    params![self.at, place.conversation],
                );
                let submission = self.submission;
                self.entry(place, "pi.user", &user(turn), None, Some(submission));
                place.generation = self.new_task(
                    place,
                    None,
                    "pi.generation",
                    None,
                    Some(&checkpoint(submission, "prepare")),
                );
                self.open_work(place, 0, place.generation, Some(0));
                self.open_work(place, 3, submission, None);
            }
            1 | 5 => {
                self.run(
                    "INSERT INTO attempt VALUES (?, 1, 'm', 'bench/1', zeroblob(32), zeroblob(32), ?, zeroblob(32), 100, 0, ?, NULL, NULL, NULL)",
                    params![place.generation, self.entry, self.at],
                );
                self.move_task(
                    place.generation,
                    "running",
                    Some(&checkpoint(place.submission, "request")),
                    None,
                );
                self.open_work(place, 0, place.generation, Some(0));
            }
            2 => {
                let generation = place.generation;
                self.end_attempt(place, "tools");
                self.entry(
                    place,
                    "pi.assistant",
                    &assistant(turn),
                    Some(generation),
                    None,
                );
                let origin = format!(
                    "{{\"entry\":{},\"run\":{},\"requesters\":[{{\"type\":\"local\",\"name\":\"anna\"}}],\"autonomous\":false}}",
                    self.entry, place.submission
                );
                for ordinal in 0..CALLS {
                    let task =
                        self.new_task(place, Some(generation), "pi.tool", Some(&origin), None);
                    if ordinal == 0 {
                        place.calls = task;
                    }
                    self.run(
                        "INSERT INTO call VALUES (?, ?, ?, ?, ?, 'look', NULL, NULL, NULL, NULL, NULL, 'proposed', '', 0, NULL, NULL, 1, 0)",
                        params![task, place.conversation, generation, ordinal as i64, format!("call-{ordinal}")],
                    );
                    self.open_work(place, 1, task, None);
                }
                self.move_task(
                    generation,
                    "running",
                    Some(&checkpoint(place.submission, "tools")),
                    None,
                );
                self.open_work(place, 0, generation, Some(0));
            }
            3 => {
                for task in place.calls..place.calls + CALLS as i64 {
                    self.run(
                        "UPDATE call SET hash = zeroblob(32), replay = 'safe', state = 'running', started_at = ? WHERE task = ?",
                        params![self.at, task],
                    );
                    self.move_task(task, "running", None, None);
                }
                self.move_task(
                    place.generation,
                    "running",
                    Some(&checkpoint(place.submission, "tools")),
                    None,
                );
                self.open_work(place, 0, place.generation, Some(0));
            }
            4 => {
                for ordinal in 0..CALLS {
                    let task = place.calls + ordinal as i64;
                    self.entry(
                        place,
                        "pi.tool-result",
                        &result(turn, ordinal),
                        Some(task),
                        None,
                    );
                    self.run(
                        "UPDATE call SET state = 'done', ended_at = ? WHERE task = ?",
                        params![self.at, task],
                    );
                    self.move_task(task, "done", None, Some("{}"));
                    self.close_work(place, 1, task);
                }
                self.move_task(place.generation, "done", None, Some("\"tools\""));
                self.close_work(place, 0, place.generation);
                place.generation = self.new_task(
                    place,
                    None,
                    "pi.generation",
                    None,
                    Some(&checkpoint(place.submission, "prepare")),
                );
                self.open_work(place, 0, place.generation, Some(0));
            }
            _ => {
                let generation = place.generation;
                self.end_attempt(place, "answer");
                let content = vec![mooring_durable::message::Part::text(&turn.answer[..ANSWER])];
                self.entry(
                    place,
                    "pi.assistant",
                    &Message::Assistant { content },
                    Some(generation),
                    None,
                );
                self.move_task(generation, "done", None, Some("\"answered\""));
                self.run(
                    "UPDATE submission SET state = 'done', answer = ?, settled_commit = ? WHERE id = ?",
                    params![self.entry, self.commit, place.submission],
                );
                self.close_work(place, 0, generation);
                self.close_work(place, 3, place.submission);
            }
        }
    }

    fn end_attempt(&self, place: &Place, word: &str) {
        self.run(
            "UPDATE attempt SET ended_at = ?, ended = ?, usage = '{\"input\":10,\"cached\":0,\"output\":5}' WHERE task = ? AND attempt = 1",
            params![self.at, word, place.generation],
        );
    }
}
