//! The crash walk of a conversation in Discord: the harness is ended around every
//! commit, threads, cursors and the outbox among them, and is started again; what
//! people see, the transcript and what commands did are those of the undisturbed run.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use mooring_tests::project::{BOUND, Client, Project, program};
use mooring_wire::{
    harness as wire,
    shown::{Anchor, Card},
};
use serde_json::{Value, json};
use tonic::{Response, Status};

/// Walks that go on at the same time.
const AT_ONCE: usize = 4;
const CHANNEL: &str = "100";
const THREAD: &str = "1001";

const SPEC: &str = r#"
models: [{name: main, provider: rehearsal, model: script.yaml}]
members:
- {discordUserId: "7", role: User}
- {discordUserId: "8", role: Approver}
policy:
  tool: {"*": allow}
  bash: {"*": allow, "touch published*": ask}
  path: {"*": allow}
  externalDirectory: allow
"#;

const SCRIPT: &str = r#"
announce: false
turns:
- text: First this.
  calls: [{tool: bash, arguments: {command: "echo one >> side.txt"}}]
- calls: [{tool: bash, arguments: {command: "touch published; echo two >> side.txt"}}]
- text: Done.
- text: Again.
"#;

/// Discord as far as the outbox is concerned: messages by the key of the row that
/// made them, as a nonce or a search of history would find them.
#[derive(Default)]
struct Discord {
    sent: BTreeMap<String, u64>,
    /// What each message shows.
    shows: BTreeMap<u64, Value>,
    card: Option<Card>,
    /// Ends of runs that are shown.
    ended: usize,
}

impl Discord {
    /// Shows a row; the message.
    fn show(&mut self, row: &wire::OutboxRow) -> u64 {
        let content: Value = serde_json::from_str(&row.json).unwrap();
        let message = if row.kind.ends_with("-edit") {
            assert!(
                !row.target_message_id.is_empty(),
                "an edit of nothing: {row:?}"
            );
            row.target_message_id.parse().unwrap()
        } else if let Some(sent) = self.sent.get(&row.key) {
            // Only a row whose offer was committed may have been sent before.
            assert!(
                row.first_offered_ms > 0,
                "it is told as never offered: {row:?}"
            );
            *sent
        } else {
            let message = 5_000 + self.sent.len() as u64;
            self.sent.insert(row.key.clone(), message);
            message
        };
        match row.kind.as_str() {
            "card" => self.card = serde_json::from_value(content.clone()).ok(),
            "anchor-edit" => {
                let anchor: Anchor = serde_json::from_value(content.clone()).unwrap();
                let ended = matches!(anchor.state.as_str(), "answered" | "unanswered");
                let before = self.shows.get(&message).is_some_and(|shown| {
                    matches!(shown["state"].as_str(), Some("answered" | "unanswered"))
                });
                assert!(ended || !before, "after its end a run goes on: {row:?}");
                self.ended += usize::from(ended && !before);
            }
            _ => {}
        }
        self.shows.insert(message, content);
        message
    }
}

/// The bot's side, which goes on whatever happens to the harness.
struct Bot {
    project: Project,
    discord: Discord,
    /// How often the harness was lost.
    lost: usize,
}

impl Bot {
    fn new(variables: Vec<(String, String)>) -> Bot {
        let mut project = Project::with_spec(SPEC);
        std::fs::write(project.path("script.yaml"), SCRIPT).unwrap();
        project.program = program().with_file_name("mooring-failpoints");
        project.variables = variables;
        Bot {
            project,
            discord: Discord::default(),
            lost: 0,
        }
    }

