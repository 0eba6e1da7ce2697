//! The bot: what its parts share, and where events go.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mooring_wire::harness as wire;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;

use crate::api::{Api, raw_id};
use crate::args::Args;
use crate::catchup::Swept;
use crate::gateway::{Event, Gateway};
use crate::guild::Guilds;
use crate::health::{Condition, Health};
use crate::id::Id;
use crate::lane::{Job, Lanes};
use crate::member::Members;
use crate::payload::{Channel, Interaction, Message};
use crate::queued::News;
use crate::rest::{Rest, RestError};
use crate::threads::Threads;
use crate::typing::Typing;
use crate::workspace::{Directory, Place, Roster};
use crate::{
    BotError, catchup, check, cluster, command, deliver, export, folder, health, interact,
};

/// Events that wait between the gateway and the lanes.
const EVENTS: usize = 1_024;
/// Strangers that are remembered.
const REMEMBERED: usize = 10_000;
const DAY: Duration = Duration::from_secs(86_400);
/// A harness that was away for so long since READY is not waited for: the bot is ready
/// for the others.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries at a workspace that could not be swept, at first and at most.
const SOONEST: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_secs(30);

/// What the parts share. Nothing of it is kept on disk.
pub struct Bot {
    /// Discord.
    pub api: Api,
    /// The bot's user.
    pub me: Id,
    /// The application.
    pub application: Id,
    /// Whether messages' texts come at all.
    pub has_message_content: bool,
    /// Probes, metrics, conditions.
    pub health: Arc<Health>,
    /// The workspaces.
    pub directory: Directory,
    /// Whose channel is whose.
    pub threads: Threads,
    /// Order within a thread.
    pub lanes: Lanes,
    /// The typing sign.
    pub typing: Typing,
    /// Roles of authors.
    pub members: Members,
    /// Lists that workspaces share.
    pub guilds: Guilds,
    /// Exports that may be in memory at once.
    pub exports: Semaphore,
    strangers: Mutex<HashMap<Id, Instant>>,
    /// How often READY came.
    readies: watch::Sender<u64>,
    /// The READY after which each workspace was caught up, or was given up.
    attempts: Mutex<HashMap<String, u64>>,
}

/// How a bot is started, whatever its workspaces come from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The token.
    pub token: String,
    /// Base address of the REST interface, in front of `/api/v10`.
    pub rest: String,
    /// Address of the gateway; Discord is asked for it without one.
    pub gateway: Option<String>,
    /// Between two searches for what the gateway did not bring.
    pub sweep: Duration,
    /// Requests a second over all.
    pub per_second: u32,
}

/// A bot with its probes, before it speaks to Discord.
pub struct Front {
    settings: Settings,
    /// Discord.
    pub api: Api,
    /// Probes, metrics, conditions.
    pub health: Arc<Health>,
}

impl Front {
    /// Makes it.
    ///
    /// # Errors
    /// The system's certificates cannot be used.
    pub fn new(settings: Settings) -> Result<Front, BotError> {
        Ok(Front {
            api: Api::new(Rest::new(
                &settings.rest,
                &settings.token,
                settings.per_second,
            )?),
            health: Arc::default(),
            settings,
        })
    }

    /// Serves probes and metrics.
    ///
    /// # Errors
    /// The address is taken.
    pub async fn serve(&self, address: SocketAddr) -> Result<(), BotError> {
        let taken = health::serve(address, self.health.clone(), self.api.clone()).await?;
        tracing::info!(address = %taken, "health is served");
        Ok(())
    }

    /// Works until an error that is final. Each new roster takes the place of the
    /// one before; nothing is done before the first.
    pub async fn run(self, mut roster: mpsc::Receiver<Roster>) -> Result<(), BotError> {
        let Front {
            settings,
            api,
            health,
        } = self;
        let application = until_known(&health, || api.application()).await?;
        let id = raw_id(&application).unwrap_or_default();
        let bot = Arc::new(Bot {
            me: application["bot"]["id"]
                .as_str()
                .and_then(|id| id.parse().ok())
                .unwrap_or(id),
            application: id,
            has_message_content: check::has_message_content(&application),
            api: api.clone(),
            health: health.clone(),
            directory: Directory::default(),
            threads: Threads::default(),
            lanes: Lanes::default(),
            typing: Typing::default(),
            members: Members::default(),
            guilds: Guilds::default(),
            exports: Semaphore::new(export::AT_ONCE),
            strangers: Mutex::default(),
            readies: watch::Sender::new(0),
            attempts: Mutex::default(),
        });
        if !bot.has_message_content {
            return Err(BotError::Intents);
        }
        let every = settings.sweep;
        if let Some(first) = roster.recv().await {
            bot.take_roster(&first, every);
        }
        let keeper = bot.clone();
        tokio::spawn(async move {
            while let Some(next) = roster.recv().await {
                keeper.take_roster(&next, every);
            }
        });
        tokio::spawn(bot.typing.clone().run(api.clone()));
        tokio::spawn(register(api.clone(), id));
        let (sender, mut events) = mpsc::channel(EVENTS);
        let gateway = Gateway::new(api, &settings.token, settings.gateway, sender, health);
        let gateway = tokio::spawn(gateway.run());
        // The gateway holds the other end: events end when it has ended.
        while let Some(event) = events.recv().await {
            bot.take(event);
        }
        Err(gateway
            .await
            .unwrap_or_else(|error| BotError::Argument(format!("the gateway's task: {error}"))))
    }
}

