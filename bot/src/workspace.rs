//! The workspaces that the bot serves: what is wanted of each, and the places that
//! are kept for them.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use mooring_crds::{Answer, DiscordSpec, RespondTo, WhenBusy};
use tokio::sync::{Notify, watch};

use crate::harness::{Address, Harness, HarnessError};
use crate::id::Id;

/// What is wanted of one workspace; the same again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The Workspace's name; in a cluster `NAMESPACE/NAME`.
    pub name: String,
    /// Its guild.
    pub guild: Id,
    /// Its channel: text or forum.
    pub channel: Id,
    /// What is an input.
    pub respond_to: RespondTo,
    /// What happens to inputs while a run goes on.
    pub when_busy: WhenBusy,
    /// Where the answer is shown.
    pub answer: Answer,
    /// Bytes of one attachment.
    pub attachment_bytes: u64,
    /// Attachments of one message.
    pub attachment_count: usize,
    /// Where its harness is.
    pub harness: Address,
}

impl Wanted {
    /// Reads `spec.discord`; `at` names the Workspace in the error.
    pub fn read(
        name: String,
        at: &str,
        discord: &DiscordSpec,
        harness: Address,
    ) -> Result<Wanted, Rejected> {
        let bad = |message: String| Rejected::invalid(&name, message);
        let id = |field: &str, text: &str| {
            text.parse::<Id>().map_err(|_| {
                bad(format!(
                    "{at}: spec.discord.{field}: `{text}` is no Discord id"
                ))
            })
        };
        Ok(Wanted {
            guild: id("guildId", &discord.guild_id)?,
            channel: id("channelId", &discord.channel_id)?,
            respond_to: discord.respond_to,
            when_busy: discord.when_busy,
            answer: discord.answer,
            attachment_bytes: discord.attachments.bytes().ok_or_else(|| {
                bad(format!(
                    "{at}: spec.discord.attachments.maxBytes is no size"
                ))
            })?,
            attachment_count: discord.attachments.max_count as usize,
            harness,
            name,
        })
    }
}

/// A Workspace that cannot be served, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its name, or its file.
    pub name: String,
    /// A stable word.
    pub reason: &'static str,
    /// What to do.
    pub message: String,
}

impl Rejected {
    /// Its spec is wrong.
    pub fn invalid(name: &str, message: String) -> Rejected {
        Rejected {
            name: name.to_owned(),
            reason: "Invalid",
            message,
        }
    }
}

/// All workspaces, those first who claimed their channel first.
pub type Roster = Vec<Result<Wanted, Rejected>>;

/// A workspace's place in Discord, and its harness.
pub struct Place {
    /// Whose it is, where, and what goes there.
    pub wanted: Wanted,
    /// Its harness.
    pub harness: Harness,
    /// Whether the channel is a forum.
    pub forum: AtomicBool,
    /// When the last sweep began (ms since 1970); 0 before the first.
    pub swept_ms: AtomicI64,
    /// Rung to have it swept now.
    pub look_again: Notify,
    away: AtomicBool,
    gone: watch::Sender<bool>,
}

impl Place {
    fn new(wanted: &Wanted) -> Place {
        Place {
            wanted: wanted.clone(),
            harness: Harness::at(&wanted.harness),
            forum: AtomicBool::new(false),
            swept_ms: AtomicI64::new(0),
            look_again: Notify::new(),
            away: AtomicBool::new(false),
            gone: watch::Sender::new(false),
        }
    }

    /// Returns once the workspace is served no more, or by another place.
    pub async fn gone(&self) {
        let mut gone = self.gone.subscribe();
        // The sender lives as long as the place.
        let _ = gone.wait_for(|gone| *gone).await;
    }

    /// What the harness said, and that it was there or was not.
    pub fn heard<T>(&self, answer: Result<T, HarnessError>) -> Result<T, HarnessError> {
        let away = matches!(answer, Err(HarnessError::Away(_)));
        self.away.store(away, Ordering::Relaxed);
        answer
    }

    /// Whether the harness could not be reached when it was last asked for something.
    pub fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    /// Whether it is served no more.
    pub fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }
}

/// What a new roster changed.
#[derive(Default)]
pub struct Changed {
    /// Places that are new.
    pub begun: Vec<Arc<Place>>,
    /// Workspaces that cannot be served.
    pub rejected: Vec<Rejected>,
    /// Names that are not in the roster any more.
    pub left: Vec<String>,
}

/// The places, by channel.
#[derive(Default)]
pub struct Directory {
    places: RwLock<HashMap<Id, Arc<Place>>>,
    known: RwLock<BTreeSet<String>>,
}

