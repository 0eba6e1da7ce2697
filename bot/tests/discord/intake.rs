//! Messages to inputs: nothing lost, nothing twice.

use std::time::Duration;

use mooring_discord_standin::act::Draft;
use mooring_discord_standin::fault::{DispatchFaultKind, FaultKind};
use mooring_discord_standin::world::{FORUM, TEXT};
use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn f11_a_message_that_the_gateway_never_brought_is_found_by_the_sweep() {
    let mut stage = Stage::set(TEXT, "").await;
    stage.sweep = 1;
    stage.start().await;
    let thread = stage.conversation().await;
    stage.dispatch_fault("MESSAGE_CREATE", DispatchFaultKind::Drop);
    stage.post(thread, "lost on the way");
    // A later message that does come must not hide it.
    stage.post(thread, "came");
    stage.answered(thread, "answer to came").await;
    stage.answered(thread, "answer to lost on the way").await;
    stage.check().await;
}

#[tokio::test]
async fn f13_a_paste_that_was_split_while_the_bot_was_down_is_one_input_too() {
    let mut stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.kill().await;
    let first = stage.post(thread, &"b".repeat(1_999));
    stage.post(thread, "end");
    stage.start().await;
    let input = stage
        .double
        .until("the joined input", |state| {
            state.input(&first.to_string()).cloned()
        })
        .await;
    assert_eq!(input.thread.also_message_ids.len(), 1);
    assert_eq!(stage.double.look(|state| state.inputs.len()), 2);
    stage.check().await;
}

#[tokio::test]
async fn f14_a_dispatch_that_comes_twice_is_one_run() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.dispatch_fault("MESSAGE_CREATE", DispatchFaultKind::Duplicate);
    stage.post(thread, "once");
    stage.answered(thread, "answer to once").await;
    stage
        .double
        .until("both were submitted", |state| {
            (state.submits >= 3).then_some(())
        })
        .await;
    assert_eq!(stage.double.look(|state| state.inputs.len()), 2);
    stage.check().await;
}

#[tokio::test]
async fn a_dispatch_out_of_order_and_one_that_cannot_be_read_are_both_answered() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.dispatch_fault("MESSAGE_CREATE", DispatchFaultKind::Swap);
    stage.post(thread, "one");
    stage.post(thread, "two");
    stage.answered(thread, "answer to one").await;
    stage.answered(thread, "answer to two").await;
    stage.settled().await;
    stage.dispatch_fault("MESSAGE_CREATE", DispatchFaultKind::Malform);
    stage.post(thread, "three");
    stage.answered(thread, "answer to three").await;
    stage.check().await;
}

#[tokio::test]
async fn an_item_of_history_that_cannot_be_read_hides_no_other() {
    let mut stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.kill().await;
    for n in 0..3 {
        stage.post(thread, &format!("missed {n}"));
    }
    // Newest first: the item in the middle.
    stage.fault(
        "GET",
        format!("/channels/{thread}/messages"),
        1,
        FaultKind::Garble { item: 1 },
    );
    stage.start().await;
    for n in 0..3 {
        stage
            .answered(thread, &format!("answer to missed {n}"))
            .await;
    }
    stage.check().await;
}

#[tokio::test]
async fn f10_a_message_is_not_dropped_when_the_harness_refuses_for_a_moment() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.double.act(|state| state.cut_submits = 2);
    let message = stage.post(thread, "in a bad moment");
    stage.answered(thread, "answer to in a bad moment").await;
    assert_eq!(
        stage.double.look(|state| state
            .inputs
            .iter()
            .filter(|i| i.request_id == message.to_string())
            .count()),
        1
    );
    stage.check().await;
}

#[tokio::test]
async fn f23_f25_while_the_harness_is_away_the_message_is_held_and_no_error_is_shown() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    stage.settled().await;
    let before = stage.own(thread).len();
    stage.double.act(|state| state.away = true);
    let message = stage.post(thread, "are you there?");
    stage
        .until("the waking sign", |world| {
            world
                .message(thread, message)?
                .reactions
                .contains_key("⏳")
                .then_some(())
        })
        .await;
    assert_eq!(
        stage.own(thread).len(),
        before,
        "nothing is said while it is retried"
    );
    stage.double.act(|state| state.away = false);
    stage.answered(thread, "answer to are you there?").await;
    stage
        .until("the sign is taken away", |world| {
            (!world.message(thread, message)?.reactions.contains_key("⏳")).then_some(())
        })
        .await;
    stage.check().await;
}

#[tokio::test]
async fn f34_an_attachment_is_fetched_at_receipt_and_f35_one_that_fails_is_said() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    // The link would be dead by the time the harness is back.
    stage.double.act(|state| state.away = true);
    let files = vec![
        ("shot.png".to_owned(), vec![1u8; 64].into()),
        ("notes.txt".to_owned(), b"remember the milk".to_vec().into()),
        ("film.bin".to_owned(), vec![0u8; 1 << 20].into()),
    ];
    let draft = Draft {
        content: "look".into(),
        attachments: files,
        ..Draft::default()
    };
    let message = stage
        .standin
        .act(|world| world.write(thread, stage.ada, draft));
    stage
        .until("the waking sign", |world| {
            world
                .message(thread, message)?
                .reactions
                .contains_key("⏳")
                .then_some(())
        })
        .await;
    stage
        .standin
        .act(|world| world.clock.advance(48 * 3_600_000));
    stage.double.act(|state| state.away = false);
    let input = stage
        .double
        .until("the input", |state| {
            state.input(&message.to_string()).cloned()
        })
        .await;
    assert_eq!(input.images, 1);
    assert!(input.text.contains("remember the milk"));
    let said = stage.answered(thread, "-# Not taken").await;
    assert!(said.content.contains("film.bin") && !said.content.contains("shot.png"));
    // F35: a download that fails stops neither the message nor the thread.
    stage.fault(
        "GET",
        "/attachments/",
        1,
        FaultKind::Status {
            status: 500,
            body: json!({}),
        },
    );
    let files = vec![("broken.png".to_owned(), vec![1u8; 64].into())];
    let draft = Draft {
        content: "and this".into(),
        attachments: files,
        ..Draft::default()
    };
    stage
        .standin
        .act(|world| world.write(thread, stage.ada, draft));
    stage.answered(thread, "answer to and this").await;
    stage.post(thread, "still here");
    stage.answered(thread, "answer to still here").await;
    stage.check().await;
}

