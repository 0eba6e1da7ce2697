//! What is wrong in one workspace is named, and the others go on.

use mooring_discord_standin::world::{Overwrite, TEXT};

use crate::double::Double;
use crate::stage::{Stage, get};

async fn condition(stage: &mut Stage, workspace: &str, reason: &str) -> String {
    let bot = stage.bot.as_mut().unwrap();
    let health = bot.health().await;
    let waiting = async {
        loop {
            let (_, text) = get(&health, "/conditions").await;
            let all: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            if all[workspace]["reason"] == reason {
                return all[workspace]["message"].as_str().unwrap_or("").to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(crate::stage::BOUND, waiting).await {
        Ok(message) => message,
        Err(_) => panic!("{workspace} never had {reason}: {}", stage.describe()),
    }
}

#[tokio::test]
async fn f55_a_missing_permission_is_named_with_its_channel_and_others_go_on() {
    let mut stage = Stage::set(TEXT, "").await;
    let (open, closed) = stage.standin.act(|world| {
        let open = world.add_channel(stage.guild, "no threads", TEXT);
        let closed = world.add_channel(stage.guild, "hidden", TEXT);
        for (channel, deny) in [(open, 1 << 35 | 1 << 38), (closed, 1 << 10)] {
            let over = Overwrite {
                id: stage.me,
                allow: 0,
                deny,
                member: true,
            };
            world
                .channels
                .get_mut(&channel)
                .unwrap()
                .overwrites
                .push(over);
        }
        (open, closed)
    });
    let second = Double::start().await;
    stage.workspace("no-threads", open, &second.address, "");
    stage.workspace("hidden", closed, &second.address, "");
    stage.start().await;
    let message = condition(&mut stage, "no-threads", "MissingPermission").await;
    assert!(
        message.contains("Send Messages in Threads, Create Public Threads"),
        "{message}"
    );
    assert!(
        message.contains(&open.to_string()) && message.contains("permissions=309237763136"),
        "{message}"
    );
    let message = condition(&mut stage, "hidden", "MissingPermission").await;
    assert!(message.contains("View Channels"), "{message}");
    stage.conversation().await;
    // Once it is given, the condition is another.
    stage.standin.act(|world| {
        world.channels.get_mut(&open).unwrap().overwrites.clear();
        world.channel_changed(open);
    });
    condition(&mut stage, "no-threads", "Connected").await;
    stage.check().await;
}

#[tokio::test]
async fn a_channel_that_is_deleted_and_a_guild_that_was_left_are_conditions() {
    let mut stage = Stage::set(TEXT, "").await;
    let (gone, guild, other) = stage.standin.act(|world| {
        let gone = world.add_channel(stage.guild, "soon gone", TEXT);
        let owner = world.add_user("another owner", false);
        let guild = world.add_guild("another", owner);
        let other = world.add_channel(guild, "there", TEXT);
        world.add_member(guild, stage.me, &[]);
        (gone, guild, other)
    });
    let second = Double::start().await;
    stage.workspace("gone", gone, &second.address, "");
    let text = std::fs::read_to_string(stage.folder.path().join("gone.yaml")).unwrap();
    let text = text
        .replace("name: gone", "name: left")
        .replace(&stage.guild.to_string(), &guild.to_string())
        .replace(&gone.to_string(), &other.to_string());
    std::fs::write(stage.folder.path().join("left.yaml"), text).unwrap();
    stage.workspace("never", 12345, &second.address, "");
    stage.start().await;
    let message = condition(&mut stage, "never", "ChannelNotFound").await;
    assert!(message.contains("no channel 12345"), "{message}");
    stage.standin.act(|world| world.remove_channel(gone));
    condition(&mut stage, "gone", "ChannelNotFound").await;
    stage
        .standin
        .act(|world| world.remove_member(guild, stage.me));
    condition(&mut stage, "left", "GuildLeft").await;
    stage.conversation().await;
    stage.check().await;
}

#[tokio::test]
async fn a_channel_claimed_twice_is_a_condition_of_the_later_workspace() {
    let mut stage = Stage::set(TEXT, "").await;
    stage.workspace("zebra", stage.channel, "http://127.0.0.1:1", "");
    stage.start().await;
    let message = condition(&mut stage, "zebra", "ChannelTaken").await;
    assert!(
        message.contains("belongs to Workspace platform"),
        "{message}"
    );
    stage.conversation().await;
    stage.check().await;
}

#[tokio::test]
async fn a_workspace_whose_harness_is_away_holds_up_no_other() {
    let mut stage = Stage::set(TEXT, "").await;
    let away = stage
        .standin
        .act(|world| world.add_channel(stage.guild, "away", TEXT));
    let second = Double::start().await;
    second.act(|state| state.away = true);
    stage.workspace("away", away, &second.address, "");
    stage.start().await;
    stage.conversation().await;
    let thread = stage.post(away, &format!("<@{}> later", stage.me));
    stage
        .until("the waking sign", |world| {
            world
                .message(away, thread)?
                .reactions
                .contains_key("⏳")
                .then_some(())
        })
        .await;
    second.act(|state| state.away = false);
    stage.answered(thread, "answer to later").await;
    stage.check().await;
}

#[tokio::test]
async fn ready_waits_for_the_catch_up_and_that_for_a_harness_that_comes_back() {
    let mut stage = Stage::set(TEXT, "").await;
    // The channel has its cursor.
    stage.start().await;
    stage.kill().await;
    stage.double.act(|state| state.away = true);
    let thread = stage.mention("said to nobody");
    stage.launch().await;
    let bot = stage.bot.as_mut().unwrap();
    let health = bot.health().await;
    bot.said("could not be swept yet").await;
    assert!(!get(&health, "/readyz").await.0, "nothing was caught up");
    // No sweep comes for five minutes: it is tried again until it has succeeded.
    stage.double.act(|state| state.away = false);
    stage.answered(thread, "answer to said to nobody").await;
    stage.bot.as_mut().unwrap().ready().await;
    stage.check().await;
}

#[tokio::test]
async fn what_was_said_while_no_thread_could_be_opened_is_answered_once_one_can() {
    let mut stage = Stage::set(TEXT, "").await;
    // The channel has its cursor.
    stage.start().await;
    stage.kill().await;
    stage.standin.act(|world| {
        let over = Overwrite {
            id: stage.me,
            allow: 0,
            deny: 1 << 35,
            member: true,
        };
        let channel = world.channels.get_mut(&stage.channel).unwrap();
        channel.overwrites.push(over);
    });
    let thread = stage.mention("said too early");
    stage.launch().await;
    condition(&mut stage, "platform", "MissingPermission").await;
    stage
        .bot
        .as_mut()
        .unwrap()
        .said("no thread could be opened")
        .await;
    stage.standin.act(|world| {
        let channel = world.channels.get_mut(&stage.channel).unwrap();
        channel.overwrites.clear();
        world.channel_changed(stage.channel);
    });
    stage.answered(thread, "answer to said too early").await;
    stage.check().await;
}