impl Directory {
    /// Takes over a roster. A place whose Workspace did not change stays; of two
    /// that claim a channel the first has it.
    pub fn replace(&self, roster: &Roster) -> Changed {
        let mut changed = Changed::default();
        let mut wanted: HashMap<Id, &Wanted> = HashMap::new();
        let mut names = BTreeSet::new();
        for one in roster {
            match one {
                Err(rejected) => {
                    names.insert(rejected.name.clone());
                    changed.rejected.push(rejected.clone());
                }
                Ok(one) => {
                    names.insert(one.name.clone());
                    if let Some(first) = wanted.get(&one.channel) {
                        changed.rejected.push(Rejected {
                            message: format!(
                                "channel {} belongs to Workspace {}; give this one a channel of its own",
                                one.channel, first.name
                            ),
                            name: one.name.clone(),
                            reason: "ChannelTaken",
                        });
                    } else {
                        wanted.insert(one.channel, one);
                    }
                }
            }
        }
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        places.retain(|channel, place| {
            let stays = wanted.get(channel).is_some_and(|one| **one == place.wanted);
            if !stays {
                place.gone.send_replace(true);
            }
            stays
        });
        for (channel, one) in wanted {
            places.entry(channel).or_insert_with(|| {
                let place = Arc::new(Place::new(one));
                changed.begun.push(place.clone());
                place
            });
        }
        drop(places);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        changed.left = known.difference(&names).cloned().collect();
        *known = names;
        changed
    }

    /// The place of a channel.
    pub fn of_channel(&self, channel: Id) -> Option<Arc<Place>> {
        self.places
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&channel)
            .cloned()
    }

    /// All places.
    pub fn all(&self) -> Vec<Arc<Place>> {
        self.places
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn wanted(name: &str, channel: u64) -> Wanted {
        let discord = DiscordSpec {
            guild_id: "1".into(),
            channel_id: channel.to_string(),
            ..DiscordSpec::default()
        };
        let harness = Address::parse("http://127.0.0.1:1").unwrap();
        Wanted::read(name.into(), name, &discord, harness).unwrap()
    }

    #[tokio::test]
    async fn a_channel_claimed_twice_is_refused_to_the_later_and_the_others_go_on() {
        let directory = Directory::default();
        let changed = directory.replace(&vec![
            Ok(wanted("first", 10)),
            Ok(wanted("second", 10)),
            Ok(wanted("third", 11)),
            Err(Rejected::invalid("fourth", "nonsense".into())),
        ]);
        assert_eq!(directory.of_channel(Id(10)).unwrap().wanted.name, "first");
        assert_eq!(directory.all().len(), 2);
        let told: Vec<_> = changed
            .rejected
            .iter()
            .map(|one| (one.name.as_str(), one.reason))
            .collect();
        assert_eq!(told, [("second", "ChannelTaken"), ("fourth", "Invalid")]);
        assert!(
            changed.rejected[0]
                .message
                .contains("belongs to Workspace first")
        );
    }

    #[tokio::test]
    async fn a_workspace_that_changes_gets_a_new_place_and_the_others_keep_theirs() {
        let directory = Directory::default();
        directory.replace(&vec![Ok(wanted("first", 10)), Ok(wanted("second", 11))]);
        let (first, second) = (
            directory.of_channel(Id(10)).unwrap(),
            directory.of_channel(Id(11)).unwrap(),
        );
        let mut other = wanted("second", 11);
        other.when_busy = WhenBusy::Queue;
        let changed = directory.replace(&vec![Ok(wanted("first", 10)), Ok(other)]);
        assert_eq!(changed.begun.len(), 1);
        assert!(second.is_gone() && !first.is_gone());
        assert!(Arc::ptr_eq(&first, &directory.of_channel(Id(10)).unwrap()));
        // The channel of one that left goes to who waits for it.
        let changed = directory.replace(&vec![Ok(wanted("third", 10))]);
        assert_eq!(changed.left, ["first", "second"]);
        assert!(first.is_gone());
        first.gone().await;
        assert_eq!(directory.of_channel(Id(10)).unwrap().wanted.name, "third");
    }

    #[test]
    fn a_wrong_id_or_size_names_its_field() {
        let mut discord = DiscordSpec {
            guild_id: "x".into(),
            channel_id: "1".into(),
            ..DiscordSpec::default()
        };
        let read = |discord: &DiscordSpec| {
            let harness = Address::parse("unix:/run/x").unwrap();
            Wanted::read("w".into(), "w.yaml", discord, harness).unwrap_err()
        };
        assert_eq!(
            read(&discord).message,
            "w.yaml: spec.discord.guildId: `x` is no Discord id"
        );
        discord.guild_id = "1".into();
        discord.attachments.max_bytes = "ten".into();
        assert!(read(&discord).message.contains("maxBytes"));
    }
}
