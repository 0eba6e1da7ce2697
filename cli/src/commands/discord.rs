//! `mooring dev --discord`: the bot in this process, for the project's Workspace.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mooring_bot::bot::{Front, Settings};
use mooring_bot::harness::Address;
use mooring_bot::health::Condition;
use mooring_bot::workspace::{Roster, Wanted};
use mooring_crds::Workspace;
use tokio::sync::mpsc;

use super::say;
use crate::args::DiscordArgs;
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::text::one_line;
use crate::watching;

/// Between two looks at the harness and at the Workspace file.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Between two searches for what the gateway did not bring.
const SWEEP: Duration = Duration::from_secs(300);
/// A harness that lived for so long is started again at once when it is lost.
const LIVED: Duration = Duration::from_secs(60);
/// What the Workspace needs, to be copied.
const EXAMPLE: &str = "\n  discord: {guildId: \"…\", channelId: \"…\"}\n  \
     members: [{discordUserId: \"…\", role: Maintainer}]\n\
     docs/discord.md tells where the ids are";

/// Serves the Workspace's channel until Ctrl-C.
pub async fn run(mut connection: Connection, args: DiscordArgs) -> Result<Exit, Error> {
    let token = args
        .token
        .filter(|token| !token.trim().is_empty())
        .ok_or_else(|| {
            Error::Usage(
                "DISCORD_TOKEN is not set: it is the bot's token, from the page Bot of your \
                 application on https://discord.com/developers/applications (docs/discord.md)"
                    .into(),
            )
        })?;
    let wanted = wanted(&connection)?;
    // The bot's HTTP client speaks TLS; two providers are linked in.
    mooring_wire::tls::install_provider();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into()),
        )
        .with_writer(std::io::stderr)
        .try_init();
    let front = Front::new(Settings {
        token: token.trim().to_owned(),
        rest: args.rest,
        gateway: args.gateway,
        sweep: SWEEP,
        per_second: mooring_bot::rest::GLOBAL,
    })?;
    say(format!(
        "The bot serves channel {} for the project {}; Ctrl-C ends it, and nothing is lost.",
        wanted.channel,
        connection.plan().project.root.display()
    ))?;
    let health = front.health.clone();
    let mut changes = health.changes();
    let (roster, receiver) = mpsc::channel(1);
    let mut given: Roster = vec![Ok(wanted)];
    let _ = roster.send(given.clone()).await;
    let mut bot = std::pin::pin!(front.run(receiver));
    let mut told = Told::default();
    let mut keeper = Keeper::new();
    loop {
        tokio::select! {
            ended = &mut bot => {
                ended?;
                return Ok(Exit::Done);
            }
            _ = changes.changed() => {
                for line in told.news(health.is_ready(), &health.conditions()) {
                    say(line)?;
                }
            }
            () = tokio::time::sleep(LOOK_AGAIN) => {
                keeper.look(&mut connection).await?;
                // The file may have changed; one that is wrong changes nothing.
                if let Ok(wanted) = self::wanted(&connection) {
                    let next: Roster = vec![Ok(wanted)];
                    if next != given && roster.send(next.clone()).await.is_ok() {
                        given = next;
                    }
                }
            }
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(Exit::Done);
            }
        }
    }
}

/// Looks after the harness: one that is gone is started again, less and less often where
/// it is lost again and again.
struct Keeper {
    losses: u32,
    /// When it was last started.
    started: Instant,
}

impl Keeper {
    fn new() -> Keeper {
        Keeper {
            losses: 0,
            started: Instant::now(),
        }
    }

    /// A look; the error is that a person has ended it.
    async fn look(&mut self, connection: &mut Connection) -> Result<(), Error> {
        if connection.refresh_status().await.is_ok() {
            if self.started.elapsed() > LIVED {
                self.losses = 0;
            }
            return Ok(());
        }
        if self.started.elapsed() < watching::pause(self.losses + 1) {
            return Ok(());
        }
        if self.losses == 0 {
            say("The harness is gone; starting it again.")?;
        }
        self.losses += 1;
        let reopened = connection.reopen().await;
        self.started = Instant::now();
        match reopened {
            Ok(()) => say("The harness is back.")?,
            Err(error @ Error::Stopped) => return Err(error),
            Err(error) => {
                eprintln!("mooring: {error}");
                if let Some(told) = watching::waits(watching::pause(self.losses + 1)) {
                    say(told)?;
                }
            }
        }
        Ok(())
    }
}