#[tokio::test]
async fn f62_a_forum_post_is_a_conversation_and_its_first_message_the_input() {
    let mut stage = Stage::set(FORUM, ", respondTo: All").await;
    stage.start().await;
    let draft = |text: &str| Draft {
        content: text.into(),
        ..Draft::default()
    };
    let thread = stage
        .standin
        .act(|world| world.post_in_forum(stage.channel, stage.ada, "a question", draft("how?")));
    let answer = stage.answered(thread, "answer to how?").await;
    assert_eq!(answer.reply_to, Some(thread));
    stage.settled().await;
    stage.kill().await;
    let missed = stage
        .standin
        .act(|world| world.post_in_forum(stage.channel, stage.ada, "another", draft("while down")));
    stage.start().await;
    stage.answered(missed, "answer to while down").await;
    stage.check().await;
}

#[tokio::test]
async fn f53_bots_are_ignored_and_a_stranger_is_told_once() {
    let stage = Stage::ready().await;
    let thread = stage.conversation().await;
    let (bot, eve) = stage.standin.act(|world| {
        let bot = world.add_user("another bot", true);
        let eve = world.add_user("eve", false);
        for user in [bot, eve] {
            world.add_member(stage.guild, user, &[]);
        }
        (bot, eve)
    });
    stage
        .double
        .act(|state| state.strangers.push(eve.to_string()));
    stage.post_as(thread, bot, &format!("<@{}> hello, colleague", stage.me));
    let first = stage.post_as(thread, eve, "let me in");
    stage
        .until("the sign", |world| {
            world
                .message(thread, first)?
                .reactions
                .contains_key("🔒")
                .then_some(())
        })
        .await;
    let second = stage.post_as(thread, eve, "let me in!");
    stage.post(thread, "and I?");
    stage.answered(thread, "answer to and I?").await;
    stage.standin.look(|world| {
        assert!(world.message(thread, second).unwrap().reactions.is_empty());
    });
    assert_eq!(stage.double.look(|state| state.inputs.len()), 2);
    stage.check().await;
}

#[tokio::test]
async fn a_busy_thread_says_whether_a_message_waits_or_is_refused() {
    for (setting, sign) in [("Queue", "📥"), ("Reject", "✋")] {
        let mut stage = Stage::set(TEXT, &format!(", whenBusy: {setting}")).await;
        stage.start().await;
        stage.double.act(|state| state.answers_itself = false);
        let thread = stage.mention("long work");
        let running = stage
            .double
            .until("the run", |state| {
                state.input(&thread.to_string()).map(|i| i.id)
            })
            .await;
        stage.answered(thread, "-# ⏳").await;
        let message = stage.post(thread, "meanwhile");
        stage
            .until(setting, |world| {
                world
                    .message(thread, message)?
                    .reactions
                    .contains_key(sign)
                    .then_some(())
            })
            .await;
        stage.double.act(|state| state.answers_itself = true);
        stage.double.answer(running, Ok("done"), 5);
        stage.answered(thread, "done").await;
        stage.check().await;
    }
}

#[tokio::test]
async fn f37_the_typing_sign_is_up_while_a_run_is_active_and_an_error_keeps_the_anchor() {
    let stage = Stage::ready().await;
    stage.double.act(|state| state.answers_itself = false);
    let thread = stage.mention("work");
    let running = stage
        .double
        .until("the run", |state| {
            state.input(&thread.to_string()).map(|i| i.id)
        })
        .await;
    let path = format!("/channels/{thread}/typing");
    stage
        .until("typing", |world| {
            (world.ledger.count("POST", &path, 204) > 0).then_some(())
        })
        .await;
    stage
        .double
        .answer(running, Err("error: the model said no"), 5);
    // F37: an error leaves the trail of the run: the anchor is edited, not deleted.
    let end = stage.answered(thread, "No answer: error.").await;
    assert!(end.content.contains("the model said no"));
    stage.settled().await;
    let count = stage
        .standin
        .look(|world| world.ledger.count("POST", &path, 204));
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(
        stage
            .standin
            .look(|world| world.ledger.count("POST", &path, 204)),
        count
    );
    stage.check().await;
}

#[tokio::test]
async fn f11_what_is_said_in_a_thread_that_is_just_being_opened_comes_after_its_first_input() {
    let stage = Stage::ready().await;
    stage.double.act(|state| state.takes_nothing = true);
    let thread = stage.mention("first");
    stage
        .until("the thread", |world| {
            world.channels.get(&thread).map(|_| ())
        })
        .await;
    stage
        .double
        .until("a first try", |state| (state.submits > 0).then_some(()))
        .await;
    // It has no conversation yet, and nobody is mentioned; no sweep comes for minutes.
    stage.post(thread, "second");
    stage.double.act(|state| state.takes_nothing = false);
    stage.answered(thread, "answer to second").await;
    let order = stage.double.look(|state| {
        let texts = state.inputs.iter().map(|input| input.text.clone());
        texts.collect::<Vec<_>>()
    });
    assert_eq!(order, ["first", "second"]);
    stage.check().await;
}