    /// The harness has ended; [`Project::start`] tells the next one not to.
    async fn again(&mut self) {
        self.lost += 1;
        assert!(self.lost < 50, "it is lost again and again");
        let begun = Instant::now();
        while !self.project.harnesses().is_empty() && self.project.running().await.is_none() {
            assert!(begun.elapsed() < BOUND);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Calls until there is an answer.
    async fn call<T>(
        &mut self,
        mut method: impl AsyncFnMut(Client) -> Result<Response<T>, Status>,
    ) -> T {
        loop {
            let client = self.project.client().await;
            match method(client).await {
                Ok(answer) => return answer.into_inner(),
                Err(status) => {
                    let code = mooring_wire::code::code(&status);
                    assert!(
                        matches!(code, None | Some("restarting")),
                        "refused: {status:?}"
                    );
                    self.again().await;
                }
            }
        }
    }

    /// Delivers the outbox until `done`.
    async fn deliver(&mut self, done: impl Fn(&Discord) -> bool) {
        let begun = Instant::now();
        while !done(&self.discord) {
            let mut client = self.project.client().await;
            let Ok(rows) = client.outbox(wire::OutboxRequest {}).await else {
                self.again().await;
                continue;
            };
            let mut rows = rows.into_inner();
            while !done(&self.discord) {
                assert!(begun.elapsed() < BOUND * 2, "nothing more is offered");
                match tokio::time::timeout(BOUND, rows.message()).await {
                    Ok(Ok(Some(row))) => {
                        let message = self.discord.show(&row);
                        let ack = wire::AckRequest {
                            key: row.key,
                            message_id: message.to_string(),
                            ..wire::AckRequest::default()
                        };
                        if client.ack(ack).await.is_err() {
                            // The next stream offers it again.
                            self.again().await;
                            break;
                        }
                    }
                    Ok(_) => {
                        self.again().await;
                        break;
                    }
                    Err(_) => panic!(
                        "nothing more is offered: {:#}",
                        json!({
                            "outbox": self.rows("SELECT * FROM mooring_outbox"),
                            "tasks": self.rows("SELECT * FROM task"),
                            "calls": self.rows("SELECT * FROM call"),
                        })
                    ),
                }
            }
        }
    }

    async fn say(&mut self, message: &str, also: &[&str], previous: &str, text: &str) {
        let request = wire::SubmitRequest {
            thread: Some(wire::Thread {
                thread_id: THREAD.into(),
                channel_id: CHANNEL.into(),
                message_id: message.into(),
                also_message_ids: also.iter().map(|id| (*id).to_owned()).collect(),
                previous_message_id: previous.into(),
                name: "a thread".into(),
                reply_to_message_id: String::new(),
            }),
            request_id: message.into(),
            content: vec![wire::Part::text(text)],
            author: Some(person("7", "ada")),
            ..wire::SubmitRequest::default()
        };
        self.call(async |mut client| client.submit(request.clone()).await)
            .await;
    }

    async fn advance(&mut self, thread: &str, from: &str, to: &str, deleted: bool) {
        let request = wire::AdvanceRequest {
            thread_id: thread.into(),
            channel_id: CHANNEL.into(),
            from: from.into(),
            to: to.into(),
            deleted,
        };
        self.call(async |mut client| client.advance(request.clone()).await)
            .await;
    }

    /// The whole conversation.
    async fn talk(&mut self) {
        self.advance(CHANNEL, "", "1000", false).await;
        self.say("1001", &[], "1000", "go").await;
        self.deliver(|discord| discord.card.is_some()).await;
        let id = self.discord.card.as_ref().unwrap().approval.clone();
        let decide = wire::DecideRequest {
            id,
            approve: true,
            author: Some(person("8", "grace")),
            via: "discord".into(),
            ..wire::DecideRequest::default()
        };
        let decided = self
            .call(async |mut client| client.decide(decide.clone()).await)
            .await;
        assert_eq!(decided.approval.unwrap().state, "approved");
        self.deliver(|discord| discord.ended == 1).await;
        // A paste in two pieces, then something that is nobody's input.
        self.say("1002", &["1003"], "1001", "and again").await;
        self.deliver(|discord| discord.ended == 2).await;
        self.advance(THREAD, "1003", "1004", false).await;
        self.advance(THREAD, "", "", true).await;
        // What is still open is shown once more where its ack was lost, an edit that waited
        // is shown or replaced: the database tells, not what can be seen.
        let database = self.database();
        let open = "SELECT key FROM mooring_outbox WHERE closed_at IS NULL";
        self.deliver(|_| rows(&database, open).is_empty()).await;
    }

    fn database(&self) -> PathBuf {
        self.project.state().join("mooring.db")
    }

    fn rows(&self, sql: &str) -> Vec<Value> {
        rows(&self.database(), sql)
    }

    /// What came of it.
    fn outcome(&self) -> Value {
        let check = self.rows("PRAGMA integrity_check");
        assert_eq!(check[0]["integrity_check"], "ok");
        let mut shows = json!(self.discord.shows.values().collect::<Vec<_>>());
        plain(&mut shows);
        let mut outbox = json!(self.rows(OUTBOX));
        plain(&mut outbox);
        json!({
            "transcript": self.rows("SELECT kind, state, message FROM entry ORDER BY id"),
            "inputs": self.rows("SELECT request_id, state, reason FROM submission ORDER BY id"),
            "threads": self.rows("SELECT * FROM mooring_thread ORDER BY thread_id"),
            "audit": self.rows("SELECT tool, verdict, outcome FROM mooring_audit ORDER BY id"),
            "outbox": outbox,
            "shows": shows,
            "side": self.project.read("side.txt"),
            "published": self.project.path("published").exists(),
        })
    }
}

/// The rows of a statement, as JSON objects.
fn rows(database: &Path, sql: &str) -> Vec<Value> {
    use rusqlite::{Connection, OpenFlags, types::ValueRef};
    let read = || -> rusqlite::Result<Vec<Value>> {
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        let mut statement = connection.prepare(sql)?;
        let names: Vec<String> = statement
            .column_names()
            .iter()
            .map(ToString::to_string)
            .collect();
        let rows = statement.query_map([], |row| {
            let mut fields = serde_json::Map::new();
            for (at, name) in names.iter().enumerate() {
                let value = match row.get_ref(at)? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(number) => number.into(),
                    ValueRef::Real(number) => number.into(),
                    // Whatever is a text in the file is one of people or programs.
                    ValueRef::Text(text) => match std::str::from_utf8(text) {
                        Ok(text) => text.into(),
                        Err(error) => panic!("{sql}: {name}: {error} in {text:?}"),
                    },
                    ValueRef::Blob(bytes) => hex::encode(bytes).into(),
                };
                fields.insert(name.clone(), value);
            }
            Ok(Value::Object(fields))
        })?;
        rows.collect()
    };
    read().unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Without the edits in between, of which time decides how many there are.
const OUTBOX: &str = "SELECT substr(key, instr(key, '-') + 1) AS key, thread_id, kind, json,
        reply_to, closed, message_id
    FROM mooring_outbox
    WHERE kind <> 'anchor-edit' OR json_extract(json, '$.state') IN ('answered', 'unanswered')
    ORDER BY seq";

fn person(id: &str, name: &str) -> wire::Author {
    wire::Author {
        discord_user_id: id.into(),
        discord_role_ids: vec![],
        display_name: name.into(),
    }
}

/// Leaves out times, what is counted by tries, and the file's incarnation.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in [
                "startedMs",
                "endedMs",
                "decidedMs",
                "expiresMs",
                "approval",
                "tokens",
                "costMicros",
                "policyDigest",
                "grade",
            ] {
                fields.remove(name);
            }
            for (name, field) in fields.iter_mut() {
                // JSON in a column of text.
                if name == "json"
                    && let Some(inner) = field.as_str()
                {
                    *field = serde_json::from_str(inner).unwrap();
                }
                plain(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

/// Runs the conversation, ended around one commit; what came of it, and whether that
/// commit was met.
async fn walk(point: Option<&str>, log: Option<&Path>) -> (Value, bool) {
    let mut variables = Vec::new();
    if let Some(point) = point {
        variables.push(("MOORING_CRASH_AT".into(), point.to_owned()));
    }
    if let Some(log) = log {
        variables.push(("MOORING_COMMIT_LOG".into(), log.display().to_string()));
    }
    let mut bot = Bot::new(variables);
    bot.talk().await;
    // The bot notices a crash by a call that fails, or not at all where it came between two.
    let log = std::fs::read_to_string(bot.project.state().join("harness.log")).unwrap();
    let met = log.matches("the harness serves").count() > 1;
    (bot.outcome(), met)
}

#[tokio::test]
async fn a_conversation_in_discord_survives_a_crash_around_every_commit() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("commits");
    let (undisturbed, _) = walk(None, Some(&log)).await;
    assert_eq!(undisturbed["side"], "one\ntwo\n");
    let commits = std::fs::read_to_string(log).unwrap();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in commits.lines() {
        *counts.entry(name).or_default() += 1;
    }
    println!("commits of the undisturbed run: {counts:?}");
    let mut points = Vec::new();
    for (name, count) in &counts {
        for k in 1..=*count {
            for side in ["before", "after"] {
                points.push(format!("{name}#{k}:{side}"));
            }
        }
    }
    // `WALK=` repeats one point.
    if let Ok(one) = std::env::var("WALK") {
        points.retain(|point| *point == one);
    }
    let (points, met) = (RefCell::new(points), RefCell::new(BTreeSet::new()));
    let worker = async || {
        loop {
            let Some(point) = points.borrow_mut().pop() else {
                return;
            };
            println!("{point}");
            let (outcome, hit) = walk(Some(&point), None).await;
            assert_eq!(outcome, undisturbed, "{point}");
            if hit {
                met.borrow_mut().insert(point);
            }
        }
    };
    futures::future::join_all((0..AT_ONCE).map(|_| worker())).await;
    let met = met.into_inner();
    println!("{} points were met", met.len());
    if std::env::var("WALK").is_ok() {
        return;
    }
    for name in [
        "advance", "create", "submit", "offer", "ack", "ask", "decide", "answer",
    ] {
        for side in ["before", "after"] {
            let point = format!("{name}#1:{side}");
            assert!(met.contains(&point), "{point} was not met");
        }
    }
}
