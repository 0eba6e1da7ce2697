//! The connection: resumed, supervised, within its budget.

use mooring_discord_standin::fault::FaultKind;
use mooring_discord_standin::gateway::{GatewayAct, act_on_gateway};
use mooring_discord_standin::world::{TEXT, World};

use crate::stage::{Program, Stage, TOKEN, get};

fn count(what: &'static str) -> impl Fn(&World) -> usize {
    move |world| world.ledger.gateway_count(what)
}

#[tokio::test]
async fn f01_a_connection_that_is_cut_is_resumed_and_nothing_is_lost() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    for (n, act) in [
        GatewayAct::Cut,
        GatewayAct::Reconnect,
        GatewayAct::Close(4000),
        GatewayAct::InvalidSession(true),
    ]
    .into_iter()
    .enumerate()
    {
        stage.standin.act(|world| act_on_gateway(world, act));
        stage.post(thread, &format!("meanwhile {n}"));
        stage
            .answered(thread, &format!("answer to meanwhile {n}"))
            .await;
        stage
            .until("resumed", |world| {
                (count("resumed")(world) == n + 1).then_some(())
            })
            .await;
    }
    assert_eq!(stage.standin.look(count("identify")), 1);
    stage.check().await;
}

#[tokio::test]
async fn f01_after_a_session_that_cannot_be_resumed_history_is_read_from_the_cursor() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.standin.act(|world| {
        world.gateway_down = true;
        act_on_gateway(world, GatewayAct::InvalidSession(false));
    });
    stage
        .until("the session is gone", |world| {
            (world.connected() == 0).then_some(())
        })
        .await;
    stage.post(thread, "in the gap");
    stage.standin.act(|world| world.gateway_down = false);
    stage.answered(thread, "answer to in the gap").await;
    assert_eq!(stage.standin.look(count("identify")), 2);
    stage.check().await;
}

#[tokio::test]
async fn a_connection_that_hears_nothing_is_given_up_and_resumed() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage
        .standin
        .act(|world| act_on_gateway(world, GatewayAct::Zombie));
    stage.post(thread, "anybody?");
    stage.answered(thread, "answer to anybody?").await;
    assert!(stage.standin.look(count("resumed")) >= 1);
    stage.check().await;
}

#[tokio::test]
async fn f02_the_bot_is_not_ready_before_it_has_caught_up() {
    let mut stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.settled().await;
    stage.kill().await;
    stage.post(thread, "missed");
    let path = format!("/channels/{thread}/messages");
    stage.fault("GET", path, 1, FaultKind::Delay { ms: 2_000 });
    stage.launch().await;
    let health = stage.bot.as_mut().unwrap().health().await;
    stage
        .bot
        .as_mut()
        .unwrap()
        .said("the gateway is ready")
        .await;
    assert!(
        !get(&health, "/readyz").await.0,
        "connected, and not caught up"
    );
    assert!(get(&health, "/healthz").await.0);
    stage.bot.as_mut().unwrap().ready().await;
    assert!(
        stage
            .double
            .look(|state| state.inputs.iter().any(|input| input.text == "missed"))
    );
    stage.answered(thread, "answer to missed").await;
    stage.check().await;
}

#[tokio::test]
async fn f07_the_bot_comes_back_by_itself_when_the_gateway_was_away_and_says_so_meanwhile() {
    let mut stage = Stage::ready().await;
    let thread = stage.conversation().await;
    let health = stage.bot.as_mut().unwrap().health().await;
    stage.standin.act(|world| {
        world.gateway_down = true;
        act_on_gateway(world, GatewayAct::Cut);
    });
    stage
        .bot
        .as_mut()
        .unwrap()
        .said("gateway cannot be reached")
        .await;
    assert!(
        !get(&health, "/readyz").await.0,
        "not ready without a connection"
    );
    stage.post(thread, "hello?");
    stage.standin.act(|world| world.gateway_down = false);
    stage.answered(thread, "answer to hello?").await;
    stage.bot.as_mut().unwrap().ready().await;
    stage.check().await;
}

#[tokio::test]
async fn f08_the_identify_budget_holds_across_restarts() {
    let mut stage = Stage::set(TEXT, "").await;
    stage.standin.act(|world| {
        let now = world.clock.now_ms();
        let application = world.applications.values_mut().next().unwrap();
        application.identifies_left = 12;
        application.identifies_reset_ms = now + 8_000;
    });
    for _ in 0..2 {
        stage.launch().await;
        stage
            .bot
            .as_mut()
            .unwrap()
            .said("identifies are spent")
            .await;
        stage.kill().await;
    }
    assert_eq!(
        stage.standin.look(count("identify")),
        0,
        "the rest is left alone"
    );
    stage.start().await;
    assert_eq!(stage.standin.look(count("identify")), 1);
    stage.check().await;
}

#[tokio::test]
async fn f08_two_identifies_are_five_seconds_apart() {
    let stage = Stage::ready().await;
    stage
        .standin
        .act(|world| world.settings.identify_interval_ms = 5_000);
    stage
        .standin
        .act(|world| act_on_gateway(world, GatewayAct::InvalidSession(false)));
    let thread = stage.mention("still there?");
    stage.answered(thread, "answer to still there?").await;
    assert_eq!(stage.standin.look(count("identify")), 2);
    assert_eq!(
        stage.standin.look(count("invalid")),
        0,
        "none came too soon"
    );
    stage.check().await;
}

#[tokio::test]
async fn a_close_code_that_is_final_ends_the_bot_with_a_clear_error() {
    for (code, text) in [
        (4004, "refuses the token"),
        (4010, "closed the gateway with 4010"),
        (4011, "closed the gateway with 4011"),
        (4012, "closed the gateway with 4012"),
        (4013, "closed the gateway with 4013"),
        (4014, "Message Content Intent"),
    ] {
        let mut stage = Stage::ready().await;
        stage
            .standin
            .act(|world| act_on_gateway(world, GatewayAct::Close(code)));
        let (status, said) = stage.bot.take().unwrap().ended().await;
        assert_eq!(status, Some(1), "{code}: {said}");
        assert!(said.contains(text), "{code}: {said}");
        assert_eq!(stage.standin.look(count("identify")), 1, "no retry");
    }
}

#[tokio::test]
async fn a_wrong_token_and_a_missing_intent_are_clear_errors_at_the_start() {
    let stage = Stage::set(TEXT, "").await;
    let bot = Program::start(&stage.standin, stage.folder.path(), "wrong", 300).await;
    let (status, said) = bot.ended().await;
    assert_eq!(status, Some(1));
    assert!(said.contains("refuses the token"), "{said}");
    stage
        .standin
        .act(|world| world.applications.values_mut().next().unwrap().privileged = 0);
    let bot = Program::start(&stage.standin, stage.folder.path(), TOKEN, 300).await;
    let (status, said) = bot.ended().await;
    assert_eq!(status, Some(1));
    assert!(said.contains("Message Content Intent"), "{said}");
}
