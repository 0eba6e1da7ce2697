//! The workspaces that the bot serves, from files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64};

use mooring_crds::{Answer, RespondTo, WhenBusy, read_workspace};

use tokio::sync::Notify;

use crate::BotError;
use crate::harness::Harness;
use crate::id::Id;

/// Annotation that names the harness's address.
pub const HARNESS: &str = "mooring.dev/harness";

/// A workspace's place in Discord, and its harness.
pub struct Place {
    /// The Workspace's name.
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
    /// Its harness.
    pub harness: Harness,
    /// Whether the channel is a forum.
    pub forum: AtomicBool,
    /// When the last sweep began (ms since 1970); 0 before the first.
    pub swept_ms: AtomicI64,
    /// Rung to have it swept now.
    pub look_again: Notify,
}

/// A Workspace that cannot be served, and why.
pub struct Rejected {
    /// Its name, or its file.
    pub name: String,
    /// A stable word.
    pub reason: &'static str,
    /// What to do.
    pub message: String,
}

/// All of them.
#[derive(Default)]
pub struct Directory {
    /// By channel.
    places: HashMap<Id, Arc<Place>>,
}

impl Directory {
    /// Reads every `*.yaml` of the folder, in the order of their names; one that
    /// cannot be served does not stop the others.
    pub fn read(folder: &Path) -> Result<(Directory, Vec<Rejected>), BotError> {
        let told = |error| BotError::Argument(format!("{}: {error}", folder.display()));
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .map_err(told)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.extension()
                    .is_some_and(|ext| ext == "yaml" || ext == "yml")
            })
            .collect();
        files.sort();
        let (mut directory, mut rejected) = (Directory::default(), Vec::new());
        for file in files {
            let text = std::fs::read_to_string(&file)
                .map_err(|error| BotError::Argument(format!("{}: {error}", file.display())))?;
            match place(&text, &file.display().to_string()) {
                Ok(place) => {
                    if let Some(first) = directory.places.get(&place.channel) {
                        rejected.push(Rejected {
                            message: format!(
                                "channel {} belongs to Workspace {}; give this one a channel of its own",
                                place.channel, first.name
                            ),
                            name: place.name,
                            reason: "ChannelTaken",
                        });
                    } else {
                        directory.places.insert(place.channel, Arc::new(place));
                    }
                }
                Err(why) => rejected.push(why),
            }
        }
        if directory.places.is_empty() {
            let why: Vec<_> = rejected.iter().map(|one| one.message.clone()).collect();
            return Err(BotError::Workspace(format!(
                "{}: no Workspace can be served: {}",
                folder.display(),
                if why.is_empty() {
                    "there is no file *.yaml".into()
                } else {
                    why.join("; ")
                }
            )));
        }
        Ok((directory, rejected))
    }

    /// The place of a channel.
    pub fn of_channel(&self, channel: Id) -> Option<&Arc<Place>> {
        self.places.get(&channel)
    }

    /// All places.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Place>> {
        self.places.values()
    }
}

fn place(text: &str, file: &str) -> Result<Place, Rejected> {
    let bad = |message: String| Rejected {
        name: file.to_owned(),
        reason: "Invalid",
        message,
    };
    let workspace = read_workspace(text, file).map_err(|error| bad(error.to_string()))?;
    let name = workspace
        .metadata
        .name
        .clone()
        .unwrap_or_else(|| file.to_owned());
    let discord = workspace
        .spec
        .discord
        .as_ref()
        .ok_or_else(|| bad(format!("{file}: spec.discord is missing")))?;
    let id = |field: &str, text: &str| {
        text.parse::<Id>().map_err(|_| {
            bad(format!(
                "{file}: spec.discord.{field}: `{text}` is no Discord id"
            ))
        })
    };
    let address = workspace
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(HARNESS))
        .ok_or_else(|| bad(format!("{file}: the annotation {HARNESS} is missing")))?;
    let harness = Harness::at(address).map_err(|why| bad(format!("{file}: {HARNESS}: {why}")))?;
    Ok(Place {
        guild: id("guildId", &discord.guild_id)?,
        channel: id("channelId", &discord.channel_id)?,
        respond_to: discord.respond_to,
        when_busy: discord.when_busy,
        answer: discord.answer,
        attachment_bytes: discord.attachments.bytes().ok_or_else(|| {
            bad(format!(
                "{file}: spec.discord.attachments.maxBytes is no size"
            ))
        })?,
        attachment_count: discord.attachments.max_count as usize,
        name,
        harness,
        forum: AtomicBool::new(false),
        swept_ms: AtomicI64::new(0),
        look_again: Notify::new(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(name: &str, channel: &str) -> String {
        format!(
            "apiVersion: mooring.dev/v1alpha1\nkind: Workspace\nmetadata:\n  name: {name}\n  annotations:\n    \
             mooring.dev/harness: http://127.0.0.1:1\nspec:\n  models: [{{name: m, provider: rehearsal}}]\n  \
             discord: {{guildId: \"1\", channelId: \"{channel}\"}}\n"
        )
    }

    #[tokio::test]
    async fn a_channel_claimed_twice_is_refused_to_the_later_and_the_others_go_on() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.yaml", file("first", "10")),
            ("b.yaml", file("second", "10")),
            ("c.yaml", file("third", "11")),
            ("d.yaml", "nonsense: [".to_owned()),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let (directory, rejected) = Directory::read(folder.path()).unwrap();
        assert_eq!(directory.of_channel(Id(10)).unwrap().name, "first");
        assert_eq!(directory.all().count(), 2);
        assert_eq!(rejected.len(), 2);
        assert_eq!(
            (rejected[0].name.as_str(), rejected[0].reason),
            ("second", "ChannelTaken")
        );
        assert!(rejected[0].message.contains("belongs to Workspace first"));
    }

    #[test]
    fn an_empty_folder_is_an_error_that_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let error = Directory::read(folder.path()).err().unwrap().to_string();
        assert!(error.contains("there is no file *.yaml"), "{error}");
    }
}
