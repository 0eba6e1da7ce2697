//! What the stand-in knows: guilds, channels, members, messages, applications.
//!
//! Plain records and look-ups. What happens to them is in `act`, what of them a
//! client sees is in `show`.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::{Clock, Id};
use crate::fault::{DispatchFault, Fault};
use crate::gateway::Session;
use crate::ledger::Ledger;
use crate::limit::Limits;

/// Kind of a channel with messages.
pub const TEXT: u8 = 0;
/// Kind of a thread that all of the channel see.
pub const PUBLIC_THREAD: u8 = 11;
/// Kind of a thread by invitation.
pub const PRIVATE_THREAD: u8 = 12;
/// Kind of a channel that holds only threads.
pub const FORUM: u8 = 15;

/// A person, a bot or a webhook.
#[derive(Clone, Debug)]
pub struct User {
    /// Its id.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// Whether it is a bot.
    pub bot: bool,
}

/// A named set of permissions.
#[derive(Clone, Debug)]
pub struct RoleRecord {
    /// Its id; that of the guild for everyone.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// Permission bits.
    pub permissions: u64,
}

/// A user in a guild.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Role ids, without everyone.
    pub roles: Vec<Id>,
    /// When the user came, in milliseconds since 1970.
    pub joined_ms: u64,
}

/// Permissions that a channel takes from, or gives to, a role or a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Overwrite {
    /// Role or user.
    pub id: Id,
    /// Bits given.
    pub allow: u64,
    /// Bits taken.
    pub deny: u64,
    /// Whether `id` is a user.
    pub member: bool,
}

/// A guild.
#[derive(Clone, Debug)]
pub struct Guild {
    /// Its id.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// Who owns it.
    pub owner: Id,
    /// By id, with everyone.
    pub roles: BTreeMap<Id, RoleRecord>,
    /// By user id.
    pub members: BTreeMap<Id, Member>,
}

/// What makes a channel a thread.
#[derive(Clone, Debug)]
pub struct ThreadState {
    /// The channel it is in.
    pub parent: Id,
    /// Archived threads take no edits.
    pub archived: bool,
    /// Locked threads take no messages once archived.
    pub locked: bool,
    /// Last change of `archived`, in milliseconds since 1970.
    pub archived_ms: u64,
    /// Minutes without a message after which it is archived.
    pub auto_archive_min: u64,
    /// Who is in it.
    pub members: Vec<Id>,
}

/// A channel or a thread.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Its id; a thread that was opened on a message has the message's.
    pub id: Id,
    /// Its guild.
    pub guild: Id,
    /// [`TEXT`], [`FORUM`], [`PUBLIC_THREAD`] or [`PRIVATE_THREAD`].
    pub kind: u8,
    /// Its name.
    pub name: String,
    /// Who opened a thread.
    pub owner: Option<Id>,
    /// Of a channel; a thread has its parent's.
    pub overwrites: Vec<Overwrite>,
    /// The newest message ever written in it, which may be deleted.
    pub last_message: Option<Id>,
    /// Present for threads.
    pub thread: Option<ThreadState>,
    /// By id.
    pub messages: BTreeMap<Id, Message>,
}

/// A file that was uploaded.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Its id.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// Its media type.
    pub media_type: String,
    /// Its content.
    pub data: bytes::Bytes,
}

/// Who would be notified by a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pings {
    /// All of the channel.
    pub everyone: bool,
    /// Holders of these roles.
    pub roles: Vec<Id>,
    /// These users.
    pub users: Vec<Id>,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its id.
    pub id: Id,
    /// Where it is.
    pub channel: Id,
    /// Who wrote it.
    pub author: Id,
    /// Discord's message type: 0 plain, 19 reply, 20 answer to a slash command, 21
    /// first row of a thread.
    pub kind: u8,
    /// Its text.
    pub content: String,
    /// Last edit of its text by its author, in milliseconds since 1970.
    pub edited_ms: Option<u64>,
    /// The message it replies to.
    pub reply_to: Option<Id>,
    /// Embeds as they were sent.
    pub embeds: Vec<Value>,
    /// Components as they were sent.
    pub components: Vec<Value>,
    /// Files.
    pub attachments: Vec<Attachment>,
    /// Message flags.
    pub flags: u64,
    /// Emoji and who reacted with it.
    pub reactions: BTreeMap<String, Vec<Id>>,
    /// Who was notified when it was written.
    pub pings: Pings,
    /// The application behind an answer to an interaction or of a webhook.
    pub webhook: Option<Id>,
    /// Edits made after it was an hour old.
    pub old_edits: u32,
    /// How often it was edited.
    pub edits: u32,
}

/// An application and its bot user, which have one id.
#[derive(Clone, Debug)]
pub struct Application {
    /// Id of the application and of its bot.
    pub id: Id,
    /// Its token.
    pub token: String,
    /// Privileged intents that are switched on for it.
    pub privileged: u64,
    /// Registered commands: of a guild, or of all under 0.
    pub commands: HashMap<Id, Vec<Value>>,
    /// Identifies left of the day's.
    pub identifies_left: u32,
    /// When they are all there again, in milliseconds since 1970.
    pub identifies_reset_ms: u64,
    /// When it identified last, in milliseconds since 1970.
    pub identified_ms: u64,
}

