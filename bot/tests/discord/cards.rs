//! Approval cards, buttons and slash commands.

use std::time::Duration;

use mooring_discord_standin::fault::FaultKind;
use mooring_discord_standin::world::Message;
use serde_json::json;

use crate::stage::Stage;

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
