//! Approval cards, buttons and slash commands.

use std::time::Duration;

use mooring_discord_standin::act::Act;
use mooring_discord_standin::fault::FaultKind;
use mooring_discord_standin::world::Message;
use serde_json::json;

use crate::stage::{Stage, options};

/// A run that waits for an approval, and its card.
async fn asked(stage: &Stage, id: &str) -> (u64, i64, Message) {
    stage.double.act(|state| state.answers_itself = false);
    let thread = stage.mention("push it");
    let input = stage
        .double
        .until("the run", |state| {
            state.input(&thread.to_string()).map(|i| i.id)
        })
        .await;
    stage.double.ask(id, input, "git push origin main");
    let card = stage.answered(thread, "**Approval needed**").await;
    stage.settled().await;
    (thread, input, card)
}

#[tokio::test]
async fn f46_a_card_shows_the_command_and_its_expiry_and_the_first_decision_wins() {
    let stage = Stage::ready().await;
    let (thread, input, card) = asked(&stage, "abc-7").await;
    assert!(
        card.content.contains("```\ngit push origin main\n```"),
        "{}",
        card.content
    );
    assert!(card.content.contains("Expires <t:") && card.content.contains("Asked by: ada"));
    let (first, second) = (
        stage.click(&card, stage.ada, 0),
        stage.click(&card, stage.ada, 2),
    );
    let told = [stage.followed(first).await, stage.followed(second).await];
    assert!(
        told.iter()
            .any(|text| text == "Approved: git push origin main"
                || text == "Denied: git push origin main"),
        "{told:?}"
    );
    assert!(
        told.iter()
            .any(|text| text.starts_with("Already ") && text.contains("by ada via discord <t:")),
        "{told:?}"
    );
    stage.settled().await;
    let closed = stage
        .standin
        .look(|world| world.message(thread, card.id).cloned())
        .unwrap();
    assert!(
        closed.components.is_empty(),
        "a settled card has no buttons"
    );
    stage.double.answer(input, Ok("pushed"), 5);
    stage.check().await;
}

#[tokio::test]
async fn f41_buttons_work_after_a_restart_and_a_stale_one_gets_a_clear_reply() {
    let mut stage = Stage::ready().await;
    let (thread, input, card) = asked(&stage, "abc-7").await;
    stage.kill().await;
    stage.start().await;
    let click = stage.click(&card, stage.ada, 1);
    assert_eq!(
        stage.followed(click).await,
        "Approved: git push origin main"
    );
    stage.double.look(|state| {
        assert_eq!(state.decisions[0].scope, 2, "for this conversation");
        assert_eq!(state.decisions[0].via, "discord");
    });
    stage.settled().await;
    // An approval that nobody knows any more: a clear reply, and the card is closed.
    stage.double.ask("abc-8", input, "git push --force");
    let card = stage
        .until("the second card", |world| {
            world
                .messages(thread)
                .find(|m| m.content.contains("--force") && !m.components.is_empty())
                .cloned()
        })
        .await;
    stage.settled().await;
    stage.double.act(|state| state.approvals.remove("abc-8"));
    let click = stage.click(&card, stage.ada, 0);
    assert_eq!(stage.followed(click).await, "there is no such approval");
    stage
        .until("the card is closed", |world| {
            world
                .message(thread, card.id)?
                .components
                .is_empty()
                .then_some(())
        })
        .await;
    stage.check().await;
}

#[tokio::test]
async fn a_card_that_was_decided_elsewhere_is_edited_also_in_an_archived_thread() {
    let stage = Stage::ready().await;
    let (thread, input, card) = asked(&stage, "abc-7").await;
    stage
        .standin
        .act(|world| world.set_archived(thread, true, false));
    stage
        .double
        .decide("abc-7", false, "grace@example.com", "kubernetes");
    let closed = stage.answered(thread, "**Denied**").await;
    assert_eq!(closed.id, card.id, "the same message");
    assert!(
        closed
            .content
            .contains("By grace@example.com via kubernetes <t:")
    );
    stage.double.answer(input, Ok("not pushed"), 5);
    stage.check().await;
}

#[tokio::test]
async fn f43_a_click_is_acknowledged_at_once_though_the_decision_takes_long() {
    let stage = Stage::ready().await;
    let (_, input, card) = asked(&stage, "abc-7").await;
    stage
        .double
        .act(|state| state.decide_delay = Duration::from_secs(4));
    let click = stage.click(&card, stage.ada, 0);
    assert_eq!(
        stage.followed(click).await,
        "Approved: git push origin main"
    );
    let after = stage
        .standin
        .look(|world| world.interactions[&click].answered_after_ms)
        .unwrap();
    assert!(after < 3_000, "acknowledged after {after} ms");
    stage.double.answer(input, Ok("pushed"), 5);
    stage.check().await;
}

#[tokio::test]
async fn f44_an_interaction_that_is_too_late_or_was_answered_harms_nothing() {
    let stage = Stage::ready().await;
    let (_, input, card) = asked(&stage, "abc-7").await;
    for (status, code) in [(404, 10062), (400, 40060)] {
        let body = json!({"code": code, "message": "too late"});
        stage.fault(
            "POST",
            "/interactions/",
            1,
            FaultKind::Status { status, body },
        );
        stage.click(&card, stage.ada, 0);
        stage
            .until("the refusal", |world| {
                world
                    .ledger
                    .writes
                    .iter()
                    .any(|w| w.path.starts_with("/interactions/") && w.status == status)
                    .then_some(())
            })
            .await;
    }
    assert!(
        stage.double.look(|state| state.decisions.is_empty()),
        "it was not counted"
    );
    let click = stage.click(&card, stage.ada, 0);
    assert_eq!(
        stage.followed(click).await,
        "Approved: git push origin main"
    );
    stage.double.answer(input, Ok("pushed"), 5);
    stage.check().await;
}

