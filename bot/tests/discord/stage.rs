//! A guild with a channel in the Discord stand-in, a harness double, and the real
//! bot program between them.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mooring_discord_standin::StandIn;
use mooring_discord_standin::act::{Act, Draft};
use mooring_discord_standin::clock::Id;
use mooring_discord_standin::fault::{DispatchFault, DispatchFaultKind, Fault, FaultKind};
use mooring_discord_standin::world::{Message, TEXT, World};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::double::Double;

/// Bound of every wait.
pub const BOUND: Duration = Duration::from_secs(120);
pub const TOKEN: &str = "token-of-the-bot";
const MESSAGE_CONTENT: u64 = 1 << 15;

/// A running bot program.
pub struct Program {
    child: Child,
    pub log: Arc<Mutex<Vec<String>>>,
    lines: watch::Receiver<usize>,
}

impl Program {
    pub async fn start(
        standin: &StandIn,
        folder: &std::path::Path,
        token: &str,
        sweep: u64,
    ) -> Program {
        let folder = folder.display().to_string();
        let variables = [("DISCORD_TOKEN", token.to_owned())];
        let sweep = sweep.to_string();
        let arguments = ["--workspaces", &folder, "--sweep", &sweep];
        Program::with(standin, &variables, &arguments)
    }

    /// With these variables and arguments.
    pub fn with(standin: &StandIn, variables: &[(&str, String)], arguments: &[&str]) -> Program {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mooring-bot"))
            .args(arguments)
            .args(["--rest", &standin.rest(), "--gateway", &standin.gateway()])
            .env("DISCORD_TOKEN", TOKEN)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let (sender, lines) = watch::channel(0);
        let mut reader = BufReader::new(child.stderr.take().unwrap()).lines();
        let kept = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = reader.next_line().await {
                kept.lock().unwrap().push(line);
                sender.send_modify(|count| *count += 1);
            }
        });
        Program { child, log, lines }
    }

    /// Waits for a line of the log that holds the text.
    pub async fn said(&mut self, text: &str) -> String {
        self.said_times(text, 1).await
    }

    /// Waits until so many lines of the log hold the text; the last of them.
    pub async fn said_times(&mut self, text: &str, times: usize) -> String {
        let mut lines = self.lines.clone();
        let waiting = async {
            loop {
                let found = self
                    .log
                    .lock()
                    .unwrap()
                    .iter()
                    .filter(|line| line.contains(text))
                    .nth(times - 1)
                    .cloned();
                if let Some(found) = found {
                    return found;
                }
                if lines.changed().await.is_err() {
                    panic!(
                        "the bot ended without saying {text:?}: {:#?}",
                        self.log.lock().unwrap()
                    );
                }
            }
        };
        match tokio::time::timeout(BOUND, waiting).await {
            Ok(line) => line,
            Err(_) => panic!(
                "the bot did not say {text:?}: {:#?}",
                self.log.lock().unwrap()
            ),
        }
    }

    /// Where its health is served.
    pub async fn health(&mut self) -> String {
        let line = self.said("health is served").await;
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        format!("http://{}", line["fields"]["address"].as_str().unwrap())
    }

    /// Waits until `/readyz` says yes.
    pub async fn ready(&mut self) {
        let health = self.health().await;
        let waiting = async {
            while !get(&health, "/readyz").await.0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(BOUND, waiting).await.is_err() {
            panic!("never ready: {:#?}", self.log.lock().unwrap());
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub async fn terminate(self) {
        let pid = nix::unistd::Pid::from_raw(self.pid() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let (status, said) = self.ended().await;
        assert_eq!(status, Some(0), "{said}");
    }

    /// Waits for its end; what it said.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let status = tokio::time::timeout(BOUND, self.child.wait())
            .await
            .expect("the bot ends")
            .unwrap();
        while self.lines.changed().await.is_ok() {}
        (status.code(), self.log.lock().unwrap().join("\n"))
    }
}

/// Asks the health server: whether it said yes, and the text.
pub async fn get(health: &str, path: &str) -> (bool, String) {
    match reqwest::get(format!("{health}{path}")).await {
        Ok(answer) => (
            answer.status().is_success(),
            answer.text().await.unwrap_or_default(),
        ),
        Err(error) => (false, error.to_string()),
    }
}

pub struct Stage {
    pub standin: StandIn,
    pub double: Arc<Double>,
    pub bot: Option<Program>,
    pub folder: tempfile::TempDir,
    pub me: Id,
    pub guild: Id,
    pub channel: Id,
    /// A person.
    pub ada: Id,
    pub sweep: u64,
    /// Requests a second that the bot allows itself.
    pub per_second: u32,
}

impl Stage {
    /// With limits off and short heartbeats; no bot yet.
    pub async fn set(kind: u8, more: &str) -> Stage {
        let _ = rustls_provider();
        let standin = StandIn::start(0).await.unwrap();
        let double = Double::start().await;
        let folder = tempfile::tempdir().unwrap();
        let (me, guild, channel, ada) = standin.act(|world| {
            world.settings.limits = false;
            world.settings.heartbeat_ms = 1_000;
            world.settings.identify_interval_ms = 0;
            let ada = world.add_user("ada", false);
            let me = world.add_application("mooring", TOKEN, MESSAGE_CONTENT);
            let owner = world.add_user("owner", false);
            let guild = world.add_guild("guild", owner);
            let role = world.add_role(guild, "developers", 0);
            world.add_member(guild, ada, &[role]);
            let channel = world.add_channel(guild, "platform", kind);
            world.add_member(guild, me, &[]);
            (me, guild, channel, ada)
        });
        let stage = Stage {
            standin,
            double,
            bot: None,
            folder,
            me,
            guild,
            channel,
            ada,
            sweep: 300,
            per_second: 45,
        };
        stage.workspace("platform", channel, &stage.double.address, more);
        stage
    }

    /// Writes a Workspace file.
    pub fn workspace(&self, name: &str, channel: Id, harness: &str, more: &str) {
        let text = format!(
            "apiVersion: mooring.dev/v1alpha1\nkind: Workspace\nmetadata:\n  name: {name}\n  annotations:\n    \
             mooring.dev/harness: {harness}\nspec:\n  models: [{{name: main, provider: rehearsal}}]\n  \
             discord: {{guildId: \"{}\", channelId: \"{channel}\"{more}}}\n",
            self.guild
        );
        std::fs::write(self.folder.path().join(format!("{name}.yaml")), text).unwrap();
    }

    /// A text channel, and the bot ready.
    pub async fn ready() -> Stage {
        let mut stage = Stage::set(TEXT, "").await;
        stage.start().await;
        stage
    }

    /// Starts the bot and waits until it is ready.
    pub async fn start(&mut self) {
        self.launch().await;
        self.bot.as_mut().unwrap().ready().await;
    }

    /// Starts the bot.
    pub async fn launch(&mut self) {
        let variables = [(
            "MOORING_BOT_REQUESTS_PER_SECOND",
            self.per_second.to_string(),
        )];
        let folder = self.folder.path().display().to_string();
        let sweep = self.sweep.to_string();
        let arguments = ["--workspaces", &folder, "--sweep", &sweep];
        self.bot = Some(Program::with(&self.standin, &variables, &arguments));
    }

    pub async fn kill(&mut self) {
        self.bot.take().unwrap().kill().await;
    }

    /// Ada writes.
    pub fn post(&self, channel: Id, text: &str) -> Id {
        self.post_as(channel, self.ada, text)
    }

    pub fn post_as(&self, channel: Id, author: Id, text: &str) -> Id {
        let draft = Draft {
            content: text.into(),
            ..Draft::default()
        };
        self.standin
            .act(|world| world.write(channel, author, draft))
    }

    /// Ada mentions the bot in the channel; the thread is called by the message.
    pub fn mention(&self, text: &str) -> Id {
        self.post(self.channel, &format!("<@{}> {text}", self.me))
    }

    /// A conversation that is open and answered.
    pub async fn conversation(&self) -> Id {
        let thread = self.mention("first");
        self.answered(thread, "answer to first").await;
        thread
    }

    pub fn fault(&self, method: &str, path: impl Into<String>, times: u32, kind: FaultKind) {
        let fault = Fault {
            method: method.into(),
            path: path.into(),
            skip: 0,
            times,
            kind,
        };
        self.standin.act(|world| world.faults(fault));
    }

    pub fn dispatch_fault(&self, event: &str, kind: DispatchFaultKind) {
        let fault = DispatchFault {
            event: event.into(),
            skip: 0,
            times: 1,
            kind,
        };
        self.standin.act(|world| world.dispatch_faults(fault));
    }

    pub async fn until<T>(&self, what: &str, found: impl FnMut(&World) -> Option<T>) -> T {
        match self.standin.until(BOUND, found).await {
            Some(found) => found,
            None => panic!("not within the bound: {what}\n{}", self.describe()),
        }
    }

    /// For messages of failed tests.
    pub fn describe(&self) -> String {
        let world = self.standin.look(|world| {
            let mut text = String::new();
            for channel in world.channels.values() {
                for message in channel.messages.values() {
                    text.push_str(&format!(
                        "{} {} by {}: {:?} {:?}\n",
                        channel.id,
                        message.id,
                        message.author,
                        message.content.chars().take(120).collect::<String>(),
                        message.reactions.keys().collect::<Vec<_>>(),
                    ));
                }
            }
            text
        });
        let log = self
            .bot
            .as_ref()
            .map(|bot| bot.log.lock().unwrap().join("\n"))
            .unwrap_or_default();
        format!(
            "{world}\n{}\n{log}",
            self.double.look(crate::double::State::summary)
        )
    }

    /// Waits for a message of the bot in the thread whose text begins so.
    pub async fn answered(&self, thread: Id, begins: &str) -> Message {
        let what = format!("a message of the bot that begins with {begins:?}");
        self.until(&what, |world| {
            world
                .messages(thread)
                .find(|message| message.author == self.me && message.content.starts_with(begins))
                .cloned()
        })
        .await
    }

    /// The bot's messages in a channel or thread, without the system's.
    pub fn own(&self, channel: Id) -> Vec<Message> {
        self.standin.look(|world| {
            world
                .messages(channel)
                .filter(|message| message.author == self.me && message.kind != 21)
                .cloned()
                .collect()
        })
    }

    /// Runs a slash command; the interaction.
    pub fn command(&self, channel: Id, user: Id, name: &str, options: serde_json::Value) -> Id {
        let act = Act::Command {
            name: name.into(),
            options,
        };
        self.standin
            .act(|world| world.interact(self.me, channel, user, act))
    }

    pub fn click(&self, message: &Message, user: Id, button: usize) -> Id {
        let custom_id = message.components[0]["components"][button]["custom_id"]
            .as_str()
            .unwrap();
        let act = Act::Click {
            message: message.id,
            custom_id: custom_id.into(),
        };
        self.standin
            .act(|world| world.interact(self.me, message.channel, user, act))
    }

    /// What the user is shown of a command.
    pub async fn shown(&self, interaction: Id) -> String {
        self.until("an answer to the command", |world| {
            let shown = world.interactions[&interaction].shown.as_ref()?;
            shown["content"].as_str().map(str::to_owned)
        })
        .await
    }

    /// What the user is told after a click.
    pub async fn followed(&self, interaction: Id) -> String {
        self.until("an answer to the click", |world| {
            let told = world.interactions[&interaction].followups.first()?;
            told["content"].as_str().map(str::to_owned)
        })
        .await
    }

    /// Waits until every outbox row is closed.
    pub async fn settled(&self) {
        self.double
            .until("every row is closed", |state| state.settled().then_some(()))
            .await;
    }

    /// What holds at the end of every test: nobody was notified but those who asked,
    /// no nonce made two messages, no two messages of the bot say the same to the
    /// same input, each anchor is of a run.
    pub async fn check(self) {
        self.settled().await;
        self.standin.look(|world| {
            let mut nonces = std::collections::HashMap::new();
            for write in &world.ledger.writes {
                let asker_only = write.pings.users.iter().all(|user| *user == self.ada);
                assert!(
                    !write.pings.everyone && write.pings.roles.is_empty() && asker_only,
                    "somebody was notified: {write:?}"
                );
                if let (Some(message), Some(nonce), false) = (
                    write.message,
                    write.body["nonce"].as_str(),
                    write.repeated_nonce,
                ) && write.method == "POST"
                {
                    let before = nonces.insert(nonce.to_owned(), message);
                    assert!(
                        before.is_none_or(|before| before == message),
                        "one nonce, two messages: {write:?}"
                    );
                }
            }
            for channel in world.channels.values() {
                let mut seen = std::collections::HashSet::new();
                for message in channel
                    .messages
                    .values()
                    .filter(|message| message.author == self.me)
                {
                    let unfinished = message.content.starts_with("-# ⏳");
                    let known = (message.content.clone(), message.reply_to);
                    assert!(
                        unfinished || message.kind == 21 || seen.insert(known),
                        "sent twice: {message:?}"
                    );
                }
            }
        });
        self.double.look(|state| {
            let mut ids = std::collections::HashSet::new();
            for input in &state.inputs {
                assert!(
                    ids.insert(input.request_id.clone()),
                    "admitted twice: {input:?}"
                );
            }
        });
    }
}

fn rustls_provider() -> bool {
    rustls::crypto::ring::default_provider()
        .install_default()
        .is_ok()
}

/// Text options of a slash command.
pub fn options(list: &[(&str, &str)]) -> serde_json::Value {
    list.iter()
        .map(|(name, value)| serde_json::json!({"name": name, "type": 3, "value": value}))
        .collect()
}
