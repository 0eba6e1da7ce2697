//! The stage with the real harness in place of the double: a project of its own, the
//! real `mooring` program, and a database whose rows are looked at in the end.

use std::process::Command;
use std::time::Duration;

use mooring_discord_standin::clock::Id;
use mooring_discord_standin::world::{Message, TEXT};
use mooring_tests::project::{Project, kill};

use crate::stage::{BOUND, Stage};

/// Everything runs, but `touch published*` is asked for.
pub const POLICY: &str = "{tool: {\"*\": allow}, bash: {\"*\": allow, \"touch published*\": ask}, \
                          path: {\"*\": allow}, externalDirectory: allow}";

pub struct Office {
    pub stage: Stage,
    pub project: Project,
    /// May approve; Ada may talk.
    pub grace: Id,
}

impl Office {
    /// Harness and bot run. `more` goes into `spec.discord` of the bot's Workspace.
    pub async fn open(kind: u8, more: &str) -> Office {
        let mut office = Office::built(kind, more, "model: \"\"").await;
        office.stage.start().await;
        office
    }

    /// A text channel.
    pub async fn ready() -> Office {
        Office::open(TEXT, "").await
    }

    /// The model plays a script.
    pub async fn scripted(script: &str) -> Office {
        let mut office = Office::built(TEXT, "", "model: script.yaml").await;
        std::fs::write(office.project.path("script.yaml"), script).unwrap();
        office.stage.start().await;
        office
    }

    /// The harness runs, the bot does not.
    pub async fn built(kind: u8, more: &str, model: &str) -> Office {
        let stage = Stage::set(kind, more).await;
        let (role, grace) = stage.standin.act(|world| {
            let role = world.guilds[&stage.guild].members[&stage.ada].roles[0];
            let grace = world.add_user("grace", false);
            world.add_member(stage.guild, grace, &[]);
            (role, grace)
        });
        let project = Project::with_spec(&spec(&stage, stage.channel, role, grace, model));
        project.start().await;
        let office = Office {
            stage,
            project,
            grace,
        };
        office
            .stage
            .workspace("platform", office.stage.channel, &office.address(), more);
        office
    }

    /// Where the bot finds the harness; the same after each start.
    pub fn address(&self) -> String {
        format!("unix:{}", self.project.socket().unwrap().display())
    }

    pub fn kill_harness(&self) {
        for pid in self.project.harnesses() {
            kill(pid);
        }
    }

    /// Rows of the harness's database, as the answer's lines.
    pub fn rows(&self, sql: &str) -> Vec<String> {
        rows(&self.project, sql)
    }

    /// Waits until a statement has an answer.
    pub async fn row(&self, sql: &str) -> String {
        let begun = std::time::Instant::now();
        loop {
            if let Some(row) = self.rows(sql).into_iter().next() {
                return row;
            }
            assert!(
                begun.elapsed() < BOUND,
                "no row: {sql}\n{}",
                self.describe()
            );
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Waits until nothing of the outbox is open and no run goes on.
    pub async fn settled(&self) {
        settled(&self.project, || self.describe()).await;
    }

    /// Waits until nothing of the outbox is open; runs may go on.
    pub async fn settled_rows(&self) {
        self.row(
            "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM mooring_outbox WHERE closed_at IS NULL)",
        )
        .await;
    }

    /// For messages of failed tests.
    pub fn describe(&self) -> String {
        let outbox =
            self.rows("SELECT key, kind, attempts, message_id, closed FROM mooring_outbox");
        let threads = self.rows("SELECT thread_id, cursor, conversation FROM mooring_thread");
        format!(
            "{}\noutbox {outbox:#?}\nthreads {threads:#?}",
            self.stage.describe()
        )
    }

    /// Ada mentions the bot in the channel, and is answered.
    pub async fn conversation(&self) -> Id {
        let thread = self.stage.mention("run echo hello");
        self.says(thread, "`run echo hello`: ok").await;
        self.settled().await;
        thread
    }

    /// Waits for a message of the bot in the thread that holds the text.
    pub async fn says(&self, thread: Id, text: &str) -> Message {
        let me = self.stage.me;
        let found = |world: &mooring_discord_standin::world::World| {
            world
                .messages(thread)
                .find(|message| message.author == me && message.content.contains(text))
                .cloned()
        };
        match self.stage.standin.until(BOUND, found).await {
            Some(message) => message,
            None => panic!(
                "the bot never said {text:?} in {thread}: {}",
                self.describe()
            ),
        }
    }

    /// How many of the bot's messages in the thread hold the text.
    pub fn times(&self, thread: Id, text: &str) -> usize {
        self.stage
            .own(thread)
            .iter()
            .filter(|message| message.content.contains(text))
            .count()
    }

    /// What holds at the end of every test.
    pub async fn check(self) {
        self.settled().await;
        check_records(&self.project);
        self.stage.check().await;
    }
}

/// The Workspace's `spec` for the harness.
pub fn spec(stage: &Stage, channel: Id, role: Id, grace: Id, model: &str) -> String {
    format!(
        "models: [{{name: main, provider: rehearsal, {model}}}]\n\
         discord: {{guildId: \"{}\", channelId: \"{channel}\"}}\n\
         members:\n- {{discordRoleId: \"{role}\", role: User}}\n\
         - {{discordUserId: \"{grace}\", role: Maintainer}}\n\
         policy: {POLICY}\n",
        stage.guild
    )
}

/// Rows of a project's database, as the answer's lines.
pub fn rows(project: &Project, sql: &str) -> Vec<String> {
    let output = Command::new("sqlite3")
        .args(["-readonly", "-cmd", ".timeout 5000"])
        .arg(project.state().join("mooring.db"))
        .arg(sql)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{sql}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Waits until nothing of the outbox is open and every input has come to its end.
pub async fn settled(project: &Project, describe: impl Fn() -> String) {
    settled_within(project, BOUND, describe).await;
}

/// The same, with a bound of its own.
pub async fn settled_within(project: &Project, bound: Duration, describe: impl Fn() -> String) {
    let begun = std::time::Instant::now();
    let open = "SELECT key FROM mooring_outbox WHERE closed_at IS NULL
                UNION ALL SELECT id FROM submission WHERE state IN ('queued', 'placed')";
    loop {
        let open = rows(project, open);
        if open.is_empty() {
            return;
        }
        assert!(
            begun.elapsed() < bound,
            "still open: {open:?}\n{}",
            describe()
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// No message is two inputs, and the file is whole.
pub fn check_records(project: &Project) {
    let twice = "SELECT request_id FROM submission WHERE request_id IS NOT NULL
                 GROUP BY request_id HAVING count(*) > 1";
    assert!(rows(project, twice).is_empty());
    assert_eq!(rows(project, "PRAGMA integrity_check"), ["ok"]);
}