#[tokio::test]
async fn while_the_harness_is_away_a_click_is_not_recorded_and_that_is_said() {
    let stage = Stage::ready().await;
    let (_, input, card) = asked(&stage, "abc-7").await;
    stage.double.act(|state| state.away = true);
    let click = stage.click(&card, stage.ada, 0);
    assert!(stage.followed(click).await.starts_with("Not recorded"));
    stage.double.act(|state| state.away = false);
    let click = stage.click(&card, stage.ada, 0);
    assert_eq!(
        stage.followed(click).await,
        "Approved: git push origin main"
    );
    stage.double.answer(input, Ok("pushed"), 5);
    stage.check().await;
}

#[tokio::test]
async fn f47_f50_messages_commands_and_buttons_carry_the_same_person_to_one_table() {
    let stage = Stage::ready().await;
    let (thread, input, card) = asked(&stage, "abc-7").await;
    let eve = stage.standin.act(|world| {
        let eve = world.add_user("eve", false);
        world.add_member(stage.guild, eve, &[]);
        eve
    });
    stage
        .double
        .act(|state| state.strangers.push(eve.to_string()));
    let click = stage.click(&card, eve, 0);
    assert_eq!(
        stage.followed(click).await,
        "approving needs the role Approver"
    );
    let command = stage.command(thread, eve, "approve", options(&[("id", "abc-7")]));
    assert_eq!(
        stage.shown(command).await,
        "approving needs the role Approver"
    );
    let command = stage.command(
        thread,
        stage.ada,
        "deny",
        options(&[("id", "abc-7"), ("reason", "not today")]),
    );
    assert_eq!(stage.shown(command).await, "Denied: git push origin main");
    stage.double.look(|state| {
        let decision = &state.decisions[0];
        assert_eq!(decision.reason, "not today");
        // By command as by message: the same id, the same roles.
        assert_eq!(decision.author.as_ref().unwrap(), &state.inputs[0].author);
    });
    stage.double.answer(input, Ok("not pushed"), 5);
    stage.check().await;
}

#[tokio::test]
async fn every_command_answers() {
    let stage = Stage::ready().await;
    let (thread, input, _) = asked(&stage, "abc-7").await;
    let waiting = stage.post(thread, "and then this");
    stage
        .double
        .until("it waits", |state| {
            state.input(&waiting.to_string()).cloned()
        })
        .await;
    for (name, given, expected) in [
        ("help", options(&[]), "`/stop`"),
        ("status", options(&[]), "Conversation 1: **requesting**"),
        (
            "pending",
            options(&[]),
            "`abc-7` bash `git push origin main`",
        ),
        (
            "usage",
            options(&[]),
            "3 requests, 1000 tokens in (0 cached), 50 out, $1.23",
        ),
        ("queue", options(&[]), "2. and then this"),
        ("queue", options(&[("withdraw", "2")]), "Withdrawn."),
        ("queue", options(&[]), "Nothing waits."),
        (
            "approve",
            options(&[("id", "abc-7")]),
            "Approved: git push origin main",
        ),
        ("stop", options(&[]), "Stopped."),
        ("stop", options(&[]), "Nothing is running here."),
    ] {
        let command = stage.command(thread, stage.ada, name, given);
        let shown = stage.shown(command).await;
        assert!(shown.contains(expected), "/{name}: {shown}");
    }
    stage.double.act(|state| state.answers_itself = true);
    let command = stage.command(
        stage.channel,
        stage.ada,
        "new",
        options(&[("text", "start here")]),
    );
    let shown = stage.shown(command).await;
    let opened: u64 = shown
        .trim_start_matches("Started in <#")
        .trim_end_matches(">.")
        .parse()
        .unwrap();
    stage.answered(opened, "answer to start here").await;
    let act = Act::Complete {
        name: "approve".into(),
        options: json!([{"name": "id", "type": 3, "value": "GIT", "focused": true}]),
    };
    stage.double.ask("abc-9", input, "git fetch");
    let typed = stage
        .standin
        .act(|world| world.interact(stage.me, thread, stage.ada, act));
    let choices = stage
        .until("the choices", |world| {
            world.interactions[&typed]
                .callback
                .as_ref()
                .map(|c| c["data"]["choices"].clone())
        })
        .await;
    assert!(
        choices
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["value"] == "abc-9"),
        "{choices}"
    );
    stage.check().await;
}

#[tokio::test]
async fn f56_commands_are_registered_once_and_not_at_every_start() {
    let mut stage = Stage::ready().await;
    let registered =
        |world: &mooring_discord_standin::world::World| world.ledger.count("PUT", "/commands", 200);
    stage
        .until("they are registered", |world| {
            (registered(world) == 1).then_some(())
        })
        .await;
    stage.kill().await;
    stage.start().await;
    stage.bot.as_mut().unwrap().said("\"changed\":false").await;
    assert_eq!(stage.standin.look(registered), 1);
    stage.check().await;
}