/// Runs the bot as a program.
///
/// # Errors
/// What is final, with the way out.
pub async fn run(args: Args) -> Result<(), BotError> {
    let folder = args.workspaces.clone();
    let roster = folder.map(|folder| folder::read(&folder)).transpose()?;
    let front = Front::new(Settings {
        // A Secret that was made from a file ends with that file's last newline.
        token: args.token.trim().to_owned(),
        rest: args.rest,
        gateway: args.gateway,
        sweep: Duration::from_secs(args.sweep.max(1)),
        per_second: args.per_second,
    })?;
    front.serve(args.http).await?;
    match roster {
        Some(roster) => {
            let (sender, receiver) = mpsc::channel(1);
            // Kept open: a closed one would be no news either.
            let _ = sender.send(roster).await;
            front.run(receiver).await
        }
        None => cluster::run(front, args.cluster).await,
    }
}

/// Asks until Discord answers; a refused token is final.
async fn until_known<F, T>(health: &Health, ask: impl Fn() -> F) -> Result<T, BotError>
where
    F: Future<Output = Result<T, RestError>>,
{
    let mut pause = Duration::from_millis(250);
    loop {
        health.supervised();
        match ask().await {
            Ok(known) => return Ok(known),
            Err(RestError::Refused { status: 401, .. }) => return Err(BotError::Token),
            Err(error) => {
                tracing::warn!(%error, "Discord cannot be asked yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(60));
            }
        }
    }
}

async fn register(api: Api, application: Id) {
    let mut pause = Duration::from_secs(1);
    loop {
        match command::register(&api, application).await {
            Ok(changed) => {
                tracing::info!(changed, "slash commands are registered");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "slash commands could not be registered yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(600));
            }
        }
    }
}

/// Sweeps one workspace on every READY and now and then; one that failed again and
/// again until it has succeeded. Each has a task of its own, so that one that is away
/// holds up no other.
async fn sweep(bot: Arc<Bot>, place: Arc<Place>, every: Duration) {
    let mut readies = bot.readies.subscribe();
    if readies.wait_for(|count| *count > 0).await.is_err() {
        return;
    }
    let (mut ready, mut since, mut again) = (0, Instant::now(), SOONEST);
    while !place.is_gone() {
        let newest = *readies.borrow_and_update();
        if newest != ready {
            (ready, since, again) = (newest, Instant::now(), SOONEST);
        }
        let mut sweeping = std::pin::pin!(catchup::sweep(&bot, &place));
        let swept = loop {
            tokio::select! {
                swept = &mut sweeping => break swept,
                // A message of it may wait for the harness.
                () = tokio::time::sleep(SOONEST) => {
                    if place.is_away() && since.elapsed() >= PATIENCE {
                        bot.attempted(&place, ready);
                    }
                }
            }
        };
        let gave_up = place.is_away() && since.elapsed() >= PATIENCE;
        if swept != Swept::Later || gave_up {
            bot.attempted(&place, ready);
        }
        bot.type_where_runs_are_active(&place).await;
        let pause = match swept {
            Swept::All => every,
            Swept::Useless | Swept::Later => again.min(every),
        };
        again = match swept {
            Swept::All => SOONEST,
            Swept::Useless | Swept::Later => (again * 2).min(LATEST),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = place.look_again.notified() => {}
            () = place.gone() => return,
            changed = readies.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

impl Bot {
    /// Begins what is new in the roster, and leaves what is not in it any more.
    fn take_roster(self: &Arc<Bot>, roster: &Roster, every: Duration) {
        let changed = self.directory.replace(roster);
        for name in changed.left {
            tracing::info!(workspace = name, "is served no more");
            self.health.forget(&name);
        }
        for one in changed.rejected {
            let condition = Condition {
                ready: false,
                reason: one.reason.into(),
                message: one.message,
            };
            self.health.condition(&one.name, condition);
        }
        for place in changed.begun {
            tracing::info!(workspace = place.wanted.name, channel = %place.wanted.channel, "is served");
            tokio::spawn(deliver::run(self.clone(), place.clone()));
            tokio::spawn(sweep(self.clone(), place, every));
        }
        self.look_whether_all_are_caught_up();
    }

    /// Takes one event; what takes time goes into a lane or a task.
    fn take(self: &Arc<Bot>, event: Event) {
        let data = event.data;
        match event.name.as_str() {
            "READY" => {
                tracing::info!("the gateway is ready; catching up");
                self.health.caught_up(false);
                self.readies.send_modify(|count| *count += 1);
                self.look_whether_all_are_caught_up();
            }
            "RESUMED" => tracing::info!("the session goes on"),
            "GUILD_CREATE" => {
                self.guild_is_there(raw_id(&data));
                for list in ["channels", "threads"] {
                    for channel in data[list].as_array().into_iter().flatten() {
                        self.learn_raw(channel);
                    }
                }
            }
            "GUILD_DELETE" if data["unavailable"] != true => self.guild_left(raw_id(&data)),
            "CHANNEL_DELETE" => self.channel_gone(raw_id(&data)),
            "CHANNEL_CREATE" | "THREAD_CREATE" | "THREAD_UPDATE" => self.learn_raw(&data),
            "CHANNEL_UPDATE" => {
                self.learn_raw(&data);
                if let Some(place) = raw_id(&data).and_then(|id| self.directory.of_channel(id)) {
                    self.recheck(&place);
                }
            }
            "THREAD_LIST_SYNC" => {
                for thread in data["threads"].as_array().into_iter().flatten() {
                    self.learn_raw(thread);
                }
            }
            "THREAD_DELETE" => self.thread_gone(&data),
            "MESSAGE_CREATE" => self.message(data),
            "MESSAGE_UPDATE" => {
                if let Ok(message) = serde_json::from_value::<Message>(data)
                    && message.edited_timestamp.is_some()
                    && message.is_said()
                {
                    let heard = |message| Job::Heard(News::Edited(message));
                    self.push(message.channel_id, heard, message);
                }
            }
            "MESSAGE_DELETE" => {
                self.deleted(&data, raw_id(&data).into_iter().collect());
            }
            "MESSAGE_DELETE_BULK" => {
                let ids = data["ids"].as_array().into_iter().flatten();
                let ids = ids.filter_map(|id| id.as_str()?.parse().ok()).collect();
                self.deleted(&data, ids);
            }
            "INTERACTION_CREATE" => match serde_json::from_value::<Interaction>(data) {
                Ok(interaction) => {
                    tokio::spawn(interact::handle(self.clone(), interaction));
                }
                Err(error) => {
                    tracing::error!(%error, "an interaction cannot be read");
                    self.health.count("unreadable_payloads_total", 1);
                }
            },
            _ => {}
        }
    }

    fn message(self: &Arc<Bot>, data: Value) {
        let ids = (
            data["channel_id"].as_str().and_then(|id| id.parse().ok()),
            raw_id(&data),
        );
        match serde_json::from_value::<Message>(data) {
            Ok(message) => {
                if message.is_said() {
                    self.push(message.channel_id, Job::Message, message);
                }
            }
            Err(error) => {
                // It is asked for by REST; without ids the next sweep finds it.
                tracing::warn!(%error, "a message event cannot be read");
                match ids {
                    (Some(channel), Some(message)) => {
                        self.push_if_ours(channel, Job::Unread(message));
                    }
                    _ => {
                        self.health.count("unreadable_payloads_total", 1);
                        for place in self.directory.all() {
                            place.look_again.notify_one();
                        }
                    }
                }
            }
        }
    }

    fn deleted(self: &Arc<Bot>, data: &Value, messages: Vec<Id>) {
        let channel = data["channel_id"].as_str().and_then(|id| id.parse().ok());
        if let (Some(channel), false) = (channel, messages.is_empty()) {
            self.push_if_ours(channel, Job::Heard(News::Deleted(messages)));
        }
    }

    fn push(self: &Arc<Bot>, channel: Id, job: impl FnOnce(Box<Message>) -> Job, message: Message) {
        self.push_if_ours(channel, job(Box::new(message)));
    }

    /// Channels that are known to be nobody's are passed over.
    fn push_if_ours(self: &Arc<Bot>, channel: Id, job: Job) {
        let nobodys = self
            .threads
            .parent(channel)
            .is_some_and(|parent| self.directory.of_channel(parent).is_none());
        if !nobodys {
            self.lanes.push(self, channel, job);
        }
    }

    fn learn_raw(&self, channel: &Value) {
        if let Ok(channel) = serde_json::from_value::<Channel>(channel.clone()) {
            self.learn(&channel);
        }
    }

    /// Takes over where a channel or thread is.
    pub fn learn(&self, channel: &Channel) {
        let home = if channel.is_thread() {
            channel.parent_id
        } else {
            Some(channel.id)
        };
        let ours = home.is_some_and(|home| self.directory.of_channel(home).is_some());
        self.threads.learn(channel, ours);
    }

    /// The workspace that a channel or thread belongs to; Discord is asked for one
    /// that is not known.
    pub async fn place_of(&self, channel: Id) -> Option<Arc<Place>> {
        let mut pause = Duration::from_millis(250);
        loop {
            if let Some(parent) = self.threads.parent(channel) {
                return self.directory.of_channel(parent);
            }
            match self.api.channel(channel).await {
                Ok(channel) => self.learn(&channel),
                Err(RestError::Refused { .. }) => return None,
                Err(error) => {
                    tracing::warn!(%channel, %error, "a channel is not known yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(20));
                }
            }
        }
    }

    /// Looks at a place's permissions again.
    pub fn recheck(&self, place: &Place) {
        place.look_again.notify_one();
    }

    /// What could not be served for want of the guild is looked at again.
    fn guild_is_there(&self, guild: Option<Id>) {
        for place in self.directory.all() {
            if Some(place.wanted.guild) == guild && self.health.is_faulty(&place.wanted.name) {
                self.recheck(&place);
            }
        }
    }

    fn guild_left(&self, guild: Option<Id>) {
        let all = self.directory.all();
        for place in all.iter().filter(|place| Some(place.wanted.guild) == guild) {
            let message = format!(
                "the bot is not in guild {} any more: invite it again",
                place.wanted.guild
            );
            let condition = Condition {
                ready: false,
                reason: "GuildLeft".into(),
                message,
            };
            self.health.condition(&place.wanted.name, condition);
        }
    }

    fn channel_gone(&self, channel: Option<Id>) {
        if let Some(place) = channel.and_then(|channel| self.directory.of_channel(channel)) {
            let message = format!(
                "channel {} was deleted; change spec.discord.channelId",
                place.wanted.channel
            );
            let condition = Condition {
                ready: false,
                reason: "ChannelNotFound".into(),
                message,
            };
            self.health.condition(&place.wanted.name, condition);
        }
    }

    fn thread_gone(self: &Arc<Bot>, data: &Value) {
        let parent = data["parent_id"]
            .as_str()
            .and_then(|id| id.parse::<Id>().ok());
        let (Some(thread), Some(place)) = (
            raw_id(data),
            parent.and_then(|parent| self.directory.of_channel(parent)),
        ) else {
            return;
        };
        self.threads.forget(thread);
        self.typing.stop(thread);
        tokio::spawn(async move {
            let request = wire::AdvanceRequest {
                thread_id: thread.to_string(),
                channel_id: place.wanted.channel.to_string(),
                deleted: true,
                ..wire::AdvanceRequest::default()
            };
            if let Err(error) = place.harness.advance(request).await {
                tracing::warn!(%thread, %error, "a deleted thread could not be told");
            }
        });
    }

    /// Whether a stranger is told now that they are no member: once a day.
    pub fn tells_stranger(&self, user: Id) -> bool {
        let mut strangers = self
            .strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|_, told| told.elapsed() < DAY);
        if strangers.contains_key(&user) || strangers.len() >= REMEMBERED {
            return false;
        }
        strangers.insert(user, Instant::now());
        true
    }

    /// A workspace was caught up after that READY, or its harness was away for long: it
    /// must not hold the others' messages.
    fn attempted(&self, place: &Place, ready: u64) {
        self.attempts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(place.wanted.name.clone(), ready);
        self.look_whether_all_are_caught_up();
    }

    fn look_whether_all_are_caught_up(&self) {
        let newest = *self.readies.borrow();
        let attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.directory.all().iter().all(|place| {
            attempts
                .get(&place.wanted.name)
                .is_some_and(|ready| *ready == newest)
        });
        if all && newest > 0 {
            self.health.caught_up(true);
        }
    }

    /// After a start it is not known where runs are active.
    async fn type_where_runs_are_active(&self, place: &Place) {
        let since = Instant::now();
        let request = wire::ConversationsRequest {
            limit: 500,
            before: 0,
        };
        let Ok(answer) = place.harness.conversations(request).await else {
            return;
        };
        for conversation in answer.conversations {
            let active = !matches!(conversation.state.as_str(), "" | "idle" | "waiting");
            if let Some(thread) = conversation.thread_id.parse().ok().filter(|_| active) {
                self.typing.start_since(&self.api, thread, since);
            }
        }
    }
}