/// Something a user did with the application: a command, a click, typing in a
/// command's field.
#[derive(Clone, Debug)]
pub struct Interaction {
    /// Its id.
    pub id: Id,
    /// What answers it.
    pub token: String,
    /// Whose it is.
    pub application: Id,
    /// Where it happened.
    pub channel: Id,
    /// Who did it.
    pub user: Id,
    /// Message of the clicked button.
    pub message: Option<Id>,
    /// When it was made, in milliseconds since 1970.
    pub made_ms: u64,
    /// The callback it got, with its type.
    pub callback: Option<Value>,
    /// Milliseconds to the callback.
    pub answered_after_ms: Option<u64>,
    /// What the user sees of it now; deferred ones show nothing.
    pub shown: Option<Value>,
    /// Further messages of it.
    pub followups: Vec<Value>,
}

/// How hard the stand-in is to please; the defaults are Discord's.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Whether REST limits hold.
    pub limits: bool,
    /// Milliseconds between heartbeats that HELLO asks for.
    pub heartbeat_ms: u64,
    /// How long a nonce is kept.
    pub nonce_window_ms: u64,
    /// Milliseconds that must lie between two identifies.
    pub identify_interval_ms: u64,
    /// Identifies in a day.
    pub identify_total: u32,
    /// Edits that a message of more than an hour takes in an hour.
    pub old_edits: u32,
    /// Bytes that one upload may have.
    pub upload_bytes: usize,
    /// How long an attachment's address works.
    pub link_ms: u64,
    /// How long a session can be resumed after its connection is gone.
    pub resume_ms: u64,
    /// Dispatches kept for a resume.
    pub replay: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            limits: true,
            heartbeat_ms: 41_250,
            nonce_window_ms: 180_000,
            identify_interval_ms: 5_000,
            identify_total: 1_000,
            old_edits: 3,
            upload_bytes: 10 << 20,
            link_ms: 24 * 3_600_000,
            resume_ms: 120_000,
            replay: 4_096,
        }
    }
}

/// A nonce that is still kept: author, nonce, message, channel, when.
pub(crate) type Nonce = (Id, String, Id, Id, u64);

/// Everything.
#[derive(Debug, Default)]
pub struct World {
    /// Time and ids.
    pub clock: Clock,
    /// How hard to please.
    pub settings: Settings,
    /// Address of this server, `http://127.0.0.1:port`.
    pub address: String,
    /// By id.
    pub users: BTreeMap<Id, User>,
    /// By id.
    pub guilds: BTreeMap<Id, Guild>,
    /// Channels and threads by id.
    pub channels: BTreeMap<Id, Channel>,
    /// By id.
    pub applications: BTreeMap<Id, Application>,
    /// By id.
    pub interactions: BTreeMap<Id, Interaction>,
    /// Every write and what became of it.
    pub ledger: Ledger,
    pub(crate) limits: Limits,
    pub(crate) faults: Vec<Fault>,
    pub(crate) dispatch_faults: Vec<DispatchFault>,
    pub(crate) nonces: VecDeque<Nonce>,
    pub(crate) sessions: HashMap<String, Session>,
    /// No new gateway connection is answered while this is set.
    pub gateway_down: bool,
    /// Every REST request is answered with 503 while this is set.
    pub rest_down: bool,
}

impl World {
    /// The channel that permissions of `channel` come from.
    pub fn parent<'a>(&'a self, channel: &'a Channel) -> &'a Channel {
        channel
            .thread
            .as_ref()
            .and_then(|thread| self.channels.get(&thread.parent))
            .unwrap_or(channel)
    }

    /// What `user` may do in `channel`.
    pub fn permissions(&self, channel: &Channel, user: Id) -> u64 {
        self.guilds.get(&channel.guild).map_or(0, |guild| {
            crate::permission::of(guild, self.parent(channel), user)
        })
    }

    /// The message, wherever it is.
    pub fn message(&self, channel: Id, message: Id) -> Option<&Message> {
        self.channels.get(&channel)?.messages.get(&message)
    }

    /// Messages of a channel, oldest first.
    pub fn messages(&self, channel: Id) -> impl Iterator<Item = &Message> {
        self.channels
            .get(&channel)
            .into_iter()
            .flat_map(|channel| channel.messages.values())
    }

    /// The application with this token.
    pub fn by_token(&self, token: &str) -> Option<&Application> {
        self.applications
            .values()
            .find(|application| application.token == token)
    }

    /// Lets a fault happen.
    pub fn faults(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Lets a fault of the gateway happen.
    pub fn dispatch_faults(&mut self, fault: DispatchFault) {
        self.dispatch_faults.push(fault);
    }

    /// No fault happens any more.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
        self.dispatch_faults.clear();
    }

    /// Tells that a channel was changed.
    pub fn channel_changed(&mut self, channel: Id) {
        self.tell_channel("CHANNEL_UPDATE", channel);
    }

    /// Gives the day's identifies again when their time has come.
    pub(crate) fn refresh_identifies(&mut self, application: Id) {
        let (now, total) = (self.clock.now_ms(), self.settings.identify_total);
        if let Some(application) = self.applications.get_mut(&application)
            && application.identifies_reset_ms <= now
        {
            application.identifies_reset_ms = now + 24 * 3_600_000;
            application.identifies_left = total;
        }
    }

    /// Number of sessions whose connection is open.
    pub fn connected(&self) -> usize {
        self.sessions
            .values()
            .filter(|session| session.is_connected())
            .count()
    }
}