/// What the bot is to do for the running Workspace.
fn wanted(connection: &Connection) -> Result<Wanted, Error> {
    let workspace = connection.running_workspace().ok_or_else(|| {
        Error::Usage(format!(
            "the default Workspace has no place in Discord: `mooring init workspace.yaml` writes \
             it, add to its spec{EXAMPLE}, and start `mooring dev --discord workspace.yaml`"
        ))
    })?;
    let path = &connection.status.workspace_path;
    wanted_of(
        &workspace,
        path,
        Address::Unix(connection.plan().state.socket.clone()),
    )
}

fn wanted_of(workspace: &Workspace, path: &str, harness: Address) -> Result<Wanted, Error> {
    let discord = workspace.spec.discord.as_ref().ok_or_else(|| {
        Error::Usage(format!(
            "{path} has no spec.discord; add to its spec{EXAMPLE}"
        ))
    })?;
    let somebody = workspace
        .spec
        .members
        .iter()
        .any(|member| member.discord_user_id.is_some() || member.discord_role_id.is_some());
    if !somebody {
        return Err(Error::Usage(format!(
            "{path} names nobody of Discord in spec.members, so nobody could talk; add to its spec{EXAMPLE}"
        )));
    }
    let name = workspace.metadata.name.clone().unwrap_or_default();
    Wanted::read(name, path, discord, harness).map_err(|rejected| Error::Usage(rejected.message))
}

/// What was said already.
#[derive(Default)]
struct Told {
    ready: bool,
    conditions: BTreeMap<String, Condition>,
}

impl Told {
    /// Lines about what is another than before.
    fn news(&mut self, ready: bool, conditions: &BTreeMap<String, Condition>) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, condition) in conditions {
            if self.conditions.get(name) == Some(condition) {
                continue;
            }
            if !condition.ready {
                let why = one_line(&condition.message, 1_000);
                lines.push(format!("{}: {why}", condition.reason));
            } else if self.conditions.contains_key(name) {
                lines.push("The channel can be used now.".into());
            }
        }
        self.conditions = conditions.clone();
        if ready != self.ready {
            self.ready = ready;
            lines.push(
                if ready {
                    "Connected: mention the bot in its channel."
                } else {
                    "The connection to Discord was lost; trying again."
                }
                .into(),
            );
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn workspace(more: &str) -> Workspace {
        let text = format!(
            "apiVersion: mooring.dev/v1alpha1\nkind: Workspace\nmetadata: {{name: w}}\nspec:\n  \
             models: [{{name: m, provider: rehearsal}}]\n{more}"
        );
        mooring_crds::read_workspace(&text, "w.yaml").unwrap()
    }

    #[test]
    fn what_the_workspace_lacks_is_named_with_an_example() {
        let read = |more: &str| {
            let address = Address::Unix("/run/x".into());
            wanted_of(&workspace(more), "w.yaml", address)
        };
        let discord = "  discord: {guildId: \"1\", channelId: \"2\"}\n";
        for (more, expected) in [
            ("", "w.yaml has no spec.discord"),
            (discord, "names nobody of Discord in spec.members"),
        ] {
            let error = read(more).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("discordUserId"), "{error}");
        }
        let whole = format!("{discord}  members: [{{discordUserId: \"3\", role: Maintainer}}]\n");
        assert_eq!(read(&whole).unwrap().channel.to_string(), "2");
    }

    #[test]
    fn each_piece_of_news_is_said_once() {
        let mut told = Told::default();
        let condition = |ready, reason: &str| Condition {
            ready,
            reason: reason.into(),
            message: "give it View Channels".into(),
        };
        let one = |condition| BTreeMap::from([("w".to_owned(), condition)]);
        let missing = one(condition(false, "MissingPermission"));
        let expected = ["MissingPermission: give it View Channels"];
        assert_eq!(told.news(false, &missing), expected);
        assert!(told.news(false, &missing).is_empty());
        let good = one(condition(true, "Connected"));
        assert_eq!(told.news(true, &good).len(), 2);
        assert!(told.news(true, &good).is_empty());
        assert!(told.news(false, &good)[0].contains("was lost"));
    }
}
